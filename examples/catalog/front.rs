//! The page, its figures and its buttons.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_stream::wrappers::IntervalStream;

use crate::args::Args;
use crate::demo::{Demo, Switch};
use crate::fleet::Fleet;
use crate::postgres_server::PostgresServer;
use crate::redis_server::RedisServer;
use crate::{Fault, changes, listen, of_this_origin, source};

/// How many processes share a Redis.
const PROCESSES: u16 = 3;
/// How often the page has new figures.
const PACE: Duration = Duration::from_millis(500);
const NO_REDIS: &str =
    "This needs Redis, by which the instances hear of changes. Install it, and start again.";
const NO_POSTGRES: &str = "This needs PostgreSQL. Install it (Debian: apt-get install postgresql; macOS: brew install \
                           postgresql), and start again; or give one by --database postgres://…";
const GUIDE: &str = include_str!("../../src/guide/getting_started.md");

/// Markup with style and script in it: nothing else is asked for.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page/page.html")
        .replace("/* style.css */", include_str!("page/style.css"))
        .replace("/* page.js */", include_str!("page/page.js"))
        .replace("<!-- code -->", &code())
});

type Shared = State<Arc<Demo>>;

#[derive(Deserialize)]
struct Position {
    on: bool,
}

/// Starts the processes, and serves until this one is interrupted.
pub(crate) async fn run(args: &Args) -> Result<(), Fault> {
    let page = listen(args.listen).await?;
    let redis = if args.store.is_none() { RedisServer::start().await? } else { None };
    let own = redis.as_ref().map(RedisServer::url);
    let store = args.store.as_deref().or(own.as_deref()).unwrap_or("memory");
    let (kind, processes) = if store == "memory" { ("memory", 1) } else { ("Redis", PROCESSES) };
    eprintln!("catalog: preparing the database, which takes some seconds");
    let postgres = match args.database {
        None if store != "memory" => own_postgres().await,
        _ => None,
    };
    let given = args.database.as_deref().filter(|url| *url != "sqlite");
    let given = given.or_else(|| postgres.as_ref().map(|server| &*server.url));
    let database = source::prepare(given).await?;
    let recorded = match &*database {
        _ if store == "memory" => Err(NO_REDIS),
        url if url.starts_with("postgres") => {
            changes::record(url).await?;
            Ok(database.clone())
        }
        _ => Err(NO_POSTGRES),
    };
    let fleet = Fleet::start(args, store, &database, processes).await?;
    let urls = fleet.urls().join(" ");
    println!("catalog: http://{} (processes: {urls})", page.local_addr()?);
    Ok(axum::serve(page, routes(Demo::new(fleet, kind, redis, recorded))).await?)
}

/// A PostgreSQL, if it is installed and starts.
async fn own_postgres() -> Option<PostgresServer> {
    PostgresServer::start().await.unwrap_or_else(|fault| {
        eprintln!("catalog: no PostgreSQL: {fault}");
        None
    })
}

fn routes(demo: Demo) -> Router {
    let guide = async || ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], GUIDE);
    Router::new()
        .route("/", get(async || Html(&**PAGE)))
        .route("/guide", get(guide))
        .route("/events", get(events))
        .route("/demo/burst", post(async |State(demo): Shared| answer(demo.burst().await)))
        .route("/demo/race", post(async |State(demo): Shared| answer(demo.race().await)))
        .route("/demo/sql", post(async |State(demo): Shared| answer(demo.change_by_sql().await)))
        .route("/demo/outage/{switch}", post(outage))
        .route("/demo/{switch}", post(set))
        .layer(from_fn(of_this_origin))
        .with_state(Arc::new(demo))
}

async fn set(
    State(demo): Shared,
    Path(switch): Path<Switch>,
    Query(position): Query<Position>,
) -> Response {
    answer(demo.set(switch, position.on).await)
}

/// It goes on if the page leaves, so that nothing stays down.
async fn outage(State(demo): Shared, Path(of): Path<Switch>) -> Response {
    let ended = tokio::spawn(async move { demo.outage(of).await }).await;
    answer(ended.unwrap_or_else(|fault| Err(fault.into())))
}

/// The figures, again and again, until a process is gone.
async fn events(State(demo): Shared) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let moments = IntervalStream::new(tokio::time::interval(PACE));
    let figures = moments.then(move |_| {
        let demo = Arc::clone(&demo);
        async move { serde_json::to_string(&demo.figures().await.ok()?).ok() }
    });
    let figures = figures.take_while(|figures| std::future::ready(figures.is_some()));
    Sse::new(figures.map(|figures| Ok(Event::default().data(figures.unwrap_or_default()))))
}

fn answer(done: Result<impl Serialize, Fault>) -> Response {
    match done {
        Ok(done) => Json(done).into_response(),
        Err(fault) => {
            let error = json!({ "error": fault.to_string() });
            (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
        }
    }
}

/// The functions of the protected way, as markup.
fn code() -> String {
    let code = include_str!("protected.rs");
    let functions = code.find("pub(crate) fn").map_or("", |start| &code[start..]);
    let shown = functions.replace("pub(crate) ", "");
    shown.replace('&', "&amp;").replace('<', "&lt;").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_document_that_needs_no_other() {
        for foreign in [
            "src=",
            "@import",
            "<link rel=\"stylesheet",
            "/* style.css */",
            "/* page.js */",
            "<!-- code -->",
        ] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_page_has_the_code_of_the_protected_way() {
        let code = code();
        let lines = code.lines().filter(|line| !line.is_empty()).count();
        assert!((10..=20).contains(&lines), "{code}");
        assert!(code.contains(".get_or_load(sku,") && code.contains(".change(sku,"), "{code}");
        assert!(PAGE.contains(&code));
    }
}

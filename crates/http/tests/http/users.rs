//! A hundred users of one service with responses for all, for some, or for one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether::store::Store;
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use http::Request;

use crate::origin::{Origin, Page, ask, cached, is_hit, page, plain, redis, text};

const USERS: usize = 100;
/// Each user asks for each page twenty times.
const REQUESTS: usize = 20 * USERS * PAGES.len();
const LANGUAGES: [&str; 3] = ["de", "en", "fr"];

type Fields = &'static [(&'static str, &'static str)];

/// The header fields of a response, and which users may get it.
const PAGES: [(&str, Audience, Fields); 14] = [
    ("/news", Audience::All, &[("cache-control", "public, max-age=60")]),
    ("/terms", Audience::All, &[("cache-control", "s-maxage=60")]),
    ("/prices", Audience::All, &[("cache-control", "public, max-age=1")]),
    (
        "/help",
        Audience::Speakers,
        &[("cache-control", "public, max-age=60"), ("vary", "accept-language")],
    ),
    (
        "/old",
        Audience::Speakers,
        &[("cache-control", "public, max-age=0"), ("vary", "Accept-Language"), ("etag", "\"1\"")],
    ),
    ("/cart", Audience::Own, &[("cache-control", "private, max-age=60")]),
    ("/inbox", Audience::Own, &[("cache-control", "no-store")]),
    (
        "/login",
        Audience::Own,
        &[("cache-control", "public, max-age=60"), ("set-cookie", "session=1")],
    ),
    ("/home", Audience::Own, &[("cache-control", "public, max-age=60"), ("vary", "cookie")]),
    (
        "/orders",
        Audience::Own,
        &[("cache-control", "public, max-age=60"), ("vary", "accept-language, Authorization")],
    ),
    ("/any", Audience::Own, &[("cache-control", "public, max-age=60"), ("vary", "*")]),
    ("/plain", Audience::Own, &[]),
    (
        "/account",
        Audience::Own,
        &[("cache-control", "max-age=60, private=\"set-cookie\", no-cache, private")],
    ),
    (
        "/edge",
        Audience::Own,
        &[("cache-control", "public, max-age=60"), ("cdn-cache-control", "private")],
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Audience {
    All,
    /// All users that ask in the same language.
    Speakers,
    Own,
}

/// The service. A response for one user has that user's mark in it.
fn service() -> Origin {
    Origin::new(async |request: Request<_>, _| {
        let response = answer(&request);
        tokio::task::yield_now().await;
        Ok(response)
    })
}

fn answer(request: &Request<Body>) -> Page {
    let said = |name| request.headers().get(name).map_or("", |said| said.to_str().unwrap());
    let (_, audience, fields) = of(request.uri().path());
    page(
        fields,
        match audience {
            Audience::All => "for all users".to_owned(),
            Audience::Speakers => said("accept-language").to_owned(),
            Audience::Own => mark(said("cookie")),
        },
    )
}

fn of(path: &str) -> (&'static str, Audience, Fields) {
    *PAGES.iter().find(|(there, ..)| *there == path).expect("a page")
}

fn mark(cookie: &str) -> String {
    format!("secret of {cookie}")
}

/// Sends the requests of all users concurrently. Returns the number of hits by page.
async fn ask_all(store: impl Store) -> BTreeMap<&'static str, usize> {
    let origin = service();
    let cache = cached(&plain(store).build().unwrap(), &origin);
    let users = (0..USERS).map(async |user| {
        let cookie = format!("user={user}");
        let bearer = format!("Bearer {user}");
        let language = LANGUAGES[user % LANGUAGES.len()];
        let mut hits = BTreeMap::<_, usize>::new();
        for nth in 0..REQUESTS / USERS {
            let (path, audience, _) = PAGES[(nth + user) % PAGES.len()];
            let mut fields = vec![("accept-language", language), ("cookie", cookie.as_str())];
            if nth % 2 == 0 {
                fields.push(("authorization", &bearer));
            }
            let answer = ask(&cache, "GET", &format!("http://shop{path}"), &fields).await;
            *hits.entry(path).or_default() += usize::from(is_hit(&answer));
            let wanted = match audience {
                Audience::All => "for all users".to_owned(),
                Audience::Speakers => language.to_owned(),
                Audience::Own => mark(&cookie),
            };
            assert_eq!(text(answer).await, wanted, "{path} for user {user}");
        }
        hits
    });
    let mut all = BTreeMap::<_, usize>::new();
    for (path, hits) in join_all(users).await.into_iter().flatten() {
        *all.entry(path).or_default() += hits;
    }
    all
}

/// Responses for all users must be shared, or the test would show nothing.
fn check_hits(hits: &BTreeMap<&'static str, usize>) {
    for (path, audience, _) in PAGES {
        match audience {
            Audience::Own => assert_eq!(hits[path], 0, "{path}"),
            _ if path == "/old" => {}
            _ => assert!(hits[path] > REQUESTS / PAGES.len() / 2, "{path}: {hits:?}"),
        }
    }
}

/// Everything that the Redis server stores.
fn dump(server: &RedisServer) -> Vec<String> {
    let Reply::Array(names) = server.command(&["KEYS", "*"]) else { panic!("no list") };
    let bytes = |name: Reply| server.try_command(&["GET", &name.text()]);
    names.into_iter().map(|name| format!("{:?}", bytes(name))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_users_are_given_nothing_of_each_other() {
    check_hits(&ask_all(MemoryStore::new(10_000)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_users_are_given_nothing_of_each_other_and_redis_never_has_what_is_one_s_own() {
    let (server, store) = redis().await;
    let asked = ask_all(store);
    tokio::pin!(asked);
    let mut looked = 0;
    let hits = loop {
        tokio::select! {
            hits = &mut asked => break hits,
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
        }
        assert!(dump(&server).iter().all(|kept| !kept.contains("secret")));
        looked += 1;
    };
    check_hits(&hits);
    let kept = dump(&server);
    assert!(kept.iter().any(|kept| kept.contains("for all users")), "{kept:?}");
    assert!(looked > 0 && kept.iter().all(|kept| !kept.contains("secret")));
}

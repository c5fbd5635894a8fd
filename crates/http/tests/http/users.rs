//! A hundred users of one service, whose answers are for all, for some, or for one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use bellwether::{MemoryStore, Store};
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use http::Request;

use crate::origin::{Origin, Page, ask, cached, is_hit, page, plain, redis, text};

const USERS: usize = 100;
const REQUESTS: usize = 100_000;
const LANGUAGES: [&str; 3] = ["de", "en", "fr"];

type Fields = &'static [(&'static str, &'static str)];

/// What an answer says of itself, and who may be given it.
const PAGES: [(&str, Whose, Fields); 14] = [
    ("/news", Whose::Everybodys, &[("cache-control", "public, max-age=60")]),
    ("/terms", Whose::Everybodys, &[("cache-control", "s-maxage=60")]),
    ("/prices", Whose::Everybodys, &[("cache-control", "public, max-age=1")]),
    (
        "/help",
        Whose::Speakers,
        &[("cache-control", "public, max-age=60"), ("vary", "accept-language")],
    ),
    (
        "/old",
        Whose::Speakers,
        &[("cache-control", "public, max-age=0"), ("vary", "Accept-Language"), ("etag", "\"1\"")],
    ),
    ("/cart", Whose::Own, &[("cache-control", "private, max-age=60")]),
    ("/inbox", Whose::Own, &[("cache-control", "no-store")]),
    ("/login", Whose::Own, &[("cache-control", "public, max-age=60"), ("set-cookie", "session=1")]),
    ("/home", Whose::Own, &[("cache-control", "public, max-age=60"), ("vary", "cookie")]),
    (
        "/orders",
        Whose::Own,
        &[("cache-control", "public, max-age=60"), ("vary", "accept-language, Authorization")],
    ),
    ("/any", Whose::Own, &[("cache-control", "public, max-age=60"), ("vary", "*")]),
    ("/plain", Whose::Own, &[]),
    (
        "/account",
        Whose::Own,
        &[("cache-control", "max-age=60, private=\"set-cookie\", no-cache, private")],
    ),
    (
        "/edge",
        Whose::Own,
        &[("cache-control", "public, max-age=60"), ("cdn-cache-control", "private")],
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Everybodys,
    /// All who asked in the same language.
    Speakers,
    Own,
}

/// The service. What is for one user has that user's mark in it.
fn service() -> Origin {
    Origin::new(async |request: Request<_>, _| {
        let response = answer(&request);
        tokio::task::yield_now().await;
        Ok(response)
    })
}

fn answer(request: &Request<Body>) -> Page {
    let said = |name| request.headers().get(name).map_or("", |said| said.to_str().unwrap());
    let (_, whose, fields) = of(request.uri().path());
    page(
        fields,
        match whose {
            Whose::Everybodys => "everybody's".to_owned(),
            Whose::Speakers => said("accept-language").to_owned(),
            Whose::Own => mark(said("cookie")),
        },
    )
}

fn of(path: &str) -> (&'static str, Whose, Fields) {
    *PAGES.iter().find(|(there, ..)| *there == path).expect("a page")
}

fn mark(cookie: &str) -> String {
    format!("secret of {cookie}")
}

/// What all users ask, all at once; how many of the answers were hits, by page.
async fn ask_all(store: impl Store) -> BTreeMap<&'static str, usize> {
    let origin = service();
    let cache = cached(&plain(store), &origin);
    let users = (0..USERS).map(async |user| {
        let (cookie, bearer) = (format!("user={user}"), format!("Bearer {user}"));
        let language = LANGUAGES[user % LANGUAGES.len()];
        let mut hits = BTreeMap::<_, usize>::new();
        for nth in 0..REQUESTS / USERS {
            let (path, whose, _) = PAGES[(nth + user) % PAGES.len()];
            let mut fields = vec![("accept-language", language), ("cookie", cookie.as_str())];
            if nth % 2 == 0 {
                fields.push(("authorization", &bearer));
            }
            let answer = ask(&cache, "GET", &format!("http://shop{path}"), &fields).await;
            *hits.entry(path).or_default() += usize::from(is_hit(&answer));
            let wanted = match whose {
                Whose::Everybodys => "everybody's".to_owned(),
                Whose::Speakers => language.to_owned(),
                Whose::Own => mark(&cookie),
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

/// What is for all is shared, or else nothing would be shown.
fn check_hits(hits: &BTreeMap<&'static str, usize>) {
    for (path, whose, _) in PAGES {
        match whose {
            Whose::Own => assert_eq!(hits[path], 0, "{path}"),
            _ if path == "/old" => {}
            _ => assert!(hits[path] > REQUESTS / PAGES.len() / 2, "{path}: {hits:?}"),
        }
    }
}

/// Everything that the server keeps.
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
    assert!(kept.iter().any(|kept| kept.contains("everybody's")), "{kept:?}");
    assert!(looked > 0 && kept.iter().all(|kept| !kept.contains("secret")));
}

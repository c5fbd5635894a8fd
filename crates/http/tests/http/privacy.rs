//! What one user asks for is given to no other, though both ask at the same time.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use tokio::time::sleep;

use crate::origin::{Answer, Origin, cached, field, get, memory, page, text};

const LOAD: Duration = Duration::from_millis(50);

type Fields = &'static [(&'static str, &'static str)];

fn said(request: &Request<Body>, name: &str) -> String {
    request.headers().get(name).map_or("", |said| said.to_str().unwrap()).to_owned()
}

/// What two users are given who ask at the same time, by a field that tells them apart.
async fn two_users(by: &'static str, fields: Fields) -> [String; 2] {
    let origin = Origin::new(async move |request: Request<_>, _| {
        sleep(LOAD).await;
        Ok(page(fields, said(&request, by)))
    });
    let cache = cached(&memory(), &origin);
    let (alice, bob) = ([(by, "alice")], [(by, "bob")]);
    let (alice, bob) = tokio::join!(get(&cache, &alice), get(&cache, &bob));
    [text(alice).await, text(bob).await]
}

#[tokio::test(start_paused = true)]
async fn what_is_never_fresh_is_given_to_nobody_else() {
    const TAG: (&str, &str) = ("etag", "\"v1\"");
    const DATE: (&str, &str) = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
    const VARIES: (&str, &str) = ("vary", "accept-language");
    for (by, fields) in [
        ("cookie", &[TAG][..]),
        ("cookie", &[TAG, VARIES]),
        ("cookie", &[TAG, ("cache-control", "max-age=0")]),
        ("cookie", &[TAG, ("cache-control", "max-age=60"), ("age", "60")]),
        ("cookie", &[DATE, ("cache-control", "max-age=0")]),
        ("cookie", &[("cache-control", "max-age=0")]),
        ("authorization", &[TAG, ("cache-control", "max-age=0, must-revalidate")]),
        ("authorization", &[TAG, ("cache-control", "s-maxage=0, max-age=60")]),
        ("authorization", &[TAG, ("cache-control", "public, no-cache")]),
    ] {
        assert_eq!(two_users(by, fields).await, ["alice", "bob"], "{by}: {fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_says_that_it_is_for_all_is_given_to_all_who_wait() {
    let fields = &[("etag", "\"v1\""), ("cache-control", "public, max-age=0")];
    assert_eq!(two_users("cookie", fields).await, ["alice", "alice"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_given_to_nobody_else_if_the_request_says_who_asks() {
    const ERROR: (&str, &str) = (":status", "500");
    for (by, fields) in [
        ("cookie", &[ERROR][..]),
        ("authorization", &[ERROR]),
        ("authorization", &[ERROR, ("cache-control", "must-revalidate")]),
    ] {
        assert_eq!(two_users(by, fields).await, ["alice", "bob"], "{by}: {fields:?}");
    }
}

/// A page of each user's own has changed when what it is about has: an origin that is asked by that
/// date says to one user that what another was given is still good.
#[tokio::test(start_paused = true)]
async fn a_date_does_not_tell_one_user_from_another() {
    let origin = Origin::new(async |request: Request<_>, _| {
        let is_dated = request.headers().contains_key("if-modified-since");
        let status = if is_dated { "304" } else { "200" };
        let dated = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
        let fields = [(":status", status), ("cache-control", "no-cache"), dated];
        Ok(page(&fields, if is_dated { String::new() } else { said(&request, "cookie") }))
    });
    let cache = cached(&memory(), &origin);
    for user in ["alice", "bob"] {
        assert_eq!(text(get(&cache, &[("cookie", user)]).await).await, user);
    }
    for _ in 0..2 {
        assert_eq!(text(get(&cache, &[]).await).await, "", "nobody's is validated");
    }
    assert!(origin.last("if-modified-since").is_some());
}

/// An origin that fails after its first answer, and gives each user an error of his own.
fn failing(first: &'static str, error: Fields) -> Origin {
    Origin::new(move |request: Request<_>, nth| async move {
        sleep(LOAD).await;
        if nth == 0 {
            return Ok(page(&[("cache-control", first)], "good"));
        }
        let who = format!("session={}", said(&request, "cookie"));
        let fields = [&[(":status", "500"), ("x-who", &who)], error].concat();
        Ok(page(&fields, format!("secret of {who}")))
    })
}

/// Errors that are for whoever asked: by what they say, or by what the request does.
const PRIVATE: [Fields; 5] = [
    &[("cache-control", "private, no-store"), ("set-cookie", "session=1")],
    &[("cache-control", "no-store")],
    &[("set-cookie", "session=1")],
    &[("vary", "cookie")],
    &[],
];

async fn assert_nothing_of_alice(answer: Answer) {
    assert!(!field(&answer, "x-who").contains("alice"), "{answer:?}");
    assert!(!text(answer).await.contains("alice"));
}

#[tokio::test(start_paused = true)]
async fn a_private_error_of_a_reload_is_for_who_reloads() {
    for error in PRIVATE {
        let cache = cached(&memory(), &failing("max-age=60", error));
        get(&cache, &[]).await;
        let reload = ("cache-control", "no-cache");
        let (alice, bob) = ([("cookie", "alice"), reload], [("cookie", "bob"), reload]);
        let (alice, bob) = tokio::join!(get(&cache, &alice), get(&cache, &bob));
        assert_eq!(text(alice).await, "secret of session=alice", "{error:?}");
        assert_nothing_of_alice(bob).await;
        assert_eq!(text(get(&cache, &[]).await).await, "good", "what is fresh stays: {error:?}");
    }
}

/// Where something better is given in its place, an error is remembered, for whoever comes when
/// that is over.
#[tokio::test(start_paused = true)]
async fn a_private_error_is_not_remembered_for_others() {
    for error in PRIVATE {
        let cache = cached(&memory(), &failing("max-age=60, stale-if-error=60", error));
        get(&cache, &[]).await;
        tokio::time::advance(Duration::from_millis(119_500)).await;
        assert_eq!(text(get(&cache, &[("cookie", "alice")]).await).await, "good", "{error:?}");
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_nothing_of_alice(get(&cache, &[("cookie", "bob")]).await).await;
    }
}

//! Callers with credentials, each with private responses.

use std::time::Duration;

use axum::body::Body;
use futures_util::future::join_all;
use http::Request;
use tokio::time::{Instant, sleep};

use crate::origin::{Answer, Origin, cached, get, is_hit, memory, page, pass, text};

const LOAD: Duration = Duration::from_millis(100);

type Cache = bellwether_http::HttpCache<Origin>;

/// An API that answers each user by name, and does not permit sharing.
fn api(load: Duration) -> Origin {
    Origin::new(move |request: Request<Body>, _| async move {
        sleep(load).await;
        let user = request.headers().get("authorization");
        let user = user.map_or("no user", |user| user.to_str().unwrap()).to_owned();
        Ok(page(&[("cache-control", "max-age=60")], user))
    })
}

async fn get_as(cache: &Cache, user: &str) -> Answer {
    get(cache, &[("authorization", user)]).await
}

/// Some users one after the other.
async fn get_as_some(cache: &Cache, users: usize) {
    for nth in 0..users {
        get_as(cache, &format!("early {nth}")).await;
    }
}

/// One request per user, a moment after each other. Returns the longest time that one took.
async fn slowest(cache: &Cache, users: u64) -> Duration {
    let asked = (0..users).map(async |nth| {
        sleep(Duration::from_millis(nth)).await;
        let user = format!("user {nth}");
        let began = Instant::now();
        assert_eq!(text(get_as(cache, &user).await).await, user);
        began.elapsed()
    });
    join_all(asked).await.into_iter().max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn users_with_tokens_do_not_wait_for_each_other() {
    // Longer than the wait limit of any caller.
    for load in [LOAD, Duration::from_secs(6)] {
        let cache = cached(&memory().build().unwrap(), &api(load));
        get_as_some(&cache, 10).await;
        for _ in 0..10 {
            assert_eq!(slowest(&cache, 10).await, load);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn users_with_tokens_do_not_wait_for_each_other_s_reloads() {
    let cache = cached(&memory().build().unwrap(), &api(LOAD));
    get_as_some(&cache, 2).await;
    get(&cache, &[]).await;
    let reload = |user| [("authorization", user), ("cache-control", "no-cache")];
    let ours = reload("we");
    let theirs = reload("they");
    let began = Instant::now();
    let (ours, theirs) = tokio::join!(get(&cache, &ours), get(&cache, &theirs));
    assert_eq!((text(ours).await, text(theirs).await), ("we".to_owned(), "they".to_owned()));
    assert_eq!(began.elapsed(), LOAD);
}

#[tokio::test(start_paused = true)]
async fn users_with_tokens_are_given_what_is_kept_for_all() {
    let origin = api(LOAD);
    let cache = cached(&memory().build().unwrap(), &origin);
    get_as(&cache, "the first").await;
    get(&cache, &[]).await;
    let kept = get_as(&cache, "the second").await;
    assert!(is_hit(&kept));
    assert_eq!((text(kept).await.as_str(), origin.asked()), ("no user", 2));
}

#[tokio::test(start_paused = true)]
async fn callers_without_tokens_share_one_load_beside_callers_with_tokens() {
    let origin = api(LOAD);
    let cache = cached(&memory().build().unwrap(), &origin);
    get_as(&cache, "the first").await;
    let users = slowest(&cache, 10);
    let others = join_all((0..100).map(async |_| text(get(&cache, &[]).await).await));
    let (_, others) = tokio::join!(users, others);
    assert_eq!(others, ["no user"; 100]);
    assert_eq!(origin.asked(), 1 + 10 + 1);
    get_as(&cache, "another").await;
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn waiters_without_tokens_share_one_load_after_a_load_with_a_token() {
    let origin = api(LOAD);
    let cache = cached(&memory().build().unwrap(), &origin);
    let first = get_as(&cache, "the first");
    let others = join_all((0..100).map(async |_| text(get(&cache, &[]).await).await));
    let began = Instant::now();
    let (_, others) = tokio::join!(first, others);
    assert_eq!(others, ["no user"; 100]);
    assert_eq!((origin.asked(), began.elapsed()), (2, LOAD * 2));
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn reloads_without_tokens_share_one_load_after_a_load_with_a_token() {
    let origin = api(LOAD);
    let cache = cached(&memory().build().unwrap(), &origin);
    let first = get(&cache, &[("authorization", "the first"), ("cache-control", "no-cache")]);
    let reload = async |_| text(get(&cache, &[("cache-control", "no-cache")]).await).await;
    tokio::join!(first, join_all((0..100).map(reload)));
    // The first load was private. All waiters shared the second.
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn users_with_tokens_are_one_load_again_once_answers_are_for_all() {
    let origin = Origin::new(async |_, nth| {
        sleep(LOAD).await;
        let says = if nth < 10 { "max-age=60" } else { "public, max-age=60" };
        Ok(page(&[("cache-control", says)], ""))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get_as_some(&cache, 10).await;
    get_as(&cache, "another").await;
    burst(&cache).await;
    assert_eq!(origin.asked(), 12);
}

#[tokio::test(start_paused = true)]
async fn users_with_tokens_are_one_load_again_after_a_while() {
    let origin = Origin::new(async |request: Request<Body>, _| {
        sleep(LOAD).await;
        let is_old = request.headers().contains_key("x-old");
        let says = if is_old { "max-age=60" } else { "public, max-age=60" };
        Ok(page(&[("cache-control", says)], ""))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    for _ in 0..10 {
        get(&cache, &[("authorization", "the first"), ("x-old", "1")]).await;
    }
    pass(10).await;
    burst(&cache).await;
    assert_eq!(origin.asked(), 11);
}

async fn burst(cache: &Cache) {
    join_all((0..100).map(async |_| get_as(cache, "another").await)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_sends_no_other_caller_to_the_origin() {
    let origin = Origin::new(async |request: Request<Body>, _| {
        sleep(LOAD).await;
        let is_bad = request.headers().get("authorization").is_some_and(|token| token == "bad");
        let status = if is_bad { "401" } else { "200" };
        let fields = [(":status", status), ("cache-control", "public, max-age=60")];
        Ok(page(if is_bad { &fields[..1] } else { &fields }, ""))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get_as(&cache, "bad").await;
    burst(&cache).await;
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_a_user_with_a_token_reach_the_origin() {
    let origin = api(LOAD);
    let cache = cached(&memory().build().unwrap(), &origin);
    get_as_some(&cache, 2).await;
    get(&cache, &[("authorization", "the first"), ("if-none-match", "\"mine\"")]).await;
    assert_eq!(origin.last("if-none-match").as_deref(), Some("\"mine\""));
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_know_of_tokens_together() {
    let layer = memory().build().unwrap();
    let origin = api(LOAD);
    get_as_some(&cached(&layer, &origin), 10).await;
    assert_eq!(slowest(&cached(&layer, &origin), 10).await, LOAD);
}

/// A page per cookie, and one for all requests without a cookie.
fn by_cookie() -> Origin {
    Origin::new(async |request: Request<Body>, _| {
        sleep(LOAD).await;
        let is_own = request.headers().contains_key("cookie");
        let says = if is_own { "private" } else { "max-age=60" };
        Ok(page(&[("cache-control", says)], if is_own { "own" } else { "all" }))
    })
}

async fn plain_burst(cache: &Cache) {
    join_all((0..200).map(async |_| assert_eq!(text(get(cache, &[]).await).await, "all"))).await;
}

#[tokio::test(start_paused = true)]
async fn private_answers_to_cookies_say_nothing_of_requests_without() {
    let origin = by_cookie();
    let cache = cached(&memory().build().unwrap(), &origin);
    for _ in 0..10 {
        get(&cache, &[("cookie", "a=b")]).await;
    }
    plain_burst(&cache).await;
    assert_eq!(origin.asked(), 11);
}

#[tokio::test(start_paused = true)]
async fn waiters_without_cookies_share_one_load_after_a_load_with_a_cookie() {
    let origin = by_cookie();
    let cache = cached(&memory().build().unwrap(), &origin);
    tokio::join!(get(&cache, &[("cookie", "a=b")]), plain_burst(&cache));
    assert_eq!(origin.asked(), 2);
}

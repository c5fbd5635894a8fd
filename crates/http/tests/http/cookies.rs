//! What callers with cookies share, and what they do not.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::future::join_all;
use http::{HeaderMap, Request, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::origin::{Origin, cached, field, get, is_hit, memory, page, pass, request, text};
use crate::proxy;

type Field = (&'static str, &'static str);

const OLD: Field = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
const TAG: Field = ("etag", "\"v1\"");
const USERS: usize = 30;

fn user(request: &Request<Body>) -> String {
    let user = request.headers().get("cookie");
    user.map_or("no user", |user| user.to_str().unwrap()).to_owned()
}

/// A page per user, with the entity tag and the date of their common template. A request with that
/// tag or date gets 304.
fn pages(fields: &'static [Field]) -> Origin {
    Origin::new(move |request: Request<Body>, _| async move {
        sleep(Duration::from_millis(50)).await;
        let has = |name: &str| request.headers().contains_key(name);
        let is_validated = has("if-none-match") || has("if-modified-since");
        let status = (":status", if is_validated { "304" } else { "200" });
        let content = if is_validated { String::new() } else { user(&request) };
        Ok(page(&[fields, &[status]].concat(), content))
    })
}

/// Fields without consent to sharing.
const UNSAID: [&[Field]; 7] = [
    &[OLD],
    &[OLD, TAG],
    &[TAG, ("cache-control", "no-cache")],
    &[TAG, ("cache-control", "max-age=0")],
    &[TAG, ("cache-control", "max-age=60, no-cache")],
    &[OLD, ("cache-control", "stale-while-revalidate=60")],
    &[OLD, TAG, ("cache-control", "must-revalidate")],
];

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_say_so_is_shared_with_no_other_user() {
    for fields in UNSAID {
        let cache = cached(&memory().build().unwrap(), &pages(fields));
        for user in ["alice", "bob", "alice"] {
            assert_eq!(text(get(&cache, &[("cookie", user)]).await).await, user, "{fields:?}");
        }
        assert_eq!(text(get(&cache, &[]).await).await, "no user", "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_without_consent_is_not_shared_with_concurrent_requests_of_other_users() {
    for fields in UNSAID {
        let cache = cached(&memory().build().unwrap(), &pages(fields));
        for _ in 0..2 {
            let asked = (0..USERS).map(async |nth| {
                let user = format!("user {nth}");
                (text(get(&cache, &[("cookie", &user)]).await).await, user)
            });
            for (given, user) in join_all(asked).await {
                assert_eq!(given, user, "{fields:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guess_that_another_caller_reloads_does_not_answer_a_user() {
    for fields in UNSAID {
        let cache = cached(&memory().build().unwrap(), &pages(fields));
        get(&cache, &[]).await;
        let (reload, user) = ([("cache-control", "no-cache")], [("cookie", "alice")]);
        let (reloaded, user) = tokio::join!(get(&cache, &reload), get(&cache, &user));
        assert_eq!(text(user).await, "alice", "{fields:?}");
        assert_eq!(text(reloaded).await, "no user", "{fields:?}");
    }
}

/// Its first lookup has begun to load what callers without cookies share.
#[tokio::test(start_paused = true)]
async fn a_user_gets_the_error_that_the_origin_answers_and_no_other() {
    let origin = Origin::new(move |request: Request<Body>, asked| async move {
        sleep(Duration::from_millis(50)).await;
        let field = match asked {
            0 => ("cache-control", "stale-while-revalidate=60"),
            _ => (":status", "500"),
        };
        Ok(page(&[field], user(&request)))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    get(&cache, &[]).await;
    sleep(Duration::from_millis(100)).await;
    let answer = get(&cache, &[("cookie", "alice")]).await;
    assert_eq!(answer.status(), 500, "{}", field(&answer, "cache-status"));
    assert_eq!(text(answer).await, "alice");
}

/// A response for callers without cookies need not suit callers with cookies.
#[tokio::test(start_paused = true)]
async fn a_guess_does_not_answer_a_user() {
    for fields in UNSAID {
        let cache = cached(&memory().build().unwrap(), &pages(fields));
        get(&cache, &[]).await;
        let user = [("cookie", "alice")];
        let no_user = [];
        let (user, no_user) = tokio::join!(get(&cache, &user), get(&cache, &no_user));
        assert_eq!(text(user).await, "alice", "{fields:?}");
        assert_eq!(text(no_user).await, "no user", "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn users_leave_what_callers_without_cookies_share() {
    let cache = cached(&memory().build().unwrap(), &pages(&[OLD]));
    get(&cache, &[]).await;
    get(&cache, &[("cookie", "alice")]).await;
    let kept = get(&cache, &[]).await;
    assert!(is_hit(&kept));
    assert_eq!(text(kept).await, "no user");
}

#[tokio::test(start_paused = true)]
async fn what_says_that_it_may_be_shared_is() {
    for says in ["public", "public, max-age=60", "s-maxage=60", "max-age=60"] {
        let origin = Origin::new(move |request: Request<Body>, _| async move {
            Ok(page(&[OLD, ("cache-control", says)], user(&request)))
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[("cookie", "alice")]).await;
        for fields in [&[("cookie", "bob")][..], &[]] {
            let kept = get(&cache, fields).await;
            assert!(is_hit(&kept), "{says}: {}", field(&kept, "cache-status"));
            assert_eq!(text(kept).await, "alice", "{says}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_says_that_it_may_be_shared_is_validated_for_all() {
    let origin = pages(&[TAG, ("cache-control", "public, no-cache")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    for user in ["alice", "bob"] {
        assert_eq!(text(get(&cache, &[("cookie", user)]).await).await, "alice");
    }
    assert_eq!(origin.last("if-none-match").as_deref(), Some("\"v1\""));
}

#[tokio::test(start_paused = true)]
async fn a_time_that_the_program_gives_is_a_guess_for_users() {
    let layer = memory().ttl(Duration::from_secs(60)).build().unwrap();
    let cache = cached(&layer, &pages(&[]));
    for user in ["alice", "bob"] {
        assert_eq!(text(get(&cache, &[("cookie", user)]).await).await, user);
    }
    get(&cache, &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn callers_without_cookies_are_one_load_whatever_users_do() {
    let origin = pages(&[OLD]);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[("cookie", "alice")]).await;
    let others = join_all((0..100).map(async |_| text(get(&cache, &[]).await).await)).await;
    assert_eq!((others, origin.asked()), (vec!["no user".to_owned(); 100], 2));
    pass(1).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

/// RFC 9113, section 8.2.3.
#[tokio::test]
async fn the_example_proxy_joins_cookies_that_http_2_splits() {
    let seen = |headers: HeaderMap| async move {
        let lines = headers.get_all("cookie").iter().map(|line| line.to_str().unwrap().to_owned());
        lines.collect::<Vec<_>>().join(" and ")
    };
    let mut tasks = JoinSet::new();
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}", origin.local_addr().unwrap()).parse().unwrap();
    tasks.spawn(async move { axum::serve(origin, Router::new().fallback(seen)).await });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    tasks.spawn(async move { proxy::serve(listener, &uri, &memory().build().unwrap()).await });
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Body>();
    for (sent, expected) in [(&["a=1", "b=2"][..], "a=1; b=2"), (&["a=1"], "a=1"), (&[], "")] {
        let fields = sent.iter().map(|line| ("cookie", *line)).collect::<Vec<_>>();
        let answer = client.request(request("GET", &target, &fields)).await.unwrap();
        let content = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(content, expected);
    }
}

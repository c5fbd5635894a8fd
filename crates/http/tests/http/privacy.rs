//! No user gets the response of another, even if both ask at the same time.

use std::time::Duration;

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, RequestKey};
use http::Request;
use tokio::time::sleep;

use crate::origin::{Answer, Origin, cached, field, get, is_hit, memory, page, text};

const LOAD: Duration = Duration::from_millis(50);

type Fields = &'static [(&'static str, &'static str)];

fn said(request: &Request<Body>, name: &str) -> String {
    request.headers().get(name).map_or("", |said| said.to_str().unwrap()).to_owned()
}

/// The responses to two concurrent users, which a header field distinguishes.
async fn two_users(by: &'static str, fields: Fields) -> [String; 2] {
    let origin = Origin::new(async move |request: Request<_>, _| {
        sleep(LOAD).await;
        Ok(page(fields, said(&request, by)))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    let alice = [(by, "alice")];
    let bob = [(by, "bob")];
    let (alice, bob) = tokio::join!(get(&cache, &alice), get(&cache, &bob));
    [text(alice).await, text(bob).await]
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_never_fresh_is_served_to_its_own_caller_only() {
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
async fn all_waiters_get_a_response_that_says_public() {
    let fields = &[("etag", "\"v1\""), ("cache-control", "public, max-age=0")];
    assert_eq!(two_users("cookie", fields).await, ["alice", "alice"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_request_with_credentials_is_served_to_its_own_caller_only() {
    const ERROR: (&str, &str) = (":status", "500");
    for (by, fields) in [
        ("cookie", &[ERROR][..]),
        ("authorization", &[ERROR]),
        ("authorization", &[ERROR, ("cache-control", "must-revalidate")]),
    ] {
        assert_eq!(two_users(by, fields).await, ["alice", "bob"], "{by}: {fields:?}");
    }
}

/// The pages of all users have the same date, that of their subject. So a 304 by that date can be
/// about the page of another user.
#[tokio::test(start_paused = true)]
async fn a_date_does_not_tell_one_user_from_another() {
    let origin = Origin::new(async |request: Request<_>, _| {
        let is_dated = request.headers().contains_key("if-modified-since");
        let status = if is_dated { "304" } else { "200" };
        let dated = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
        let fields = [(":status", status), ("cache-control", "no-cache"), dated];
        Ok(page(&fields, if is_dated { String::new() } else { said(&request, "cookie") }))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    for user in ["alice", "bob"] {
        assert_eq!(text(get(&cache, &[("cookie", user)]).await).await, user);
    }
    for _ in 0..2 {
        assert_eq!(text(get(&cache, &[]).await).await, "", "the page without a user is validated");
    }
    assert!(origin.last("if-modified-since").is_some());
}

/// An origin that fails after its first response, with a different error for each user.
fn failing(first: &'static str, error: Fields) -> Origin {
    Origin::new(move |request: Request<_>, nth| async move {
        sleep(LOAD).await;
        if nth == 0 {
            return Ok(page(&[("cache-control", first)], "good"));
        }
        let user = format!("session={}", said(&request, "cookie"));
        let fields = [&[(":status", "500"), ("x-user", &user)], error].concat();
        Ok(page(&fields, format!("secret of {user}")))
    })
}

/// Errors for their own caller only: by their header fields, or by those of the request.
const PRIVATE: [Fields; 5] = [
    &[("cache-control", "private, no-store"), ("set-cookie", "session=1")],
    &[("cache-control", "no-store")],
    &[("set-cookie", "session=1")],
    &[("vary", "cookie")],
    &[],
];

async fn assert_nothing_of_alice(answer: Answer) {
    assert!(!field(&answer, "x-user").contains("alice"), "{answer:?}");
    assert!(!text(answer).await.contains("alice"));
}

#[tokio::test(start_paused = true)]
async fn a_private_error_of_a_reload_is_served_to_the_reloading_caller_only() {
    for error in PRIVATE {
        let cache = cached(&memory().build().unwrap(), &failing("max-age=60", error));
        get(&cache, &[]).await;
        let reload = ("cache-control", "no-cache");
        let alice = [("cookie", "alice"), reload];
        let bob = [("cookie", "bob"), reload];
        let (alice, bob) = tokio::join!(get(&cache, &alice), get(&cache, &bob));
        assert_eq!(text(alice).await, "secret of session=alice", "{error:?}");
        assert_nothing_of_alice(bob).await;
        assert_eq!(text(get(&cache, &[]).await).await, "good", "what is fresh stays: {error:?}");
    }
}

/// If a stale fallback replaces an error, the failure is remembered beyond the end of the fallback.
/// Later callers must not get the error then.
#[tokio::test(start_paused = true)]
async fn a_private_error_is_not_remembered_for_others() {
    for error in PRIVATE {
        let cache =
            cached(&memory().build().unwrap(), &failing("max-age=60, stale-if-error=60", error));
        get(&cache, &[]).await;
        tokio::time::advance(Duration::from_millis(119_500)).await;
        assert_eq!(text(get(&cache, &[("cookie", "alice")]).await).await, "good", "{error:?}");
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_nothing_of_alice(get(&cache, &[("cookie", "bob")]).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_prohibition_in_either_field_holds() {
    for fields in [
        &[("cache-control", "private"), ("cdn-cache-control", "max-age=60")][..],
        &[("cache-control", "no-store"), ("cdn-cache-control", "public, max-age=60")],
        &[("cache-control", "max-age=60"), ("cdn-cache-control", "private")],
        &[("cache-control", "max-age=60"), ("cdn-cache-control", "max-age=60, no-store")],
    ] {
        assert_eq!(two_users("x-user", fields).await, ["alice", "bob"], "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lifetime_of_a_cdn_is_none_of_this_cache() {
    let origin = Origin::counting(&[("cdn-cache-control", "max-age=60")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn the_lifetime_of_a_cdn_is_followed_if_the_program_says_so() {
    let origin =
        Origin::counting(&[("cache-control", "no-cache"), ("cdn-cache-control", "max-age=60")]);
    let cache = cached(&memory().following_cdn_cache_control().build().unwrap(), &origin);
    get(&cache, &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn fields_that_the_program_names_are_credentials() {
    let layer = memory().credentials(["X-User"]).build().unwrap();
    let origin = Origin::counting(&[("cache-control", "max-age=60")]);
    let cache = cached(&layer, &origin);
    get(&cache, &[("x-user", "alice")]).await;
    assert!(!is_hit(&get(&cache, &[]).await));
    let key = RequestKey::path().header("x-key");
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), key).ttl(Duration::from_secs(60));
    let cache = cached(&layer.credentials(["x-key", "x-user"]).build().unwrap(), &origin);
    for (field, is_stored) in [("x-user", false), ("x-key", true)] {
        get(&cache, &[(field, "alice")]).await;
        assert_eq!(is_hit(&get(&cache, &[(field, "alice")]).await), is_stored, "{field}");
    }
    assert!(memory().credentials(["x user"]).build().is_err());
}

const CREDENTIALS: [&str; 4] =
    ["authorization", "proxy-authorization", "x-api-key", "x-auth-token"];

/// A hit for a caller without credentials, after a response to a caller with this field.
async fn is_given_to_others(by: &'static str, fields: Fields) -> bool {
    let origin =
        Origin::new(async move |request: Request<_>, _| Ok(page(fields, said(&request, by))));
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[(by, "alice")]).await;
    let other = get(&cache, &[(by, "bob")]).await;
    let is_given = text(other).await == "alice";
    assert_eq!(is_hit(&get(&cache, &[]).await), is_given);
    is_given
}

#[tokio::test(start_paused = true)]
async fn a_response_to_credentials_is_for_others_only_if_it_says_so_and_for_how_long() {
    const LONG_AGO: (&str, &str) = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
    for by in CREDENTIALS {
        for says in ["max-age=60", "max-age=60, must-revalidate"] {
            let fields: Fields = vec![("cache-control", says)].leak();
            assert!(!is_given_to_others(by, fields).await, "{by}: {says}");
        }
        for says in ["must-revalidate", "public"] {
            let fields: Fields = vec![("cache-control", says), LONG_AGO].leak();
            assert!(!is_given_to_others(by, fields).await, "{by}: {says}");
        }
        for says in ["public, max-age=60", "s-maxage=60"] {
            let fields: Fields = vec![("cache-control", says)].leak();
            assert!(is_given_to_others(by, fields).await, "{by}: {says}");
        }
    }
}

/// Two users whose pages have the same entity tag.
#[tokio::test(start_paused = true)]
async fn a_response_to_credentials_is_not_validated_for_another_user() {
    for by in CREDENTIALS {
        let origin = Origin::new(async move |request: Request<_>, _| {
            Ok(match request.headers().contains_key("if-none-match") {
                true => page(&[(":status", "304"), ("etag", "\"v7\"")], ""),
                false => page(
                    &[("cache-control", "max-age=0, must-revalidate"), ("etag", "\"v7\"")],
                    said(&request, by),
                ),
            })
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[(by, "alice")]).await;
        assert_eq!(text(get(&cache, &[(by, "bob")]).await).await, "bob", "{by}");
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_bypass_keys_that_do_not_have_them() {
    for by in CREDENTIALS.into_iter().chain(["cookie"]) {
        let origin =
            Origin::new(async move |request: Request<_>, _| Ok(page(&[], said(&request, by))));
        let layer = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path());
        let cache = cached(&layer.ttl(Duration::from_secs(60)).build().unwrap(), &origin);
        get(&cache, &[(by, "alice")]).await;
        assert_eq!(text(get(&cache, &[]).await).await, "", "{by}");
        assert_eq!(text(get(&cache, &[(by, "bob")]).await).await, "bob");
    }
}

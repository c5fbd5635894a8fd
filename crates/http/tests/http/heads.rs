//! What a response to HEAD does to the stored response to GET (RFC 9111, section 4.3.5).

use bellwether_http::HttpCache;
use http::{Method, StatusCode, Uri};
use tokio::sync::Notify;

use crate::origin::{
    Answer, Origin, ask, cached, field, get, is_hit, memory, page, pass, says, text,
};

const TAG: (&str, &str) = ("etag", "\"1\"");
const MINUTE: (&str, &str) = ("cache-control", "max-age=60, stale-if-error=6000");
const NOT_FOUND: (&str, &str) = (":status", "404");
const HOUR: (&str, &str) = ("cache-control", "max-age=3600");

type Fields = &'static [(&'static str, &'static str)];

/// Answers GET and HEAD with these fields. The content of a GET says how many requests were before it.
fn by_method(of_get: Fields, of_head: Fields) -> Origin {
    Origin::new(async move |request: http::Request<_>, nth| {
        Ok(match *request.method() == Method::HEAD {
            true => page(of_head, ""),
            false => page(of_get, format!("answer {nth}")),
        })
    })
}

async fn head(cache: &HttpCache<Origin>) -> Answer {
    ask(cache, "HEAD", "http://shop/item", &[("cache-control", "no-cache")]).await
}

/// Whether the response that was stored at first is a hit two minutes later, after a HEAD.
async fn renews(of_get: Fields, of_head: Fields) -> bool {
    let cache = cached(&memory().build().unwrap(), &by_method(of_get, of_head));
    get(&cache, &[]).await;
    pass(120).await;
    head(&cache).await;
    is_hit(&get(&cache, &[]).await)
}

/// Whether the response that was stored at first is a hit after a HEAD, while it is fresh.
async fn leaves(of_get: Fields, of_head: Fields) -> bool {
    let cache = cached(&memory().build().unwrap(), &by_method(of_get, of_head));
    get(&cache, &[]).await;
    head(&cache).await;
    is_hit(&get(&cache, &[]).await)
}

#[tokio::test(start_paused = true)]
async fn a_head_with_the_validator_of_the_stored_response_makes_it_fresh() {
    assert!(renews(&[MINUTE, TAG], &[HOUR, TAG]).await);
    assert!(renews(&[MINUTE, TAG], &[HOUR, TAG, ("content-length", "8")]).await);
    const MODIFIED: (&str, &str) = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
    assert!(renews(&[MINUTE, MODIFIED], &[HOUR, MODIFIED]).await);
}

#[tokio::test(start_paused = true)]
async fn a_head_without_a_validator_makes_nothing_fresh() {
    const STORED: [Fields; 3] = [&[MINUTE], &[MINUTE, TAG], &[MINUTE, ("content-length", "8")]];
    const SENT: [Fields; 3] = [&[HOUR], &[HOUR, ("content-length", "8")], &[HOUR, ("etag", "")]];
    for of_get in STORED {
        for of_head in SENT {
            assert!(!renews(of_get, of_head).await, "{of_get:?} {of_head:?}");
        }
        assert!(leaves(of_get, &[HOUR]).await, "it says nothing about the stored response");
    }
}

/// Their lifetimes are three seconds, and a monitor sends a HEAD in the first and the second one.
#[tokio::test(start_paused = true)]
async fn any_number_of_heads_makes_no_lifetime_longer() {
    const SHORT: Fields = &[("cache-control", "max-age=3")];
    let origin = by_method(SHORT, SHORT);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    for _ in 0..2 {
        pass(1).await;
        head(&cache).await;
    }
    pass(1).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_head_with_another_status_makes_nothing_fresh() {
    for stored in [NOT_FOUND, (":status", "203")] {
        let of_get = vec![stored, MINUTE, TAG].leak();
        assert!(!renews(of_get, &[HOUR, TAG]).await, "{stored:?}");
        assert!(!leaves(of_get, &[HOUR, TAG]).await, "{stored:?}");
    }
    assert!(!renews(&[NOT_FOUND, MINUTE, TAG], &[NOT_FOUND, HOUR, TAG]).await);
    assert!(leaves(&[NOT_FOUND, MINUTE, TAG], &[NOT_FOUND, HOUR, TAG]).await);
}

/// A stored response that came in chunks has no `Content-Length`.
#[tokio::test(start_paused = true)]
async fn a_head_with_the_length_of_other_content_makes_the_stored_response_stale() {
    for of_get in [&[MINUTE, TAG][..], &[MINUTE, TAG, ("content-length", "8")]] {
        for length in ["9", "x", "8, 8"] {
            let of_head = vec![HOUR, TAG, ("content-length", length)].leak();
            assert!(!renews(of_get, of_head).await, "{of_get:?} {length}");
            assert!(!leaves(of_get, of_head).await, "{of_get:?} {length}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_with_one_of_two_validators_changed_makes_the_stored_response_stale() {
    const JANUARY: (&str, &str) = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
    const FEBRUARY: (&str, &str) = ("last-modified", "Sat, 01 Feb 2020 00:00:00 GMT");
    for of_head in [&[HOUR, TAG, FEBRUARY][..], &[HOUR, ("etag", "\"2\""), JANUARY]] {
        assert!(!leaves(&[MINUTE, TAG, JANUARY], of_head).await, "{of_head:?}");
    }
}

/// A validator of a representation is not that of another type, language or encoding of it.
#[tokio::test(start_paused = true)]
async fn a_head_about_another_representation_makes_the_stored_response_stale() {
    for name in ["content-type", "content-encoding", "content-language", "content-location"] {
        let [of_get, of_head]: [Fields; 2] = [("a", MINUTE), ("b", HOUR)]
            .map(|(value, terms)| -> Fields { vec![terms, TAG, (name, value)].leak() });
        assert!(!leaves(of_get, of_head).await, "{name}");
        assert!(!leaves(&[MINUTE, TAG], of_head).await, "{name}");
        assert!(renews(of_get, &[HOUR, TAG]).await, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_purged_page_stays_stale_after_a_head() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &by_method(&[MINUTE], &[HOUR]));
    get(&cache, &[]).await;
    layer.handle().expire(&Uri::from_static("http://shop/item")).await.unwrap();
    head(&cache).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

/// The origin may have answered it before the expiry.
#[tokio::test(start_paused = true)]
async fn a_head_that_began_before_an_expiry_makes_nothing_fresh() {
    static ASKED: Notify = Notify::const_new();
    static EXPIRED: Notify = Notify::const_new();
    let origin = Origin::new(async |request: http::Request<_>, nth| {
        if *request.method() == Method::HEAD {
            ASKED.notify_one();
            EXPIRED.notified().await;
        }
        Ok(page(&[MINUTE, TAG], format!("answer {nth}")))
    });
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[]).await;
    let expire = async {
        ASKED.notified().await;
        layer.handle().expire(&Uri::from_static("http://shop/item")).await.unwrap();
        EXPIRED.notify_one();
    };
    tokio::join!(head(&cache), expire);
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn what_the_layer_says_of_a_head_is_not_stored() {
    let cache = cached(&memory().build().unwrap(), &by_method(&[MINUTE, TAG], &[HOUR, TAG]));
    get(&cache, &[]).await;
    pass(120).await;
    assert!(says(&head(&cache).await, "fwd=stale"));
    let answer = get(&cache, &[]).await;
    assert_eq!(answer.headers().get_all("cache-status").iter().count(), 1, "{answer:?}");
    assert_eq!((answer.status(), field(&answer, "etag")), (StatusCode::OK, "\"1\""));
    assert_eq!(text(answer).await, "answer 0");
}

//! A request for a head is answered as one for the content is: by what is stored, confirmed or loaded.

use bellwether_http::HttpCache;
use http::{Method, Request, StatusCode, Uri};
use tokio::sync::Notify;

use crate::origin::{
    Answer, Origin, ask, cached, field, get, is_hit, memory, page, pass, says, text,
};

const TAG: (&str, &str) = ("etag", "\"1\"");
const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

/// Confirms its page if it is asked to. It is never asked for a head.
fn confirming() -> Origin {
    Origin::new(async |request: Request<_>, nth| {
        assert_eq!(request.method(), Method::GET);
        Ok(match request.headers().contains_key("if-none-match") {
            true => page(&[(":status", "304"), MINUTE, TAG], ""),
            false => page(&[MINUTE, TAG], format!("answer {nth}")),
        })
    })
}

async fn head(cache: &HttpCache<Origin>, fields: &[(&str, &str)]) -> Answer {
    let answer = ask(cache, "HEAD", "http://shop/item", fields).await;
    assert_eq!((answer.status(), field(&answer, "content-length")), (StatusCode::OK, "8"));
    answer
}

#[tokio::test(start_paused = true)]
async fn a_head_of_a_stale_response_has_it_confirmed() {
    let origin = confirming();
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(120).await;
    let answer = head(&cache, &[]).await;
    assert!(says(&answer, "fwd=stale") && says(&answer, "fwd-status=304"), "{answer:?}");
    assert_eq!(text(answer).await, "");
    let answer = get(&cache, &[]).await;
    assert!(is_hit(&answer), "{answer:?}");
    assert_eq!((text(answer).await.as_str(), origin.asked()), ("answer 0", 2));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_to_be_new_renews_what_is_stored() {
    let origin = Origin::counting(&[MINUTE]);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    head(&cache, &[("cache-control", "no-cache")]).await;
    let answer = get(&cache, &[]).await;
    assert!(is_hit(&answer), "{answer:?}");
    assert_eq!((text(answer).await.as_str(), origin.asked()), ("answer 1", 2));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_began_before_an_expiry_makes_nothing_fresh() {
    static ASKED: Notify = Notify::const_new();
    static EXPIRED: Notify = Notify::const_new();
    const VARY: (&str, &str) = ("vary", "accept");
    let uri = Uri::from_static("http://shop/item");
    for (fields, seconds) in [&[MINUTE, TAG][..], &[MINUTE, TAG, VARY]]
        .into_iter()
        .flat_map(|fields| [(fields, 0), (fields, 90)])
    {
        let origin = Origin::new(async move |_, nth| {
            if nth == 1 {
                ASKED.notify_one();
                EXPIRED.notified().await;
            }
            Ok(page(fields, format!("answer {nth}")))
        });
        let layer = memory().build().unwrap();
        let cache = cached(&layer, &origin);
        get(&cache, &[]).await;
        pass(seconds).await;
        let expire = async {
            ASKED.notified().await;
            layer.handle().expire(&uri).await.unwrap();
            EXPIRED.notify_one();
        };
        tokio::join!(head(&cache, &[("cache-control", "no-cache")]), expire);
        assert!(!is_hit(&get(&cache, &[]).await), "{fields:?} after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_layer_says_of_a_head_is_not_stored() {
    let cache = cached(&memory().build().unwrap(), &confirming());
    get(&cache, &[]).await;
    pass(120).await;
    head(&cache, &[]).await;
    let answer = get(&cache, &[]).await;
    assert_eq!(answer.headers().get_all("cache-status").iter().count(), 1, "{answer:?}");
    assert_eq!((answer.status(), field(&answer, "etag")), (StatusCode::OK, "\"1\""));
}

/// RFC 9110, section 8.6.
#[tokio::test(start_paused = true)]
async fn a_head_of_a_stored_response_without_content_has_no_length() {
    let origin = Origin::new(async |_, _| Ok(page(&[(":status", "204"), MINUTE], "")));
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    let answer = ask(&cache, "HEAD", "http://shop/item", &[]).await;
    assert!(is_hit(&answer) && answer.status() == StatusCode::NO_CONTENT, "{answer:?}");
    assert!(!answer.headers().contains_key("content-length"), "{answer:?}");
}

//! Requests for a head or a part of a response that is not stored, and for a part of an empty one.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;

use crate::origin::{Answer, Origin, ask, cached, field, get, is_hit, memory, page, says, text};

const TEXT: &str = "0123456789";

/// An origin that answers a range of bytes by that part, and HEAD without content, after a while.
fn origin(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(move |request: Request<_>, _| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let range = request.headers().get("range").map(|range| range.to_str().unwrap().to_owned());
        let length = ("content-length", "10");
        let fields = [fields, &[length]].concat();
        let range = range.and_then(|range| {
            let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse::<usize>().ok()?, last.parse::<usize>().unwrap_or(9)))
        });
        Ok(match range {
            _ if request.method() == "HEAD" => page(&fields, ""),
            None => page(&fields, TEXT),
            Some((first, last)) => {
                let part = format!("bytes {first}-{last}/10");
                let length = (last + 1 - first).to_string();
                let own =
                    [(":status", "206"), ("content-range", &*part), ("content-length", &length)];
                page(&[&fields[..fields.len() - 1], &own].concat(), &TEXT[first..=last])
            }
        })
    })
}

const FRESH: &[(&str, &str)] = &[("cache-control", "max-age=60")];

async fn together(origin: &Origin, method: &str, fields: &[(&str, &str)]) -> Vec<Answer> {
    let cache = cached(&memory().build().unwrap(), origin);
    let asked = (0..100).map(async |_| ask(&cache, method, "http://shop/item", fields).await);
    join_all(asked).await
}

#[tokio::test(start_paused = true)]
async fn a_cold_burst_for_parts_or_heads_is_one_load_of_the_whole() {
    for (method, range, status, content, length) in [
        ("GET", "bytes=0-", 206, TEXT, "10"),
        ("GET", "bytes=2-3", 206, "23", "2"),
        ("GET", "bytes=-1", 206, "9", "1"),
        ("GET", "bytes=20-", 416, "", ""),
        ("GET", "x=1", 200, TEXT, "10"),
        ("GET", "bytes=0-1, 5-6", 200, TEXT, "10"),
        ("HEAD", "bytes=0-1", 200, "", "10"),
        ("HEAD", "", 200, "", "10"),
    ] {
        let origin = origin(FRESH);
        let fields: &[_] = if range.is_empty() { &[] } else { &[("range", range)] };
        for answer in together(&origin, method, fields).await {
            assert_eq!(answer.status(), status, "{method} {range}");
            assert_eq!(field(&answer, "content-length"), length, "{method} {range}");
            assert_eq!(text(answer).await, content, "{method} {range}");
        }
        assert_eq!(origin.asked(), 1, "{method} {range}");
        assert_eq!(origin.last("range"), None, "{method} {range}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_loaded_whole_for_a_part() {
    let origin = origin(FRESH);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    crate::origin::pass(61).await;
    let part = [("range", "bytes=2-3")];
    assert_eq!(text(get(&cache, &part).await).await, "23");
    assert!(is_hit(&get(&cache, &part).await));
}

#[tokio::test(start_paused = true)]
async fn the_origin_gives_the_part_of_what_is_too_large_or_private() {
    let private: &[_] = &[("cache-control", "private")];
    for (fields, most) in [(FRESH, 5), (private, 1_000)] {
        let origin = origin(fields);
        let cache = cached(&memory().max_entry_bytes(most).build().unwrap(), &origin);
        for _ in 0..20 {
            let part = get(&cache, &[("range", "bytes=2-3")]).await;
            assert_eq!(field(&part, "content-range"), "bytes 2-3/10");
            assert_eq!(text(part).await, "23");
        }
        assert!(origin.asked() <= 22, "{}", origin.asked());
        let head = ask(&cache, "HEAD", "http://shop/item", &[]).await;
        assert_eq!((field(&head, "content-length"), head.status().as_u16()), ("10", 200));
        assert_eq!(text(head).await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_loaded_for_a_part_behind_all_that_is_stored() {
    let origin = origin(FRESH);
    let cache = cached(&memory().max_entry_bytes(5).build().unwrap(), &origin);
    let part = get(&cache, &[("range", "bytes=7-8")]).await;
    assert!(says(&part, "fwd=uri-miss"), "{part:?}");
    assert_eq!((text(part).await.as_str(), origin.asked()), ("78", 1));
}

/// As `http.ServeContent` of Go answers it.
#[tokio::test]
async fn a_range_of_an_empty_response_is_ignored() {
    let origin = Origin::new(async |_, _| Ok(page(FRESH, "")));
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    for range in ["bytes=0-", "bytes=0-9", "bytes=-5"] {
        let answer = get(&cache, &[("range", range)]).await;
        assert!(is_hit(&answer), "{range}");
        assert_eq!(answer.status(), 200, "{range}");
    }
}

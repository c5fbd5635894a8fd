//! Responses that depend on more than their target.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::store::Store;
use futures_util::future::join_all;
use http::Request;
use tokio::time::sleep;

use crate::origin::{Origin, ask, cached, get, is_hit, memory, page, plain, redis, says, text};

/// Answers in the language that is asked for.
fn polyglot(vary: &'static str) -> Origin {
    Origin::new(async move |request: Request<_>, _| {
        sleep(Duration::from_millis(50)).await;
        let said = request.headers().get("accept-language");
        let language = said.map_or("none", |said| said.to_str().unwrap()).to_owned();
        Ok(page(&[("cache-control", "max-age=60"), ("vary", vary)], language))
    })
}

async fn variants(store: impl Store) {
    let origin = polyglot("Accept-Language");
    let cache = cached(&plain(store).build().unwrap(), &origin);
    let languages = ["de", "en", "fr", "it"];
    let callers = (0..100).map(async |at| {
        let language = languages[at % languages.len()];
        (language, text(get(&cache, &[("accept-language", language)]).await).await)
    });
    for (asked, given) in join_all(callers).await {
        assert_eq!(asked, given);
    }
    assert_eq!(origin.asked(), languages.len());
    for language in languages {
        let answer = get(&cache, &[("accept-language", language)]).await;
        assert!(is_hit(&answer), "{answer:?}");
        assert_eq!(text(answer).await, language);
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_variants_are_as_many_loads() {
    variants(MemoryStore::new(1_000)).await;
}

#[tokio::test]
async fn as_many_variants_over_redis_are_as_many_loads() {
    let (_server, store) = redis().await;
    variants(store).await;
}

#[tokio::test(start_paused = true)]
async fn a_variant_is_one_load_for_all_its_waiters() {
    let origin = polyglot("accept-language");
    let cache = cached(&memory().build().unwrap(), &origin);
    let callers = (0..100).map(|_| get(&cache, &[("accept-language", "de")]));
    assert_eq!(join_all(callers).await.len(), 100);
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_target_has_no_variants_left() {
    let origin = polyglot("accept-language");
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    for language in ["de", "en"] {
        get(&cache, &[("accept-language", language)]).await;
    }
    layer.handle().invalidate(&"http://shop/item".parse().unwrap()).await.unwrap();
    for language in ["de", "en"] {
        let answer = get(&cache, &[("accept-language", language)]).await;
        assert!(!is_hit(&answer), "{answer:?}");
    }
    assert_eq!(origin.asked(), 4);
}

/// The clock of the machine counts, which a paused runtime does not pause.
#[tokio::test]
async fn variants_that_have_run_out_make_room_for_others() {
    let origin = Origin::counting(&[("cache-control", "max-age=1"), ("vary", "accept-language")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    for nth in 0..64 {
        get(&cache, &[("accept-language", &nth.to_string())]).await;
    }
    sleep(Duration::from_millis(1_500)).await;
    for language in ["de", "0"] {
        get(&cache, &[("accept-language", language)]).await;
        assert!(is_hit(&get(&cache, &[("accept-language", language)]).await), "{language}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_named_later_tells_variants_apart_from_then_on() {
    let origin = Origin::new(async |request: Request<_>, nth| {
        let vary = if nth == 0 { "accept-language" } else { "accept-encoding" };
        let fields = request.headers();
        let of =
            |name| fields.get(name).map_or("", |value: &http::HeaderValue| value.to_str().unwrap());
        let text = format!("{} {}", of("accept-language"), of("accept-encoding"));
        Ok(page(&[("cache-control", "max-age=60"), ("vary", vary)], text))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    let asked = [("de", "br"), ("en", "br"), ("en", "gzip"), ("de", "gzip"), ("en", "br")];
    for (language, coding) in asked {
        let fields = [("accept-language", language), ("accept-encoding", coding)];
        let given = text(get(&cache, &fields).await).await;
        // The first response is loaded before the `Vary` index names codings.
        assert_eq!(given, format!("{language} {coding}"));
    }
    let fields = [("accept-language", "en"), ("accept-encoding", "gzip")];
    assert!(is_hit(&get(&cache, &fields).await));
}

/// Loads that are not coalesced store nothing, as no other request would find it.
#[tokio::test(start_paused = true)]
async fn nothing_is_stored_where_no_request_finds_it() {
    let origin = Origin::new(async |request: Request<_>, nth| {
        let fields = [("cache-control", "max-age=60"), ("vary", "accept-encoding")];
        Ok(match request.headers().contains_key("x-odd") {
            true => page(&fields, nth.to_string()),
            false => page(&[("set-cookie", "a=b")], ""),
        })
    });
    let store = MemoryStore::new(1_000);
    let cache = cached(&plain(store.clone()).build().unwrap(), &origin);
    get(&cache, &[]).await;
    get(&cache, &[]).await;
    let entries = format!("{store:?}");
    assert_eq!(text(get(&cache, &[("x-odd", "1")]).await).await, "2");
    assert_eq!(format!("{store:?}"), entries);
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_is_missing_is_said_to_be() {
    let origin = polyglot("accept-language");
    let cache = cached(&memory().build().unwrap(), &origin);
    assert!(says(&get(&cache, &[("accept-language", "de")]).await, "fwd=uri-miss"));
    assert!(says(&get(&cache, &[("accept-language", "en")]).await, "fwd=vary-miss"));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_shared_with_requests_that_select_another_variant() {
    let origin = Origin::new(async |request: Request<_>, _| {
        sleep(Duration::from_millis(50)).await;
        let language = request.headers()["accept-language"].to_str().unwrap().to_owned();
        Ok(page(&[(":status", "500"), ("vary", "accept-language")], language))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    let of = async |language| text(get(&cache, &[("accept-language", language)]).await).await;
    let (german, english) = tokio::join!(of("de"), of("en"));
    assert_eq!((german.as_str(), english.as_str()), ("de", "en"));
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_was_on_its_way_brings_nothing_back_that_was_invalidated() {
    let origin = polyglot("accept-language");
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[("accept-language", "de")]).await;
    let on_its_way = tokio::spawn({
        let cache = cache.clone();
        async move { get(&cache, &[("accept-language", "en")]).await }
    });
    while origin.asked() < 2 {
        tokio::task::yield_now().await;
    }
    layer.handle().invalidate(&"http://shop/item".parse().unwrap()).await.unwrap();
    assert_eq!(text(on_its_way.await.unwrap()).await, "en");
    for language in ["en", "de"] {
        assert!(!is_hit(&get(&cache, &[("accept-language", language)]).await), "{language}");
    }
}

/// Sends one response to the first request, and another to all later ones.
fn speaking(first: &'static [Field], then: &'static [Field]) -> Origin {
    Origin::new(move |request: Request<_>, nth| async move {
        let language = request.headers()["accept-language"].to_str().unwrap().to_owned();
        Ok(page(if nth == 0 { first } else { then }, language))
    })
}

async fn is_told_apart_after_a_head(first: &'static [Field], then: &'static [Field]) {
    let cache = cached(&memory().build().unwrap(), &speaking(first, then));
    get(&cache, &[("accept-language", "de")]).await;
    let reload = [("accept-language", "de"), ("cache-control", "no-cache")];
    ask(&cache, "HEAD", "http://shop/item", &reload).await;
    for language in ["en", "de"] {
        let given = get(&cache, &[("accept-language", language)]).await;
        assert_eq!(text(given).await, language);
    }
}

type Field = (&'static str, &'static str);

const FRESH: Field = ("cache-control", "max-age=60");

const BY_LANGUAGE: Field = ("vary", "accept-language");

const BY_ENCODING: Field = ("vary", "accept-encoding");

#[tokio::test(start_paused = true)]
async fn a_head_that_names_the_first_field_replaces_what_is_kept_for_all() {
    is_told_apart_after_a_head(&[FRESH], &[FRESH, BY_LANGUAGE]).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_names_one_more_field_replaces_what_is_kept_by_fewer() {
    is_told_apart_after_a_head(&[FRESH, BY_ENCODING], &[FRESH, BY_ENCODING, BY_LANGUAGE]).await;
}

/// As `ServeDir::precompressed_gzip` of tower-http 0.6 answers.
#[tokio::test(start_paused = true)]
async fn an_encoded_response_without_vary_is_for_those_that_accept_its_coding() {
    let origin = Origin::new(async |request: Request<_>, _| {
        let codings = request.headers().get("accept-encoding");
        let minute = ("cache-control", "max-age=60");
        Ok(match codings.is_some_and(|it| it.to_str().unwrap().contains("gzip")) {
            true => page(&[minute, ("content-encoding", "gzip")], "zipped"),
            false => page(&[minute], "plain"),
        })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    for _ in 0..2 {
        for (codings, content) in
            [("gzip, br", "zipped"), ("identity", "plain"), ("gzip;q=0", "plain"), ("br", "plain")]
        {
            let answer = get(&cache, &[("accept-encoding", codings)]).await;
            assert_eq!(text(answer).await, content, "{codings}");
        }
        assert_eq!(text(get(&cache, &[]).await).await, "plain");
    }
    assert_eq!(origin.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn usual_codings_have_few_variants_and_the_origin_sees_their_one_form() {
    let fields = &[("cache-control", "max-age=60"), ("vary", "accept-encoding")];
    let origin = Origin::counting(fields);
    let cache = cached(&memory().build().unwrap(), &origin);
    for codings in [
        "gzip, deflate, br, zstd",
        "deflate, gzip, br, zstd",
        "gzip, deflate, br",
        "br;q=1.0, gzip;q=0.8, *;q=0",
        "gzip, deflate",
        "gzip;q=1.0, deflate;q=0.6, identity;q=0.3",
        "gzip",
    ] {
        get(&cache, &[("accept-encoding", codings)]).await;
    }
    assert_eq!(origin.asked(), 4);
    assert_eq!(origin.last("accept-encoding").as_deref(), Some("gzip"));
}

/// Browsers ask for media like this: nothing but `identity` will do.
#[tokio::test(start_paused = true)]
async fn what_a_client_accepts_alone_is_not_refused_in_its_name() {
    let fields = &[("cache-control", "max-age=60"), ("vary", "accept-encoding")];
    let origin = Origin::counting(fields);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[("accept-encoding", "identity;q=1, *;q=0")]).await;
    assert_eq!(origin.last("accept-encoding").as_deref(), Some("identity"));
    assert!(is_hit(&get(&cache, &[("accept-encoding", "identity")]).await));
}

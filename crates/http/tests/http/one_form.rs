//! What a key folds reaches the origin in one form, however the client writes it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::OriginalUri;
use axum::routing::get;
use bellwether::{Key, MemoryStore};
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use http::{HeaderMap, Request, Uri, Version};
use http_body_util::BodyExt;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::origin::{Origin, ask, cached, is_hit, memory, page, pass, request, text};

/// Answers with the URI and the host that it sees.
fn seeing() -> Origin {
    Origin::new(async |request: Request<Body>, _| {
        let host = request.headers().get("host").map(|host| host.to_str().unwrap());
        let seen = format!("{} {}", request.uri(), host.unwrap_or("none"));
        Ok(page(&[("cache-control", "max-age=60")], seen))
    })
}

fn keyed(key: RequestKey) -> HttpCacheLayerBuilder<KeyedRules> {
    HttpCacheLayer::keyed(MemoryStore::new(100), key).ttl(Duration::from_secs(60)).jitter(0.0)
}

/// What the origin sees of a request for which nothing is stored.
async fn seen<R>(layer: HttpCacheLayer<R>, uri: &str, host: Option<&str>) -> String {
    let fields: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
    text(ask(&cached(&layer, &seeing()), "GET", uri, &fields).await).await
}

async fn seen_of_target(uri: &str, host: Option<&str>) -> String {
    seen(memory().build().unwrap(), uri, host).await
}

async fn seen_by(key: RequestKey, uri: &str, host: Option<&str>) -> String {
    seen(keyed(key).build().unwrap(), uri, host).await
}

const SPELLINGS: [&str; 5] =
    ["shop.example", "SHOP.example", "shop.example:80", "Shop.Example:443", "shop.example:443"];

#[tokio::test]
async fn the_origin_does_not_see_how_a_client_writes_the_host() {
    for host in SPELLINGS {
        let expected = "/a shop.example";
        assert_eq!(seen_of_target("/a", Some(host)).await, expected, "{host}");
        for key in [RequestKey::path().host(), RequestKey::path()] {
            assert_eq!(seen_by(key, "/a", Some(host)).await, expected, "{host}");
        }
        let by = RequestKey::by(|_| Some(Key::of("all"))).host();
        assert_eq!(seen_by(by, "/a", Some(host)).await, expected, "{host}");
    }
    for (uri, expected) in [
        ("http://SHOP.example:80/a", "http://shop.example/a none"),
        ("https://shop.Example:443/a", "https://shop.example/a none"),
        ("https://shop.example:80/a", "https://shop.example:80/a none"),
    ] {
        assert_eq!(seen_of_target(uri, None).await, expected, "{uri}");
        assert_eq!(seen_by(RequestKey::path().host(), uri, None).await, expected, "{uri}");
    }
    let both = seen_of_target("http://shop.example:80/a", Some("Shop.example")).await;
    assert_eq!(both, "http://shop.example/a shop.example");
    assert_eq!(seen_of_target("/a", Some("shop.example:8080")).await, "/a shop.example:8080");
}

/// A client that writes a port once made the redirects, links and CORS fields of all clients name it.
#[tokio::test(start_paused = true)]
async fn no_client_gets_a_response_to_the_spelling_of_another() {
    let layer = memory().stale_while_revalidate(Duration::from_secs(60)).build().unwrap();
    let cache = cached(&layer, &seeing());
    for host in SPELLINGS.iter().rev().cycle().take(12) {
        for is_stored in [false, true] {
            let answer = ask(&cache, "GET", "/a", &[("host", host)]).await;
            assert!(is_hit(&answer) || !is_stored, "{answer:?}");
            assert_eq!(text(answer).await, "/a shop.example", "{host}");
            sleep(Duration::from_millis(1)).await;
        }
        pass(61).await;
    }
}

/// They load the whole, which is stored for all.
#[tokio::test]
async fn heads_and_ranges_have_the_form_of_the_key_too() {
    for (method, fields) in
        [("HEAD", &[("host", "A:80")][..]), ("GET", &[("host", "A:80"), ("range", "bytes=0-")])]
    {
        let layer = keyed(RequestKey::path().host().query(["q"])).build().unwrap();
        let cache = cached(&layer, &seeing());
        ask(&cache, method, "/a?x=1&q=2", fields).await;
        let stored = ask(&cache, "GET", "/a?q=2", &[("host", "a")]).await;
        assert!(is_hit(&stored), "{method}");
        assert_eq!(text(stored).await, "/a?q=2 a");
    }
}

#[tokio::test]
async fn the_origin_sees_of_the_query_what_the_key_has() {
    let named = || RequestKey::path().query(["page", "q", "a b[c]", "page"]);
    for (uri, expected) in [
        ("/a", "/a"),
        ("/a?", "/a"),
        ("/a?utm=1", "/a"),
        ("/a?q=2&page=1&utm=x", "/a?page=1&q=2"),
        ("/a?utm=x&%70age=1&&q=2&", "/a?page=1&q=2"),
        ("/a?q=2&page=1&q=1", "/a?page=1&q=2&q=1"),
        ("/a?page", "/a?page"),
        ("/a?page=", "/a?page="),
        ("/a?page=%41+%2b", "/a?page=%41+%2b"),
        ("/a?a+b%5bc%5d=1", "/a?a%20b[c]=1"),
        ("/%61?q=1", "/%61?q=1"),
    ] {
        assert_eq!(seen_by(named(), uri, None).await, format!("{expected} none"), "{uri}");
    }
    assert_eq!(seen_by(RequestKey::path(), "/a?q=1", None).await, "/a none");
    assert_eq!(seen_of_target("http://a/%61?", None).await, "http://a/%61? none");
    let function = RequestKey::by(|_| Some(Key::of("all"))).query(["q"]);
    assert_eq!(seen_by(function, "/a?x=1&q=2", None).await, "/a?x=1&q=2 none");
}

/// What the handler of a route sees: its URI, and that with which the request came.
async fn routed(route: &str, template: &str, uri: &str) -> (String, bool) {
    let seen = async |uri: Uri, OriginalUri(original): OriginalUri, fields: HeaderMap| {
        format!("{uri} {original} {}", fields["host"].to_str().unwrap())
    };
    let layer = keyed(RequestKey::template(template).unwrap().query(["q"])).build().unwrap();
    let app = Router::new().nest("/n", Router::new().route(route, get(seen).layer(layer)));
    let response = app.oneshot(request("GET", uri, &[("host", "A:80")])).await.unwrap();
    let is_stored = response.headers()["cache-status"].to_str().unwrap().contains("; stored");
    let content = response.into_body().collect().await.unwrap().to_bytes();
    (String::from_utf8(content.to_vec()).unwrap(), is_stored)
}

#[tokio::test]
async fn the_handler_of_a_template_sees_its_path_with_the_usual_escapes() {
    for (sent, seen) in [
        ("/i/a:b", "/i/a:b"),
        ("/i/%61%3ab", "/i/a:b"),
        ("/i/a%2fb", "/i/a%2Fb"),
        ("/i/%22", "/i/%22"),
        ("/i/\"", "/i/%22"),
        ("/i/%25zz", "/i/%25zz"),
        ("/i/%zz?x=1&q=%61", "/i/%25zz?q=%61"),
        ("/i/%C3%a9?x", "/i/%C3%A9"),
    ] {
        let expected = (format!("{seen} /n{seen} a"), true);
        assert_eq!(routed("/i/{id}", "item/{id}", &format!("/n{sent}")).await, expected, "{sent}");
    }
}

#[tokio::test]
async fn an_escaped_slash_bypasses_the_cache_where_a_wildcard_makes_it_a_slash() {
    let (_, is_stored) = routed("/i/{*rest}", "item/{rest}", "/n/i/a/b").await;
    assert!(is_stored);
    for escaped in ["/n/i/a%2Fb", "/n/i/a%2fb/c"] {
        assert!(!routed("/i/{*rest}", "item/{rest}", escaped).await.1, "{escaped}");
    }
}

#[tokio::test]
async fn over_http_2_the_authority_has_the_form_of_the_key() {
    let cache = cached(&memory().build().unwrap(), &seeing());
    for authority in ["Shop.example:80", "shop.example"] {
        let mut request = request("GET", &format!("http://{authority}/a"), &[]);
        *request.version_mut() = Version::HTTP_2;
        let Ok(answer) = cache.clone().oneshot(request).await;
        assert_eq!(text(answer).await, "http://shop.example/a none");
    }
}

/// An origin may read the first line of a field only, or compare letter by letter.
#[tokio::test]
async fn the_origin_does_not_see_how_a_client_writes_what_selects_a_variant() {
    let language = async |request: Request<Body>, _| {
        let first = request.headers()["accept-language"].to_str()?;
        let known = first.split(", ").find(|it| ["de-DE", "fr"].contains(it));
        let fields = [("cache-control", "max-age=60"), ("vary", "accept-language")];
        Ok(page(&fields, known.unwrap_or("en").to_owned()))
    };
    for lines in [&["DE-de"][..], &["xx", "de-DE"], &["xx,DE-DE"], &["xx", "FR"]] {
        let cache = cached(&memory().build().unwrap(), &Origin::new(language));
        let fields: Vec<_> = lines.iter().map(|line| ("accept-language", *line)).collect();
        let expected = if lines.contains(&"FR") { "fr" } else { "de-DE" };
        for _ in 0..2 {
            assert_eq!(text(ask(&cache, "GET", "/a", &fields).await).await, expected, "{lines:?}");
        }
    }
}

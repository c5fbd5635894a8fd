//! The keys of requests that the program describes by their values.

use std::fmt::Display;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get as route;
use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, KeyedRules, RequestKey, UriTemplate};
use tower::ServiceExt;

use crate::origin::{Origin, ask, cached, is_hit, memory, request};

fn keyed(key: &RequestKey) -> HttpCacheLayer<KeyedRules> {
    HttpCacheLayer::keyed(MemoryStore::new(100), key.clone()).ttl(Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn a_filled_template_is_the_key_of_the_requests_with_these_values() {
    let key = RequestKey::template("shelf/{warehouse}/{id}").unwrap();
    let key = key.query(["currency", "page"]).header("accept-language").unwrap();
    let layer = keyed(&key);
    let handler =
        route(async |Path((warehouse, id)): Path<(String, u64)>| format!("{warehouse} {id}"));
    let app: Router = Router::new().route("/{warehouse}/{id}", handler.layer(layer.clone()));
    let fields = [("accept-language", "de")];
    let uri = "/north%20%26%20s%C3%BCd/7?currency=EUR&currency=a%20b&x=y";
    app.clone().oneshot(request("GET", uri, &fields)).await.unwrap();
    let filled = key.fill(&[("id", &7), ("warehouse", &"north & süd")]).unwrap();
    let filled = filled.query("currency", "EUR").unwrap().query("currency", "a%20b").unwrap();
    let other = filled.clone().header("accept-language", "en").unwrap().key();
    let same = filled.header("Accept-Language", "de").unwrap().key();
    assert!(!layer.handle().invalidate(&other).await.unwrap());
    assert!(layer.handle().invalidate(&same).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_filled_uri_is_the_key_of_the_requests_for_it() {
    let key = RequestKey::path().query(["q"]).header("x-tenant").unwrap();
    let layer = keyed(&key);
    let cache = cached(&layer, &Origin::echoing());
    ask(&cache, "GET", "http://shop/shelf/a%2Fb?q=1%262&q=3&utm=x", &[("x-tenant", "t")]).await;
    let shelf = UriTemplate::new("/shelf/{name}?q={q}&q={r}").unwrap();
    let uri = shelf.fill(&[("name", &"a/b"), ("q", &"1&2"), ("r", &3)]).unwrap();
    let filled = key.at(&uri).unwrap().header("x-tenant", "t").unwrap();
    assert!(layer.handle().invalidate(&filled.key()).await.unwrap());
}

/// They are different URIs (RFC 3986, section 6.2).
#[tokio::test(start_paused = true)]
async fn a_parameter_without_a_value_is_another_than_an_empty_one() {
    let key = RequestKey::path().query(["currency"]);
    let layer = keyed(&key);
    let cache = cached(&layer, &Origin::echoing());
    let uris = ["/a", "/a?currency", "/a?currency=", "/a?currency=&currency"];
    for uri in uris {
        assert!(!is_hit(&ask(&cache, "GET", uri, &[]).await), "{uri}");
        assert!(is_hit(&ask(&cache, "GET", uri, &[]).await), "{uri}");
    }
    let path = key.at(&"/a".parse().unwrap()).unwrap();
    let bare = path.clone().query("currency", None).unwrap();
    let empty = path.clone().query("currency", "").unwrap();
    let both = empty.clone().query("currency", None).unwrap();
    for (filled, uri) in [path, bare, empty, both].into_iter().zip(uris) {
        let same = key.at(&uri.parse().unwrap()).unwrap().key();
        assert_eq!(filled.key(), same, "{uri}");
        assert!(layer.handle().invalidate(&same).await.unwrap(), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_filled_uri_is_the_one_that_clients_request() {
    let layer = memory();
    let cache = cached(&layer, &Origin::echoing());
    let uri = "https://shop/shelf/north%20%26%20south/7";
    ask(&cache, "GET", uri, &[]).await;
    let shelf = UriTemplate::new("https://shop/shelf/{warehouse}/{id}").unwrap();
    let filled = shelf.fill(&[("warehouse", &"north & south"), ("id", &7)]).unwrap();
    assert!(layer.handle().invalidate(&filled).await.unwrap());
    assert!(!is_hit(&ask(&cache, "GET", uri, &[]).await));
}

#[test]
fn values_that_a_key_does_not_have_are_refused_by_their_names() {
    let items = RequestKey::template("item/{sku}").unwrap().query(["currency"]);
    let fill = |values: &[(&str, &dyn Display)]| items.fill(values).unwrap_err().to_string();
    assert!(fill(&[]).contains("\"sku\": this parameter has no value"));
    assert!(fill(&[("sku", &1), ("id", &2)]).contains("\"id\": the template has no parameter"));
    assert!(fill(&[("sku", &1), ("sku", &1)]).contains("\"sku\": this parameter has two values"));
    let filled = items.fill(&[("sku", &1)]).unwrap();
    let error = filled.clone().query("page", "1").unwrap_err().to_string();
    assert!(error.contains("\"page\": the key has no query parameter"), "{error}");
    let error = filled.header("x-tenant", "a").unwrap_err().to_string();
    assert!(error.contains("\"x-tenant\": the key has no header field"), "{error}");
}

#[test]
fn a_key_of_another_kind_is_not_filled() {
    let at = |key: &RequestKey| key.at(&"/shelf/7".parse().unwrap()).map(drop);
    let fill = |key: &RequestKey| key.fill(&[]).map(drop);
    let template = RequestKey::template("shelf").unwrap();
    let by = RequestKey::by(|_| None);
    assert!(at(&RequestKey::path()).is_ok() && fill(&template).is_ok());
    for refused in [at(&template), at(&by), fill(&by), fill(&RequestKey::path())] {
        assert!(refused.is_err());
    }
}

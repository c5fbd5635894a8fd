//! The keys of requests that the program describes by their values.

use std::fmt::Display;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get as route;
use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use http::Request;
use tower::ServiceExt;

use crate::origin::{Origin, ask, cached, is_hit, request};

fn keyed(key: &RequestKey) -> HttpCacheLayerBuilder<KeyedRules> {
    HttpCacheLayer::keyed(MemoryStore::new(100), key.clone()).ttl(Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn a_filled_template_is_the_key_of_the_requests_with_these_values() {
    let key = RequestKey::template("shelf/{warehouse}/{id}").unwrap();
    let key = key.query(["currency", "page"]).header("accept-language");
    let layer = keyed(&key).build().unwrap();
    let handler =
        route(async |Path((warehouse, id)): Path<(String, u64)>| format!("{warehouse} {id}"));
    let app: Router = Router::new().route("/{warehouse}/{id}", handler.layer(layer.clone()));
    let fields = [("accept-language", "de")];
    let uri = "/north%20%26%20s%C3%BCd/7?currency=EUR&currency=a%20b&x=y";
    app.clone().oneshot(request("GET", uri, &fields)).await.unwrap();
    let filled = |language| {
        let request =
            Request::get("/?currency=EUR&currency=a%20b").header("Accept-Language", language);
        let values: [(&str, &dyn Display); 2] = [("id", &7), ("warehouse", &"north & süd")];
        key.fill(&values, request.body(()).unwrap()).unwrap()
    };
    let (other, same) = (filled("en"), filled("de"));
    assert!(!layer.handle().invalidate(&other).await.unwrap());
    assert!(layer.handle().invalidate(&same).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_request_is_that_of_the_requests_like_it() {
    let key = RequestKey::path().query(["q"]).header("x-tenant");
    let layer = keyed(&key).build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    ask(&cache, "GET", "http://shop/shelf/a%2Fb?q=1%262&q=3&utm=x", &[("x-tenant", "t")]).await;
    let request = Request::get("/shelf/a%2Fb?q=1%262&q=3").header("x-tenant", "t");
    let key = key.of(request.body(()).unwrap()).unwrap();
    assert!(layer.handle().invalidate(&key).await.unwrap());
}

/// They are different URIs (RFC 3986, section 6.2).
#[tokio::test(start_paused = true)]
async fn a_parameter_without_a_value_is_another_than_an_empty_one() {
    let key = RequestKey::path().query(["currency"]);
    let layer = keyed(&key).build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    let uris = ["/a", "/a?currency", "/a?currency=", "/a?currency=&currency"];
    for uri in uris {
        assert!(!is_hit(&ask(&cache, "GET", uri, &[]).await), "{uri}");
        assert!(is_hit(&ask(&cache, "GET", uri, &[]).await), "{uri}");
    }
    for uri in uris {
        let key = key.of(Request::get(uri).body(()).unwrap()).unwrap();
        assert!(layer.handle().invalidate(&key).await.unwrap(), "{uri}");
    }
}

#[test]
fn values_that_a_key_does_not_have_are_refused_by_their_names() {
    let items = RequestKey::template("item/{sku}").unwrap().query(["currency"]);
    let fill = |values: &[(&str, &dyn Display)]| {
        items.fill(values, Request::new(())).unwrap_err().to_string()
    };
    assert!(fill(&[]).contains("\"sku\": this parameter has no value"));
    assert!(fill(&[("sku", &1), ("id", &2)]).contains("\"id\": the template has no parameter"));
    assert!(fill(&[("sku", &1), ("sku", &1)]).contains("\"sku\": this parameter has two values"));
}

#[test]
fn a_key_of_another_kind_is_not_filled() {
    let of = |key: &RequestKey| key.of(Request::new(())).map(drop);
    let fill = |key: &RequestKey| key.fill(&[], Request::new(())).map(drop);
    let (template, with_parameter) = (RequestKey::template("shelf"), RequestKey::template("{id}"));
    let (template, with_parameter) = (template.unwrap(), with_parameter.unwrap());
    let by = RequestKey::by(|_| None);
    assert!(of(&RequestKey::path()).is_ok() && of(&template).is_ok() && fill(&template).is_ok());
    for refused in [of(&with_parameter), of(&by), fill(&by), fill(&RequestKey::path())] {
        assert!(refused.is_err());
    }
}

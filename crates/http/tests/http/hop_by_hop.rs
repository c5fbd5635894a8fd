//! Fields that `Connection` names are for one connection: neither key nor origin sees them.

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether_http::{HttpCache, HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use http::{HeaderName, Request};

use crate::origin::{Origin, ask, cached, get, is_hit, memory, page, says, text};

type Field = (&'static str, &'static str);

const FRESH: Field = ("cache-control", "public, max-age=60");

/// A proxy in front of an application that answers by a field. As every proxy does, it removes what
/// `Connection` names (RFC 9110, section 7.6.1).
fn behind_a_proxy(by: &'static str, vary: &'static [Field]) -> Origin {
    Origin::new(move |mut request: Request<Body>, _| async move {
        let named = request.headers().get("connection").cloned();
        let named = named.map_or(String::new(), |named| named.to_str().unwrap().to_owned());
        for name in named.split(',').filter_map(|name| name.trim().parse::<HeaderName>().ok()) {
            request.headers_mut().remove(name);
        }
        let said = request.headers().get(by).map_or("nothing", |said| said.to_str().unwrap());
        Ok(page(&[vary, &[FRESH]].concat(), said.to_owned()))
    })
}

fn keyed(by: &str) -> HttpCacheLayerBuilder<KeyedRules> {
    let key = RequestKey::path().header(by);
    let minute = std::time::Duration::from_secs(60);
    HttpCacheLayer::keyed(MemoryStore::new(100), key).ttl(minute).jitter(0.0)
}

async fn answer(cache: &HttpCache<Origin>, fields: &[Field]) -> String {
    text(get(cache, fields).await).await
}

const ATTACK: Field = ("connection", "keep-alive, X-Tenant");

#[tokio::test(start_paused = true)]
async fn a_field_that_connection_names_selects_no_variant() {
    let cache =
        cached(&memory().build().unwrap(), &behind_a_proxy("x-tenant", &[("vary", "x-tenant")]));
    assert_eq!(answer(&cache, &[("x-tenant", "a"), ATTACK]).await, "nothing");
    assert_eq!(answer(&cache, &[("x-tenant", "a")]).await, "a");
    assert_eq!(answer(&cache, &[("x-tenant", "a"), ATTACK]).await, "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_field_that_connection_names_is_no_part_of_a_key() {
    let cache = cached(&keyed("x-tenant").build().unwrap(), &behind_a_proxy("x-tenant", &[]));
    assert_eq!(answer(&cache, &[("x-tenant", "a"), ATTACK]).await, "nothing");
    assert_eq!(answer(&cache, &[("x-tenant", "a")]).await, "a");
    assert_eq!(answer(&cache, &[("x-tenant", "a"), ATTACK]).await, "nothing");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_field_that_no_key_has_is_not_kept() {
    for by in ["x-tenant", "accept-language", "host", "cookie", "authorization", "x-forwarded-host"]
    {
        let origin = behind_a_proxy(by, &[]);
        let layers = [
            cached(&memory().build().unwrap(), &origin),
            cached(&keyed("x-other").build().unwrap(), &origin),
        ];
        for cache in layers {
            let attack = get(&cache, &[(by, "shop"), ("connection", by)]).await;
            assert!(says(&attack, "fwd=bypass"), "{by}: {attack:?}");
            assert_eq!(text(attack).await, "nothing");
            let plain = [("accept-language", "de"), ("x-tenant", "de")];
            let good = get(&cache, &plain).await;
            assert!(!is_hit(&good), "{by}: {good:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_connection_robs_is_answered_by_nothing_that_is_kept() {
    let origin = behind_a_proxy("x-tenant", &[]);
    for method in ["GET", "HEAD"] {
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[("x-tenant", "a")]).await;
        assert!(is_hit(&ask(&cache, method, "http://shop/item", &[("x-tenant", "b")]).await));
        let attack = [("x-tenant", "a"), ("connection", "x-tenant, close")];
        let answer = ask(&cache, method, "http://shop/item", &attack).await;
        assert!(says(&answer, "fwd=bypass"), "{method}: {answer:?}");
        assert!(says(&answer, "detail=connection"), "{method}: {answer:?}");
    }
}

/// `Connection` could remove a prohibition, so such a response is not shared.
#[tokio::test(start_paused = true)]
async fn a_directive_that_connection_names_makes_nothing_shared() {
    let cache = cached(&memory().build().unwrap(), &behind_a_proxy("x", &[]));
    let attack = [("cache-control", "no-store"), ("connection", "cache-control")];
    for _ in 0..2 {
        assert!(says(&get(&cache, &attack).await, "fwd=bypass"));
    }
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn what_is_about_the_connection_only_changes_nothing() {
    let origin = behind_a_proxy("x", &[]);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[("connection", "close"), ("te", "trailers"), ("keep-alive", "5")]).await;
    for name in ["connection", "te", "keep-alive"] {
        assert_eq!(origin.last(name), None, "{name} belongs to the loading caller");
    }
    for options in ["close", "keep-alive", "Keep-Alive, TE", ", ", "TE, close", "proxy-connection"]
    {
        assert!(is_hit(&get(&cache, &[("connection", options)]).await), "{options}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_names_a_field_removes_what_is_kept_all_the_same() {
    for named in ["x-tenant", "host"] {
        let cache = cached(&memory().build().unwrap(), &behind_a_proxy("x", &[]));
        let fields = [("host", "shop"), ("connection", named)];
        ask(&cache, "GET", "/item", &fields[..1]).await;
        assert!(is_hit(&ask(&cache, "GET", "/item", &fields[..1]).await));
        ask(&cache, "POST", "/item", &fields).await;
        assert!(!is_hit(&ask(&cache, "GET", "/item", &fields[..1]).await), "{named}");
    }
}

#[tokio::test(start_paused = true)]
async fn fields_that_the_connection_of_an_answer_names_are_not_kept() {
    const NAMED: &[Field] = &[("connection", "x-mine, close"), ("x-mine", "1")];
    let cache = cached(&memory().build().unwrap(), &behind_a_proxy("x", NAMED));
    get(&cache, &[]).await;
    let kept = get(&cache, &[]).await;
    assert!(is_hit(&kept));
    assert!(!kept.headers().contains_key("x-mine") && !kept.headers().contains_key("connection"));
}

/// Middleware above the layer may have set the field.
#[tokio::test(start_paused = true)]
async fn a_field_that_connection_names_reaches_the_service_behind_the_layer() {
    for method in ["GET", "HEAD", "POST", "OPTIONS"] {
        let origin = Origin::counting(&[FRESH]);
        for cache in [
            cached(&memory().build().unwrap(), &origin),
            cached(&keyed("x-role").build().unwrap(), &origin),
        ] {
            let fields = [("host", "shop"), ("x-role", "customer"), ("connection", "x-role, host")];
            ask(&cache, method, "/item", &fields).await;
            assert_eq!(origin.last("x-role").as_deref(), Some("customer"), "{method}");
            assert_eq!(origin.last("host").as_deref(), Some("shop"), "{method}");
        }
    }
}

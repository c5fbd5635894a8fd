//! The alerts of the rules fire when what they tell of is the case.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bellwether_testkit::servers::{PrometheusServer, RedisServer};
use tokio::time::sleep;

use crate::prometheus::{LOOKS, shipped};
use crate::server::{Catalog, ask};

/// The rules with short memories, so that a fault need not last for minutes.
fn hasty_rules() -> String {
    let rules = fs::read_to_string(shipped("rules.yml")).expect("the rules");
    let rules = rules.replace("[5m]", "[15s]").replace("[10m]", "[15s]");
    let lines = rules.lines().filter(|line| !line.trim().starts_with("for: "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Waits until each of these alerts has fired, and goes on with what makes them fire.
async fn until_fired(prometheus: &PrometheusServer, alerts: &[&str], go_on: impl AsyncFn(usize)) {
    let mut fired = BTreeSet::new();
    for look in 0..LOOKS {
        go_on(look).await;
        sleep(Duration::from_secs(1)).await;
        let url = format!("{}/api/v1/alerts", prometheus.url());
        let answer = ask(Method::GET, &url, "").await.json;
        for alert in answer["data"]["alerts"].as_array().expect("alerts") {
            let words = alert["annotations"].to_string();
            assert!(!words.contains("error expanding"), "{words}");
            if alert["state"] == "firing" {
                fired.insert(alert["labels"]["alertname"].as_str().expect("a name").to_owned());
            }
        }
        if alerts.iter().all(|alert| fired.contains(*alert)) {
            return;
        }
    }
    panic!("of {alerts:?} only these fire: {fired:?}");
}

#[tokio::test]
async fn the_alerts_fire_when_the_database_is_down_and_when_the_store_is_down() {
    let mut redis = RedisServer::start();
    let catalog = Catalog::start(&["--store", &redis.url()]);
    let prometheus = PrometheusServer::start(&[catalog.target()], &hasty_rules());

    catalog.post("/demo/broken?on=true", "").await;
    let alerts = ["BellwetherLoadsFail", "BellwetherRefreshesFail", "BellwetherRequestsFail"];
    until_fired(&prometheus, &alerts, async |look| {
        for sku in 0..60 {
            let cold = format!("/api/product/{}", 60_000 + 60 * look + sku);
            assert_eq!(catalog.get(&cold).await.status, StatusCode::SERVICE_UNAVAILABLE);
        }
    })
    .await;
    catalog.post("/demo/broken?on=false", "").await;

    redis.kill();
    let alerts = [
        "BellwetherStoreDown",
        "BellwetherStoreErrors",
        "BellwetherLoadsWithoutLease",
        "BellwetherNearCopiesUnused",
    ];
    until_fired(&prometheus, &alerts, async |_| {}).await;
}

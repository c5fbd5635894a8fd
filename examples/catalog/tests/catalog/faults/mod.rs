//! Each alert of the rules fires when what it tells of is the case: the fault is made, and a real
//! Prometheus watches.

mod between;
mod callers;
mod changes;
mod lost_locks;
mod outage;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bellwether_testkit::servers::{PrometheusServer, RedisServer};
use tokio::time::sleep;

use crate::prometheus::{LOOKS, shipped};
use crate::server::{Catalog, ask};

/// The name of an alert, and the value of one of its labels: what it tells of.
type Alert = (&'static str, &'static str);

/// The rules in a time that runs twenty times as fast, so that no fault need last for minutes: each
/// minute of a range and of a `for` is three seconds. Nothing else is changed, and no expression.
fn hasty_rules() -> String {
    let mut rules = shipped_rules();
    for (before, after) in [("[", "]"), ("for: ", "\n")] {
        for minutes in [10, 5, 2, 1] {
            let hasty = format!("{before}{}s{after}", 3 * minutes);
            rules = rules.replace(&format!("{before}{minutes}m{after}"), &hasty);
        }
    }
    let mut lines = rules.lines();
    let is_slow =
        |line: &str| line.contains("m]") || line.trim().starts_with("for:") && line.ends_with('m');
    assert_eq!(lines.find(|line| is_slow(line)), None, "each minute is replaced");
    rules
}

fn shipped_rules() -> String {
    fs::read_to_string(shipped("rules.yml")).expect("the rules")
}

/// Waits until each of these alerts has fired, and goes on with what makes them fire. Returns what has
/// fired: names of alerts, each with the values of its labels.
async fn until_fired(
    prometheus: &PrometheusServer,
    alerts: &[Alert],
    go_on: impl AsyncFn(usize),
) -> BTreeSet<(String, String)> {
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
                let labels = alert["labels"].as_object().expect("labels").values();
                let name = alert["labels"]["alertname"].as_str().expect("a name");
                fired.extend(
                    labels.filter_map(|label| Some((name.to_owned(), label.as_str()?.to_owned()))),
                );
            }
        }
        let has_fired =
            |(name, of): &Alert| fired.contains(&((*name).to_owned(), (*of).to_owned()));
        if alerts.iter().all(has_fired) {
            return fired;
        }
    }
    panic!("of {alerts:?} only these fire: {fired:?}");
}

const DATABASE_DOWN: &[Alert] = &[
    ("BellwetherLoadsFail", "product"),
    ("BellwetherRefreshesFail", "product"),
    ("BellwetherRequestsFail", "product"),
];

const STORE_DOWN: &[Alert] = &[
    ("BellwetherStoreDown", "catalog"),
    ("BellwetherStoreErrors", "catalog"),
    ("BellwetherLoadsWithoutLease", "product"),
    ("BellwetherNearCopiesUnused", "catalog"),
];

#[tokio::test]
async fn the_alerts_fire_when_the_database_is_down_and_when_the_store_is_down() {
    let mut redis = RedisServer::start();
    let catalog = Catalog::start(&["--store", &redis.url()]);
    let prometheus = PrometheusServer::start(&catalog.targets(), &hasty_rules());

    catalog.press("broken?on=true").await;
    until_fired(&prometheus, DATABASE_DOWN, async |look| {
        for sku in 0..60 {
            let cold = format!("/api/product/{}", 60_000 + 60 * look + sku);
            assert_eq!(catalog.get(0, &cold).await.status, StatusCode::SERVICE_UNAVAILABLE);
        }
    })
    .await;
    catalog.press("broken?on=false").await;

    redis.kill();
    until_fired(&prometheus, STORE_DOWN, async |_| {}).await;
}

#[test]
fn every_alert_of_the_rules_fires_in_a_test_that_makes_its_fault() {
    let rules = shipped_rules();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    // One is about a metric of the exporter of Redis, which does not run here, the other one about a machine
    // that is too small: `promtool` tests them.
    let by_promtool = ["BellwetherTrackingTableFull", "BellwetherProcessStalls"];
    let names = names.filter(|name| !by_promtool.contains(name));
    let tests = [
        DATABASE_DOWN,
        STORE_DOWN,
        callers::ALERTS,
        between::ALERTS,
        outage::DAMAGED,
        outage::DOWN,
        lost_locks::ALERTS,
        changes::ALERTS,
    ];
    let fired: BTreeSet<_> = tests.into_iter().flatten().map(|(name, _)| *name).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), fired);
}

/// Only the ranges and the times of the rules differ, by their factor.
#[test]
fn the_hasty_rules_are_the_shipped_ones() {
    let (rules, hasty) = (shipped_rules(), hasty_rules());
    let without_times = |rules: &str| -> Vec<String> {
        let is_time = |word: &&str| !word.chars().any(|letter| letter.is_ascii_digit());
        let lines = rules.lines().map(|line| line.split(['[', ']', ' ']).filter(is_time).collect());
        lines.map(|words: Vec<_>| words.join(" ")).collect()
    };
    assert_eq!(without_times(&rules), without_times(&hasty));
    assert_eq!(rules.matches("[5m]").count(), hasty.matches("[15s]").count());
    assert_eq!(rules.matches("[10m]").count(), hasty.matches("[30s]").count());
}

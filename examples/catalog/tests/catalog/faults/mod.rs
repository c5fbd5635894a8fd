//! Each alert of the rules fires when what it tells of is the case: the fault is made, and `promtool` continues
//! the real metrics for half an hour as they changed meanwhile.

mod between;
mod callers;
mod changes;
mod lost_locks;
mod outage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use bellwether_testkit::servers::{RedisServer, promtool_says};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::prometheus::{LOOKS, shipped};
use crate::server::Catalog;

/// The name of an alert, and the value of one of its labels: what it tells of.
type Alert = (&'static str, &'static str);

/// Seconds from one sample to the next one.
const STEP: f64 = 15.0;

/// The names of all alerts.
fn alerts() -> Vec<String> {
    let rules = fs::read_to_string(shipped("rules.yml")).expect("the rules");
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// Makes a fault until each of these alerts has fired by the metrics of some programs. Returns the labels of all
/// that fire in the end.
async fn until_fired(
    metrics: impl AsyncFn() -> Vec<String>,
    expected: &[Alert],
    fault: impl AsyncFn(usize),
) -> BTreeSet<String> {
    let (before, began) = (metrics().await, Instant::now());
    let mut fired = BTreeSet::new();
    for look in 0..LOOKS {
        fault(look).await;
        sleep(Duration::from_millis(100)).await;
        let (after, steps) = (metrics().await, began.elapsed().as_secs_f64() / STEP);
        let programs = before.iter().zip(&after).enumerate();
        let series = programs.flat_map(|(instance, (before, after))| {
            continued(&format!("instance=\"{instance}\",job=\"test\""), before, after, steps)
        });
        let now = firing(&series.collect::<Vec<_>>());
        fired.extend(now.clone());
        if expected.iter().all(|alert| has_fired(&fired, alert)) {
            return now;
        }
    }
    panic!("of {expected:?} only these fire: {fired:?}");
}

fn has_fired(fired: &BTreeSet<String>, (name, of): &Alert) -> bool {
    let [name, of] = [format!("alertname=\"{name}\""), format!("=\"{of}\"")];
    fired.iter().any(|labels| labels.contains(&name) && labels.contains(&of))
}

/// The series of a program: a gauge stays as it is, and all else goes on growing as it did in so many steps.
fn continued(labels: &str, before: &str, after: &str, steps: f64) -> Vec<Value> {
    let before: BTreeMap<_, _> = samples(before).collect();
    let series = samples(after).map(|(series, now)| {
        let (name, of) = series.split_once('{').unwrap_or((series, "}"));
        let values = if after.contains(&format!("# TYPE {name} gauge\n")) {
            format!("{now}+0x120")
        } else {
            let begin = before.get(series).copied().unwrap_or_default();
            format!("{begin}+{}x120", (now - begin) / steps)
        };
        json!({ "series": format!("{name}{{{labels},{of}"), "values": values })
    });
    series.collect()
}

/// Each series of an exposition, with its value.
fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| line.rsplit_once(' '));
    samples.map(|(series, value)| (series, value.parse().expect("a number")))
}

/// The labels of all alerts that fire after half an hour of these series: `promtool` expects none and shows each.
fn firing(series: &[Value]) -> BTreeSet<String> {
    let silence = |name| json!({ "eval_time": "30m", "alertname": name, "exp_alerts": [] });
    let test = json!({
        "rule_files": [shipped("rules.yml")],
        "evaluation_interval": "15s",
        "tests": [{
            "interval": "15s",
            "input_series": series,
            "alert_rule_test": alerts().into_iter().map(silence).collect::<Vec<_>>(),
        }],
    });
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("test.json"), test.to_string()).expect("a file");
    let (_, said) = promtool_says(&["test", "rules", "test.json"], folder.path(), "");
    let is_understood = said.contains("alertname:") || said.contains("SUCCESS");
    assert!(is_understood && !said.contains("error expanding"), "{said}");
    let labels = said.lines().filter_map(|line| line.trim().strip_prefix("Labels:"));
    labels.map(str::to_owned).collect()
}

const DATABASE_DOWN: &[Alert] =
    &[("BellwetherLoadsFail", "product"), ("BellwetherRequestsFail", "product")];

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
    let metrics =
        async || join_all((0..catalog.processes()).map(|process| catalog.metrics(process))).await;

    catalog.press("broken?on=true").await;
    until_fired(&metrics, DATABASE_DOWN, async |look| {
        for sku in 0..60 {
            let cold = format!("/api/product/{}", 60_000 + 60 * look + sku);
            assert_eq!(catalog.get(0, &cold).await.status, StatusCode::SERVICE_UNAVAILABLE);
        }
    })
    .await;
    catalog.press("broken?on=false").await;

    redis.kill();
    until_fired(&metrics, STORE_DOWN, async |_| {}).await;
}

#[test]
fn every_alert_of_the_rules_fires_in_a_test_that_makes_its_fault() {
    // About a metric of the exporter of Redis, which does not run here; a machine that is too small; and an
    // audit, which the demo has not: `promtool` tests them.
    let by_promtool =
        ["BellwetherTrackingTableFull", "BellwetherProcessStalls", "BellwetherStaleServed"];
    let names = alerts().into_iter().filter(|name| !by_promtool.contains(&&**name));
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
    let fired: BTreeSet<_> =
        tests.into_iter().flatten().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), fired);
}

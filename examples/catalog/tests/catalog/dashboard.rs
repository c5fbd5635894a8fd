//! The dashboard: it is what its script writes, and each of its panels shows something.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bellwether_testkit::servers::{PrometheusServer, RedisServer};
use serde_json::Value;
use tokio::time::sleep;

use crate::changes::Changes;
use crate::locks;
use crate::prometheus::{LOOKS, number, query, shipped};
use crate::server::Catalog;

/// Where `scripts/test` puts the builders of dashboards.
const GRAFANA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/grafana");

fn dashboard() -> Value {
    let json = fs::read_to_string(shipped("dashboard.json")).expect("the dashboard");
    serde_json::from_str(&json).expect("JSON")
}

/// The titles and queries of all panels, for all caches and stores.
fn panels() -> Vec<(String, String)> {
    let every = ["$job", "$instance", "$cache", "$store", "$locks"];
    let query = |panel: &Value| {
        let expression = panel["targets"][0]["expr"].as_str()?.replace("$__rate_interval", "30s");
        let expression = every.iter().fold(expression, |expr, name| expr.replace(name, ".*"));
        assert!(!expression.contains('$'), "{expression}");
        Some((panel["title"].as_str()?.to_owned(), expression))
    };
    dashboard()["panels"].as_array().expect("panels").iter().filter_map(query).collect()
}

#[test]
fn the_dashboard_is_what_its_script_writes() {
    assert!(
        Path::new(GRAFANA).is_dir(),
        "this test needs the builders of Grafana: run `scripts/test`, which installs them"
    );
    let script = shipped("dashboard.py");
    let output = Command::new("python3").env("PYTHONPATH", GRAFANA).arg(script).output();
    let output = output.expect("python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let written: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(written, dashboard(), "write it again: see observability/dashboard.py");
}

/// What Grafana's own types do not know is lost if they read the dashboard and write it.
#[test]
fn the_dashboard_has_nothing_that_grafana_does_not_know() {
    let script = "import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
dashboard = json.load(open(sys.argv[1]))
read = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
assert read == dashboard, 'it is not what Grafana reads'";
    let python = Command::new("python3")
        .env("PYTHONPATH", GRAFANA)
        .args(["-c", script])
        .arg(shipped("dashboard.json"))
        .output()
        .expect("python3");
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
}

#[tokio::test]
async fn every_panel_has_data_after_a_burst() {
    let redis = RedisServer::start();
    let of_memory = Catalog::start(&["--store", "memory"]);
    let fleet = Catalog::start(&["--store", &redis.url()]);
    let locks = locks::serve().await;
    let changes = Changes::start(&redis).await;
    let targets = [of_memory.targets(), fleet.targets(), vec![&locks, &changes.target]].concat();
    let rules = fs::read_to_string(shipped("rules.yml")).expect("the rules");
    let prometheus = PrometheusServer::start(&targets, &rules);
    let mut waiting = panels();
    assert!(waiting.len() > 30, "{waiting:?}");
    for look in 0..LOOKS {
        fleet.press("burst").await;
        share_a_load(&fleet, 70_000 + look).await;
        changes.record("product");
        sleep(Duration::from_secs(1)).await;
        let mut empty = Vec::new();
        for (title, expression) in waiting {
            let result = query(prometheus.url(), &expression).await;
            let result = result.unwrap_or_else(|error| panic!("{title}: {expression}: {error}"));
            if !result.iter().any(|series| number(series).is_some()) {
                empty.push((title, expression));
            }
        }
        waiting = empty;
        if waiting.is_empty() {
            return;
        }
    }
    panic!("these panels have no data: {waiting:#?}");
}

/// Asks two processes for one product, whose query takes so long that one waits for the other.
async fn share_a_load(fleet: &Catalog, sku: usize) {
    for is_slow in [true, false] {
        fleet.press(&format!("slow?on={is_slow}")).await;
        let product = format!("/api/product/{sku}");
        tokio::join!(fleet.get(0, &product), fleet.get(1, &product));
    }
}

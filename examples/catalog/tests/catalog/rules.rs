//! The rules and the metrics, as `promtool` sees them.

use std::fs;

use bellwether_testkit::servers::{RedisServer, promtool};

use crate::locks;
use crate::prometheus::shipped;
use crate::server::{Catalog, read};

fn text(name: &str) -> String {
    fs::read_to_string(shipped(name)).expect(name)
}

#[test]
fn the_rules_are_valid_and_pass_their_tests() {
    promtool(&["check", "rules", "rules.yml"], &shipped(""), "");
    promtool(&["check", "config", "example.yml"], &shipped(""), "");
    promtool(&["test", "rules", "rules_test.yml"], &shipped(""), "");
}

#[test]
fn every_alert_fires_in_the_tests_of_the_rules() {
    let rules = text("rules.yml");
    let tests = text("rules_test.yml");
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<_> = names.collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} fires in no test");
    }
}

#[test]
fn every_alert_is_in_the_readme() {
    let rules = text("rules.yml");
    let readme = text("README.md");
    for name in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(readme.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[tokio::test]
async fn the_metrics_are_as_prometheus_wants_them() {
    let redis = RedisServer::start();
    for store in ["memory", &redis.url()] {
        let catalog = Catalog::start(&["--store", store]);
        catalog.get(0, "/api/product/4242").await;
        let metrics = catalog.metrics(0).await;
        for line in ["bellwether_requests_total{", "catalog_queries_total{way=\"moka\"}"] {
            assert!(metrics.contains(line), "{line} is missing: {metrics}");
        }
        promtool(&["check", "metrics"], &shipped(""), &metrics);
    }
    let locks = format!("http://{}/metrics", locks::serve().await);
    promtool(&["check", "metrics"], &shipped(""), &read(&locks).await);
}

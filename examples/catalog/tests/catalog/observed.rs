//! `--observe`: a Prometheus beside the program.

use std::time::Duration;

use tokio::time::sleep;

use crate::prometheus::{LOOKS, number, query};
use crate::server::Catalog;

#[tokio::test]
async fn a_prometheus_beside_it_collects_its_metrics_and_knows_the_rules() {
    let catalog = Catalog::start(&["--observe=127.0.0.1:0"]);
    let url = catalog.said(|line| Some(line.strip_prefix("catalog: Prometheus: ")?.to_owned()));
    let ratio = "min(job_cache:bellwether_from_cache:ratio_rate5m{job=\"catalog\"})";
    for _ in 0..LOOKS {
        let result = query(&url, ratio).await.expect("a query");
        if result.first().and_then(number).is_some() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{ratio} has no value");
}

#[tokio::test]
async fn without_a_prometheus_it_says_so_and_serves() {
    let catalog = Catalog::start_in(&["PATH=/nowhere"], &["--observe"]);
    let said = catalog.said(|line| Some(line.strip_prefix("catalog: no Prometheus: ")?.to_owned()));
    assert!(said.contains("--observe=127.0.0.1:9090"), "{said}");
    assert!(said.contains("apt-get install prometheus"), "{said}");
    assert!(catalog.get("/api/product/42").await.status.is_success());
}

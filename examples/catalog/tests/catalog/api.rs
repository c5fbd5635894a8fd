//! What the processes answer: all ways agree, protection shows, and three processes are a fleet.

use std::time::Duration;

use axum::http::StatusCode;
use bellwether_testkit::servers::{PostgresServer, RedisServer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::server::{Catalog, post_from, read};

#[tokio::test]
async fn a_product_is_the_same_in_all_ways_and_processes() {
    let catalog = Catalog::start(&[]);
    assert_eq!(catalog.processes(), 3);
    let protected = catalog.get(0, "/api/product/4242").await;
    assert_eq!(protected.json["name"], "Ash Whistle no. 4242");
    assert_eq!(protected.cache_status(), "bellwether; fwd=miss; stored");
    for process in 0..3 {
        let again = catalog.get(process, "/api/product/4242").await;
        assert!(again.cache_status().contains("; hit"), "{process}: {}", again.cache_status());
        for way in ["unprotected", "moka", "moka"] {
            let answer = catalog.get(process, &format!("/api/product/4242?way={way}")).await;
            assert_eq!((answer.cache_status(), &answer.json), ("", &protected.json), "{way}");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let catalog = Catalog::start(&["--store", "memory"]);
    let ways = [("", "fwd=miss"), ("", "; hit"), ("?way=unprotected", ""), ("?way=moka", "")];
    for (way, status) in ways {
        let answer = catalog.get(0, &format!("/api/product/100001{way}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert!(answer.cache_status().contains(status), "{way}: {}", answer.cache_status());
    }
    let nothing = catalog.get(0, "/api/product/1?way=none").await;
    assert_eq!(nothing.status, StatusCode::BAD_REQUEST);
}

/// What one process changes, the others know.
#[tokio::test]
async fn a_new_price_is_answered_by_every_process_of_a_fleet_at_once() {
    let catalog = Catalog::start(&[]);
    let before = catalog.get(1, "/api/product/77001").await.json["price_cents"].as_i64().unwrap();
    for price in [before + 1, before] {
        let body = json!({ "price_cents": price }).to_string();
        let changed = catalog.post(0, "/api/product/77001", &body).await;
        assert_eq!(changed.status, StatusCode::NO_CONTENT);
        assert_eq!(catalog.get(0, "/api/product/77001").await.json["price_cents"], price);
        // A copy near by ends with the next message of the server.
        let until = Instant::now() + Duration::from_secs(5);
        while catalog.get(1, "/api/product/77001").await.json["price_cents"] != price {
            assert!(Instant::now() < until, "the other process still answers the old one");
        }
    }
    let refused = catalog.post(0, "/api/product/77001", r#"{"price_cents": -1}"#).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let nothing = catalog.post(0, "/api/product/100001", r#"{"price_cents": 1}"#).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
}

fn queries(burst: &Value) -> u64 {
    let processes = burst.as_array().expect("processes").iter();
    processes
        .map(|process| {
            assert_eq!(process["errors"], 0, "{burst}");
            process["queries"].as_u64().expect("a number")
        })
        .sum()
}

#[tokio::test]
async fn a_burst_is_a_thousand_queries_or_one_for_each_process_or_one() {
    let redis = RedisServer::start();
    for (store, processes) in [("memory", 1), (&*redis.url(), 3)] {
        let catalog = Catalog::start(&["--store", store]);
        assert_eq!(catalog.processes(), processes);
        for _ in 0..2 {
            let burst = catalog.press("burst").await.json;
            let queries = ["unprotected", "moka", "protected"].map(|way| queries(&burst[way]));
            assert_eq!(queries, [1_000, processes as u64, 1], "{store}");
        }
        // That Redis is not the program's own.
        let stop = catalog.press("stopped?on=true").await;
        assert_eq!(stop.status, StatusCode::SERVICE_UNAVAILABLE);
    }
}

#[tokio::test]
async fn after_a_change_during_a_load_only_bellwether_answers_the_new_price_at_once() {
    let catalog = Catalog::start(&[]);
    let race = catalog.press("race").await.json;
    assert_eq!(race["moka"]["processes"].as_array().map(Vec::len), Some(3), "{race}");
    // Its lifetime is 5 s, and its load ended after the change.
    assert!(race["moka"]["last_seconds"].as_f64().is_some_and(|last| last > 3.0), "{race}");
    for way in ["unprotected", "protected"] {
        assert_eq!(race[way]["answers"], 0, "{race}");
    }
}

#[tokio::test]
async fn after_a_change_by_sql_only_bellwether_answers_the_new_price_within_a_second() {
    let postgres = PostgresServer::start();
    let catalog = Catalog::start_in(&[], &["--database", &postgres.url()]);
    let change = catalog.press("sql").await.json;
    assert_eq!(change["moka"]["processes"].as_array().map(Vec::len), Some(3), "{change}");
    assert!(change["moka"]["last_seconds"].as_f64().is_some_and(|last| last > 3.0), "{change}");
    let last = change["protected"]["last_seconds"].as_f64().expect("a time");
    assert!(last < 1.0, "{change}");
    assert_eq!(change["unprotected"]["answers"], 0, "{change}");
    // Each process follows.
    let metrics = catalog.metrics(2).await;
    assert!(metrics.contains("bellwether_changes"), "{metrics}");
}

#[tokio::test]
async fn a_change_by_sql_says_what_is_missing_for_it() {
    for (args, missing) in [(&[][..], "PostgreSQL"), (&["--store", "memory"], "Redis")] {
        let refused = Catalog::start(args).press("sql").await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.json["error"].to_string().contains(missing), "{}", refused.json);
    }
}

#[tokio::test]
async fn no_visitor_of_bellwether_gets_an_error_while_the_database_or_redis_is_down() {
    let catalog = Catalog::start(&[]);
    for of in ["broken", "stopped"] {
        let outage = catalog.press(&format!("outage/{of}")).await.json;
        assert_eq!(outage["protected"]["errors"], 0, "{of}: {outage}");
        let figure = |way: &str, name: &str| outage[way][name].as_u64().expect("a count");
        assert!(figure("protected", "answers") > 100, "{of}: {outage}");
        assert!(figure("unprotected", "queries") > 2 * figure("protected", "queries"), "{outage}");
        assert_eq!(figure("unprotected", "errors") > 100, of == "broken", "{outage}");
    }
    // Nothing is down any more.
    assert!(catalog.get(0, "/api/product/90003").await.status.is_success());
    assert!(catalog.get(1, "/api/product/90003").await.cache_status().contains("; hit"));
}

#[tokio::test]
async fn without_a_redis_server_there_is_one_process_with_a_store_in_memory() {
    let catalog = Catalog::start_in(&["PATH=/nowhere"], &[]);
    assert_eq!(catalog.processes(), 1);
    assert!(catalog.get(0, "/api/product/42").await.status.is_success());
    assert!(read(&format!("{}/guide", catalog.url())).await.contains("get_or_load"));
}

/// A Redis of the program's own can be stopped, and answers go on.
#[tokio::test]
async fn a_redis_that_is_stopped_and_started_is_used_again() {
    let catalog = Catalog::start(&[]);
    assert!(catalog.press("stopped?on=true").await.status.is_success());
    for process in 0..3 {
        let answer = catalog.get(process, "/api/product/90001").await;
        assert!(answer.status.is_success(), "{}", answer.json);
    }
    assert!(catalog.press("stopped?on=false").await.status.is_success());
    let until = Instant::now() + Duration::from_secs(30);
    while !catalog.get(2, "/api/product/90002").await.cache_status().contains("; hit") {
        assert!(Instant::now() < until, "it is not used");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let catalog = Catalog::start(&["--store", "memory"]);
    for (base, path) in [
        (catalog.url(), "/demo/slow?on=false"),
        (catalog.process(0), "/weather?slow=false&broken=false"),
    ] {
        let url = format!("{base}{path}");
        assert!(post_from(base, &url).await.status.is_success(), "{url}");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
            let refused = post_from(origin, &url).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{origin} {url}");
        }
    }
}

#[tokio::test]
async fn a_burst_of_too_many_callers_is_refused() {
    let catalog = Catalog::start(&["--store", "memory"]);
    let burst = async |callers| {
        let path = format!("/burst?way=protected&sku=42&callers={callers}");
        catalog.post(0, &path, "").await.status
    };
    assert!(burst(100).await.is_success());
    assert_eq!(burst(1_000_000).await, StatusCode::UNPROCESSABLE_ENTITY);
}

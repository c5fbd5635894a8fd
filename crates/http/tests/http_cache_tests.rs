//! Runs `http-cache-tests`, the public suite for HTTP caches, against a proxy made of this crate.
//!
//! `scripts/test` installs the suite.

#[path = "../../../examples/reverse_proxy/proxy.rs"]
mod proxy;
use std::process::Stdio;
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder};
use bellwether_redis::RedisStore;
use bellwether_testkit::servers::RedisServer;
use http::Uri;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_suite_is_passed_from_memory() {
    check(&score(HttpCacheLayer::builder(MemoryStore::new(10_000))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_suite_is_passed_from_redis() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(), "test").await.expect("a store");
    check(&score(HttpCacheLayer::builder(store)).await);
}

/// The result of one test of the suite.
#[derive(Debug, Deserialize)]
struct Outcome {
    suite: String,
    id: String,
    /// `required` by the RFCs, `optimal` for a cache, or a `check` of what it does.
    kind: String,
    outcome: String,
    detail: String,
}

impl Outcome {
    fn is_passed(&self) -> bool {
        match REVISED.contains(&self.id.as_str()) {
            true => self.outcome == "failed" && self.detail.contains(REUSED),
            false => self.outcome == "passed",
        }
    }
}

/// Of 157 and 86. The other tests are optional behaviour, or depend on time on a busy machine.
const REQUIRED: usize = 151;
const OPTIMAL: usize = 75;

/// Required tests in which this edition of the suite differs from the RFC and from later editions.
/// The RFC takes the first of several ages, and ignores one that is not a number of seconds (RFC 9111,
/// section 5.1), so the response is fresh. This edition expects a stale one, and calls reuse a
/// failure. We count reuse as a pass.
const REVISED: [&str; 9] = [
    "age-parse-nonnumeric",
    "age-parse-negative",
    "age-parse-float",
    "age-parse-prefix-twoline",
    "age-parse-dup-0",
    "age-parse-dup-0-twoline",
    "age-parse-dup-old",
    "age-parse-parameter",
    "age-parse-numeric-parameter",
];

const REUSED: &str = "comes from cache";

fn check(outcomes: &[Outcome]) {
    let of = |kind: &str| {
        let (passed, failed): (Vec<_>, Vec<_>) =
            outcomes.iter().filter(|test| test.kind == kind).partition(|test| test.is_passed());
        println!("{kind}: {} of {}", passed.len(), passed.len() + failed.len());
        for Outcome { suite, id, outcome, detail, .. } in failed {
            println!("  {kind} {suite}/{id} {outcome}: {detail}");
        }
        passed.len()
    };
    let (required, optimal, _) = (of("required"), of("optimal"), of("check"));
    assert_eq!(outcomes.len(), 329);
    assert!(required >= REQUIRED, "{required} of the 157 required tests are passed");
    assert!(optimal >= OPTIMAL, "{optimal} of the 86 optimal tests are passed");
}

async fn score(layer: HttpCacheLayerBuilder) -> Vec<Outcome> {
    // Four required tests of what must not be given out stale count only where other things are. The
    // example proxy has the same window.
    let layer = layer.stale_if_disconnected(Duration::from_secs(60));
    // One required test leaves the end of a body to the end of its connection, which comes after 5 s.
    let layer = layer.collect_within(Duration::from_secs(10)).build().expect("options");
    let (_origin, address) = origin().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let proxy = tokio::spawn(async move { proxy::serve(listener, &address, &layer).await });
    let client = node(&["client", &base]).stdout(Stdio::piped()).output();
    let output = timeout(Duration::from_secs(150), client).await.expect("in time").expect("node");
    proxy.abort();
    let written = String::from_utf8(output.stdout).expect("text");
    let outcomes = written.lines().last().and_then(|line| serde_json::from_str(line).ok());
    outcomes.unwrap_or_else(|| panic!("the client wrote {written}"))
}

/// The origin of the suite. It is stopped when this is dropped.
async fn origin() -> (Child, Uri) {
    let mut server = node(&["server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node");
    let mut written = BufReader::new(server.stdout.take().expect("its output")).lines();
    let line = timeout(Duration::from_secs(30), written.next_line()).await.expect("in time");
    let line = line.expect("text").expect("a line");
    let address = line.strip_prefix("Listening on ").expect("an address");
    // The suite's server writes about each test. A full pipe would block it, so its output is read.
    let address = address.parse().expect("an address");
    tokio::spawn(async move { while let Ok(Some(_)) = written.next_line().await {} });
    (server, address)
}

fn node(arguments: &[&str]) -> Command {
    let root = bellwether_testkit::workspace();
    let suite = root.join("target/http-cache-tests/node_modules/http-cache-tests");
    assert!(suite.is_dir(), "{} is not there: `scripts/test` installs it", suite.display());
    let mut command = Command::new("node");
    command.arg("--no-warnings").arg(root.join("crates/http/tests/http_cache_tests/suite.mjs"));
    command.arg(suite).args(arguments);
    command
}

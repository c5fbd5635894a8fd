//! Runs `http-cache-tests`, the public suite for HTTP caches, against a proxy made of this crate.
//!
//! `scripts/test` installs the suite.

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

use crate::{options, proxy};

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
#[derive(Debug, Deserialize, PartialEq)]
struct Outcome {
    suite: String,
    id: String,
    /// `required` by the RFCs, `optimal` for a cache, or a `check` of what it does.
    kind: String,
    outcome: String,
    detail: String,
}

/// Required tests that fail, and why.
const FAILED: [(&str, &[&str]); 4] = [
    (
        // The RFC takes the first of several ages, and ignores one that is not a number of seconds (RFC
        // 9111, section 5.1), so the response is fresh. Later editions only report what a cache does.
        "this edition contradicts the RFC",
        &[
            "age-parse-nonnumeric",
            "age-parse-negative",
            "age-parse-float",
            "age-parse-prefix-twoline",
            "age-parse-dup-0",
            "age-parse-dup-0-twoline",
            "age-parse-dup-old",
            "age-parse-parameter",
            "age-parse-numeric-parameter",
        ],
    ),
    (
        // The origin disconnects, and this edition expects its response. Later ones expect an error.
        "no cache can pass them",
        &[
            "stale-close-must-revalidate",
            "stale-close-proxy-revalidate",
            "stale-close-no-cache",
            "stale-close-s-maxage=2",
        ],
    ),
    (
        "cookies that are set are for one client",
        &["headers-store-Set-Cookie", "304-etag-update-response-Set-Cookie"],
    ),
    ("a body that takes 5 s is not stored by default", &["headers-store-Transfer-Encoding"]),
];

/// Optimal tests that fail, and why.
const NOT_OPTIMAL: [(&str, &[&str]); 6] = [
    ("responses to POST are not stored", &["method-POST"]),
    // To most handlers, the first language is the best one, and a stored response is for equal fields only.
    ("languages select a variant", &["vary-normalise-lang-order", "vary-normalise-lang-select"]),
    // RFC 9110, section 13.1.3: the response is newer than the date of the request.
    ("this edition contradicts the RFC", &["conditional-lm-fresh-no-lm"]),
    (
        "the whole is loaded for a range",
        &[
            "partial-store-partial-reuse-partial",
            "partial-store-partial-reuse-partial-byterange",
            "partial-store-partial-reuse-partial-absent",
            "partial-store-partial-reuse-partial-suffix",
            "partial-store-partial-complete",
        ],
    ),
    ("must-revalidate does not say that users may share", &["other-authorization-must-revalidate"]),
    ("cookies that are set are for one client", &["other-set-cookie"]),
];

fn check(outcomes: &[Outcome]) {
    assert_eq!(outcomes.len(), 329);
    for (kind, excused) in [("required", &FAILED[..]), ("optimal", &NOT_OPTIMAL[..])] {
        let of_kind = outcomes.iter().filter(|test| test.kind == kind);
        let (passed, failed): (Vec<_>, Vec<_>) = of_kind.partition(|test| test.outcome == "passed");
        println!("{kind}: {} of {}", passed.len(), passed.len() + failed.len());
        let excused: Vec<_> = excused.iter().flat_map(|(_, ids)| ids.iter()).collect();
        let failed = failed.into_iter().filter(|test| !excused.contains(&&&*test.id));
        assert_eq!(failed.collect::<Vec<_>>(), Vec::<&Outcome>::new(), "more {kind} tests failed");
        let (known, of) = (passed.len() + excused.len(), if kind == "required" { 157 } else { 86 });
        assert_eq!(known, of, "fewer {kind} tests failed than are listed");
    }
}

async fn score(layer: HttpCacheLayerBuilder) -> Vec<Outcome> {
    let layer = options::set(layer).build().expect("options");
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
    command.arg("--no-warnings").arg(root.join("crates/http/tests/http/suite.mjs"));
    command.arg(suite).args(arguments);
    command
}

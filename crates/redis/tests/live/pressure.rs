//! A server that runs out of memory, and more keys than any process can hold.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::service::ReadThrough;
use bellwether::{Key, ReadThroughLayer};
use bellwether_redis::RedisStore;
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::catalog::{key, options};

type Loads = Arc<Mutex<HashMap<u64, u64>>>;
type Cached = ReadThrough<Loader, fn(&u64) -> Key>;

/// Counts its loads by key, and answers with text of a kilobyte or so.
#[derive(Clone)]
struct Loader {
    loads: Loads,
    bytes: usize,
}

impl Service<u64> for Loader {
    type Response = String;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<String, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, sku: u64) -> Self::Future {
        let loads = Arc::clone(&self.loads);
        *locked(&loads).entry(sku).or_default() += 1;
        let answer = text(sku, self.bytes);
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            Ok(answer)
        })
    }
}

fn text(sku: u64, bytes: usize) -> String {
    format!("{sku:0bytes$}")
}

async fn cached(server: &RedisServer, bytes: usize) -> (Cached, RedisStore, Loads) {
    let store = options(server).connect().await.expect("a store");
    let loads = Loads::default();
    let key_of: fn(&u64) -> Key = |sku| key(*sku);
    let layer = ReadThroughLayer::builder(store.clone(), key_of)
        .ttl(Duration::from_secs(600))
        .stale_while_revalidate(Duration::from_secs(60))
        .build()
        .unwrap();
    let loader = Loader { loads: Arc::clone(&loads), bytes };
    (layer.layer(loader), store, loads)
}

async fn under_pressure(policy: &str) {
    let server = RedisServer::start_with(&["--maxmemory", "3mb", "--maxmemory-policy", policy]);
    let (cached, _, loads) = cached(&server, 1024).await;
    // Twice each, the second time soon after the first, and some of them at the same time.
    let asked = (0..KEYS).flat_map(|sku| [sku, sku.saturating_sub(8)]);
    let right = stream::iter(asked)
        .map(|sku| {
            let cached = cached.clone();
            async move { cached.oneshot(sku).await.expect("an answer") == text(sku, 1024) }
        })
        .buffer_unordered(64)
        .all(|right| async move { right })
        .await;
    assert!(right, "a caller has the answer of another");
    let evicted: u64 = server.info("stats", "evicted_keys").expect("a figure").parse().unwrap();
    let all: u64 = loads.lock().unwrap().values().sum();
    println!("{policy}: {KEYS} keys, {all} loads, {evicted} evicted");
    assert!(evicted > 0, "there was no pressure");
    assert!(all <= KEYS + evicted, "{all} loads of {KEYS} keys, {evicted} evicted");
    no_lease_is_left(&server);
}

fn no_lease_is_left(server: &RedisServer) {
    let Reply::Array(names) = server.command(&["KEYS", "*:lease"]) else { panic!("no names") };
    assert!(names.is_empty(), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_what_is_least_used_costs_loads_and_no_answer() {
    under_pressure("allkeys-lru").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_what_runs_out_first_costs_loads_and_no_answer() {
    under_pressure("volatile-ttl").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_costs_loads_and_no_answer() {
    let server =
        RedisServer::start_with(&["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"]);
    let (cached, _, loads) = cached(&server, 1024).await;
    let asked = stream::iter(0..500_u64).map(|sku| {
        let cached = cached.clone();
        async move { assert_eq!(cached.oneshot(sku).await.expect("an answer"), text(sku, 1024)) }
    });
    asked.buffer_unordered(64).collect::<()>().await;
    let all: u64 = loads.lock().unwrap().values().sum();
    assert_eq!(all, 500, "a load for each");
    no_lease_is_left(&server);
}

/// It leaves nothing but its bounded entries, for any number of keys.
#[tokio::test(flavor = "multi_thread")]
async fn many_keys_leave_nothing_in_this_process_and_nothing_for_ever_in_redis() {
    let server =
        RedisServer::start_with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]);
    let store = options(&server).connect().await.expect("a store");
    let key_of: fn(&u64) -> Key = |sku| key(*sku);
    let layer =
        ReadThroughLayer::builder(store, key_of).ttl(Duration::from_secs(600)).build().unwrap();
    let cached = layer.layer(service_fn(|sku: u64| ready(Ok::<_, Infallible>(sku))));
    let ask = async |skus: std::ops::Range<u64>| {
        let asked = stream::iter(skus).map(|sku| {
            let cached = cached.clone();
            async move { assert_eq!(cached.oneshot(sku).await.expect("an answer"), sku) }
        });
        asked.buffer_unordered(512).collect::<()>().await;
    };
    ask(0..MANY / 10).await;
    let before = resident();
    ask(MANY / 10..MANY).await;
    let grown = resident().saturating_sub(before);
    println!("{MANY} keys: {} KiB more than after a tenth of them", grown / 1024);
    // Less than what the digest of each key would take.
    assert!(grown < 2 * 1024 * 1024, "grown by {grown} bytes");
    let ended = timeout(Duration::from_secs(5), async {
        while cached.in_flight() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    });
    ended.await.expect("the last flights end");
    let keyspace = server.info("keyspace", "db0").expect("some keys");
    let figure =
        |name| keyspace.split(',').find_map(|part| part.strip_prefix(name)).map(str::to_owned);
    assert!(figure("keys=").is_some());
    assert_eq!(figure("keys="), figure("expires="), "something lives for ever: {keyspace}");
    no_lease_is_left(&server);
}

/// How many bytes of memory this process has.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(1).expect("a figure");
    pages.parse::<usize>().expect("a number") * 4096
}

const KEYS: u64 = 5_000;

const MANY: u64 = 120_000;

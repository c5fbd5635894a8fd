//! A refusal of the server costs loads, and no answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bellwether_redis_client::RedisScript;
use bellwether_testkit::faults::{FaultProxy, Replacement};
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::catalog::{Catalog, name, options_at};

const REFUSALS: [&str; 16] = [
    "-LOADING Redis is loading the dataset in memory",
    "-READONLY You can't write against a read only replica.",
    "-OOM command not allowed when used memory > 'maxmemory'.",
    "-MOVED 3999 127.0.0.1:6381",
    "-ASK 3999 127.0.0.1:6381",
    "-NOSCRIPT No matching script. Please use EVAL.",
    "-NOAUTH Authentication required.",
    "-NOPERM this user has no permissions to run the 'evalsha' command",
    "-MISCONF Redis is configured to save RDB snapshots",
    "-BUSY Redis is busy running a script.",
    "-CLUSTERDOWN The cluster is down",
    "-CROSSSLOT Keys in request don't hash to the same slot",
    "-WRONGTYPE Operation against a key holding the wrong kind of value",
    "-TRYAGAIN Multiple keys request during rehashing of slot",
    "-MASTERDOWN Link with MASTER is down",
    "-NOREPLICAS Not enough good replicas to write.",
];

/// As a server refuses, and as if its answer were spoilt on the way.
const WAYS: [fn(String, String) -> Replacement; 2] = [Replacement::refusal, Replacement::of];

/// Short, so that the lease of a failed caller does not delay the next one for long.
const LEASE: Duration = Duration::from_millis(500);

/// The timeout of the store here. A refused request does not reach it.
const BUDGET: Duration = Duration::from_secs(5);

const PATIENCE: Duration = Duration::from_secs(10);

struct Scene {
    server: RedisServer,
    proxy: FaultProxy,
    catalog: Catalog,
}

impl Scene {
    async fn start() -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await;
        let store = options_at(&proxy.url()).connect().await.expect("a store");
        Self { server, proxy, catalog: Catalog::leasing(store, LEASE) }
    }

    /// Asks while the server refuses something, and is answered by one load.
    async fn ask_refused(&self, sku: u64, refusals: Vec<Replacement>) {
        let refused: Vec<_> = refusals.into_iter().map(|it| self.proxy.replace(it)).collect();
        let loads = self.catalog.loads();
        let answer = timeout(BUDGET, self.catalog.ask(sku)).await.expect("within the budget");
        assert_eq!(answer, format!("item {sku}, load {loads}"));
        // Some is asked only after the answer.
        let all_met = async {
            while refused.iter().any(|refused| refused.count() == 0) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, all_met).await.expect("everything is asked that is to be refused");
        assert_eq!(self.catalog.loads(), loads + 1);
        self.proxy.heal();
    }

    /// How much is left of a lease; less than nothing if there is none.
    fn lease_left(&self, sku: u64) -> i64 {
        let left = self.server.command(&["PTTL", &format!("{}:lease", name(sku))]);
        let Reply::Integer(left) = left else { panic!("{left:?} is no time") };
        left
    }

    /// Asks for all, and says how many were loaded.
    async fn ask_all(&self, skus: u64) -> usize {
        let loads = self.catalog.loads();
        let answers = join_all((0..skus).map(|sku| self.catalog.ask(sku))).await;
        for (sku, answer) in answers.iter().enumerate() {
            assert!(answer.starts_with(&format!("item {sku}, load ")), "{answer}");
        }
        self.catalog.loads() - loads
    }
}

/// Asks for one item per refusal and way; each is of all commands that hold `step`.
async fn survive_all(step: &str, beforehand: &[Replacement]) {
    let scene = Scene::start().await;
    let cases = REFUSALS.iter().flat_map(|refusal| WAYS.map(|way| (refusal, way)));
    let mut skus = 0;
    for (refusal, way) in cases {
        println!("item {skus}: {refusal}");
        let mut refusals = beforehand.to_vec();
        refusals.push(way(step.to_owned(), format!("{refusal}\r\n")));
        scene.ask_refused(skus, refusals).await;
        let left = scene.lease_left(skus);
        assert!(left != -1 && left <= 500, "the lease of item {skus} is left for {left} ms");
        skus += 1;
    }
    assert!(scene.ask_all(skus).await <= 2 * REFUSALS.len(), "once it is over, one load at most");
    assert_eq!(scene.ask_all(skus).await, 0, "and then all are hits");
    let leases: Vec<_> = (0..skus).filter(|sku| scene.lease_left(*sku) != -2).collect();
    assert!(leases.is_empty(), "the leases of {leases:?} are left");
}

fn call_of(script: &str) -> String {
    let script = RedisScript::linked("", &[include_str!("../../src/prelude.lua")], script);
    format!("EVALSHA {}", script.hash())
}

fn acquiring() -> String {
    call_of(include_str!("../../src/acquire.lua"))
}

#[tokio::test]
async fn a_refused_lookup_is_survived() {
    survive_all("MGET bw:", &[]).await;
}

#[tokio::test]
async fn a_refused_acquire_is_survived() {
    survive_all(&acquiring(), &[]).await;
}

#[tokio::test]
async fn a_refused_commit_is_survived() {
    survive_all(&call_of(include_str!("../../src/commit.lua")), &[]).await;
}

/// An unacknowledged lease is given up.
#[tokio::test]
async fn a_refused_abandon_is_survived() {
    let unacknowledged = Replacement::of(acquiring(), "-LOADING no reply\r\n");
    let abandoning = call_of(include_str!("../../src/abandon.lua"));
    survive_all(&abandoning, &[unacknowledged]).await;
}

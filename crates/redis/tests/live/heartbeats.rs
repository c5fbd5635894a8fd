//! A near copy is served only while its connection answers heartbeats.

use std::time::Duration;

use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::RedisServer;
use tokio::time::{Instant, sleep};

use crate::catalog::key;
use crate::near::{copied, near, other_process, put};

/// How long an operation may take here.
const TIMEOUT: Duration = Duration::from_millis(250);

/// For how long a copy is served after the last message of its connection, as documented.
const BOUND: Duration = Duration::from_millis(1250);

/// Much longer than that.
const LONG: Duration = Duration::from_secs(4);

/// A store with a near tier behind a proxy, another process, and an item that the store has a copy
/// of.
async fn stage(server: &RedisServer) -> (FaultProxy, RedisStore, RedisStore) {
    let proxy = FaultProxy::start(([127, 0, 0, 1], server.port()).into()).await;
    let options = RedisOptions::new(&proxy.url(), "live");
    let options = options.map(|options| options.timeout(TIMEOUT)).expect("options");
    let store = near(options).connect().await.expect("a store");
    let other = other_process(server).await;
    put(&other, 1, 7).await;
    copy(&store, 1).await;
    (proxy, store, other)
}

/// Makes lookups until the answer is copied: on a busy machine the first one may come too late.
async fn copy(store: &RedisStore, sku: u64) {
    while copied(store, sku).is_none() {
        // It may have timed out.
        let _ = store.find(key(sku)).await;
    }
}

#[tokio::test]
async fn a_copy_that_was_not_read_does_not_outlive_a_connection_that_died_meanwhile() {
    let server = RedisServer::start();
    let (proxy, store, other) = stage(&server).await;
    // Long enough for the heartbeat to pause.
    sleep(LONG).await;
    proxy.blackhole();
    other.invalidate(key(1)).await.expect("invalidated");
    sleep(BOUND).await;
    assert_eq!(copied(&store, 1), None, "no message for {BOUND:?}");
}

#[tokio::test]
async fn a_copy_that_is_read_all_the_time_does_not_outlive_its_connection_for_longer_than_the_bound()
 {
    let server = RedisServer::start();
    for silence in [FaultProxy::blackhole, FaultProxy::silence] {
        let (proxy, store, other) = stage(&server).await;
        silence(&proxy);
        other.invalidate(key(1)).await.expect("invalidated");
        let invalidated = Instant::now();
        loop {
            // What is served was asked for before.
            let began = invalidated.elapsed();
            if copied(&store, 1).is_none() {
                break;
            }
            assert!(began < BOUND, "served {began:?} after its invalidation");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn after_an_idle_time_one_answer_of_the_server_confirms_all_copies() {
    let server = RedisServer::start();
    let (_proxy, store, other) = stage(&server).await;
    put(&other, 2, 8).await;
    copy(&store, 2).await;
    sleep(LONG).await;
    assert_eq!([copied(&store, 1), copied(&store, 2)], [None; 2], "it is asked first");
    copy(&store, 1).await;
    assert_eq!(
        copied(&store, 2),
        Some(8),
        "the message of its change would have come before the answer"
    );
}

#[tokio::test]
async fn an_idle_process_does_not_ask_for_signs_of_life() {
    let server = RedisServer::start();
    let (_proxy, _store, _other) = stage(&server).await;
    sleep(BOUND).await;
    let pings = || server.info("commandstats", "cmdstat_ping");
    let before = pings();
    sleep(LONG).await;
    assert_eq!(pings(), before);
}

#[tokio::test]
async fn a_copy_that_is_read_is_confirmed_without_being_asked_for_again() {
    let server = RedisServer::start();
    let (_proxy, store, _other) = stage(&server).await;
    let looks = || server.info("commandstats", "cmdstat_mget");
    let before = looks();
    let began = Instant::now();
    let mut confirmed = Duration::ZERO;
    while began.elapsed() < LONG {
        if copied(&store, 1).is_some() {
            confirmed = began.elapsed();
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert!(confirmed > BOUND * 2, "it ended after {confirmed:?}");
    assert_eq!(looks(), before);
}

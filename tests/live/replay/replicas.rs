//! Invalidations that wait for replicas.

use std::time::Duration;

use bellwether::store::{Commit, Draft, Store, Value};
use bellwether::{Cache, ConfigError, Lifetimes, StoreError, StoreErrorKind};
use bellwether_redis::ReplicatedWrites::{self, Invalidations, InvalidationsAndEntries};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::until;
use futures_util::future::join_all;
use tokio::select;
use tokio::time::sleep;

use super::{MINUTE, Of, found, invalidate, lease, put};
use crate::catalog::{key, name, options_at};

/// A primary and its replica.
async fn pair() -> [RedisServer; 2] {
    let at_once = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
    let primary = RedisServer::start_with(&at_once);
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let status = || replica.info("replication", "master_link_status");
    until("the replica is linked", || status().as_deref() == Some("up")).await;
    [primary, replica]
}

async fn store(server: &RedisServer, within: Duration) -> RedisStore {
    store_of(server, Invalidations, within).await
}

async fn store_of(server: &RedisServer, writes: ReplicatedWrites, within: Duration) -> RedisStore {
    let options = options_at(&server.url()).replicated(writes, 1, within).expect("one replica");
    options.connect().await.expect("a store")
}

/// How many waits have begun. Each is an `EVAL` and a `WAIT`, which counts only if it returns at once.
fn waits(server: &RedisServer) -> u64 {
    let stats = server.info("commandstats", "cmdstat_eval").expect("one on connecting");
    let calls = stats.strip_prefix("calls=").and_then(|stats| stats.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).expect("a number")
}

#[tokio::test]
async fn an_invalidation_returns_when_the_replica_has_it() {
    let [primary, replica] = pair().await;
    let store = store(&primary, Duration::from_secs(30)).await;
    for (sku, of) in [(1, Of::Keys), (2, Of::Tags)] {
        put(&store, sku, "old").await;
        invalidate(&store, sku, of).await.expect("the replica has it");
    }
    assert_eq!(replica.command(&["EXISTS", &name(1)]), Reply::Integer(0));
    assert_eq!(replica.command(&["EXISTS", &name(2)]), Reply::Integer(1));
}

#[tokio::test]
async fn an_invalidation_that_no_replica_has_is_an_error_and_was_executed() {
    let server = RedisServer::start();
    let store = store(&server, Duration::from_millis(50)).await;
    for (sku, of) in [(1, Of::Keys), (2, Of::Tags)] {
        put(&store, sku, "old").await;
        let error = invalidate(&store, sku, of).await.expect_err("there is no replica");
        assert_eq!(error.kind(), StoreErrorKind::NotReady, "{error}");
        assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
        assert!(error.is_executed() && !error.is_kept(), "{error}");
        assert_eq!(found(&store, sku).await, None);
    }
    assert!(!store.is_down());
    assert_eq!(store.stats().replay.pending, 0);
}

/// Stores an item.
async fn commit(store: &RedisStore, sku: u64) -> Result<Commit, StoreError> {
    let lease = lease(store, sku).await;
    let value = Value::new("item".into());
    store.commit(lease, Draft::new(value, 1, Lifetimes::fresh_for(MINUTE))).await
}

#[tokio::test]
async fn an_entry_that_waits_is_stored_when_the_replica_has_it() {
    let [primary, replica] = pair().await;
    let store = store_of(&primary, InvalidationsAndEntries, Duration::from_secs(30)).await;
    assert_eq!(commit(&store, 1).await.expect("the replica has it"), Commit::Stored);
    assert_eq!(replica.command(&["EXISTS", &name(1)]), Reply::Integer(1));
    assert!(invalidate(&store, 1, Of::Keys).await.is_ok());
    assert_eq!(replica.command(&["EXISTS", &name(1)]), Reply::Integer(0));
}

#[tokio::test]
async fn an_entry_that_no_replica_has_is_an_error_and_was_stored() {
    let server = RedisServer::start();
    let short = Duration::from_millis(50);
    let waits = store_of(&server, InvalidationsAndEntries, short).await;
    let error = commit(&waits, 1).await.expect_err("there is no replica");
    assert_eq!(error.kind(), StoreErrorKind::NotReady, "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    assert_eq!(found(&waits, 1).await.as_deref(), Some("item"));
    assert!(!waits.is_down());
    // No lease is left.
    assert_eq!(server.command(&["EXISTS", &format!("{}:lease", name(1))]), Reply::Integer(0));
    let waits_not = store_of(&server, Invalidations, short).await;
    assert_eq!(commit(&waits_not, 2).await.expect("it waits for no replica"), Commit::Stored);
}

#[tokio::test]
async fn callers_get_their_answer_and_a_put_fails_if_no_replica_has_it() {
    let server = RedisServer::start();
    let store = store_of(&server, InvalidationsAndEntries, Duration::from_millis(50)).await;
    let cache = Cache::<String>::builder("item", store).ttl(MINUTE).build();
    let load = async || Ok::<_, std::io::Error>("loaded".to_owned());
    assert_eq!(cache.get_or_load(1, load).await.expect("an answer"), "loaded");
    assert_eq!(cache.get(1).await.expect("an answer").as_deref(), Some("loaded"));
    cache.put(1, "put".to_owned()).await.expect_err("there is no replica");
    assert_eq!(cache.get(1).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalidations_at_the_same_time_share_waits() {
    const MANY: u64 = 200;
    let server = RedisServer::start();
    let store = store(&server, Duration::from_secs(1)).await;
    let before = waits(&server);
    let ended = join_all((0..MANY).map(|sku| store.invalidate(key(sku)))).await;
    assert!(ended.iter().all(Result::is_err), "there is no replica");
    let waits = waits(&server) - before;
    assert!((1..MANY / 4).contains(&waits), "{waits} waits");
}

#[tokio::test]
async fn a_wait_holds_up_no_lookup() {
    let server = RedisServer::start();
    let store = store(&server, Duration::from_secs(60)).await;
    put(&store, 1, "other").await;
    let mut invalidated = store.invalidate(key(2));
    let before = waits(&server);
    let is_waited_for = async {
        while waits(&server) == before {
            sleep(Duration::from_millis(1)).await;
        }
        found(&store, 1).await
    };
    select! {
        ended = &mut invalidated => panic!("there is no replica: {ended:?}"),
        found = is_waited_for => assert_eq!(found.as_deref(), Some("other")),
    }
}

#[tokio::test]
async fn a_user_that_may_not_wait_is_told_at_the_start() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "bw", "on", ">secret", "~*", "+@all", "-wait"]);
    let url = server.url().replace("://", "://bw:secret@");
    let options = options_at(&url)
        .replicated(Invalidations, 1, Duration::from_millis(50))
        .expect("one replica");
    let error = options.connect().await.expect_err("it may not");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("'wait'"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let options = || RedisOptions::new("redis://localhost", "test").expect("an address");
    let second = Duration::from_secs(1);
    let refused = [
        options().replicated(Invalidations, 0, second).err(),
        options().replicated(Invalidations, 101, second).err(),
        options().replicated(Invalidations, 1, Duration::ZERO).err(),
        options().replicated(Invalidations, 1, 61 * second).err(),
        options().kept_invalidations(1_000_001).err(),
        options().reassert_window(601 * second).err(),
    ];
    for refused in refused {
        let refused = refused.expect("an error");
        let is_named = matches!(refused, ConfigError::Number { .. } | ConfigError::Duration { .. });
        assert!(is_named, "{refused}");
    }
}

//! An invalidation that fails is kept, and repeated before its key or its tag is read.

use std::time::Duration;

use bellwether::store::{Settled, Store};
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join;
use futures_util::poll;
use tokio::time::sleep;

use super::{
    Of, Site, commit, find, found, invalidate, is_back, is_replayed, lease, put, tag, tags,
};
use crate::catalog::{key, options_at};

#[tokio::test]
async fn an_expiry_that_fails_is_repeated_and_leaves_the_entry_as_stale() {
    let site = Site::start().await;
    let (store, other) = (site.store().await, site.other().await);
    put(&other, 1, "old").await;
    put(&other, 2, "old").await;
    site.close();
    assert!(store.expire(key(1)).await.expect_err("no connection").is_pending());
    assert!(
        store.expire_tag(tag(2), Duration::ZERO).await.expect_err("no connection").is_pending()
    );
    site.proxy.pass();
    is_replayed(&store).await;
    for sku in [1, 2] {
        let entry = other.lookup(key(sku), tags(sku)).await.expect("an answer");
        assert!(!entry.expect("it stays").is_fresh(), "item {sku}");
    }
}

#[tokio::test]
async fn a_drain_says_what_is_left_and_ends_when_the_server_has_executed_all() {
    let site = Site::start().await;
    let (store, other) = (site.store().await, site.other().await);
    put(&other, 1, "old").await;
    assert_eq!(store.drain(Duration::ZERO).await, 0);
    assert_eq!(store.drain(Duration::MAX).await, 0);
    site.close();
    invalidate(&store, 1, Of::Keys).await.expect_err("no connection");
    assert_eq!(store.drain(Duration::from_millis(100)).await, 1);
    assert!(found(&other, 1).await.is_some());
    let opened = async {
        sleep(Duration::from_millis(100)).await;
        site.proxy.pass();
    };
    let (left, ()) = join(store.drain(Duration::from_secs(60)), opened).await;
    assert_eq!((left, found(&other, 1).await), (0, None));
}

#[tokio::test]
async fn an_invalidation_that_is_dropped_before_it_returns_is_repeated() {
    let site = Site::start().await;
    let (store, other) = (site.store().await, site.other().await);
    put(&other, 1, "old").await;
    site.proxy.blackhole();
    let mut dropped = store.invalidate(key(1));
    assert!(poll!(&mut dropped).is_pending());
    drop(dropped);
    assert_eq!(store.stats().replay.pending, 1);
    site.proxy.pass();
    site.proxy.cut();
    is_replayed(&store).await;
    assert_eq!(found(&other, 1).await, None);
}

#[tokio::test]
async fn a_load_that_began_before_a_failed_invalidation_is_not_stored() {
    for of in [Of::Keys, Of::Tags] {
        let site = Site::start().await;
        let (store, other) = (site.store().await, site.other().await);
        let old = lease(&store, 1).await;
        site.close();
        invalidate(&store, 1, of).await.expect_err("no connection");
        site.proxy.pass();
        is_back(&store).await;
        assert_eq!(commit(&store, old, "old").await, Settled::Superseded);
        assert_eq!(found(&other, 1).await, None);
    }
}

#[tokio::test]
async fn what_is_stored_after_a_failed_invalidation_is_not_removed_by_its_replay() {
    let site = Site::start().await;
    let (store, other) = (site.store().await, site.other().await);
    put(&other, 1, "old").await;
    site.close();
    store.invalidate(key(1)).await.expect_err("no connection");
    site.proxy.pass();
    is_replayed(&store).await;
    put(&store, 1, "new").await;
    assert_eq!(found(&other, 1).await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_replay_that_comes_late_brings_nothing_old_back() {
    let site = Site::start().await;
    let (store, other) = (site.store().await, site.other().await);
    put(&other, 1, "old").await;
    let late = lease(&other, 1).await;
    site.close();
    store.invalidate(key(1)).await.expect_err("no connection");
    // Another process invalidates and loads meanwhile.
    other.invalidate(key(1)).await.expect("invalidated");
    put(&other, 1, "new").await;
    site.proxy.pass();
    is_replayed(&store).await;
    assert_eq!(commit(&other, late, "old").await, Settled::Superseded);
    assert_ne!(found(&other, 1).await.as_deref(), Some("old"));
}

#[tokio::test]
async fn keys_without_a_failed_invalidation_are_served_while_others_wait() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "bw", "on", ">secret", "~*", "+@all"]);
    let url = server.url().replace("://", "://bw:secret@");
    let store = options_at(&url).connect().await.expect("a store");
    put(&store, 1, "old").await;
    put(&store, 2, "other").await;
    server.command(&["ACL", "SETUSER", "bw", "-set"]);
    let refused = store.invalidate(key(1)).await.expect_err("it may not write");
    assert!(refused.is_pending(), "{refused}");
    assert_eq!(found(&store, 2).await.as_deref(), Some("other"));
    find(&store, 1).await.expect_err("it is invalidated first, and that fails");
    server.command(&["ACL", "SETUSER", "bw", "+set"]);
    assert_eq!(found(&store, 1).await, None);
}

#[tokio::test]
async fn a_caller_can_demand_that_no_invalidation_is_kept() {
    let site = Site::start().await;
    let options = site.options().pending_invalidations(0);
    let store = options.connect().await.expect("a store");
    put(&store, 1, "old").await;
    site.close();
    let failed = store.invalidate(key(1)).await.expect_err("no connection");
    assert!(!failed.is_pending(), "{failed}");
    assert_eq!(store.stats().replay.pending, 0);
    site.proxy.pass();
    is_back(&store).await;
    assert_eq!(found(&store, 1).await.as_deref(), Some("old"));
}

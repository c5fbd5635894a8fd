//! More invalidations fail than can be kept.

use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Peek, Settled, Store};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use futures_util::FutureExt;
use tokio::time::{advance, pause, resume};

use super::{MINUTE, Site, commit, found, is_back, is_replayed, lease, put};
use crate::catalog::key;
use crate::near::near;

const MOST: u64 = 10;

/// A store that has had to drop the invalidations of half of its items.
async fn overflowed(site: &Site, is_near: bool) -> RedisStore {
    let options = site.options().pending_invalidations(MOST as usize);
    let options = if is_near { near(options) } else { options };
    let store = options.connect().await.expect("a store");
    for sku in 0..3 * MOST {
        put(&store, sku, "old").await;
        assert_eq!(found(&store, sku).await.as_deref(), Some("old"));
    }
    site.close();
    for sku in 0..2 * MOST {
        let failed = store.invalidate(key(sku)).await.expect_err("no connection");
        assert_eq!(failed.is_pending(), sku < MOST, "{failed}");
        let says_so = failed.to_string().contains("too many invalidations");
        assert_eq!(says_so, sku >= MOST, "{failed}");
    }
    let replay = store.stats().replay;
    assert_eq!((replay.pending, replay.kept, replay.dropped), (MOST, MOST, MOST));
    store
}

#[tokio::test]
async fn when_too_many_have_failed_this_process_serves_nothing_from_before() {
    for is_near in [false, true] {
        let site = Site::start().await;
        let store = overflowed(&site, is_near).await;
        for sku in 0..3 * MOST {
            assert!(matches!(store.peek(&key(sku)), Peek::Unknown), "item {sku}");
        }
        site.proxy.pass();
        is_replayed(&store).await;
        is_back(&store).await;
        for sku in 0..3 * MOST {
            assert_eq!(found(&store, sku).await, None, "item {sku}");
            let claim = Claim::new(key(sku));
            let acquired = store.acquire(claim.clone(), MINUTE, Accept::Fresh).await;
            assert!(matches!(acquired, Ok(Acquire::Lead { stale: None, .. })), "{acquired:?}");
            store.abandon(claim).await.expect("given up");
        }
    }
}

#[tokio::test]
async fn when_too_many_have_failed_this_process_serves_what_is_loaded_from_then_on() {
    let site = Site::start().await;
    let store = overflowed(&site, false).await;
    site.proxy.pass();
    is_replayed(&store).await;
    is_back(&store).await;
    for sku in 0..3 * MOST {
        // The estimate of the server's time may be ahead by some milliseconds.
        while found(&store, sku).await.is_none() {
            let lease = lease(&store, sku).await;
            commit(&store, lease, "new").await;
        }
        assert_eq!(found(&store, sku).await.as_deref(), Some("new"));
    }
}

#[tokio::test]
async fn a_load_that_began_before_too_many_failed_is_not_stored() {
    let site = Site::start().await;
    let options = site.options().pending_invalidations(1);
    let store = options.connect().await.expect("a store");
    let old = lease(&store, 3).await;
    site.close();
    for sku in [1, 2, 3] {
        store.invalidate(key(sku)).await.expect_err("no connection");
    }
    site.proxy.pass();
    is_replayed(&store).await;
    is_back(&store).await;
    assert_eq!(commit(&store, old, "old").await, Settled::Superseded);
}

#[tokio::test]
async fn when_too_many_were_dropped_and_the_machine_was_suspended_entries_are_stored_again() {
    let site = Site::start().await;
    let store = site.options().pending_invalidations(1).connect().await.expect("a store");
    put(&store, 1, "old").await;
    for sku in [2, 3] {
        assert!(store.invalidate(key(sku)).now_or_never().is_none(), "it is sent, and dropped");
    }
    assert_eq!(store.stats().replay.dropped, 1);
    // The clock of this runtime is ahead of that of the machine, as after a suspension.
    pause();
    advance(Duration::from_secs(1)).await;
    resume();
    assert_eq!(found(&store, 1).await, None, "it is from before");
    let lease = lease(&store, 1).await;
    assert_eq!(commit(&store, lease, "new").await, Settled::Done);
    assert_eq!(found(&store, 1).await.as_deref(), Some("new"));
}

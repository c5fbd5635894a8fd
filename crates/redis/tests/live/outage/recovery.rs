//! A Redis that is back is in use again without any action.

use std::pin::pin;
use std::time::{Duration, Instant};

use bellwether::store::{Accept, Acquire, Claim, Draft, Entry, Settled, Store as _, Tags, Value};
use bellwether::{Lifetimes, StoreError, Tag};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::wait::within;
use futures_util::poll;
use tokio::time::sleep;

use super::{Site, lease, look, works_again};
use crate::catalog::key;

/// Calls as usual until it is down, and then for as long as that two probes have failed.
async fn stays_down(store: &RedisStore) {
    let began = Instant::now();
    while !store.is_down() || began.elapsed() < Duration::from_secs(3) {
        let _ = look(store).await;
        let _ = lease(store).await;
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_paused_redis_is_in_use_within_a_second_of_its_return() {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.stop();
    stays_down(&store).await;
    site.server.resume();
    works_again(&store, Instant::now()).await;
}

#[tokio::test]
async fn a_redis_that_was_killed_is_in_use_within_a_second_of_its_return() {
    let mut site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.kill();
    stays_down(&store).await;
    site.server.restart();
    works_again(&store, Instant::now()).await;
    within(Duration::from_secs(60), || store.stats().is_subscribed).await;
}

fn shelf() -> Tags {
    Tags::new([Tag::of("shelf").with(1)]).expect("one tag")
}

/// A large entry and its tag are read by two requests.
async fn look_twice(store: &RedisStore) -> Result<Option<Entry>, StoreError> {
    store.lookup(key(1), shelf()).await
}

/// Lookups alone find that Redis is down, and others that it is back.
async fn is_found_by(look: impl AsyncFn(&RedisStore)) {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    let claim = Claim::new(key(1)).tagged(shelf());
    let acquired = store.acquire(claim, Duration::from_secs(60), Accept::Fresh).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("no lease: {acquired:?}") };
    let lifetimes = Lifetimes::fresh_for(Duration::from_secs(60));
    let draft = Draft::new(Value::new(vec![7; 200_000].into()), 1, lifetimes);
    assert_eq!(store.commit(lease, draft).await.expect("an answer"), Settled::Done);
    assert!(look_twice(&store).await.expect("an answer").is_some());
    site.server.stop();
    while !store.is_down() {
        _ = look_twice(&store).await;
    }
    site.server.resume();
    let began = Instant::now();
    while store.is_down() {
        assert!(began.elapsed() < Duration::from_secs(10), "it stays down");
        look(&store).await;
        sleep(Duration::from_millis(10)).await;
    }
}

/// The probe is one of theirs. It is dropped, and goes on as a `PING`.
#[tokio::test]
async fn a_redis_that_is_back_is_found_although_all_callers_leave_early() {
    is_found_by(async |store| _ = poll!(pin!(look(store)))).await;
}

/// While the server is taken to be down, one of the two is the probe, and the other one is refused.
#[tokio::test]
async fn a_redis_that_is_back_is_found_by_lookups_of_two_requests() {
    is_found_by(async |store| _ = look_twice(store).await).await;
}

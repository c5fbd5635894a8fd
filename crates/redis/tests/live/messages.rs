//! Messages to waiters, where the server reports no changes.

use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, Draft, Entry, Lease, OtherLease, Renew, Settled, Store, StoreErrorKind,
    Tags, Value,
};
use bellwether::{Lifetimes, Tag};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;
use tokio::time::timeout;

use crate::catalog::{key, name, options};
use crate::server::RIGHTS;

const MINUTE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

fn user(server: &RedisServer, more: &[&str]) -> RedisOptions {
    let options = RedisOptions::new(&server.url_of_user(&[&RIGHTS[..], more].concat()), "live");
    options.map(|options| options.timeout(PATIENCE)).expect("options")
}

async fn over_resp2(server: &RedisServer) -> RedisStore {
    options(server).resp2().connect().await.expect("a store")
}

async fn acquire(store: &RedisStore, claim: &Claim, term: Duration) -> Acquire {
    store.acquire(claim.clone(), term, Accept::Fresh).await.expect("an answer")
}

async fn lead(store: &RedisStore, claim: &Claim) -> Lease {
    match acquire(store, claim, MINUTE).await {
        Acquire::Lead { lease, .. } => lease,
        other => panic!("no lease: {other:?}"),
    }
}

async fn is_busy(store: &RedisStore) -> bool {
    matches!(acquire(store, &Claim::new(key(1)), MINUTE).await, Acquire::Busy { .. })
}

/// The length of the lease with the marks of waiters.
fn lease_length(server: &RedisServer) -> Reply {
    server.command(&["STRLEN", &format!("{}:lease", name(1))])
}

#[tokio::test]
async fn a_user_with_the_rights_for_messages_is_told() {
    let server = RedisServer::start();
    let options = user(&server, &["&bw:*", "+subscribe", "+publish"]);
    let store = options.connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    let lease = lead(&store, &Claim::new(key(1))).await;
    let mut watch = store.watch(&key(1));
    assert!(is_busy(&store).await);
    store.abandon(lease.claim).await.expect("given up");
    timeout(PATIENCE, watch.changed()).await.expect("a message");
}

#[tokio::test]
async fn without_the_rights_for_messages_waiters_poll() {
    let server = RedisServer::start();
    for rights in [vec![], vec!["+subscribe"], vec!["&bw:*"]] {
        let store = user(&server, &rights).connect().await.expect("a store");
        assert!(!store.stats().is_subscribed, "{rights:?}");
        assert!(store.watch(&key(1)).is_silent());
    }
}

#[tokio::test]
async fn a_user_that_may_subscribe_and_not_publish_is_named_on_connecting() {
    let server = RedisServer::start();
    let error = user(&server, &["&bw:*", "+subscribe"]).connect().await.expect_err("half of it");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("+publish"), "{error}");
}

/// It has no mark before its first use.
#[tokio::test]
async fn a_store_that_connects_lazily_subscribes_when_it_first_asks_for_a_lease() {
    let server = RedisServer::start();
    let leader = over_resp2(&server).await;
    let lease = lead(&leader, &Claim::new(key(1))).await;
    let store = options(&server).resp2().connect_lazily().expect("options");
    assert!(!store.stats().is_subscribed);
    assert!(is_busy(&store).await);
    within(PATIENCE, || store.stats().is_subscribed).await;
    let mut watch = store.watch(&key(1));
    assert!(is_busy(&store).await);
    leader.abandon(lease.claim).await.expect("given up");
    timeout(PATIENCE, watch.changed()).await.expect("a message");
}

#[tokio::test]
async fn the_end_of_a_subscription_is_a_change_of_all_keys() {
    let server = RedisServer::start();
    let store = over_resp2(&server).await;
    let mut watch = store.watch(&key(1));
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    timeout(PATIENCE, watch.changed()).await.expect("told");
    within(PATIENCE, || store.stats().is_subscribed).await;
}

#[tokio::test]
async fn a_dropped_store_ends_its_subscription() {
    let server = RedisServer::start();
    let store = over_resp2(&server).await;
    drop(store);
    let subscribed = || server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
    within(PATIENCE, || subscribed().is_empty()).await;
}

/// A claim that asks again gets a lease of its own again, and a renewal writes the lease again.
#[tokio::test]
async fn waiters_are_told_of_the_end_of_a_lease_that_was_granted_again_and_renewed() {
    let server = RedisServer::start();
    let (leader, waiter) = (over_resp2(&server).await, over_resp2(&server).await);
    let claim = Claim::new(key(1));
    let _first = lead(&leader, &claim).await;
    let mut watch = waiter.watch(&key(1));
    assert!(is_busy(&waiter).await);
    let lease = lead(&leader, &claim).await;
    assert_eq!(leader.renew(&lease, 2 * MINUTE).await.expect("an answer"), Renew::Held);
    assert_eq!(lease_length(&server), Reply::Integer(48));
    let draft = Draft::new(Value::new("value".into()), 1, Lifetimes::fresh_for(MINUTE));
    leader.commit(lease, draft).await.expect("stored");
    timeout(PATIENCE, watch.changed()).await.expect("a message");
}

#[tokio::test]
async fn a_process_that_asks_often_leaves_one_mark() {
    let server = RedisServer::start();
    let (leader, waiter) = (over_resp2(&server).await, over_resp2(&server).await);
    let _held = lead(&leader, &Claim::new(key(1))).await;
    assert_eq!(lease_length(&server), Reply::Integer(32));
    for _ in 0..3 {
        assert!(is_busy(&waiter).await);
        assert_eq!(lease_length(&server), Reply::Integer(48));
    }
    assert!(is_busy(&leader).await);
    assert_eq!(lease_length(&server), Reply::Integer(64));
}

#[tokio::test]
async fn the_marks_at_a_lease_are_bounded() {
    let server = RedisServer::start();
    let (leader, waiter) = (over_resp2(&server).await, over_resp2(&server).await);
    let lease = lead(&leader, &Claim::new(key(1))).await;
    let marks = "0123456789abcdef".repeat(1000);
    server.command(&["SETRANGE", &format!("{}:lease", name(1)), "32", &marks]);
    assert!(is_busy(&waiter).await);
    assert_eq!(lease_length(&server), Reply::Integer(32 + 16_000));
    leader.abandon(lease.claim).await.expect("given up");
    assert_eq!(lease_length(&server), Reply::Integer(0));
}

#[tokio::test]
async fn a_foreign_value_that_is_as_long_as_a_lease_with_marks_blocks_no_caller() {
    let server = RedisServer::start();
    let store = over_resp2(&server).await;
    for value in ["not a lease".repeat(16), "z".repeat(48), "a".repeat(47)] {
        server.command(&["SET", &format!("{}:lease", name(1)), &value, "EX", "600"]);
        let lease = lead(&store, &Claim::new(key(1))).await;
        store.abandon(lease.claim).await.expect("given up");
    }
}

/// What a store says of the lease that another one has.
async fn other_lease(store: &RedisStore, claim: &Claim) -> OtherLease {
    match acquire(store, claim, MINUTE).await {
        Acquire::Busy { other, .. } => other,
        other => panic!("not busy: {other:?}"),
    }
}

async fn store_value(store: &RedisStore, lease: Lease, length: usize) {
    let value = Value::new(vec![b'x'; length].into());
    let draft = Draft::new(value, 1, Lifetimes::fresh_for(MINUTE));
    assert_eq!(store.commit(lease, draft).await.expect("an answer"), Settled::Done);
}

/// What tells a waiter with this claim that the leader has stored an entry of this length.
async fn told(server: &RedisServer, claim: Claim, length: usize) -> (OtherLease, Option<Entry>) {
    let (leader, waiter) = (over_resp2(server).await, over_resp2(server).await);
    let lease = lead(&leader, &Claim::new(key(1)).tagged(claim.tags().clone())).await;
    let mut watch = waiter.watch(&key(1));
    let other = other_lease(&waiter, &claim).await;
    store_value(&leader, lease, length).await;
    (other, timeout(PATIENCE, watch.changed()).await.expect("a message"))
}

#[tokio::test]
async fn a_message_carries_the_entry_that_was_stored_under_the_lease() {
    let server = RedisServer::start();
    let (other, entry) = told(&server, Claim::new(key(1)), 1000).await;
    let entry = entry.expect("an entry");
    assert!(entry.is_fresh() && other.has_stored(&entry), "{entry:?} {other:?}");
    let tags = Tags::new([Tag::of("category").with(7)]).expect("one tag");
    server.command(&["FLUSHALL"]);
    let (other, entry) = told(&server, Claim::new(key(1)).tagged(tags), 1000).await;
    assert!(other.has_stored(&entry.expect("an entry")), "{other:?}");
}

#[tokio::test]
async fn an_entry_that_is_long_is_not_copied_to_each_process() {
    let server = RedisServer::start();
    let (_, entry) = told(&server, Claim::new(key(1)), 20_000).await;
    assert!(entry.is_none());
}

/// The message may come late, when a later request has found another lease.
#[tokio::test]
async fn an_entry_is_not_that_of_a_later_lease() {
    let server = RedisServer::start();
    let (earlier, entry) = told(&server, Claim::new(key(1)), 10).await;
    let entry = entry.expect("an entry");
    let store = over_resp2(&server).await;
    store.invalidate(key(1)).await.expect("invalidated");
    let _held = lead(&store, &Claim::new(key(1))).await;
    let later = other_lease(&over_resp2(&server).await, &Claim::new(key(1))).await;
    assert!(earlier.has_stored(&entry) && !later.has_stored(&entry));
}

/// An invalidation of a tag does not end the lease. A claim that asks after it sees another epoch.
#[tokio::test]
async fn an_entry_of_an_earlier_epoch_of_a_tag_is_none_to_those_that_ask_later() {
    let server = RedisServer::start();
    let (leader, waiter) = (over_resp2(&server).await, over_resp2(&server).await);
    let tag = || Tag::of("category").with(7);
    let claim = || Claim::new(key(1)).tagged(Tags::new([tag()]).expect("one tag"));
    let lease = lead(&leader, &claim()).await;
    let before = other_lease(&waiter, &claim()).await;
    let untagged = other_lease(&waiter, &Claim::new(key(1))).await;
    let (fence, epochs) = (lease.fence, lease.epochs.to_vec());
    waiter.invalidate_tag(tag()).await.expect("invalidated");
    let after = other_lease(&waiter, &claim()).await;
    let draft = Draft::new(Value::new("value".into()), 1, Lifetimes::fresh_for(MINUTE));
    let entry = draft.into_entry(fence, 0, Some(MINUTE), epochs);
    assert!(before.has_stored(&entry));
    assert!(!after.has_stored(&entry) && !untagged.has_stored(&entry));
}

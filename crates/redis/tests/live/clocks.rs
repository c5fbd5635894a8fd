//! What holds on a server whose clock is set.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, Draft, Entry, Failure, Lease, Peek, Renew, Settled, Store, Tags, Value,
};
use bellwether::{CacheStatus, FailureCause, Lifetimes, ReadThroughLayer, Tag};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisServer;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, service_fn};

use crate::catalog::{key, name, options};
use crate::near::near;

const HOUR: i64 = 3600;
const MINUTE: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(3);
const TERM: Duration = Duration::from_secs(2);

/// A server whose clock is an hour fast, so that it can be put right.
fn fast_server() -> RedisServer {
    RedisServer::start_with_clock(HOUR, &[])
}

async fn store(server: &RedisServer) -> RedisStore {
    options(server).connect().await.expect("a store")
}

async fn lease(store: &RedisStore, sku: u64, term: Duration) -> Lease {
    let acquired = store.acquire(Claim::new(key(sku)), term, Accept::Nothing).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("no lease: {acquired:?}") };
    lease
}

async fn commit(store: &RedisStore, lease: Lease, windows: Lifetimes) -> Settled {
    let draft = Draft::new(Value::new("value".into()), 1, windows);
    store.commit(lease, draft).await.expect("an answer")
}

async fn put(store: &RedisStore, sku: u64, windows: Lifetimes) {
    let lease = lease(store, sku, MINUTE).await;
    assert_eq!(commit(store, lease, windows).await, Settled::Done);
}

async fn looked(store: &RedisStore, sku: u64) -> Option<Entry> {
    store.find(key(sku)).await.expect("an answer")
}

async fn asked(store: &RedisStore, sku: u64, term: Duration) -> Acquire {
    store.acquire(Claim::new(key(sku)), term, Accept::Fresh).await.expect("an answer")
}

/// That an entry, if there is one, has no more life than it was given.
fn is_within(entry: Option<&Entry>, life: Duration) {
    if let Some(left) = entry.and_then(Entry::remaining) {
        assert!(left <= life, "{left:?} are left of {life:?}");
    }
}

/// The ways to read: plainly, with remaining lifetimes, and by a near tier.
async fn readers(server: &RedisServer) -> [RedisStore; 3] {
    let with_lives = store(server).await;
    put(&with_lives, 99, Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE)).await;
    assert!(looked(&with_lives, 99).await.is_some());
    let near = near(options(server)).connect().await.expect("a store");
    [store(server).await, with_lives, near]
}

#[tokio::test]
async fn an_entry_does_not_outlive_its_ttl_on_a_server_whose_clock_is_set_back() {
    let server = fast_server();
    let writer = store(&server).await;
    let known = readers(&server).await;
    let unknown = readers(&server).await;
    let plain = Lifetimes::fresh_for(TTL);
    let stale = plain.stale_while_revalidate(TTL);
    put(&writer, 1, plain).await;
    put(&writer, 2, stale).await;
    for reader in &known {
        assert!(looked(reader, 1).await.is_some() && looked(reader, 2).await.is_some());
    }
    server.turn_clock(0);
    for reader in known.iter().chain(&unknown) {
        is_within(looked(reader, 1).await.as_ref(), TTL);
        is_within(looked(reader, 2).await.as_ref(), 2 * TTL);
    }
    sleep(2 * TTL).await;
    for (number, reader) in known.iter().chain(&unknown).enumerate() {
        for sku in [1, 2] {
            assert!(matches!(reader.peek(&key(sku)), Peek::Unknown), "reader {number}");
            let looked = looked(reader, sku).await;
            assert!(looked.is_none(), "reader {number} finds {looked:?}");
        }
    }
    for sku in [1, 2] {
        let acquired = asked(&writer, sku, TERM).await;
        assert!(matches!(acquired, Acquire::Lead { stale: None, .. }), "{acquired:?}");
    }
}

#[tokio::test]
async fn an_entry_that_is_looked_up_after_the_clock_was_set_back_is_loaded_again() {
    let server = fast_server();
    let writer = store(&server).await;
    put(&writer, 1, Lifetimes::fresh_for(TTL)).await;
    server.turn_clock(0);
    // Its estimate knows the new time only.
    let new = store(&server).await;
    assert!(looked(&new, 1).await.is_none());
    put(&new, 1, Lifetimes::fresh_for(TTL)).await;
    let entry = looked(&new, 1).await;
    assert!(entry.is_some(), "what is stored now has its time");
    assert!(looked(&writer, 1).await.is_some());
}

#[tokio::test]
async fn a_plain_lookup_costs_one_mget_whatever_the_clock_shows() {
    for wrong in [0, HOUR, -HOUR] {
        let server = RedisServer::start_with_clock(wrong, &[]);
        let store = store(&server).await;
        put(&store, 1, Lifetimes::fresh_for(MINUTE)).await;
        let scripts = || server.info("commandstats", "cmdstat_evalsha");
        let before = scripts();
        for _ in 0..100 {
            assert!(looked(&store, 1).await.is_some());
        }
        let after = scripts();
        let count = |stats: Option<String>| -> u64 {
            let stats = stats.expect("figures");
            let calls = stats.strip_prefix("calls=").and_then(|calls| calls.split(',').next());
            calls.and_then(|calls| calls.parse().ok()).expect("a figure")
        };
        assert_eq!(count(after), count(before), "the clock is wrong by {wrong} s");
    }
}

#[tokio::test]
async fn a_lease_without_a_holder_lapses_within_its_term_after_the_clock_was_set_back() {
    let server = fast_server();
    let store = store(&server).await;
    let _gone = lease(&store, 1, TERM).await;
    server.turn_clock(0);
    // A shorter lease than that of the holder.
    let acquired = asked(&store, 1, MINUTE).await;
    let Acquire::Busy { remaining, .. } = acquired else { panic!("{acquired:?}") };
    assert!(remaining <= TERM, "{remaining:?}");
    sleep(TERM).await;
    let acquired = asked(&store, 1, MINUTE).await;
    assert!(matches!(acquired, Acquire::Lead { .. }), "{acquired:?}");
}

#[tokio::test]
async fn a_lease_that_is_renewed_holds_though_the_clock_is_set_back() {
    let server = fast_server();
    let store = store(&server).await;
    let held = lease(&store, 1, TERM).await;
    server.turn_clock(0);
    for _ in 0..6 {
        assert_eq!(store.renew(&held, TERM).await.expect("an answer"), Renew::Held);
        let acquired = asked(&store, 1, Duration::from_millis(100)).await;
        assert!(matches!(acquired, Acquire::Busy { .. }), "{acquired:?}");
        sleep(TERM / 4).await;
    }
    assert_eq!(commit(&store, held, Lifetimes::fresh_for(MINUTE)).await, Settled::Done);
}

#[tokio::test]
async fn a_cooldown_does_not_last_longer_because_the_clock_is_set_back() {
    let server = fast_server();
    let store = store(&server).await;
    let lease = lease(&store, 1, TERM).await;
    let failure = Failure::new(FailureCause::Error, 3, TERM);
    store.fail(lease, failure).await.expect("an answer");
    assert!(matches!(asked(&store, 1, TERM).await, Acquire::Failed { .. }));
    server.turn_clock(0);
    let began = Instant::now();
    loop {
        match asked(&store, 1, TERM).await {
            Acquire::Failed { remaining, .. } => assert!(remaining <= TERM, "{remaining:?}"),
            Acquire::Lead { failures, .. } => return assert_eq!(failures, 3),
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < 2 * TERM, "it does not end");
        sleep(TERM / 4).await;
    }
}

#[tokio::test]
async fn fences_grow_while_the_clock_is_behind_what_it_showed() {
    let server = fast_server();
    let store = store(&server).await;
    store.invalidate(key(1)).await.expect("invalidated");
    server.turn_clock(0);
    let mut last = 0;
    for _ in 0..5 {
        let lease = lease(&store, 1, TERM).await;
        assert!(lease.fence > last, "{lease:?} after {last}");
        last = lease.fence;
        store.abandon(lease.claim).await.expect("given up");
    }
}

/// Its lease has lapsed, so the invalidation finds nothing of it.
#[tokio::test]
async fn an_invalidation_while_the_clock_is_behind_holds_against_a_load_that_began_before() {
    let server = fast_server();
    let store = store(&server).await;
    store.invalidate(key(1)).await.expect("invalidated");
    server.turn_clock(0);
    let late = lease(&store, 1, Duration::from_millis(1)).await;
    sleep(Duration::from_millis(20)).await;
    store.invalidate(key(1)).await.expect("invalidated");
    assert_eq!(commit(&store, late, Lifetimes::fresh_for(MINUTE)).await, Settled::Superseded);
    assert!(looked(&store, 1).await.is_none());
}

/// The clock has caught up with the lease when its load ends.
#[tokio::test]
async fn an_invalidation_holds_against_a_load_during_which_the_clock_was_set_back() {
    for seconds in [1, 3] {
        an_invalidation_holds_though_the_clock_is_set_back_by(seconds).await;
    }
}

async fn an_invalidation_holds_though_the_clock_is_set_back_by(seconds: i64) {
    let server = fast_server();
    let store = store(&server).await;
    let (loading, end) = begun_load(&store).await;
    // It has lapsed, as that of a process that was stopped has.
    server.command(&["DEL", &format!("{}:lease", name(1))]);
    server.turn_clock(HOUR - seconds);
    store.invalidate(key(1)).await.expect("invalidated");
    sleep(Duration::from_secs(seconds.unsigned_abs() + 1)).await;
    end.notify_one();
    let status = loading.await.expect("no panic");
    assert!(matches!(status, CacheStatus::Led { stored: false }), "{status:?}");
    assert!(looked(&store, 1).await.is_none());
}

/// It is known only from the answer, so the lease does not say what it was.
#[tokio::test]
async fn an_invalidated_tag_of_an_answer_holds_against_a_load_during_which_the_clock_was_set_back()
{
    let server = fast_server();
    let store = store(&server).await;
    let (loading, end) = begun_load(&store).await;
    server.turn_clock(HOUR - 3);
    store.invalidate_tag(Tag::of("answer")).await.expect("invalidated");
    end.notify_one();
    let status = loading.await.expect("no panic");
    assert!(matches!(status, CacheStatus::Led { stored: false }), "{status:?}");
    assert!(looked(&store, 1).await.is_none());
}

/// A load of a value with a tag that has begun, and what ends it.
async fn begun_load(store: &RedisStore) -> (JoinHandle<CacheStatus>, Arc<Notify>) {
    let [begun, end] = [(); 2].map(|()| Arc::new(Notify::new()));
    let layer = ReadThroughLayer::builder(store.clone(), |sku: &u64| key(*sku))
        .ttl(MINUTE)
        .answer_tags(|_: &String| [Tag::of("answer")])
        .build()
        .expect("options");
    let mut service = layer.layer(service_fn({
        let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
        move |_: u64| {
            let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
            async move {
                begun.notify_one();
                end.notified().await;
                Ok::<_, Infallible>("value".to_owned())
            }
        }
    }));
    let loading = tokio::spawn(async move { service.call(1).with_status().await.1 });
    begun.notified().await;
    (loading, end)
}

#[tokio::test]
async fn an_expired_entry_stays_stale_though_the_clock_is_set_back() {
    let server = RedisServer::start_with_clock(0, &[]);
    let store = store(&server).await;
    let day = 24 * 60 * MINUTE;
    put(&store, 1, Lifetimes::fresh_for(day).stale_while_revalidate(MINUTE)).await;
    server.turn_clock(2 * HOUR);
    store.expire(key(1)).await.expect("expired");
    server.turn_clock(HOUR);
    let readers = readers(&server).await;
    for reader in &readers {
        if let Some(entry) = looked(reader, 1).await {
            assert!(!entry.is_fresh(), "{entry:?}");
        }
    }
    let acquired = asked(&store, 1, TERM).await;
    assert!(matches!(acquired, Acquire::Lead { .. }), "{acquired:?}");
}

#[tokio::test]
async fn a_second_expiry_makes_nothing_fresh_and_prolongs_nothing() {
    let server = RedisServer::start_with_clock(0, &[]);
    let store = store(&server).await;
    put(&store, 1, Lifetimes::fresh_for(MINUTE).stale_while_revalidate(TTL)).await;
    store.expire(key(1)).await.expect("expired");
    let entry = looked(&store, 1).await.expect("it is stale");
    assert!(!entry.is_fresh(), "{entry:?}");
    sleep(Duration::from_secs(1)).await;
    for back in [0, 10] {
        server.turn_clock(-back);
        store.expire(key(1)).await.expect("expired");
        let entry = looked(&store, 1).await;
        is_within(entry.as_ref(), TTL - Duration::from_secs(1));
        assert_eq!(entry.is_some(), back == 0, "it was made stale later than now: {entry:?}");
    }
    sleep(TTL).await;
    server.turn_clock(0);
    assert!(looked(&store, 1).await.is_none());
}

#[tokio::test]
async fn what_ends_early_because_the_clock_is_set_forward_does_no_harm() {
    let server = RedisServer::start_with_clock(0, &[]);
    let store = store(&server).await;
    let late = lease(&store, 1, MINUTE).await;
    store.invalidate(key(1)).await.expect("invalidated");
    put(&store, 2, Lifetimes::fresh_for(MINUTE)).await;
    let failing = lease(&store, 3, MINUTE).await;
    store.fail(failing, Failure::new(FailureCause::Error, 1, MINUTE)).await.expect("an answer");
    server.turn_clock(HOUR);
    assert_eq!(commit(&store, late, Lifetimes::fresh_for(MINUTE)).await, Settled::Superseded);
    assert!(looked(&store, 2).await.is_none());
    assert!(matches!(asked(&store, 3, TERM).await, Acquire::Lead { .. }));
    put(&store, 1, Lifetimes::fresh_for(MINUTE)).await;
    assert!(looked(&store, 1).await.is_some());
}

/// The clock is set back before and after the expiry.
#[tokio::test]
async fn an_expired_tag_makes_entries_stale_though_the_clock_is_set_back() {
    let server = RedisServer::start_with_clock(2 * HOUR, &[]);
    let store = store(&server).await;
    let group = Tag::of("group").with(1);
    let tags = Tags::new([group.clone()]).expect("one tag");
    let found = || store.lookup(key(1), tags.clone());
    store.expire_tag(group.clone(), Duration::ZERO).await.expect("expired");
    for clock in [HOUR, 0] {
        server.turn_clock(clock);
        let claim = Claim::new(key(1)).tagged(tags.clone());
        let acquired = store.acquire(claim, MINUTE, Accept::Nothing).await;
        let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("no lease: {acquired:?}") };
        let windows = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE);
        assert_eq!(commit(&store, lease, windows).await, Settled::Done);
        assert!(found().await.expect("an answer").is_some_and(|entry| entry.is_fresh()));
        store.expire_tag(group.clone(), Duration::ZERO).await.expect("expired");
        for later in [clock, clock - 1] {
            server.turn_clock(later);
            let entry = found().await.expect("an answer").expect("it is stale");
            assert!(!entry.is_fresh(), "{entry:?} at {later}");
        }
    }
}

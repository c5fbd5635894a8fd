//! Concurrent lookups are sent as one batch.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Settled, Store, Tags, Value};
use bellwether::{Lifetimes, Tag};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::catalog::{key, name, options};

const MINUTE: Duration = Duration::from_secs(60);

async fn store(store: &RedisStore, sku: u64, windows: Lifetimes) {
    let claim = Claim::new(key(sku));
    let Ok(Acquire::Lead { lease, .. }) = store.acquire(claim, MINUTE, Accept::Fresh).await else {
        panic!("no lease of {sku}");
    };
    let draft = Draft::new(Value::new(sku.to_string().into()), 1, windows);
    assert_eq!(store.commit(lease, draft).await.expect("an answer"), Settled::Done);
}

async fn looked(store: &RedisStore, sku: u64) -> Option<String> {
    let entry = store.find(key(sku)).await.expect("an answer")?;
    let value = entry.value().encoded().to_vec();
    Some(String::from_utf8(value).expect("a number"))
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let calls = server.info("commandstats", &format!("cmdstat_{command}"));
    let calls = calls.as_deref().and_then(|calls| calls.strip_prefix("calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn concurrent_lookups_of_different_keys_share_commands() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    join_all((0..129).map(|sku| store(&shared, sku, Lifetimes::fresh_for(MINUTE)))).await;
    let before = calls(&server, "mget");
    let seen = join_all((0..129).map(|sku| looked(&shared, sku))).await;
    let expected: Vec<_> = (0..129).map(|sku: u64| Some(sku.to_string())).collect();
    assert_eq!(seen, expected);
    assert_eq!(calls(&server, "mget") - before, 5, "one alone, and four times 32");
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Else a second thread of the runtime would be woken for each, to poll it in vain.
#[tokio::test]
async fn a_lone_lookup_does_not_wake_its_own_caller() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut lookup = pin!(looked(&shared, 0));
    assert!(lookup.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(!woken.0.load(Ordering::Relaxed));
    assert_eq!(lookup.await, None);
}

#[tokio::test]
async fn concurrent_lookups_get_each_their_own_answer() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    join_all([0, 2, 5].map(|sku| store(&shared, sku, Lifetimes::fresh_for(MINUTE)))).await;
    server.command(&["SET", &name(3), "not ours"]);
    server.command(&["LPUSH", &name(4), "nor this"]);
    let seen = join_all([0, 1, 2, 3, 4, 5, 5].map(|sku| looked(&shared, sku))).await;
    let seen: Vec<_> = seen.iter().map(Option::as_deref).collect();
    assert_eq!(seen, [Some("0"), None, Some("2"), None, None, Some("5"), Some("5")]);
    assert_eq!(shared.stats().unreadable, 1);
}

#[tokio::test]
async fn entries_with_a_stale_lifetime_cost_one_command_as_well() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    let windows = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE);
    join_all((0..10).map(|sku| store(&shared, sku, windows))).await;
    assert_eq!(looked(&shared, 0).await.as_deref(), Some("0"));
    let counts = || ["mget", "time", "evalsha"].map(|command| calls(&server, command));
    let before = counts();
    for sku in 0..10 {
        let entry = shared.find(key(sku)).await.expect("an answer").expect("an entry");
        assert!(entry.is_fresh());
    }
    let after = counts();
    let sent: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(sent, [10, 10, 0], "each by an MGET with a TIME, and no script");
}

#[tokio::test]
async fn an_entry_that_was_expired_says_itself_when_it_ends() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    let windows = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE / 2);
    store(&shared, 7, windows).await;
    shared.expire(key(7)).await.expect("expired");
    let scripts = calls(&server, "evalsha");
    for commands in [2, 1] {
        let before = calls(&server, "mget");
        let entry = shared.find(key(7)).await.expect("an answer").expect("an entry");
        assert!(!entry.is_fresh());
        let Some(left) = entry.remaining() else { panic!("{entry:?}") };
        assert!(left <= MINUTE / 2, "{left:?}");
        assert_eq!(calls(&server, "mget") - before, commands, "the first one learns of the time");
        assert_eq!(calls(&server, "evalsha"), scripts);
    }
}

#[tokio::test]
async fn an_entry_is_fresh_for_its_ttl_and_no_longer_by_the_clock_of_the_server() {
    let server = RedisServer::start_with_clock(0, &[]);
    let shared = options(&server).connect().await.expect("a store");
    store(&shared, 1, Lifetimes::fresh_for(60 * MINUTE).stale_if_error(60 * MINUTE)).await;
    let entry = || async { shared.find(key(1)).await.expect("an answer") };
    assert!(entry().await.expect("an entry").is_fresh());
    server.turn_clock(90 * 60);
    assert!(!entry().await.expect("an entry").is_fresh());
    server.turn_clock(121 * 60);
    assert!(entry().await.is_none());
}

#[test]
fn a_lookup_in_a_batch_of_a_runtime_that_ended_is_sent_alone() {
    let server = RedisServer::start();
    let (lasting, passing) = (runtime(), runtime());
    let shared = lasting.block_on(store_with_one_entry(&server));
    let [mut alone, mut first, mut second] = [(); 3].map(|()| Box::pin(looked(&shared, 1)));
    assert!(lasting.block_on(async { poll!(&mut alone) }).is_pending());
    assert!(passing.block_on(async { poll!(&mut first) }).is_pending());
    assert!(lasting.block_on(async { poll!(&mut second) }).is_pending());
    drop(passing);
    assert_eq!(lasting.block_on(second).as_deref(), Some("1"));
    assert_eq!(lasting.block_on(first).as_deref(), Some("1"));
    assert_eq!(lasting.block_on(alone).as_deref(), Some("1"));
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn store_with_one_entry(server: &RedisServer) -> RedisStore {
    let shared = options(server).connect().await.expect("a store");
    store(&shared, 1, Lifetimes::fresh_for(MINUTE)).await;
    shared
}

#[test]
fn a_lookup_of_another_runtime_does_not_join_the_batch_of_a_stalled_one() {
    let server = RedisServer::start();
    let (ours, still) = (runtime(), runtime());
    let shared = ours.block_on(store_with_one_entry(&server));
    let mut alone = Box::pin(looked(&shared, 1));
    let mut waiting = Box::pin(looked(&shared, 1));
    still.block_on(async {
        // The second one waits for a task that its runtime never runs.
        assert!(poll!(&mut alone).is_pending());
        assert!(poll!(&mut waiting).is_pending());
    });
    let looked = ours.block_on(async { timeout(MINUTE, looked(&shared, 1)).await });
    assert_eq!(looked.expect("an answer").as_deref(), Some("1"));
}

#[test]
fn a_task_whose_batch_was_full_takes_no_lookup_of_another_runtime() {
    const FULL: usize = 32;
    let server = RedisServer::start();
    let (ours, still) = (runtime(), runtime());
    let shared = ours.block_on(store_with_one_entry(&server));
    // One is sent alone, and as many as one command can have are sent at once.
    let mut waiting: Vec<_> = (0..=FULL).map(|_| Box::pin(looked(&shared, 1))).collect();
    still.block_on(async {
        for waiting in &mut waiting {
            assert!(poll!(waiting).is_pending());
        }
    });
    let mut last = Box::pin(looked(&shared, 1));
    assert!(ours.block_on(async { poll!(&mut last) }).is_pending());
    // The task that was to send that batch runs now, and its runtime never again.
    still.block_on(async {
        for _ in 0..4 {
            yield_now().await;
        }
    });
    let looked = ours.block_on(async { timeout(MINUTE, last).await });
    assert_eq!(looked.expect("an answer").as_deref(), Some("1"));
}

async fn store_bytes(store: &RedisStore, sku: u64, bytes: usize) {
    let claim = Claim::new(key(sku));
    let Ok(Acquire::Lead { lease, .. }) = store.acquire(claim, MINUTE, Accept::Fresh).await else {
        panic!("no lease of {sku}");
    };
    let value = Value::new(vec![7; bytes].into());
    let draft = Draft::new(value, 1, Lifetimes::fresh_for(MINUTE));
    assert_eq!(store.commit(lease, draft).await.expect("an answer"), Settled::Done);
}

#[tokio::test]
async fn large_values_have_a_connection_which_is_opened_for_the_first_of_them() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    store_bytes(&shared, 1, 10_000).await;
    assert_eq!(shared.stats().connects, 1);
    store_bytes(&shared, 2, 200_000).await;
    assert_eq!(shared.stats().connects, 2);
    // A process that has not seen it learns its size by the first lookup.
    let other = options(&server).connect().await.expect("a store");
    for connects in [1, 2, 2] {
        let entry = other.find(key(2)).await.expect("an answer").expect("an entry");
        assert_eq!((entry.value().encoded().len(), other.stats().connects), (200_000, connects));
    }
}

#[tokio::test]
async fn a_large_value_is_read_over_the_tracked_connection_of_a_near_tier() {
    let server = RedisServer::start();
    let near = options(&server).near(16 << 20).connect().await.expect("a store");
    store_bytes(&near, 1, 200_000).await;
    for _ in 0..2 {
        near.find(key(1)).await.expect("an answer").expect("an entry");
    }
    assert!(matches!(near.peek(&key(1)), bellwether::store::Peek::Found(_)));
}

/// Its reply would hold up those of other leases.
#[tokio::test]
async fn a_large_entry_that_a_claim_finds_is_read_over_the_connection_for_those() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    store_bytes(&shared, 1, 200_000).await;
    let other = options(&server).connect().await.expect("a store");
    let claimed = other.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await;
    let Ok(Acquire::Found(entry)) = claimed else { panic!("{claimed:?}") };
    assert_eq!((entry.value().encoded().len(), other.stats().connects), (200_000, 2));
    let unreadable = Accept::Other { than: entry.fence() };
    let claimed = other.acquire(Claim::new(key(1)), MINUTE, unreadable).await;
    assert!(matches!(claimed, Ok(Acquire::Lead { stale: Some(_), .. })), "{claimed:?}");
}

/// An entry without a tag of the request counts as none, of any size.
#[tokio::test]
async fn a_large_entry_without_a_tag_of_the_claim_is_loaded_again() {
    let server = RedisServer::start();
    let shared = options(&server).connect().await.expect("a store");
    store_bytes(&shared, 1, 200_000).await;
    let tags = Tags::new([Tag::of("shelf").with(1)]).expect("few tags");
    let claimed = shared.acquire(Claim::new(key(1)).tagged(tags), MINUTE, Accept::Fresh).await;
    assert!(matches!(claimed, Ok(Acquire::Lead { .. })), "{claimed:?}");
}

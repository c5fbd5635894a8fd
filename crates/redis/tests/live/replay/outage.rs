//! Redis stops, a thousand invalidations are made, Redis is back: nothing of them is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::store::{Peek, Store};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Of, find, found, invalidate, is_replayed, other, put};
use crate::catalog::{key, options_at};
use crate::near::near;

const ITEMS: u64 = 1_000;

/// Readers that count what was served although its invalidation had returned.
struct Readers {
    returned: Arc<[AtomicBool]>,
    stale: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<usize>,
}

impl Readers {
    fn of(store: &RedisStore) -> Self {
        let returned: Arc<[_]> = (0..ITEMS).map(|_| AtomicBool::new(false)).collect();
        let (stale, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        for first in 0..8 {
            let (store, returned) = (store.clone(), Arc::clone(&returned));
            let (stale, is_over) = (Arc::clone(&stale), Arc::clone(&is_over));
            tasks.spawn(async move {
                let mut answers = 0;
                for sku in (first * 125..).map(|number| number % ITEMS) {
                    if is_over.load(Ordering::Acquire) {
                        break;
                    }
                    let was_returned = returned[sku as usize].load(Ordering::Acquire);
                    let copied = matches!(store.peek(&key(sku)), Peek::Found(_));
                    let looked = find(&store, sku).await;
                    answers += usize::from(looked.is_ok());
                    if was_returned && (copied || matches!(looked, Ok(Some(_)))) {
                        stale.fetch_add(1, Ordering::Relaxed);
                    }
                    sleep(Duration::from_millis(1)).await;
                }
                answers
            });
        }
        Self { returned, stale, is_over, tasks }
    }

    fn note_returned(&self, sku: u64) {
        self.returned[sku as usize].store(true, Ordering::Release);
    }

    /// How often they were answered, and how often by what was invalidated.
    async fn end(self) -> (usize, usize) {
        self.is_over.store(true, Ordering::Release);
        let answers = self.tasks.join_all().await.into_iter().sum();
        (answers, self.stale.load(Ordering::Relaxed))
    }
}

/// Redis stops, a thousand invalidations are made, Redis is back.
async fn nothing_stale_is_served(of: Of, with: impl FnOnce(RedisOptions) -> RedisOptions) {
    let server = RedisServer::start();
    let store = with(options_at(&server.url()));
    let store = store.timeout(Duration::from_millis(250));
    let store = store.connect().await.expect("a store");
    let other = other(&server).await;
    join_all((0..ITEMS).map(|sku| put(&other, sku, "old"))).await;
    for sku in 0..ITEMS {
        // On a busy machine, an answer may be late.
        while find(&store, sku).await.ok().flatten().is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let readers = Readers::of(&store);
    server.stop();
    for sku in 0..ITEMS {
        let failed = invalidate(&store, sku, of).await.expect_err("the server is stopped");
        assert!(failed.is_pending(), "{failed}");
        readers.note_returned(sku);
    }
    let replay = store.stats().replay;
    assert_eq!((replay.pending, replay.kept, replay.dropped), (ITEMS, ITEMS, 0));
    server.resume();
    is_replayed(&store).await;
    for sku in 0..ITEMS {
        assert_eq!(found(&other, sku).await, None, "of another process, item {sku}");
    }
    let (answers, stale) = readers.end().await;
    assert_eq!(stale, 0, "of {answers} answers");
    assert!(store.stats().replay.replayed >= ITEMS);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_invalidated_while_redis_is_stopped_are_served_neither_before_nor_after_the_replay() {
    nothing_stale_is_served(Of::Keys, |options| options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_invalidated_while_redis_is_stopped_are_served_neither_before_nor_after_the_replay() {
    nothing_stale_is_served(Of::Tags, |options| options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn near_copies_of_keys_invalidated_while_redis_is_stopped_are_not_served() {
    nothing_stale_is_served(Of::Keys, near).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn near_copies_of_tags_invalidated_while_redis_is_stopped_are_not_served() {
    nothing_stale_is_served(Of::Tags, near).await;
}

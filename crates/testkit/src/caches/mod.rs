//! Caches over a scripted loader: layers, requests to them, and what another process does.

pub mod codec;
pub mod promises;

use std::fmt;
use std::time::Duration;

use bellwether::codec::{Codec, Json};
use bellwether::service::{ReadThrough, ReadThroughLayerBuilder};
use bellwether::store::{Accept, Acquire, Claim, Draft, Lease, Settled, Store, Value};
use bellwether::{CacheErrorKind, CacheStatus, Error, Key, Lifetimes, ReadThroughLayer};
use bellwether_test::StoreExt as _;
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::{Layer, Service};

use crate::loaders::{Loader, Refusal};

pub use crate::wait::NEVER;

/// The ttl of answers.
pub const MINUTE: Duration = Duration::from_secs(60);
/// No time at all.
pub const NO_TIME: Duration = Duration::ZERO;
/// A second.
pub const SECOND: Duration = Duration::from_secs(1);

/// The key of a request.
pub type KeyOf = fn(&u64) -> Key;

/// A scripted loader behind a layer.
pub type Cached<C = Json> = ReadThrough<Loader, KeyOf, C>;

/// An answer, and how it came about.
pub type Answered = (Result<usize, Error<Refusal>>, CacheStatus);

/// The key of an item.
pub fn key(item: u64) -> Key {
    Key::of("item").with(item)
}

/// The options of a layer that keeps answers for a minute, to the millisecond, and remembers no failures.
pub fn layer(store: impl Store) -> ReadThroughLayerBuilder<KeyOf> {
    remembering_layer(store).failure_windows(NO_TIME, NO_TIME)
}

/// The same, but it remembers failures as layers do by default.
pub fn remembering_layer(store: impl Store) -> ReadThroughLayerBuilder<KeyOf> {
    let key_of: KeyOf = |item| key(*item);
    ReadThroughLayer::builder(store, key_of).ttl(MINUTE).jitter(0.0)
}

/// The same, but it lets no probe through during a cooldown.
pub fn unprobed<C>(layer: ReadThroughLayerBuilder<KeyOf, C>) -> ReadThroughLayerBuilder<KeyOf, C> {
    layer.failure_probes(MINUTE, MINUTE)
}

/// What a process of the fleet has: a layer of its own, over the store that all share.
pub fn cached(store: impl Store, loader: &Loader) -> Cached {
    layer(store).build().expect("options").layer(loader.clone())
}

/// A request that is under way from now on.
pub fn ask<C>(cached: &Cached<C>, item: u64) -> JoinHandle<Answered>
where
    C: Codec<usize>,
{
    tokio::spawn(cached.clone().call(item).with_status())
}

/// As many requests at once.
pub fn burst<C>(cached: &Cached<C>, item: u64, callers: usize) -> Vec<JoinHandle<Answered>>
where
    C: Codec<usize>,
{
    (0..callers).map(|_| ask(cached, item)).collect()
}

/// Waits for the outcomes of the requests.
pub async fn settled(asked: Vec<JoinHandle<Answered>>) -> Vec<Answered> {
    let ended = timeout(NEVER, join_all(asked)).await.expect("no caller is stuck");
    ended.into_iter().map(|ended| ended.expect("no panic")).collect()
}

/// The answers to requests of which none may fail.
pub async fn answers(asked: Vec<JoinHandle<Answered>>) -> Vec<usize> {
    settled(asked).await.into_iter().map(|(answer, _)| answer.expect("an answer")).collect()
}

/// The answer to one request, which may not fail.
pub async fn answer<C>(cached: &Cached<C>, item: u64) -> usize
where
    C: Codec<usize>,
{
    cached.clone().call(item).await.expect("an answer")
}

/// The kind of an error of this crate.
pub fn kind_of<R: fmt::Debug, E: fmt::Debug>(answer: &Result<R, Error<E>>) -> CacheErrorKind {
    match answer {
        Err(Error::Cache(error)) => error.kind(),
        other => panic!("{other:?} is no error of ours"),
    }
}

/// Lets everything run that can run. Time is paused: it is moved on by a millisecond, which happens
/// only when no task can run.
pub async fn idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// How many tasks there are in this runtime.
pub fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Takes the lease of a key that is free, as another process would.
pub async fn lease(store: &impl Store, item: u64, term: Duration) -> Lease {
    match store.acquire(Claim::new(key(item)), term, Accept::Nothing).await {
        Ok(Acquire::Lead { lease, .. }) => lease,
        other => panic!("{other:?} instead of a lease"),
    }
}

/// Whether the lease of a key is taken.
pub async fn is_leased(store: &impl Store, item: u64) -> bool {
    let claim = Claim::new(key(item));
    match store.acquire(claim.clone(), SECOND, Accept::Nothing).await.expect("an answer") {
        Acquire::Busy { .. } => true,
        Acquire::Lead { .. } => {
            store.abandon(claim).await.expect("an answer");
            false
        }
        other => panic!("{other:?}, though nothing is acceptable"),
    }
}

/// Stores a number by a lease, as another process would.
pub async fn commit(store: &impl Store, lease: Lease, number: &str) -> Settled {
    let value = Value::new(number.as_bytes().to_vec().into());
    let draft = Draft::new(value, JSON, Lifetimes::fresh_for(MINUTE));
    store.commit(lease, draft).await.expect("an answer")
}

/// Stores bytes, as another process would.
pub async fn put(store: &impl Store, item: u64, text: &str, codec: u8) {
    put_for(store, item, text, codec, Lifetimes::fresh_for(MINUTE)).await;
}

/// The same, with these lifetimes.
pub async fn put_for(store: &impl Store, item: u64, text: &str, codec: u8, windows: Lifetimes) {
    let lease = lease(store, item, MINUTE).await;
    let value = Value::new(text.as_bytes().to_vec().into());
    let commit = store.commit(lease, Draft::new(value, codec, windows)).await;
    assert_eq!(commit.expect("an answer"), Settled::Done);
}

/// The codec of `Json`.
pub const JSON: u8 = 1;

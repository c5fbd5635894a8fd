//! The store, with a switch in front of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Change, ChangeTarget, Claim, End, Entry, Lease, Peek, Renew, Settled, Store,
    StoreFuture, Watch,
};
use bellwether::{Key, MemoryStore, StoreError, StoreErrorKind, Tags, metrics};
use bellwether_opentelemetry::Instruments;
use bellwether_redis::{RedisOptions, RedisStore};

use crate::Fault;
use crate::tables;

/// How many answers the memory store holds.
const ENTRIES: usize = 100_000;
/// The size of the near tier, in bytes, if the store is a Redis.
const NEAR: usize = 16 * 1024 * 1024;

/// A store that can be stopped, as if its server were gone.
#[derive(Clone)]
pub(crate) struct SwitchedStore(Arc<Inner>);

struct Inner {
    store: Box<dyn Store>,
    kind: Kind,
    stopped: AtomicBool,
    state: AtomicU8,
}

/// The store as its own type, which has the statistics.
enum Kind {
    Memory(MemoryStore),
    Redis(RedisStore),
}

/// The state of the store after the last operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It answered.
    Up = 0,
    /// It did not.
    Failing = 1,
    /// It was not asked: it has failed too often in a row, and its circuit breaker is open.
    LeftAlone = 2,
}

impl SwitchedStore {
    pub(crate) async fn open(place: &str) -> Result<Self, Fault> {
        if place == "memory" {
            let store = MemoryStore::new(ENTRIES);
            return Ok(Self::around(store.clone(), Kind::Memory(store)));
        }
        let store = RedisOptions::new(place, "catalog")?.near(NEAR)?.connect().await;
        let store = store.map_err(|fault| format!("--store {}: {fault}", tables::shown(place)))?;
        Ok(Self::around(store.clone(), Kind::Redis(store)))
    }

    fn around(store: impl Store, kind: Kind) -> Self {
        let stopped = false.into();
        let state = (State::Up as u8).into();
        Self(Arc::new(Inner { store: Box::new(store), kind, stopped, state }))
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.0.kind {
            Kind::Memory(_) => "memory",
            Kind::Redis(_) => "Redis",
        }
    }

    /// Publishes what the store has done as metrics.
    pub(crate) fn publish(&self) {
        match &self.0.kind {
            Kind::Memory(store) => metrics::publish("memory", &store.stats()),
            Kind::Redis(store) => metrics::publish("redis", &store.stats()),
        }
    }

    /// Shows OpenTelemetry what the store does.
    pub(crate) fn observe(&self, instruments: &Instruments) {
        match &self.0.kind {
            Kind::Memory(store) => {
                let store = store.clone();
                instruments.observe("memory", move || store.stats());
            }
            Kind::Redis(store) => {
                let store = store.clone();
                instruments.observe("redis", move || store.stats());
            }
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.0.state.load(Ordering::Relaxed) {
            0 => State::Up,
            1 => State::Failing,
            _ => State::LeftAlone,
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self, stopped: bool) {
        self.0.stopped.store(stopped, Ordering::Relaxed);
    }

    fn note(&self, state: State) {
        self.0.state.store(state as u8, Ordering::Relaxed);
    }

    /// Asks the store unless it is stopped, and notes what that shows of it.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Store) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        let this = self.clone();
        if self.is_stopped() {
            return Box::pin(async move {
                this.note(State::Failing);
                Err(StoreError::new(StoreErrorKind::Unreachable, "the store is stopped"))
            });
        }
        let answer = ask(&*self.0.store);
        Box::pin(async move {
            let answer = answer.await;
            this.note(match &answer {
                Ok(_) => State::Up,
                Err(error) if error.kind() == StoreErrorKind::Down => State::LeftAlone,
                Err(_) => State::Failing,
            });
            answer
        })
    }
}

impl Store for SwitchedStore {
    fn peek(&self, key: &Key) -> Peek {
        if self.is_stopped() { Peek::Unknown } else { self.0.store.peek(key) }
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.store.watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.ask(|store| store.lookup(key, tags))
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.ask(|store| store.acquire(claim, term, accept))
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.ask(|store| store.renew(lease, term))
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        self.ask(|store| store.settle(end))
    }

    fn change(&self, target: ChangeTarget, change: Change) -> StoreFuture<bool> {
        self.ask(|store| store.change(target, change))
    }
}

impl fmt::Debug for SwitchedStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SwitchedStore")
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stopped_store_fails_and_goes_on_when_it_is_started_again() {
        let store = SwitchedStore::open("memory").await.unwrap();
        store.stop(true);
        assert!(store.lookup(Key::of("item").with(1_u32), Tags::none()).await.is_err());
        assert_eq!(store.state(), State::Failing);
        store.stop(false);
        assert!(store.lookup(Key::of("item").with(1_u32), Tags::none()).await.is_ok());
        assert_eq!(store.state(), State::Up);
    }
}

//! A store that fails where a test says: for services that are to survive it.
//!
//! A [`FaultyStore`] stands around any store and does to chosen operations what networks and
//! servers do: it fails them, holds them up, loses their answers, or lies. What happens is said
//! beforehand and happens to the same calls each time, so a test of it can be repeated. No clock
//! but tokio's takes part, so paused time works.
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::store::{FaultyStore, Operation};
//! use bellwether::{Key, MemoryStore, ReadThroughLayer, StoreErrorKind};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = FaultyStore::new(MemoryStore::new(100)).remote();
//! let layer = ReadThroughLayer::new(store.clone(), |sku: &u64| Key::of("item").with(*sku))
//!     .ttl(Duration::from_secs(60));
//! let mut catalog = layer.layer(service_fn(async |sku: u64| {
//!     Ok::<_, std::io::Error>(format!("item {sku}"))
//! }));
//!
//! // The store is slow, and then it does not answer at all: the item is loaded all the same.
//! store.on_any().delay(Duration::from_millis(200));
//! store.on(Operation::Acquire).nth(1).fail(StoreErrorKind::TimedOut);
//! assert_eq!(catalog.ready().await?.call(42).await?, "item 42");
//! assert_eq!(store.calls(Operation::Commit), 0, "without a lease there is nothing to commit");
//!
//! // It recovers, and is used again.
//! store.heal();
//! assert_eq!(catalog.ready().await?.call(42).await?, "item 42");
//! assert_eq!(store.calls(Operation::Commit), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Which calls, and what happens to them
//! [`on`](FaultyStore::on) an operation, [`nth`](On::nth), [`first`](On::first),
//! [`every`](On::every) and [`one_in`](On::one_in) choose calls, counted from there on; unless one
//! of them is said, it is all calls. Then comes what happens: [`fail`](On::fail),
//! [`do_it_but_fail`](On::do_it_but_fail), [`delay`](On::delay), [`hang`](On::hang), or for more
//! than one thing, a [`Fault`] put together of them:
//!
//! ```
//! # use std::time::Duration;
//! # use bellwether::store::faulty::{Fault, FaultyStore};
//! # use bellwether::store::Commit;
//! # use bellwether::{MemoryStore, StoreErrorKind};
//! # let store = FaultyStore::new(MemoryStore::new(100));
//! // Every third commit is done, but the answer comes late and says the contrary.
//! let late = Fault::do_it().then(Fault::delay(Duration::from_secs(1)));
//! store.on_commit().every(3).meet(late.then(Fault::committed(Commit::Superseded)));
//! // One question in ten is lost, the same ones each time.
//! store.on_any().one_in(10, 2024).fail(StoreErrorKind::Unreachable);
//! ```
//!
//! A call that several faults are for meets them in the order in which they were said.

mod fault;
mod healing;
mod on;
mod operation;
mod script;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::fault::Fault;
pub use self::on::On;
pub use self::operation::Operation;

use self::fault::Lies;
use self::script::Script;
use super::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, Peek, Renew, StoreFuture,
};
use super::{Store, Watch, Watchers};
use crate::key::Key;

/// A store around another one that does what it is asked, except where it was told to fail.
///
/// A handle: clones share the store, the faults and the counts. Two `FaultyStore`s around clones of
/// one store are to each other what two processes are, of which one has a bad connection.
pub struct FaultyStore<S> {
    store: Arc<S>,
    script: Arc<Script>,
    remote: bool,
    without_push: bool,
}

impl<S: Store> FaultyStore<S> {
    /// A store without faults so far.
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), script: Arc::default(), remote: false, without_push: false }
    }

    /// This handle is that of a store across a wire: [`peek`](Store::peek) knows of nothing, so
    /// every hit has to look.
    ///
    /// Default: it peeks as the store does. No fault, and not ended by [`heal`](Self::heal).
    #[must_use]
    pub fn remote(self) -> Self {
        Self { remote: true, ..self }
    }

    /// This handle hears of no changes, and says so: its [`watch`](Store::watch) is silent.
    ///
    /// Default: it hears what the store does. No fault, and not ended by [`heal`](Self::heal).
    #[must_use]
    pub fn without_push(self) -> Self {
        Self { without_push: true, ..self }
    }

    /// What is to happen to calls of an operation.
    pub fn on(&self, operation: Operation) -> On {
        On::new(&self.script, Some(operation))
    }

    /// What is to happen to calls of any operation, counted together.
    pub fn on_any(&self) -> On {
        On::new(&self.script, None)
    }

    /// As [`on`](Self::on) a look, to be able to say what it finds: [`On::miss`], [`On::found`].
    pub fn on_lookup(&self) -> On<Option<Entry>> {
        On::new(&self.script, Some(Operation::Lookup))
    }

    /// As [`on`](Self::on) an acquire, to be able to say that somebody else loads: [`On::busy`].
    pub fn on_acquire(&self) -> On<Acquire> {
        On::new(&self.script, Some(Operation::Acquire))
    }

    /// As [`on`](Self::on) a renew, to be able to say what came of it: [`On::renewed`].
    pub fn on_renew(&self) -> On<Renew> {
        On::new(&self.script, Some(Operation::Renew))
    }

    /// As [`on`](Self::on) a commit, to be able to say what came of it: [`On::committed`].
    pub fn on_commit(&self) -> On<Commit> {
        On::new(&self.script, Some(Operation::Commit))
    }

    /// From now on watches are made that seem to hear and are told nothing, as if every message of
    /// a change were lost.
    pub fn lose_changes(&self) {
        self.script.lose_changes();
    }

    /// Ends all faults. Calls that are held up go on at once and meet nothing more.
    pub fn heal(&self) {
        self.script.heal();
    }

    /// How often an operation was asked for since this was made, faults or not.
    pub fn calls(&self, operation: Operation) -> usize {
        self.script.calls(operation)
    }

    /// How many calls have met a fault since this was made: whether what was said came to pass.
    pub fn struck(&self) -> usize {
        self.script.struck()
    }

    /// The store itself, past all faults.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Does an operation, or what its faults say instead.
    fn ask<T: Lies>(&self, operation: Operation, answer: StoreFuture<T>) -> StoreFuture<T> {
        match self.script.note(operation) {
            None => answer,
            Some(fault) => Box::pin(fault.meet(operation, answer)),
        }
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn peek(&self, key: &Key) -> Peek {
        if self.remote { Peek::Unknown } else { self.store.peek(key) }
    }

    fn watch(&self, key: &Key) -> Watch {
        match self.without_push {
            true => Watch::silent(),
            // Of watchers that nobody tells anything.
            false if self.script.loses_changes() => Watchers::default().watch(key.digest()),
            false => self.store.watch(key),
        }
    }

    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>> {
        self.ask(Operation::Lookup, self.store.lookup(key))
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.ask(Operation::Acquire, self.store.acquire(claim, term, accept))
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.ask(Operation::Renew, self.store.renew(lease, term))
    }

    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit> {
        self.ask(Operation::Commit, self.store.commit(lease, draft))
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        self.ask(Operation::Fail, self.store.fail(lease, failure))
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        self.ask(Operation::Abandon, self.store.abandon(claim))
    }

    fn invalidate(&self, key: Key) -> StoreFuture<()> {
        self.ask(Operation::Invalidate, self.store.invalidate(key))
    }

    fn expire(&self, key: Key) -> StoreFuture<()> {
        self.ask(Operation::Expire, self.store.expire(key))
    }
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), script: Arc::clone(&self.script), ..*self }
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore")
            .field("store", &self.store)
            .field("script", &self.script)
            .field("remote", &self.remote)
            .field("without_push", &self.without_push)
            .finish()
    }
}

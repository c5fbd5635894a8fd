//! A store that fails on request, for tests of services that must survive it.
//!
//! A [`FaultyStore`] wraps any store and does to chosen operations what networks and servers do: it
//! fails them, delays them, loses their results, or gives false results. A test sets the faults
//! beforehand. They happen to the same calls in every run, so the test can be repeated. Only
//! tokio's clock is used, so paused time works.
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! use bellwether::store::StoreErrorKind;
//! use bellwether_test::faulty::{FaultyStore, Operation};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = FaultyStore::new(MemoryStore::new(100)).remote();
//! let layer = ReadThroughLayer::builder(store.clone(), |sku: &u64| Key::of("item").with(*sku))
//!     .ttl(Duration::from_secs(60))
//!     .build()?;
//! let mut catalog = layer.layer(service_fn(async |sku: u64| {
//!     Ok::<_, std::io::Error>(format!("item {sku}"))
//! }));
//!
//! // The store is slow, and then it does not answer. The item is still loaded.
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
//! # Choosing calls and faults
//! [`on`](FaultyStore::on) chooses an operation. [`nth`](On::nth), [`first`](On::first),
//! [`every`](On::every) and [`one_in`](On::one_in) choose calls of it, counted from now on; the
//! default is all calls. The last method sets the fault: [`fail`](On::fail),
//! [`do_it_but_fail`](On::do_it_but_fail), [`delay`](On::delay), [`hang`](On::hang),
//! [`hold`](On::hold) with a [`Gate`] that the test opens, or [`meet`](On::meet) with a [`Fault`] of
//! several parts:
//!
//! ```
//! # use std::time::Duration;
//! # use bellwether_test::faulty::{Fault, FaultyStore};
//! # use bellwether::store::Settled;
//! # use bellwether::MemoryStore;
//! # use bellwether::store::StoreErrorKind;
//! # let store = FaultyStore::new(MemoryStore::new(100));
//! // Every third commit is done, but its result comes late and is false.
//! let late = Fault::do_it().then(Fault::delay(Duration::from_secs(1)));
//! store.on_commit().every(3).meet(late.then(Fault::committed(Settled::Superseded)));
//! // One request in ten is lost: the same ones in every run.
//! store.on_any().one_in(10, 2024).fail(StoreErrorKind::Unreachable);
//! ```
//!
//! A gate shows when a call is under way, and lets it go when the test wants:
//!
//! ```
//! # use bellwether_test::StoreExt;
//! # use bellwether_test::faulty::{FaultyStore, Operation};
//! # use bellwether::{Key, MemoryStore};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = FaultyStore::new(MemoryStore::new(100));
//! let gate = store.on(Operation::Invalidate).nth(1).hold();
//! let invalidation = tokio::spawn(store.invalidate(Key::of("item").with(42)));
//! gate.reached().await;
//! assert!(!invalidation.is_finished());
//! gate.open();
//! invalidation.await??;
//! # Ok(())
//! # }
//! ```
//!
//! If several faults are set for one call, they happen in the order in which they were set.

mod fault;
mod gate;
mod healing;
mod on;
mod operation;
mod script;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;

pub use self::fault::Fault;
pub use self::gate::Gate;
pub use self::on::On;
pub use self::operation::Operation;

use self::fault::Lies;
use self::script::Script;
use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, InProcessStore, Lease, Peek, Renew, Settled, Store,
    StoreFuture, Tags, Value, Watch, Watchers, Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, StoreError};

/// A wrapper of a store that passes calls on, except where a test has set a fault.
///
/// A handle: clones share the store, the faults and the counts. Two `FaultyStore`s over clones of
/// one store behave like two processes, of which one has a bad connection.
pub struct FaultyStore<S> {
    store: Arc<S>,
    script: Arc<Script>,
    remote: bool,
    without_push: bool,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps a store. There are no faults yet.
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store), script: Arc::default(), remote: false, without_push: false }
    }

    /// Makes this handle behave like a remote store: [`peek`](Store::peek) knows nothing, so every
    /// hit needs a lookup, no operation is done at its first poll, and of a value that is encoded only the
    /// bytes are stored. So a codec that does not give a value again is found.
    ///
    /// Default: it peeks as the store does. [`heal`](Self::heal) does not end this, as it is no
    /// fault.
    #[must_use]
    pub fn remote(self) -> Self {
        Self { remote: true, ..self }
    }

    /// Makes this handle report no changes: its [`watch`](Store::watch) is silent, as over a
    /// connection without push messages.
    ///
    /// Default: it watches as the store does. [`heal`](Self::heal) does not end this, as it is no
    /// fault.
    #[must_use]
    pub fn without_push(self) -> Self {
        Self { without_push: true, ..self }
    }

    /// Begins a fault for calls of one operation.
    pub fn on(&self, operation: Operation) -> On {
        On::new(&self.script, Some(operation))
    }

    /// Begins a fault for calls of any operation, counted together.
    pub fn on_any(&self) -> On {
        On::new(&self.script, None)
    }

    /// As [`on`](Self::on) a lookup, with false results: [`On::miss`], [`On::found`].
    pub fn on_lookup(&self) -> On<Option<Entry>> {
        On::new(&self.script, Some(Operation::Lookup))
    }

    /// As [`on`](Self::on) an acquire, with a false result: [`On::busy`].
    pub fn on_acquire(&self) -> On<Acquire> {
        On::new(&self.script, Some(Operation::Acquire))
    }

    /// As [`on`](Self::on) a renewal, with a false result: [`On::renewed`].
    pub fn on_renew(&self) -> On<Renew> {
        On::new(&self.script, Some(Operation::Renew))
    }

    /// As [`on`](Self::on) a commit, with a false result: [`On::committed`].
    pub fn on_commit(&self) -> On<Settled> {
        On::new(&self.script, Some(Operation::Commit))
    }

    /// From now on, new watches are not silent but are never notified, as if every push message
    /// were lost.
    pub fn lose_changes(&self) {
        self.script.lose_changes();
    }

    /// Ends all faults. Calls that are held up continue at once, without further faults.
    pub fn heal(&self) {
        self.script.heal();
    }

    /// How many calls of an operation there were since the store was wrapped, with or without
    /// faults.
    pub fn calls(&self, operation: Operation) -> usize {
        self.script.calls(operation)
    }

    /// How many calls of all operations there were since the store was wrapped, with or without
    /// faults.
    pub fn total_calls(&self) -> usize {
        self.script.total_calls()
    }

    /// How many calls had a fault since the store was wrapped. A test can check that its faults
    /// happened.
    pub fn struck(&self) -> usize {
        self.script.struck()
    }

    /// The wrapped store, without faults.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// Runs an operation with its faults.
    fn ask<T: Lies>(&self, operation: Operation, answer: StoreFuture<T>) -> StoreFuture<T> {
        let answer = if self.remote { Box::pin(away(answer)) } else { answer };
        match self.script.note(operation) {
            None => answer,
            Some(fault) => Box::pin(fault.meet(operation, answer)),
        }
    }
}

/// As over a network: the request and the answer each take a poll.
async fn away<T>(answer: StoreFuture<T>) -> Result<T, StoreError> {
    yield_now().await;
    let answer = answer.await;
    yield_now().await;
    answer
}

impl<S: InProcessStore> InProcessStore for FaultyStore<S> {}

impl<S: Store> Store for FaultyStore<S> {
    fn peek(&self, key: &Key) -> Peek {
        if self.remote { Peek::Unknown } else { self.store.peek(key) }
    }

    fn watch(&self, key: &Key) -> Watch {
        match self.without_push {
            true => Watch::silent(),
            // A registry that is never notified.
            false if self.script.loses_changes() => Watchers::default().watch(key.digest()),
            false => self.store.watch(key),
        }
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.ask(Operation::Lookup, self.store.lookup(key, tags))
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.ask(Operation::Acquire, self.store.acquire(claim, term, accept))
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.ask(Operation::Renew, self.store.renew(lease, term))
    }

    fn settle(&self, mut end: End) -> StoreFuture<Settled> {
        if let (true, End::Commit(_, draft)) = (self.remote, &mut end)
            && !draft.value.encoded().is_empty()
        {
            draft.value = Value::new(draft.value.encoded().clone());
        }
        self.ask(Operation::from(&end), self.store.settle(end))
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        self.ask(Operation::from((&target, change)), self.store.withdraw(target, change))
    }
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), script: Arc::clone(&self.script), ..*self }
    }
}

bellwether::debug_fields! { FaultyStore<S> where S: Debug => |it|
    store = it.store, script = it.script, remote = it.remote, without_push = it.without_push
}

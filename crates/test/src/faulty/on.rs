//! The choice of the calls that a fault is for.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::gate::Gate;
use super::operation::Operation;
use super::script::{Choice, Rule, Script};
use bellwether::store::{Acquire, Entry, Renew, Settled, StoreErrorKind};

/// Calls of a [`FaultyStore`](super::FaultyStore) for which a fault is being set.
///
/// Calls are counted from the moment at which the fault is set. If calls are chosen twice, the last
/// choice counts. The default is all calls.
#[must_use = "nothing happens to these calls until a fault is set"]
pub struct On<A = Infallible> {
    script: Arc<Script>,
    operation: Option<Operation>,
    choice: Choice,
    answers: PhantomData<fn(A)>,
}

impl<A> On<A> {
    pub(super) fn new(script: &Arc<Script>, operation: Option<Operation>) -> Self {
        let script = Arc::clone(script);
        Self { script, operation, choice: Choice::All, answers: PhantomData }
    }

    /// The n-th call only. The next call is number 1; 0 chooses none.
    pub fn nth(self, nth: u64) -> Self {
        self.choose(Choice::Nth(nth))
    }

    /// The next `count` calls.
    pub fn first(self, count: u64) -> Self {
        self.choose(Choice::First(count))
    }

    /// Every n-th call: 2 chooses every second one, 0 chooses none.
    pub fn every(self, nth: u64) -> Self {
        self.choose(Choice::Every(nth))
    }

    /// One call in `count`, on average; 0 chooses none. The same seed chooses the same calls.
    pub fn one_in(self, count: u64, seed: u64) -> Self {
        self.choose(Choice::OneIn { count, seed })
    }

    /// All calls, which is the default.
    pub fn from_now_on(self) -> Self {
        self.choose(Choice::All)
    }

    /// The calls fail with an error and are not done.
    pub fn fail(self, kind: StoreErrorKind) {
        self.meet(Fault::fail(kind));
    }

    /// The calls are done but fail with an error, as if their results were lost.
    pub fn do_it_but_fail(self, kind: StoreErrorKind) {
        self.meet(Fault::do_it().then(Fault::fail(kind)));
    }

    /// The calls are done after this long, by tokio's clock, or when the store is healed.
    pub fn delay(self, delay: Duration) {
        self.meet(Fault::delay(delay));
    }

    /// The calls wait, and are done when the store is healed.
    pub fn hang(self) {
        self.meet(Fault::hang());
    }

    /// The calls wait at the gate, and are done when the test opens it or heals the store.
    #[must_use = "the calls wait until the gate is opened"]
    pub fn hold(self) -> Gate {
        let gate = Gate::new();
        self.meet(Fault::wait_at(&gate));
        gate
    }

    /// The calls are done, but their results wait at the gate.
    #[must_use = "the results wait until the gate is opened"]
    pub fn do_it_and_hold(self) -> Gate {
        let gate = Gate::new();
        self.meet(Fault::do_it().then(Fault::wait_at(&gate)));
        gate
    }

    /// The calls meet this fault.
    pub fn meet(self, fault: Fault<A>) {
        let Self { script, operation, choice, .. } = self;
        script.say(Rule { operation, choice, seen: 0, parts: fault.into_parts() });
    }

    fn choose(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }
}

impl On<Option<Entry>> {
    /// The lookups find nothing, whatever the store has.
    pub fn miss(self) {
        self.found(None);
    }

    /// The lookups find this, whatever the store has. It can be what a replica that lags behind
    /// has.
    pub fn found(self, found: Option<Entry>) {
        self.meet(Fault::found(found));
    }
}

impl On<Acquire> {
    /// The calls are not done. Each is told that another claim holds the lease, with this much
    /// left.
    pub fn busy(self, remaining: Duration) {
        self.meet(Fault::busy(remaining));
    }
}

impl On<Renew> {
    /// The calls are not done and give this result.
    pub fn renewed(self, renew: Renew) {
        self.meet(Fault::renewed(renew));
    }
}

impl On<Settled> {
    /// The calls are not done and give this result.
    pub fn committed(self, settled: Settled) {
        self.meet(Fault::committed(settled));
    }
}

bellwether::debug_fields! { On<A> => |it| operation = it.operation, choice = it.choice }

//! Which calls a fault is for.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::operation::Operation;
use super::script::{Choice, Rule, Script};
use crate::error::StoreErrorKind;
use crate::store::{Acquire, Commit, Entry, Renew};

/// Calls of a [`FaultyStore`](super::FaultyStore), for which a fault is about to be said.
///
/// Calls are counted from the moment the fault is said. If they are chosen twice, the last choice
/// counts; if they are not, it is all of them.
#[must_use = "nothing happens to these calls unless it is said what"]
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

    /// The n-th call, and no other. The next one is the first; there is none before it.
    pub fn nth(self, nth: u64) -> Self {
        self.choose(Choice::Nth(nth))
    }

    /// So many calls, and no later one.
    pub fn first(self, count: u64) -> Self {
        self.choose(Choice::First(count))
    }

    /// Every n-th call: every second one, for 2. None at all, for 0.
    pub fn every(self, nth: u64) -> Self {
        self.choose(Choice::Every(nth))
    }

    /// One call in so many, on average. The same seed chooses the same calls. None at all, of 0.
    pub fn one_in(self, count: u64, seed: u64) -> Self {
        self.choose(Choice::OneIn { count, seed })
    }

    /// All calls, which is the default.
    pub fn from_now_on(self) -> Self {
        self.choose(Choice::All)
    }

    /// They are not done, but answered by an error.
    pub fn fail(self, kind: StoreErrorKind) {
        self.meet(Fault::fail(kind));
    }

    /// They are done, but answered by an error: their answer is lost.
    pub fn do_it_but_fail(self, kind: StoreErrorKind) {
        self.meet(Fault::do_it().then(Fault::fail(kind)));
    }

    /// They are done after this long, by tokio's clock, or when the store is healed.
    pub fn delay(self, delay: Duration) {
        self.meet(Fault::delay(delay));
    }

    /// They are neither done nor answered until the store is healed.
    pub fn hang(self) {
        self.meet(Fault::hang());
    }

    /// This happens to them.
    pub fn meet(self, fault: Fault<A>) {
        let Self { script, operation, choice, .. } = self;
        script.say(Rule { operation, choice, seen: 0, parts: fault.into_parts() });
    }

    fn choose(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }
}

impl On<Option<Entry>> {
    /// They find nothing, whatever there is.
    pub fn miss(self) {
        self.found(None);
    }

    /// They find this, whatever there is: what a copy that lags behind would still have.
    pub fn found(self, found: Option<Entry>) {
        self.meet(Fault::found(found));
    }
}

impl On<Acquire> {
    /// They are told that somebody else loads, with this much left of their lease.
    pub fn busy(self, remaining: Duration) {
        self.meet(Fault::busy(remaining));
    }
}

impl On<Renew> {
    /// They are not done, but answered by this.
    pub fn renewed(self, renew: Renew) {
        self.meet(Fault::renewed(renew));
    }
}

impl On<Commit> {
    /// They are not done, but answered by this.
    pub fn committed(self, commit: Commit) {
        self.meet(Fault::committed(commit));
    }
}

impl<A> fmt::Debug for On<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("On")
            .field("operation", &self.operation)
            .field("choice", &self.choice)
            .finish_non_exhaustive()
    }
}

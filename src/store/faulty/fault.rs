//! Faults: what can happen to a call.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::ready;
use tokio::time::timeout;

use super::healing::Healed;
use super::operation::Operation;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Acquire, Commit, Entry, Renew, StoreFuture};

/// What happens to a call: one thing, or several one after the other.
///
/// The first of them that answers ends the call. If none does, it is done as if nothing had
/// happened. A fault that has an answer of its own is for the one operation that answers by an `A`;
/// any other is for every operation.
pub struct Fault<A = Infallible> {
    parts: Vec<FaultPart>,
    answers: PhantomData<fn(A)>,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum FaultPart {
    Delay(Duration),
    Hang,
    DoIt,
    Fail(StoreErrorKind),
    Lie(Lie),
}

/// An answer that is not the store's.
#[derive(Clone, Debug)]
pub(super) enum Lie {
    Lookup(Option<Entry>),
    Busy(Duration),
    Renew(Renew),
    Commit(Commit),
}

/// All that happens to one call.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) parts: Vec<FaultPart>,
    pub(super) healed: Healed,
}

impl<A> Fault<A> {
    /// It goes on after this long, by tokio's clock, or when the store is healed.
    pub fn delay(delay: Duration) -> Self {
        Self::of(FaultPart::Delay(delay))
    }

    /// It does not go on until the store is healed.
    pub fn hang() -> Self {
        Self::of(FaultPart::Hang)
    }

    /// It is done now: what comes after this, comes over its answer.
    pub fn do_it() -> Self {
        Self::of(FaultPart::DoIt)
    }

    /// It is answered by an error. Unless [`do_it`](Self::do_it) came before, it is not done.
    pub fn fail(kind: StoreErrorKind) -> Self {
        Self::of(FaultPart::Fail(kind))
    }

    /// First this, then the other.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    pub(super) fn into_parts(self) -> Vec<FaultPart> {
        self.parts
    }

    fn of(part: FaultPart) -> Self {
        Self { parts: vec![part], answers: PhantomData }
    }
}

impl Fault<Option<Entry>> {
    /// It finds this, whatever there is. Unless [`do_it`](Self::do_it) came before, nobody looks.
    pub fn found(found: Option<Entry>) -> Self {
        Self::of(FaultPart::Lie(Lie::Lookup(found)))
    }
}

impl Fault<Acquire> {
    /// It is answered that somebody else loads, with this much left of their lease. Unless
    /// [`do_it`](Self::do_it) came before, it is not done.
    pub fn busy(remaining: Duration) -> Self {
        Self::of(FaultPart::Lie(Lie::Busy(remaining)))
    }
}

impl Fault<Renew> {
    /// It is answered by this. Unless [`do_it`](Self::do_it) came before, it is not done.
    pub fn renewed(renew: Renew) -> Self {
        Self::of(FaultPart::Lie(Lie::Renew(renew)))
    }
}

impl Fault<Commit> {
    /// It is answered by this. Unless [`do_it`](Self::do_it) came before, it is not done.
    pub fn committed(commit: Commit) -> Self {
        Self::of(FaultPart::Lie(Lie::Commit(commit)))
    }
}

impl<A> Clone for Fault<A> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), answers: PhantomData }
    }
}

impl<A> fmt::Debug for Fault<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fault").field(&self.parts).finish()
    }
}

impl Met {
    /// Lets it happen, until the store is healed.
    pub(super) async fn meet<T: Lies>(
        self,
        operation: Operation,
        mut answer: StoreFuture<T>,
    ) -> Result<T, StoreError> {
        for part in self.parts {
            if self.healed.is_so() {
                break;
            }
            match part {
                // Either end will do.
                FaultPart::Delay(delay) => _ = timeout(delay, self.healed.wait()).await,
                FaultPart::Hang => self.healed.wait().await,
                FaultPart::DoIt => {
                    let done = answer.await;
                    answer = Box::pin(ready(done));
                }
                FaultPart::Fail(kind) => return Err(failure(operation, kind)),
                FaultPart::Lie(lie) => {
                    if let Some(lie) = T::by(&lie) {
                        return Ok(lie);
                    }
                }
            }
        }
        answer.await
    }
}

fn failure(operation: Operation, kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, format!("{operation:?} was to fail: {kind:?}"))
}

/// An answer that may be a lie.
pub(super) trait Lies: Send + Sized + 'static {
    /// The answer that a lie is, if it is one to this question.
    fn by(_: &Lie) -> Option<Self> {
        None
    }
}

impl Lies for () {}

impl Lies for Option<Entry> {
    fn by(lie: &Lie) -> Option<Self> {
        if let Lie::Lookup(found) = lie { Some(found.clone()) } else { None }
    }
}

impl Lies for Acquire {
    fn by(lie: &Lie) -> Option<Self> {
        let Lie::Busy(remaining) = *lie else { return None };
        Some(Self::Busy { remaining, stale: None })
    }
}

impl Lies for Renew {
    fn by(lie: &Lie) -> Option<Self> {
        if let Lie::Renew(renew) = *lie { Some(renew) } else { None }
    }
}

impl Lies for Commit {
    fn by(lie: &Lie) -> Option<Self> {
        if let Lie::Commit(commit) = *lie { Some(commit) } else { None }
    }
}

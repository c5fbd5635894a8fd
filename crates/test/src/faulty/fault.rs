//! Faults: what happens to a call instead of, or before, its operation.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::ready;
use tokio::select;
use tokio::time::timeout;

use super::gate::Gate;
use super::healing::Healed;
use super::operation::Operation;
use bellwether::StoreError;
use bellwether::store::{Acquire, Entry, OtherLease, Renew, Settled, StoreErrorKind, StoreFuture};

/// A fault of a call, of one or several parts that happen in order.
///
/// The first part that gives a result ends the call. If no part does, the operation is done as
/// usual. A fault with a result of its own fits only the operation that returns an `A`. Any other
/// fault fits every operation.
pub struct Fault<A = Infallible> {
    parts: Vec<FaultPart>,
    answers: PhantomData<fn(A)>,
}

/// One part of a fault.
#[derive(Clone, Debug)]
pub(super) enum FaultPart {
    Delay(Duration),
    Hang,
    Gate(Gate),
    DoIt,
    Fail(StoreErrorKind),
    Lie(Lie),
}

/// A false result.
#[derive(Clone, Debug)]
pub(super) enum Lie {
    Lookup(Option<Entry>),
    Busy(Duration),
    Renew(Renew),
    Settle(Settled),
}

/// All faults of one call, in order.
#[derive(Debug)]
pub(super) struct CallFaults {
    pub(super) parts: Vec<FaultPart>,
    pub(super) healed: Healed,
}

impl<A> Fault<A> {
    /// Delays the call by this long, by tokio's clock, or until the store is healed.
    pub fn delay(delay: Duration) -> Self {
        Self::of(FaultPart::Delay(delay))
    }

    /// Holds the call up until the store is healed.
    pub fn hang() -> Self {
        Self::of(FaultPart::Hang)
    }

    /// Holds the call at this gate until it is opened or the store is healed.
    pub fn wait_at(gate: &Gate) -> Self {
        Self::of(FaultPart::Gate(gate.clone()))
    }

    /// Does the operation now. The parts after this one happen to its result.
    pub fn do_it() -> Self {
        Self::of(FaultPart::DoIt)
    }

    /// Ends the call with an error. The operation is not done, unless [`do_it`](Self::do_it) came
    /// before.
    pub fn fail(kind: StoreErrorKind) -> Self {
        Self::of(FaultPart::Fail(kind))
    }

    /// Appends the parts of another fault.
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
    /// Finds this, whatever the store has. The store is not read, unless [`do_it`](Self::do_it)
    /// came before.
    pub fn found(found: Option<Entry>) -> Self {
        Self::of(FaultPart::Lie(Lie::Lookup(found)))
    }
}

impl Fault<Acquire> {
    /// Answers that another claim holds the lease, with this much of it left. The lease is not
    /// requested, unless [`do_it`](Self::do_it) came before.
    pub fn busy(remaining: Duration) -> Self {
        Self::of(FaultPart::Lie(Lie::Busy(remaining)))
    }
}

impl Fault<Renew> {
    /// Ends the call with this result. The operation is not done, unless [`do_it`](Self::do_it)
    /// came before.
    pub fn renewed(renew: Renew) -> Self {
        Self::of(FaultPart::Lie(Lie::Renew(renew)))
    }
}

impl Fault<Settled> {
    /// Ends the call with this result. The operation is not done, unless [`do_it`](Self::do_it)
    /// came before.
    pub fn committed(settled: Settled) -> Self {
        Self::of(FaultPart::Lie(Lie::Settle(settled)))
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

impl CallFaults {
    /// Runs the parts, until one gives a result or the store is healed.
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
                // It does not matter which of the two ends the delay.
                FaultPart::Delay(delay) => _ = timeout(delay, self.healed.wait()).await,
                FaultPart::Hang => self.healed.wait().await,
                FaultPart::Gate(gate) => select! {
                    () = gate.pass() => {}
                    () = self.healed.wait() => {}
                },
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

/// A result that may be replaced by a false one.
pub(super) trait Lies: Send + Sized + 'static {
    /// The false result, if it is one of this operation.
    fn by(_: &Lie) -> Option<Self> {
        None
    }
}

impl Lies for bool {}

impl Lies for Option<Entry> {
    fn by(lie: &Lie) -> Option<Self> {
        if let Lie::Lookup(found) = lie { Some(found.clone()) } else { None }
    }
}

impl Lies for Acquire {
    fn by(lie: &Lie) -> Option<Self> {
        let Lie::Busy(remaining) = *lie else { return None };
        let other = OtherLease::default();
        Some(Self::Busy { other, remaining, stale: None, trace: None })
    }
}

impl Lies for Renew {
    fn by(lie: &Lie) -> Option<Self> {
        if let Lie::Renew(renew) = *lie { Some(renew) } else { None }
    }
}

impl Lies for Settled {
    fn by(lie: &Lie) -> Option<Self> {
        if let Lie::Settle(settled) = *lie { Some(settled) } else { None }
    }
}

//! A lock in front of `LocalLock` that fails, delays and counts as a test says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Claim, Renew, Watch};
use bellwether_lock::{
    Attempt, Fenced, Grant, Holder, LocalLock, Lock, LockError, LockErrorKind, LockFuture,
    Released, Request, Session, TakeOver,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Acquire,
    Release,
    Renew,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) lock: LocalLock,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    asked: HashMap<Operation, usize>,
    failing: HashMap<Operation, (LockErrorKind, usize)>,
    /// The delays of a request and of its answer.
    delays: HashMap<Operation, (Duration, Duration)>,
    patience: Vec<Duration>,
    session: Option<watch::Receiver<Option<Instant>>>,
    is_silent: bool,
}

impl Scripted {
    /// A lock that never announces a release.
    pub(crate) fn without_messages() -> Self {
        let this = Self::default();
        this.script().is_silent = true;
        this
    }

    /// One whose grants end with a session.
    pub(crate) fn by_session() -> (Self, watch::Sender<Option<Instant>>) {
        let (end, ended) = watch::channel(None);
        let this = Self::default();
        this.script().session = Some(ended);
        (this, end)
    }

    /// The next `times` of these operations fail. Errors after the operation, such as lost answers,
    /// still perform it.
    pub(crate) fn fail(&self, operation: Operation, kind: LockErrorKind, times: usize) {
        self.script().failing.insert(operation, (kind, times));
    }

    pub(crate) fn delay(&self, operation: Operation, request: Duration, answer: Duration) {
        self.script().delays.insert(operation, (request, answer));
    }

    pub(crate) fn asked(&self, operation: Operation) -> usize {
        self.script().asked.get(&operation).copied().unwrap_or_default()
    }

    /// The patience of all requests so far.
    pub(crate) fn patience(&self) -> Vec<Duration> {
        self.script().patience.clone()
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().expect("a script")
    }

    fn fails(&self, operation: Operation) -> Option<LockErrorKind> {
        let mut script = self.script();
        let (kind, times) = script.failing.get_mut(&operation)?;
        let fails = *times > 0;
        *times = times.saturating_sub(1);
        fails.then_some(*kind)
    }

    /// Does something as the script says.
    fn act<T: Send + 'static>(
        &self,
        operation: Operation,
        does: impl FnOnce(&LocalLock) -> LockFuture<T> + Send + 'static,
    ) -> LockFuture<T> {
        let this = self.clone();
        Box::pin(async move {
            *this.script().asked.entry(operation).or_default() += 1;
            let (request, answer) =
                this.script().delays.get(&operation).copied().unwrap_or_default();
            let lock = this.lock.clone();
            let failing = this.fails(operation);
            let does = async move {
                sleep(request).await;
                let is_lost = failing.is_some_and(|kind| kind != LockErrorKind::NoReply);
                if is_lost { None } else { Some(does(&lock).await) }
            };
            let done = match request.is_zero() {
                true => does.await,
                // As on a connection: a request that was sent arrives, even if its caller has left.
                false => tokio::spawn(does).await.expect("no panic"),
            };
            if !answer.is_zero() {
                sleep(answer).await;
            }
            match (failing, done) {
                (None, Some(done)) => done,
                (kind, _) => Err(LockError::new(kind.expect("a failure"), "as the script says")),
            }
        })
    }
}

impl Lock for Scripted {
    fn watch(&self, key: &Key) -> Watch {
        if self.script().is_silent { Watch::silent() } else { self.lock.watch(key) }
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        self.script().patience.push(request.patience);
        let session = self.script().session.clone();
        let attempt = self.act(Operation::Acquire, |lock| lock.acquire(request));
        Box::pin(async move {
            Ok(match (attempt.await?, session) {
                (Attempt::Granted(grant), Some(session)) => {
                    let fence = grant.fence.expect("a fence");
                    Attempt::Granted(Grant::by_session(Session::new(session)).fenced(fence))
                }
                (other, _) => other,
            })
        })
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        let claim = claim.clone();
        self.act(Operation::Renew, move |lock| lock.renew(&claim, lease))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        self.act(Operation::Release, |lock| lock.release(claim))
    }
}

impl Fenced for Scripted {}

impl TakeOver for Scripted {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        self.act(Operation::Acquire, move |lock| lock.take_over(request, from))
    }
}

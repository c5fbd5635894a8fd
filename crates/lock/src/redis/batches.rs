//! Batches: requests of many claims at the same time, sent as one script.
//!
//! While few claims ask, each sends a script of its own at once. Otherwise requests are queued: a
//! task yields once, and then sends all of them. A batch that is full before is sent by a task of its
//! own. So no claim waits for the round trip of another one, and both the server and the connection
//! handle one script instead of one per claim.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::{StoreError, StoreErrorKind};
use bellwether_redis_client::{RedisClient, RedisRequest, RedisScript, RedisValue};
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// The batches of one script, which takes a name and `A` arguments for each claim.
pub(super) struct Batches<const A: usize>(Arc<ScriptBatches<A>>);

struct ScriptBatches<const A: usize> {
    client: RedisClient,
    script: RedisScript,
    /// The name that all claims share, if there is one.
    shared: Option<Vec<u8>>,
    doing: &'static str,
    /// The requests that are sent next. While there are any, a task is about to send them. Never
    /// held across an `.await`.
    next: Mutex<NextBatch<A>>,
}

#[derive(Default)]
struct NextBatch<const A: usize> {
    requests: Vec<BatchedClaim<A>>,
    /// The runtime of that task, while there are requests.
    runtime: Option<Id>,
    /// How many batches were before it.
    number: u64,
}

/// The part of one claim in a script.
struct BatchedClaim<const A: usize> {
    name: Vec<u8>,
    args: [Vec<u8>; A],
    caller: BatchCaller,
}

/// A claim that waits for an answer.
struct BatchCaller {
    answer: Option<oneshot::Sender<BatchAnswer>>,
    /// Whether its part may have been executed.
    is_sent: bool,
}

/// The answer to one claim: a number, or none if the claim has to ask alone.
type BatchAnswer = Result<Option<i64>, StoreError>;

impl<const A: usize> Batches<A> {
    /// Batches of a script that gives a number or `false` for each claim.
    pub(super) fn new(
        client: RedisClient,
        script: RedisScript,
        shared: Option<Vec<u8>>,
        doing: &'static str,
    ) -> Self {
        Self(Arc::new(ScriptBatches { client, script, shared, doing, next: Mutex::default() }))
    }

    /// Asks together with the other claims that ask now. `Ok(None)` if the claim has to ask alone.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer. If the request was not sent by then, it is not sent.
    pub(super) async fn ask(&self, name: Vec<u8>, args: [Vec<u8>; A]) -> BatchAnswer {
        // A cluster refuses the script, because the names are in several slots. While the server is
        // taken to be down, one claim probes it and no other waits for that.
        if self.0.client.is_cluster() || self.0.client.is_down() {
            return Ok(None);
        }
        let Some(answer) = self.join(name, args) else { return Ok(None) };
        // Each caller gets an answer, also if its task is dropped with its runtime.
        answer.await.unwrap_or(Ok(None))
    }

    /// Joins the next batch, if there is a runtime for its task. That has to be the runtime of the
    /// caller, because another one may not be polled for a long time.
    fn join(&self, name: Vec<u8>, args: [Vec<u8>; A]) -> Option<oneshot::Receiver<BatchAnswer>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let caller = BatchCaller { answer: Some(answer), is_sent: false };
        let mut next = self.0.next();
        if next.runtime.is_some_and(|id| id != runtime.id()) {
            return None;
        }
        next.runtime = Some(runtime.id());
        next.requests.push(BatchedClaim { name, args, caller });
        let number = next.number;
        let is_first = next.requests.len() == 1;
        let full = (next.requests.len() >= AT_ONCE).then(|| next.take());
        drop(next);
        if is_first {
            let state = Arc::clone(&self.0);
            runtime.spawn(BatchFlush { state, number, was_taken: false }.run());
        }
        if let Some(full) = full {
            // The server works on it while other claims still join the next batch.
            let state = Arc::clone(&self.0);
            runtime.spawn(async move { state.send(full).await });
        }
        Some(answered)
    }
}

impl<const A: usize> NextBatch<A> {
    /// The requests, of which there are none after it.
    fn take(&mut self) -> Vec<BatchedClaim<A>> {
        self.runtime = None;
        self.number += 1;
        mem::take(&mut self.requests)
    }
}

impl<const A: usize> ScriptBatches<A> {
    async fn send(&self, mut batch: Vec<BatchedClaim<A>>) {
        // A claim that is given up meanwhile may be released next, and must not be granted after.
        batch.retain(|request| !request.caller.is_gone());
        if batch.is_empty() {
            return;
        }
        let mut names = Vec::with_capacity(batch.len() + 1);
        let mut args = Vec::with_capacity(batch.len() * A);
        let mut callers = Vec::with_capacity(batch.len());
        for request in batch {
            names.push(request.name);
            args.extend(request.args);
            let mut caller = request.caller;
            caller.is_sent = true;
            callers.push(caller);
        }
        names.extend(self.shared.clone());
        let request = RedisRequest::script(&self.script, names, args, self.doing).once();
        let all = |numbers: &Vec<_>| numbers.len() == callers.len();
        let answers = match self.client.run(&request, |reply| numbers(reply).filter(all)).await {
            Ok(numbers) => numbers.into_iter().map(Ok).collect(),
            // The server has refused it, so nothing was executed, and each claim can ask alone.
            Err(error) if error.kind() == StoreErrorKind::Misconfigured => {
                vec![Ok(None); callers.len()]
            }
            Err(error) => vec![Err(error); callers.len()],
        };
        for (mut caller, answer) in callers.into_iter().zip(answers) {
            caller.answer(answer);
        }
    }

    fn next(&self) -> MutexGuard<'_, NextBatch<A>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchCaller {
    fn is_gone(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    fn answer(&mut self, answer: BatchAnswer) {
        if let Some(caller) = self.answer.take() {
            // The caller may be gone.
            _ = caller.send(answer);
        }
    }
}

/// If it has no answer yet, the task was dropped with its runtime. What was not sent, the claim asks
/// alone.
impl Drop for BatchCaller {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.answer(match self.is_sent {
                true => Err(StoreError::new(StoreErrorKind::Unreachable, ENDED)),
                false => Ok(None),
            });
        }
    }
}

/// The reply of a script for several claims.
fn numbers(reply: RedisValue) -> Option<Vec<Option<i64>>> {
    let RedisValue::Array(answers) = reply else { return None };
    let number = |answer| match answer {
        RedisValue::Int(number) => Some(Some(number)),
        RedisValue::Nil => Some(None),
        _ => None,
    };
    answers.into_iter().map(number).collect()
}

/// The task that sends a batch, unless it is full before. If it is dropped before, the claims ask
/// alone.
struct BatchFlush<const A: usize> {
    state: Arc<ScriptBatches<A>>,
    number: u64,
    was_taken: bool,
}

impl<const A: usize> BatchFlush<A> {
    async fn run(mut self) {
        yield_now().await;
        self.was_taken = true;
        let batch = self.take();
        self.state.send(batch).await;
    }

    /// Its batch. Empty if that was sent already.
    fn take(&self) -> Vec<BatchedClaim<A>> {
        let mut next = self.state.next();
        if next.number == self.number { next.take() } else { Vec::new() }
    }
}

impl<const A: usize> Drop for BatchFlush<A> {
    fn drop(&mut self) {
        if !self.was_taken {
            // This wakes the callers, after the lock.
            drop(self.take());
        }
    }
}

/// How many requests of claims are under way.
#[derive(Debug, Default)]
pub(super) struct RequestCount(AtomicUsize);

/// A request of a claim that is under way.
pub(super) struct CountedRequest<'a> {
    count: &'a RequestCount,
    /// Whether so many are under way that batches pay.
    pub(super) is_large: bool,
}

impl RequestCount {
    pub(super) fn enter(&self) -> CountedRequest<'_> {
        CountedRequest { count: self, is_large: self.0.fetch_add(1, Ordering::Relaxed) >= LARGE }
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        self.count.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// With fewer other requests under way, a batch has too few of them to pay for its task.
const LARGE: usize = 4;

/// The maximum number of claims in one script. With more of them, the server would wait for the
/// process and then the process for the server.
const AT_ONCE: usize = 16;

const ENDED: &str = "the runtime ended that waited for a reply to several claims";

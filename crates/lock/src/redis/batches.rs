//! Batches: requests of many claims at the same time, sent as one script.
//!
//! While few claims ask, each sends a script of its own at once. Otherwise requests are queued: a
//! task yields once, and then sends all of them; as many as one script can have are sent at once. So
//! no claim waits for the round trip of another one, and both the server and the connection handle
//! one script instead of one per claim.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::redis::{RedisClient, RedisRequest, RedisScript, RedisValue};
use bellwether::{StoreError, StoreErrorKind};
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// The batches of one script.
pub(super) struct Batches(Arc<ScriptBatches>);

struct ScriptBatches {
    client: RedisClient,
    script: RedisScript,
    doing: &'static str,
    /// Whether the server has refused the script. A cluster does, because the names are in several
    /// slots. Then each claim asks alone.
    is_refused: AtomicBool,
    /// The requests that are sent next. While there are any, a task of their runtime is about to send
    /// them. Never held across an `.await`.
    next: Mutex<NextBatch>,
}

#[derive(Default)]
struct NextBatch {
    requests: ClaimBatch,
    /// The runtime of that task, while there are requests.
    runtime: Option<Id>,
}

/// The requests of several claims, in one order. Each has as many names and arguments as another.
#[derive(Default)]
struct ClaimBatch {
    names: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    callers: Vec<oneshot::Sender<BatchAnswer>>,
}

/// The answer to one claim: a number, or none if the claim has to ask alone.
type BatchAnswer = Result<Option<i64>, StoreError>;

impl Batches {
    /// Batches of a script that gives a number or `false` for each claim.
    pub(super) fn new(client: RedisClient, script: RedisScript, doing: &'static str) -> Self {
        let is_refused = AtomicBool::new(client.is_cluster());
        let next = Mutex::default();
        Self(Arc::new(ScriptBatches { client, script, doing, is_refused, next }))
    }

    /// Asks together with the other claims that ask now. `Ok(None)` if the claim has to ask alone.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer. If the request was not sent by then, it is not sent.
    pub(super) async fn ask<const N: usize, const A: usize>(
        &self,
        names: [Vec<u8>; N],
        args: [Vec<u8>; A],
    ) -> BatchAnswer {
        // While the server is taken to be down, one claim probes it and no other waits for that.
        if self.0.is_refused.load(Ordering::Relaxed) || self.0.client.is_down() {
            return Ok(None);
        }
        let Some(answer) = self.join(names, args) else { return Ok(None) };
        // An error says that the task was dropped with its runtime before it had sent the script.
        answer.await.unwrap_or(Ok(None))
    }

    /// Joins the next batch, if there is a runtime for its task. That has to be the runtime of the
    /// caller, because another one may not be polled for a long time.
    fn join<const N: usize, const A: usize>(
        &self,
        names: [Vec<u8>; N],
        args: [Vec<u8>; A],
    ) -> Option<oneshot::Receiver<BatchAnswer>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let mut next = self.0.next();
        if next.runtime.is_some_and(|id| id != runtime.id()) {
            return None;
        }
        next.runtime = Some(runtime.id());
        next.requests.names.extend(names);
        next.requests.args.extend(args);
        next.requests.callers.push(answer);
        let is_first = next.requests.callers.len() == 1;
        let is_full = next.requests.callers.len() >= AT_ONCE;
        let full = is_full.then(|| mem::take(&mut *next).requests);
        drop(next);
        if is_first {
            let state = Arc::clone(&self.0);
            let flush = BatchFlush { state, runtime: runtime.id(), was_taken: false };
            runtime.spawn(flush.run());
        }
        if let Some(full) = full {
            // So the server works on it while other claims still join the next batch.
            let state = Arc::clone(&self.0);
            runtime.spawn(async move { state.send(full).await });
        }
        Some(answered)
    }
}

impl ScriptBatches {
    async fn send(&self, mut batch: ClaimBatch) {
        // A claim that is given up meanwhile may be released next, and must not be granted after.
        batch.remove_closed();
        let ClaimBatch { names, args, callers } = batch;
        if callers.is_empty() {
            return;
        }
        let request = RedisRequest::script(&self.script, names, args, self.doing).once();
        let all = |numbers: &Vec<_>| numbers.len() == callers.len();
        let answers = match self.client.run(&request, |reply| numbers(reply).filter(all)).await {
            Ok(numbers) => numbers.into_iter().map(Ok).collect(),
            // Nothing was executed, so each claim can ask alone.
            Err(error) if error.kind() == StoreErrorKind::Misconfigured => {
                self.is_refused.store(true, Ordering::Relaxed);
                vec![Ok(None); callers.len()]
            }
            Err(error) => vec![Err(error); callers.len()],
        };
        for (caller, answer) in callers.into_iter().zip(answers) {
            // The caller may be gone.
            _ = caller.send(answer);
        }
    }

    /// The requests that a task of a runtime sends. The batch that it was started for may be sent
    /// already, because it was full, and the next one may be of another runtime.
    fn take(&self, runtime: Id) -> ClaimBatch {
        let mut next = self.next();
        match next.runtime == Some(runtime) {
            true => mem::take(&mut *next).requests,
            false => ClaimBatch::default(),
        }
    }

    fn next(&self) -> MutexGuard<'_, NextBatch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimBatch {
    /// Removes the requests whose callers are gone.
    fn remove_closed(&mut self) {
        let is_open: Vec<_> = self.callers.iter().map(|caller| !caller.is_closed()).collect();
        if is_open.iter().all(|is_open| *is_open) {
            return;
        }
        for words in [&mut self.names, &mut self.args] {
            let each = words.len() / is_open.len();
            let mut word = 0;
            words.retain(|_| {
                word += 1;
                is_open[(word - 1) / each]
            });
        }
        let mut is_open = is_open.into_iter();
        self.callers.retain(|_| is_open.next().unwrap_or_default());
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

/// The task that sends the next batch. If it is dropped before, the claims ask alone.
struct BatchFlush {
    state: Arc<ScriptBatches>,
    runtime: Id,
    was_taken: bool,
}

impl BatchFlush {
    async fn run(mut self) {
        yield_now().await;
        self.was_taken = true;
        let next = self.state.take(self.runtime);
        self.state.send(next).await;
    }
}

impl Drop for BatchFlush {
    fn drop(&mut self) {
        if !self.was_taken {
            drop(self.state.take(self.runtime));
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

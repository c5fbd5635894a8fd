//! Lookup batches: concurrent lookups, sent as one command.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::client::{InSlot, RedisClient, RedisRequest, RedisScript, RedisValue, Route};
use super::reply::{self, Seen};
use crate::error::{StoreError, StoreErrorKind};

/// Batches the lookups that go over one connection.
///
/// A lone lookup is sent at once. Concurrent lookups are queued: a task yields once, and then sends
/// all of them as one command. So no caller waits for the round trip of another one, and the
/// connection handles one message instead of one per caller.
#[derive(Clone, Debug)]
pub(super) struct Lookups(Arc<LookupState>);

#[derive(Debug)]
struct LookupState {
    client: RedisClient,
    route: Route,
    /// Reads entries with what is left of their lives.
    script: RedisScript,
    /// Whether lookups read the remaining lives, too. That costs the server more, so they do not
    /// until one finds an entry that needs it.
    with_lives: AtomicBool,
    /// How many lookups are under way.
    callers: AtomicUsize,
    /// The lookups that are sent next. While there are any, a task is about to send them. Never
    /// held across an `.await`.
    next: Mutex<LookupBatch>,
}

/// The lookups that a task is about to send.
#[derive(Debug, Default)]
struct LookupBatch {
    lookups: Vec<QueuedLookup>,
    /// The runtime of that task, while there are lookups.
    runtime: Option<Id>,
}

/// A lookup that a task sends.
#[derive(Debug)]
struct QueuedLookup {
    name: Vec<u8>,
    answer: oneshot::Sender<LookupResult>,
}

/// The entry under a name, if there is one.
type LookupResult = Result<Option<Seen>, StoreError>;

/// The reply to lookups.
#[derive(Debug)]
struct LookupReply {
    /// The server's time in us, if the remaining lives were requested.
    now: Option<u64>,
    seen: Vec<Option<Seen>>,
}

impl LookupReply {
    fn read(reply: RedisValue, count: usize, with_lives: bool) -> Option<Self> {
        let (now, seen) = match with_lives {
            true => reply::seen_with_lives(reply).map(|(now, seen)| (Some(now), seen))?,
            false => (None, reply::seen(reply)?),
        };
        (seen.len() == count).then_some(Self { now, seen })
    }
}

impl Lookups {
    pub(super) fn over(client: RedisClient, route: Route, script: RedisScript) -> Self {
        Self(Arc::new(LookupState {
            client,
            route,
            script,
            with_lives: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            next: Mutex::default(),
        }))
    }

    /// From now on, lookups read the remaining lives, too.
    pub(super) fn ask_for_lives(&self) {
        self.0.with_lives.store(true, Ordering::Relaxed);
    }

    /// Reads the entry under a name. A value that is no string counts as none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(&self, name: Vec<u8>) -> LookupResult {
        let active = ActiveLookup::begin(&self.0);
        // While the server is taken to be down, one caller probes it and no other waits for that.
        let goes_alone = active.is_alone || self.0.client.is_down_for(&name);
        let joined = if goes_alone { None } else { self.join(&name) };
        if let Some(answer) = joined
            && let Ok(result) = answer.await
        {
            return result;
        }
        // The lookup is alone, or the task was dropped with its runtime. The future is boxed, so
        // that callers that share a command need no memory for it.
        Box::pin(self.0.send_one(name, false)).await
    }

    /// Reads the entry under a name, with what is left of its life.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read_with_life(&self, name: Vec<u8>) -> LookupResult {
        self.0.send_one(name, true).await
    }

    /// Joins the next batch, if there is a runtime for its task. That has to be the runtime of the
    /// caller, because another one may not be polled for a long time.
    fn join(&self, name: &[u8]) -> Option<oneshot::Receiver<LookupResult>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut next = self.0.next();
            if next.runtime.is_some_and(|id| id != runtime.id()) {
                return None;
            }
            next.runtime = Some(runtime.id());
            next.lookups.push(QueuedLookup { name: name.to_vec(), answer });
            next.lookups.len() == 1
        };
        if is_first {
            let state = Arc::clone(&self.0);
            runtime.spawn(LookupFlush { state, was_taken: false }.run());
        }
        Some(answered)
    }
}

impl LookupState {
    /// Answers the callers of a batch, each as soon as its outcome is known.
    async fn answer(&self, lookups: Vec<QueuedLookup>) {
        let with_lives = self.with_lives.load(Ordering::Relaxed);
        let (mut requests, mut waiting, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for group in self.client.split(lookups, |lookup| lookup.name.slot()) {
            let (names, callers): (Vec<_>, Vec<_>) =
                group.into_iter().map(|lookup| (lookup.name, lookup.answer)).unzip();
            counts.push(names.len());
            requests.push(self.request(names, with_lives));
            waiting.push(callers);
        }
        let asked_at = Instant::now();
        let read = |group: usize, reply| LookupReply::read(reply, counts[group], with_lives);
        let done = |group: usize, reply: Result<LookupReply, StoreError>| {
            let callers = mem::take(&mut waiting[group]);
            let answers = match reply {
                Ok(reply) => {
                    self.note_time(&requests[group], asked_at, &reply);
                    reply.seen.into_iter().map(Ok).collect()
                }
                Err(error) => vec![Err(error); callers.len()],
            };
            for (caller, answer) in callers.into_iter().zip(answers) {
                // The caller may be gone.
                _ = caller.send(answer);
            }
        };
        self.client.run_all(&requests, read, done).await;
    }

    async fn send_one(&self, name: Vec<u8>, with_life: bool) -> LookupResult {
        let with_life = with_life || self.with_lives.load(Ordering::Relaxed);
        let request = self.request(vec![name], with_life);
        let asked_at = Instant::now();
        let read = |reply| LookupReply::read(reply, 1, with_life);
        let reply = self.client.run(&request, read).await?;
        self.note_time(&request, asked_at, &reply);
        reply.seen.into_iter().next().ok_or_else(malformed)
    }

    fn request(&self, names: Vec<Vec<u8>>, with_lives: bool) -> RedisRequest<'_> {
        let request = match with_lives {
            true => RedisRequest::script(&self.script, names, [], READING),
            false => RedisRequest::command("MGET", names, READING),
        };
        request.over(self.route)
    }

    fn note_time(&self, request: &RedisRequest<'_>, asked_at: Instant, reply: &LookupReply) {
        if let Some(now) = reply.now {
            self.client.with_clock(request, |clock| clock.note(asked_at, now));
        }
    }

    fn next(&self) -> MutexGuard<'_, LookupBatch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn malformed() -> StoreError {
    StoreError::new(StoreErrorKind::Malformed, "redis, reading an entry: the reply makes no sense")
}

/// A lookup that is under way.
struct ActiveLookup<'a> {
    state: &'a LookupState,
    is_alone: bool,
}

impl<'a> ActiveLookup<'a> {
    fn begin(state: &'a LookupState) -> Self {
        Self { state, is_alone: state.callers.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for ActiveLookup<'_> {
    fn drop(&mut self) {
        self.state.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task that sends the next batch. If it is dropped before, the callers send their lookups
/// themselves.
struct LookupFlush {
    state: Arc<LookupState>,
    was_taken: bool,
}

impl LookupFlush {
    async fn run(mut self) {
        yield_now().await;
        self.was_taken = true;
        let mut next = mem::take(&mut *self.state.next()).lookups;
        if next.len() <= AT_ONCE {
            return self.state.answer(next).await;
        }
        let mut sent = Vec::with_capacity(next.len().div_ceil(AT_ONCE));
        while !next.is_empty() {
            let batch = next.drain(..next.len().min(AT_ONCE)).collect();
            sent.push(self.state.answer(batch));
        }
        join_all(sent).await;
    }
}

impl Drop for LookupFlush {
    fn drop(&mut self) {
        if !self.was_taken {
            let left = mem::take(&mut *self.state.next());
            // Dropped after the lock, because this wakes the callers.
            drop(left);
        }
    }
}

/// The maximum number of lookups in one command. A longer reply would delay the replies behind it.
const AT_ONCE: usize = 64;

const READING: &str = "reading an entry";

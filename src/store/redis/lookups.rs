//! Lookup batches: concurrent lookups, sent as one command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{iter, mem};

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
    /// Whether lookups read the server's time, too. They do not until one finds an entry that needs
    /// it.
    with_time: AtomicBool,
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
    names: Vec<Vec<u8>>,
    answer: oneshot::Sender<LookupResult>,
}

/// What is under each name, in their order.
type LookupResult = Result<Vec<Option<Seen>>, StoreError>;

/// What a lookup reads in addition to what is under the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifeReading {
    /// Nothing, unless an earlier lookup has found an entry that needs the time.
    AsNeeded,
    /// The server's time, by a `TIME` in the same round trip. An entry says itself until when it
    /// lives.
    Time,
    /// What the server has left of the life of an entry, by a script. That costs it more. It is for
    /// entries that were made stale early, because only the expiry of their name says when they end.
    Remaining,
}

/// The reply to lookups.
#[derive(Debug)]
struct LookupReply {
    /// The server's time in us, if it was read.
    now: Option<u64>,
    seen: Vec<Option<Seen>>,
}

impl LookupReply {
    fn read(reply: RedisValue, count: usize, reading: LifeReading) -> Option<Self> {
        let (now, seen) = match reading {
            LifeReading::AsNeeded => (None, reply::seen(reply)?),
            LifeReading::Time => with_now(reply::seen_with_time(reply)?),
            LifeReading::Remaining => with_now(reply::seen_with_lives(reply)?),
        };
        (seen.len() == count).then_some(Self { now, seen })
    }
}

fn with_now<T>((now, seen): (u64, T)) -> (Option<u64>, T) {
    (Some(now), seen)
}

impl Lookups {
    pub(super) fn over(client: RedisClient, route: Route, script: RedisScript) -> Self {
        Self(Arc::new(LookupState {
            client,
            route,
            script,
            with_time: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            next: Mutex::default(),
        }))
    }

    /// From now on, lookups read the server's time, too.
    pub(super) fn ask_for_time(&self) {
        self.0.with_time.store(true, Ordering::Relaxed);
    }

    /// Reads what is under some names, such as that of an entry and those of its tags. A value that
    /// is no string counts as none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(&self, names: Vec<Vec<u8>>) -> LookupResult {
        let active = ActiveLookup::begin(&self.0);
        // While the server is taken to be down, one caller probes it and no other waits for that.
        let is_down = || names.first().is_some_and(|name| self.0.client.is_down_for(name));
        let goes_alone = active.is_alone || is_down();
        let joined = if goes_alone { None } else { self.join(&names) };
        if let Some(answer) = joined
            && let Ok(result) = answer.await
        {
            return result;
        }
        // The lookup is alone, or the task was dropped with its runtime. The future is boxed, so
        // that callers that share a command need no memory for it.
        Box::pin(self.0.send(names, LifeReading::AsNeeded)).await
    }

    /// The same, alone and with more.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read_with(
        &self,
        names: Vec<Vec<u8>>,
        reading: LifeReading,
    ) -> LookupResult {
        self.0.send(names, reading).await
    }

    /// Joins the next batch, if there is a runtime for its task. That has to be the runtime of the
    /// caller, because another one may not be polled for a long time.
    fn join(&self, names: &[Vec<u8>]) -> Option<oneshot::Receiver<LookupResult>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut next = self.0.next();
            if next.runtime.is_some_and(|id| id != runtime.id()) {
                return None;
            }
            next.runtime = Some(runtime.id());
            next.lookups.push(QueuedLookup { names: names.to_vec(), answer });
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
    /// Answers the callers of a batch, each as soon as all that is under its names is known.
    async fn answer(&self, lookups: Vec<QueuedLookup>) {
        let mut names = UniqueNames::default();
        let mut callers: Vec<_> = lookups
            .into_iter()
            .map(|QueuedLookup { names: wanted, answer }| (names.add(wanted), Some(answer)))
            .collect();
        let mut outcomes = vec![None; names.all.len()];
        let known = |places: &[usize], seen: Result<Vec<_>, StoreError>| {
            note(&mut outcomes, places, seen);
            for (places, caller) in &mut callers {
                if caller.is_some()
                    && let Some(answer) = answer_at(places, &mut outcomes)
                    && let Some(caller) = caller.take()
                {
                    // The caller may be gone.
                    _ = caller.send(answer);
                }
            }
        };
        self.read(names.all, LifeReading::AsNeeded, known).await;
    }

    async fn send(&self, names: Vec<Vec<u8>>, reading: LifeReading) -> LookupResult {
        let places: Vec<_> = (0..names.len()).collect();
        let mut outcomes = vec![None; names.len()];
        self.read(names, reading, |places, seen| note(&mut outcomes, places, seen)).await;
        // Each group of names has got an outcome.
        answer_at(&places, &mut outcomes).unwrap_or_else(|| Err(malformed()))
    }

    /// Reads what is under the names, by as few commands as there may be. Calls `known` with what is
    /// under the names of a command, and with their places.
    async fn read(
        &self,
        names: Vec<Vec<u8>>,
        reading: LifeReading,
        mut known: impl FnMut(&[usize], Result<Vec<Option<Seen>>, StoreError>),
    ) {
        let reading = match reading {
            LifeReading::AsNeeded if self.with_time.load(Ordering::Relaxed) => LifeReading::Time,
            reading => reading,
        };
        let (mut requests, mut groups) = (Vec::new(), Vec::new());
        let names = names.into_iter().enumerate().collect();
        for group in self.client.split(names, |(_, name): &(usize, Vec<u8>)| name.slot()) {
            let (places, names): (Vec<_>, Vec<_>) = group.into_iter().unzip();
            requests.push(self.request(names, reading));
            groups.push(places);
        }
        let asked_at = Instant::now();
        let read = |group: usize, reply| LookupReply::read(reply, groups[group].len(), reading);
        let done = |group: usize, reply: Result<LookupReply, StoreError>| {
            let seen = reply.map(|reply| {
                self.note_time(&requests[group], asked_at, &reply);
                reply.seen
            });
            known(&groups[group], seen);
        };
        self.client.run_all(&requests, read, done).await;
    }

    fn request(&self, names: Vec<Vec<u8>>, reading: LifeReading) -> RedisRequest<'_> {
        let request = match reading {
            LifeReading::AsNeeded => RedisRequest::command("MGET", names, READING),
            LifeReading::Time => RedisRequest::command("MGET", names, READING).timed(),
            LifeReading::Remaining => RedisRequest::script(&self.script, names, [], READING),
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

/// What is under a name, once that is known.
type NameOutcome = Option<Result<Option<Seen>, StoreError>>;

fn note(
    outcomes: &mut [NameOutcome],
    places: &[usize],
    seen: Result<Vec<Option<Seen>>, StoreError>,
) {
    match seen {
        Ok(seen) => {
            for (place, seen) in places.iter().zip(seen) {
                outcomes[*place] = Some(Ok(seen));
            }
        }
        Err(error) => places.iter().for_each(|place| outcomes[*place] = Some(Err(error.clone()))),
    }
}

/// What is at these places, if all of it is known. It is taken from the first place, which no other
/// lookup has. Lookups share the places of tags.
fn answer_at(places: &[usize], outcomes: &mut [NameOutcome]) -> Option<LookupResult> {
    if !places.iter().all(|place| outcomes[*place].is_some()) {
        return None;
    }
    let (first, others) = places.split_first()?;
    let first = outcomes[*first].take();
    iter::once(first).chain(others.iter().map(|place| outcomes[*place].clone())).collect()
}

fn malformed() -> StoreError {
    StoreError::new(StoreErrorKind::Malformed, "redis, reading an entry: the reply makes no sense")
}

/// The names of a batch. The names of tags, which many entries share, are sent once.
#[derive(Debug, Default)]
struct UniqueNames {
    all: Vec<Vec<u8>>,
    of_tags: HashMap<Vec<u8>, usize>,
}

impl UniqueNames {
    /// Adds the names of a lookup: that of an entry, and those of tags. Returns their places.
    fn add(&mut self, names: Vec<Vec<u8>>) -> Vec<usize> {
        let mut names = names.into_iter();
        let mut places = Vec::with_capacity(names.len());
        if let Some(entry) = names.next() {
            places.push(self.push(entry));
        }
        for tag in names {
            let place = self.of_tags.get(&tag).copied().unwrap_or_else(|| {
                self.of_tags.insert(tag.clone(), self.all.len());
                self.push(tag)
            });
            places.push(place);
        }
        places
    }

    fn push(&mut self, name: Vec<u8>) -> usize {
        self.all.push(name);
        self.all.len() - 1
    }
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

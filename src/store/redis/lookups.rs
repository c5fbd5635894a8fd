//! Lookup batches: concurrent lookups, sent as one command.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::client::{RedisClient, RedisRequest, RedisScript, Route, ServerClock};
use super::reply::{self, Seen};
use crate::error::StoreError;

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
    clock: Arc<ServerClock>,
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
    names: Vec<Vec<u8>>,
    answer: oneshot::Sender<LookupResult>,
}

/// What is under each name, in their order.
type LookupResult = Result<Vec<Option<Seen>>, StoreError>;

impl Lookups {
    pub(super) fn over(
        client: RedisClient,
        route: Route,
        script: RedisScript,
        clock: Arc<ServerClock>,
    ) -> Self {
        Self(Arc::new(LookupState {
            client,
            route,
            script,
            clock,
            with_lives: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            next: Mutex::default(),
        }))
    }

    /// From now on, lookups read the remaining lives, too.
    pub(super) fn ask_for_lives(&self) {
        self.0.with_lives.store(true, Ordering::Relaxed);
    }

    /// Reads what is under some names, such as that of an entry and those of its tags. A value that
    /// is no string counts as none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(&self, names: Vec<Vec<u8>>) -> LookupResult {
        let active = ActiveLookup::begin(&self.0);
        // While the server is taken to be down, one caller probes it and no other waits for that.
        let goes_alone = active.is_alone || self.0.client.is_down();
        let joined = if goes_alone { None } else { self.join(&names) };
        if let Some(answer) = joined
            && let Ok(result) = answer.await
        {
            return result;
        }
        // The lookup is alone, or the task was dropped with its runtime. The future is boxed, so
        // that callers that share a command need no memory for it.
        Box::pin(self.0.send(names)).await
    }

    /// The same, with what is left of the lives of entries.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read_with_lives(&self, names: Vec<Vec<u8>>) -> LookupResult {
        self.0.send_with_lives(names).await
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
    async fn answer(&self, lookups: Vec<QueuedLookup>) {
        let mut names = UniqueNames::default();
        let callers: Vec<_> = lookups
            .into_iter()
            .map(|QueuedLookup { names: wanted, answer }| (names.add(wanted), answer))
            .collect();
        let seen = self.send(names.all).await;
        for (places, caller) in callers {
            let seen = seen.as_ref().map_err(StoreError::clone);
            // The caller may be gone.
            _ = caller.send(seen.map(|seen| places.iter().map(|it| seen[*it].clone()).collect()));
        }
    }

    async fn send(&self, names: Vec<Vec<u8>>) -> Result<Vec<Option<Seen>>, StoreError> {
        if self.with_lives.load(Ordering::Relaxed) {
            return self.send_with_lives(names).await;
        }
        let count = names.len();
        let mut mget = redis::cmd("MGET");
        mget.arg(names);
        let request = RedisRequest::command(mget, READING).over(self.route);
        let all = |seen: &Vec<_>| seen.len() == count;
        self.client.run(&request, |reply| reply::seen(reply).filter(all)).await
    }

    async fn send_with_lives(&self, names: Vec<Vec<u8>>) -> Result<Vec<Option<Seen>>, StoreError> {
        let count = names.len();
        let request = RedisRequest::script(&self.script, names, [], READING).over(self.route);
        let asked_at = Instant::now();
        let all = |(_, seen): &(_, Vec<_>)| seen.len() == count;
        let read = |reply| reply::seen_with_lives(reply).filter(all);
        let (now, seen) = self.client.run(&request, read).await?;
        self.clock.note(asked_at, now);
        Ok(seen)
    }

    fn next(&self) -> MutexGuard<'_, LookupBatch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

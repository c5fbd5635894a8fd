//! Lookup batches: concurrent lookups, sent as one command.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::lookup_batch::{LookupBatch, LookupResult, LookupTarget, malformed};
use super::reply::{self, Seen};
use bellwether::Digest;
use bellwether::StoreError;
use bellwether_redis_client::{
    InSlot, RedisClient, RedisRequest, RedisScript, RedisValue, ServerClock, ServerTime, SlotGroup,
};

/// Batches the lookups of a store.
///
/// A lone lookup is sent at once. Concurrent lookups are queued: a task yields once, and then sends
/// all of them as one command. A batch that is full before is sent by a task of its own. So no caller
/// waits for the round trip of another one, and the connection handles one message instead of one
/// per caller.
#[derive(Clone, Debug)]
pub(super) struct Lookups(Arc<LookupState>);

#[derive(Debug)]
struct LookupState {
    client: RedisClient,
    /// Reads entries with what is left of their lives.
    script: RedisScript,
    /// Whether lookups read the server's time, too. They do not until one finds an entry that needs
    /// it.
    with_time: AtomicBool,
    callers: Callers,
}

/// What each lookup changes, apart in memory from what it only reads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Callers {
    /// How many lookups are under way.
    active: AtomicUsize,
    /// The lookups that are sent next. While there are any, a task is about to send them. Never
    /// held across an `.await`.
    next: Mutex<LookupQueue>,
}

/// The lookups that a task is about to send.
#[derive(Debug, Default)]
struct LookupQueue {
    lookups: Vec<QueuedLookup>,
    /// The runtime of that task, while there are lookups.
    runtime: Option<Id>,
    /// How many batches were before this one.
    number: u64,
}

impl LookupQueue {
    /// The lookups, of which there are none after it.
    fn take(&mut self) -> Vec<QueuedLookup> {
        self.runtime = None;
        self.number += 1;
        mem::take(&mut self.lookups)
    }
}

/// A lookup that a task sends.
#[derive(Debug)]
struct QueuedLookup {
    target: LookupTarget,
    answer: oneshot::Sender<LookupResult>,
}

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
    fn read(
        reply: RedisValue,
        count: usize,
        reading: LifeReading,
        estimate: impl FnOnce() -> Option<ServerTime>,
    ) -> Option<Self> {
        let (now, seen) = match reading {
            LifeReading::AsNeeded => (None, reply::seen(reply, estimate())?),
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
    pub(super) fn new(client: RedisClient, script: RedisScript) -> Self {
        Self(Arc::new(LookupState {
            client,
            script,
            with_time: AtomicBool::new(false),
            callers: Callers::default(),
        }))
    }

    /// From now on, lookups read the server's time, too.
    pub(super) fn ask_for_time(&self) {
        self.0.with_time.store(true, Ordering::Relaxed);
    }

    /// Reads an entry and tags. A value that is no string counts as none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(&self, target: &LookupTarget) -> LookupResult {
        let active = ActiveLookup::begin(&self.0);
        // While the server is taken to be down, one caller probes it and no other waits for that.
        let goes_alone = active.is_alone || self.0.client.is_down_for(target);
        let joined = if goes_alone { None } else { self.join(target) };
        if let Some(answer) = joined
            && let Ok(result) = answer.await
        {
            return result;
        }
        // The lookup is alone, or the task was dropped with its runtime. The future is boxed, so
        // that callers that share a command need no memory for it.
        Box::pin(self.0.send(target, LifeReading::AsNeeded)).await
    }

    /// The same, alone and with more.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read_with(
        &self,
        target: &LookupTarget,
        reading: LifeReading,
    ) -> LookupResult {
        self.0.send(target, reading).await
    }

    /// Joins the next batch, if there is a runtime for its task. That has to be the runtime of the
    /// caller, because another one may not be polled for a long time.
    fn join(&self, target: &LookupTarget) -> Option<oneshot::Receiver<LookupResult>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let mut next = self.0.next();
        if next.runtime.is_some_and(|id| id != runtime.id()) {
            return None;
        }
        next.runtime = Some(runtime.id());
        next.lookups.push(QueuedLookup { target: target.clone(), answer });
        let number = next.number;
        let is_first = next.lookups.len() == 1;
        let servers = || self.0.client.server_count();
        let full = is_full(next.lookups.len(), servers).then(|| next.take());
        drop(next);
        if is_first {
            let state = Arc::clone(&self.0);
            runtime.spawn(LookupFlush { state, number, was_taken: false }.run());
        }
        if let Some(full) = full {
            // The server works on it while other callers still join the next batch.
            let state = Arc::clone(&self.0);
            runtime.spawn(async move { state.answer(full).await });
        }
        Some(answered)
    }
}

impl LookupState {
    /// Answers the callers of a batch, each as soon as all that it reads is known.
    async fn answer(&self, lookups: Vec<QueuedLookup>) {
        let batch = LookupBatch::of(lookups.iter().map(|lookup| &lookup.target));
        let mut callers: Vec<_> = lookups.into_iter().map(|lookup| Some(lookup.answer)).collect();
        let answer = |lookup: usize, result| {
            if let Some(caller) = callers[lookup].take() {
                // The caller may be gone.
                _ = caller.send(result);
            }
        };
        self.read(batch, LifeReading::AsNeeded, answer).await;
    }

    async fn send(&self, target: &LookupTarget, reading: LifeReading) -> LookupResult {
        let mut answer = None;
        let batch = LookupBatch::of([target].into_iter());
        self.read(batch, reading, |_, result| answer = Some(result)).await;
        // Each name has got an outcome.
        answer.unwrap_or_else(|| Err(malformed()))
    }

    /// Reads a batch by as few commands as there may be. Calls `done` with each lookup and its
    /// result.
    async fn read(
        &self,
        mut batch: LookupBatch,
        reading: LifeReading,
        mut done: impl FnMut(usize, LookupResult),
    ) {
        let reading = match reading {
            LifeReading::AsNeeded if self.with_time.load(Ordering::Relaxed) => LifeReading::Time,
            reading => reading,
        };
        let slot = |place: &usize| batch.at(*place).0.slot();
        let groups = self.client.split(batch.places().collect(), slot);
        let requests: Vec<_> = groups
            .iter()
            .map(|SlotGroup { slot, items: places }| {
                let names = places.iter().map(|place| self.name(batch.at(*place))).collect();
                self.request(names, reading).in_slot(*slot)
            })
            .collect();
        let asked_at = Instant::now();
        let read = |group: usize, reply| {
            let estimate = || self.client.with_clock(&requests[group], ServerClock::now);
            LookupReply::read(reply, groups[group].items.len(), reading, estimate)
        };
        let replied = |group: usize, reply: Result<LookupReply, StoreError>| {
            let seen = reply.map(|reply| {
                self.note_time(&requests[group], asked_at, &reply);
                reply.seen
            });
            batch.note(&groups[group].items, seen, &mut done);
        };
        self.client.run_all(&requests, read, replied).await;
    }

    fn name(&self, (digest, is_tag): (&Digest, bool)) -> Vec<u8> {
        if is_tag {
            self.client.unwatched_name("tag", digest)
        } else {
            self.client.name(digest, "")
        }
    }

    fn request(&self, names: Vec<Vec<u8>>, reading: LifeReading) -> RedisRequest<'_> {
        match reading {
            LifeReading::AsNeeded => RedisRequest::command("MGET", names, READING),
            LifeReading::Time => RedisRequest::command("MGET", names, READING).timed(),
            LifeReading::Remaining => RedisRequest::script(&self.script, names, [], READING),
        }
    }

    fn note_time(&self, request: &RedisRequest<'_>, asked_at: Instant, reply: &LookupReply) {
        if let Some(now) = reply.now {
            self.client.with_clock(request, |clock| clock.note(asked_at, now));
        }
    }

    fn next(&self) -> MutexGuard<'_, LookupQueue> {
        self.callers.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup that is under way.
struct ActiveLookup<'a> {
    state: &'a LookupState,
    is_alone: bool,
}

impl<'a> ActiveLookup<'a> {
    fn begin(state: &'a LookupState) -> Self {
        Self { state, is_alone: state.callers.active.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for ActiveLookup<'_> {
    fn drop(&mut self) {
        self.state.callers.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task that sends a batch, unless it is full before. If it is dropped before, the callers send
/// their lookups themselves.
struct LookupFlush {
    state: Arc<LookupState>,
    number: u64,
    was_taken: bool,
}

impl LookupFlush {
    async fn run(mut self) {
        yield_now().await;
        self.was_taken = true;
        let batch = self.take();
        if !batch.is_empty() {
            self.state.answer(batch).await;
        }
    }

    /// Its batch. Empty if that was sent already.
    fn take(&self) -> Vec<QueuedLookup> {
        let mut next = self.state.next();
        if next.number == self.number { next.take() } else { Vec::new() }
    }
}

impl Drop for LookupFlush {
    fn drop(&mut self) {
        if !self.was_taken {
            // This wakes the callers, after the lock.
            drop(self.take());
        }
    }
}

/// Whether a batch of so many lookups is sent without a wait for more. That of a cluster has room for
/// several nodes, because each of them gets only its part. The servers are counted at multiples of
/// [`AT_ONCE`] only, because that takes a lock.
fn is_full(lookups: usize, servers: impl FnOnce() -> usize) -> bool {
    lookups.is_multiple_of(AT_ONCE) && lookups >= AT_ONCE * servers().min(MOST_PARTS)
}

/// The maximum number of lookups in a batch for one server. With more of them, the server would wait
/// for the process and then the process for the server, and a longer reply would delay those behind
/// it.
const AT_ONCE: usize = 32;

/// For how many nodes of a cluster a batch has room. All of its keys may be of one node.
const MOST_PARTS: usize = 8;

const READING: &str = "reading an entry";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_room_for_each_of_a_few_servers() {
        for (servers, most) in [(0, 32), (1, 32), (3, 96), (8, 256), (100, 256)] {
            let full = (1..).find(|lookups| is_full(*lookups, || servers));
            assert_eq!(full, Some(most), "{servers}");
        }
    }

    #[test]
    fn a_batch_that_has_more_than_its_room_is_full_at_the_next_multiple() {
        let full = (97..).find(|lookups| is_full(*lookups, || 1));
        assert_eq!(full, Some(128));
    }
}

//! Lookups: an entry and tags, read without a lease. Concurrent ones are sent as one command.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

use super::envelope::{self, Opened};
use super::reply::{self, Seen, SeenLife};
use super::scripts::StoreScript;
use super::tag_value;
use bellwether::store::{Entry, Remaining, TagState};
use bellwether::{Digest, Key, StoreError, StoreErrorKind, Tags};
use bellwether_redis_client::{
    BatchSender, BatchedRequest, Batcher, InSlot, RedisClient, RedisRequest, ServerClock, SlotGroup,
};

/// The lookups of a store.
///
/// A lone lookup is sent at once. Concurrent lookups are batched. In a batch, a tag, which many entries
/// share, is read once.
#[derive(Debug)]
pub(super) struct Lookups {
    batcher: Batcher<LookupSender>,
    /// Shared by the callers that read now.
    active: Arc<()>,
    /// How many entries could not be read.
    unreadable: AtomicU64,
}

#[derive(Debug)]
struct LookupSender {
    client: RedisClient,
    /// Whether lookups read the server's time, too. They do not until one finds an entry that needs
    /// it.
    with_time: AtomicBool,
}

/// What a lookup reads.
#[derive(Clone, Debug)]
pub(super) struct LookupTarget {
    /// The key of an entry. None if it reads tags only.
    pub(super) key: Option<Digest>,
    pub(super) tags: Tags,
}

/// What a lookup has found.
#[derive(Clone, Debug, Default)]
pub(super) struct LookupAnswer {
    pub(super) entry: Option<Seen>,
    /// In the order of the tags. None for a tag that is absent.
    pub(super) tags: Vec<Option<TagState>>,
}

type LookupResult = Result<LookupAnswer, StoreError>;

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

impl Lookups {
    /// Those of a store. `with_time` if they read the server's time from the first one on.
    pub(super) fn new(client: RedisClient, with_time: bool) -> Self {
        let batcher = Batcher::new(LookupSender { client, with_time: AtomicBool::new(with_time) });
        Self { batcher, active: Arc::default(), unreadable: AtomicU64::new(0) }
    }

    /// Reads an entry with what is left of its life, and tags. An entry that cannot be read counts as
    /// none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn find(
        &self,
        key: &Key,
        tags: &Tags,
    ) -> Result<Option<(Entry, Vec<Option<TagState>>)>, StoreError> {
        let digest = key.digest();
        let target = LookupTarget { key: Some(digest), tags: tags.clone() };
        let mut reading = LifeReading::AsNeeded;
        loop {
            let LookupAnswer { entry, tags } = self.read(&target, reading).await?;
            let Some(Seen { sealed, life }) = entry else { return Ok(None) };
            let Some(opened) = self.open(sealed, key, &digest) else { return Ok(None) };
            let lifetimes = opened.draft.lifetimes();
            let remaining = match life {
                SeenLife::Remaining(remaining) => remaining,
                SeenLife::ReadAt(_) if opened.is_expired => {
                    reading = LifeReading::Remaining;
                    continue;
                }
                SeenLife::ReadAt(now) => match opened.life_left(now) {
                    Some(left) => left,
                    None => return Ok(None),
                },
                SeenLife::Estimated(_) if lifetimes.need_the_remaining_life() => {
                    self.batcher.sender().with_time.store(true, Ordering::Relaxed);
                    continue;
                }
                SeenLife::Estimated(now) if opened.may_be_over(now) => {
                    reading = LifeReading::Time;
                    continue;
                }
                SeenLife::Estimated(_) => {
                    return Ok(Some((opened.entry(Remaining::Fresh), tags)));
                }
            };
            return Ok(Some((opened.entry(Remaining::Known(remaining)), tags)));
        }
    }

    /// Reads an entry and tags. A value that is no string counts as none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(&self, target: &LookupTarget, reading: LifeReading) -> LookupResult {
        let caller = Arc::clone(&self.active);
        let sender = self.batcher.sender();
        // While the server is taken to be down, one caller probes it and no other waits for that.
        let is_batched = reading == LifeReading::AsNeeded
            && Arc::strong_count(&caller) > 2
            && !sender.client.is_down_for(target);
        if is_batched && let Some(result) = self.batcher.ask(target.clone()).await {
            return result;
        }
        let mut answer = None;
        // Boxed, so that callers that share a command need no memory for it.
        let batch = LookupBatch::of([target].into_iter());
        Box::pin(sender.read_all(batch, reading, |_, result| answer = Some(result))).await;
        // Each name has got an outcome.
        answer.unwrap_or_else(|| Err(malformed()))
    }

    /// Opens an entry. One that cannot be read counts as none.
    pub(super) fn open(&self, sealed: Vec<u8>, key: &Key, digest: &Digest) -> Option<Opened> {
        let opened = envelope::open(Bytes::from(sealed), digest);
        let note = |what: &&str| {
            self.unreadable.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(target: "bellwether::store", %key, "counts as a miss: {what}");
        };
        opened.inspect_err(note).ok()
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }
}

impl BatchSender for LookupSender {
    type Request = LookupTarget;
    type Answer = LookupResult;

    fn is_full(&self, requests: usize) -> bool {
        is_full(requests, || self.client.server_count())
    }

    async fn send(&self, lookups: Vec<BatchedRequest<LookupTarget, LookupResult>>) {
        let batch = LookupBatch::of(lookups.iter().map(|lookup| &lookup.request));
        let mut callers: Vec<_> = lookups.into_iter().map(|lookup| Some(lookup.answer)).collect();
        let answer = |lookup: usize, result| {
            if let Some(caller) = callers[lookup].take() {
                // The caller may be gone.
                _ = caller.send(result);
            }
        };
        self.read_all(batch, LifeReading::AsNeeded, answer).await;
    }
}

impl LookupSender {
    /// Reads a batch by as few commands as there may be. Calls `done` with each lookup and its
    /// result, as soon as that is known.
    async fn read_all(
        &self,
        mut batch: LookupBatch,
        reading: LifeReading,
        mut done: impl FnMut(usize, LookupResult),
    ) {
        let reading = match reading {
            LifeReading::AsNeeded if self.with_time.load(Ordering::Relaxed) => LifeReading::Time,
            reading => reading,
        };
        let groups = self.client.split(batch.places(), |place| batch.names[*place].digest.slot());
        let request = |SlotGroup { slot, items: places }: &SlotGroup<usize>| {
            let names = places.iter().map(|place| batch.names[*place].name(&self.client)).collect();
            request(names, reading).in_slot(*slot)
        };
        let requests: Vec<_> = groups.iter().map(request).collect();
        let asked_at = Instant::now();
        let read = |group: usize, reply| {
            let (now, seen) = match reading {
                LifeReading::AsNeeded => {
                    let estimate = self.client.with_clock(&requests[group], ServerClock::now);
                    (None, reply::seen(reply, estimate)?)
                }
                LifeReading::Time => with_now(reply::seen_with_time(reply)?),
                LifeReading::Remaining => with_now(reply::seen_with_lives(reply)?),
            };
            (seen.len() == groups[group].items.len()).then_some((now, seen))
        };
        let replied = |group: usize, reply: Result<(Option<u64>, Vec<_>), StoreError>| {
            let seen = reply.map(|(now, seen)| {
                let note = |now| {
                    self.client.with_clock(&requests[group], |clock| clock.note(asked_at, now));
                };
                now.map(note);
                seen
            });
            batch.note(&groups[group].items, seen, &mut done);
        };
        self.client.run_all(&requests, read, replied).await;
    }
}

fn request(names: Vec<Vec<u8>>, reading: LifeReading) -> RedisRequest<'static> {
    match reading {
        LifeReading::AsNeeded => RedisRequest::command("MGET", names, READING),
        LifeReading::Time => RedisRequest::command("MGET", names, READING).timed(),
        LifeReading::Remaining => {
            RedisRequest::script(StoreScript::Lookup.get(), names, [], READING)
        }
    }
}

fn with_now<T>((now, seen): (u64, T)) -> (Option<u64>, T) {
    (Some(now), seen)
}

/// What lookups read together. An entry is read once per lookup, because callers of one key share a
/// flight and rarely look it up at once.
#[derive(Debug, Default)]
struct LookupBatch {
    /// What is read. Its index is its place.
    names: Vec<ReadName>,
    lookups: Vec<BatchedLookup>,
}

#[derive(Debug)]
struct ReadName {
    digest: Digest,
    is_tag: bool,
    /// The lookups that read it. For a tag, with its index among their tags.
    readers: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct BatchedLookup {
    /// How many names are not known yet.
    missing: usize,
    answer: LookupAnswer,
    error: Option<StoreError>,
}

impl LookupBatch {
    fn of<'a>(targets: impl Iterator<Item = &'a LookupTarget>) -> Self {
        let mut batch = Self::default();
        let mut tags = HashMap::new();
        for (lookup, LookupTarget { key, tags: read }) in targets.enumerate() {
            if let Some(key) = key {
                let readers = vec![(lookup, 0)];
                batch.names.push(ReadName { digest: *key, is_tag: false, readers });
            }
            for (index, tag) in read.iter().enumerate() {
                let place = *tags.entry(*tag).or_insert_with(|| {
                    let readers = Vec::new();
                    batch.names.push(ReadName { digest: *tag, is_tag: true, readers });
                    batch.names.len() - 1
                });
                batch.names[place].readers.push((lookup, index));
            }
            let missing = usize::from(key.is_some()) + read.len();
            let answer = LookupAnswer { entry: None, tags: vec![None; read.len()] };
            batch.lookups.push(BatchedLookup { missing, answer, error: None });
        }
        batch
    }

    /// The places of all that is read.
    fn places(&self) -> Vec<usize> {
        (0..self.names.len()).collect()
    }

    /// Notes what is at some places. Calls `done` with each lookup that has all it needs by that, and
    /// with its result.
    fn note(
        &mut self,
        places: &[usize],
        seen: Result<Vec<Option<Seen>>, StoreError>,
        mut done: impl FnMut(usize, LookupResult),
    ) {
        let (mut seen, error) = match seen {
            Ok(seen) => (seen, None),
            Err(error) => (vec![None; places.len()], Some(error)),
        };
        for (place, seen) in places.iter().zip(&mut seen) {
            let name = &self.names[*place];
            let tag = || tag_value::read(&seen.as_ref()?.sealed);
            let tag = if name.is_tag { tag() } else { None };
            for (lookup, index) in &name.readers {
                let reader = &mut self.lookups[*lookup];
                match name.is_tag {
                    true => reader.answer.tags[*index] = tag,
                    false => reader.answer.entry = seen.take(),
                }
                reader.missing -= 1;
                reader.error = reader.error.take().or_else(|| error.clone());
                if reader.missing == 0 {
                    let answer = mem::take(&mut reader.answer);
                    done(*lookup, reader.error.take().map_or(Ok(answer), Err));
                }
            }
        }
    }
}

impl ReadName {
    fn name(&self, client: &RedisClient) -> Vec<u8> {
        match self.is_tag {
            true => client.unwatched_name("tag", &self.digest),
            false => client.name(&self.digest, ""),
        }
    }
}

impl InSlot for LookupTarget {
    /// The slot of what it reads first.
    fn slot(&self) -> u16 {
        self.key.as_ref().or_else(|| self.tags.iter().next()).map_or(0, InSlot::slot)
    }
}

fn malformed() -> StoreError {
    StoreError::new(StoreErrorKind::Malformed, "redis, reading an entry: the reply makes no sense")
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
    use bellwether::Key;
    use bellwether::Tag;

    fn target(key: Option<u64>, tags: &[u64]) -> LookupTarget {
        let key = key.map(|number| Key::of("item").with(number).digest());
        let tags = Tags::new(tags.iter().map(|number| Tag::of("shelf").with(*number)));
        LookupTarget { key, tags: tags.expect("few tags") }
    }

    fn seen(sealed: &[u8]) -> Option<Seen> {
        Some(Seen { sealed: sealed.to_vec(), life: SeenLife::Estimated(None) })
    }

    /// What a server has under the names of a batch: keys have their digests as entries, and the first
    /// bytes of a tag are its epochs.
    fn reply(batch: &LookupBatch, places: &[usize]) -> Vec<Option<Seen>> {
        let sealed = |place: &usize| match &batch.names[*place] {
            ReadName { digest, is_tag: true, .. } => seen(&digest.as_bytes()[..16]),
            ReadName { digest, .. } => seen(digest.as_bytes()),
        };
        places.iter().map(sealed).collect()
    }

    fn check(target: &LookupTarget, result: LookupResult) {
        let LookupAnswer { entry, tags } = result.expect("an answer");
        let sealed = target.key.map(|key| key.as_bytes().to_vec());
        assert_eq!(entry.map(|entry| entry.sealed), sealed);
        let values = target.tags.iter().map(|tag| tag_value::read(&tag.as_bytes()[..16]));
        assert_eq!(tags, values.collect::<Vec<_>>());
    }

    #[test]
    fn tags_are_read_once_and_entries_once_per_lookup() {
        let targets = [target(Some(1), &[1, 2]), target(Some(1), &[2, 3]), target(None, &[3, 1])];
        let mut batch = LookupBatch::of(targets.iter());
        let places = batch.places();
        assert_eq!(places.len(), 2 + 3);
        let mut answered = Vec::new();
        let seen = reply(&batch, &places);
        batch.note(&places, Ok(seen), |lookup, result| {
            check(&targets[lookup], result);
            answered.push(lookup);
        });
        answered.sort_unstable();
        assert_eq!(answered, [0, 1, 2]);
    }

    #[test]
    fn a_lookup_is_answered_by_the_last_reply_that_it_needs() {
        let targets = [target(Some(1), &[1, 2]), target(Some(2), &[1]), target(Some(3), &[])];
        let mut batch = LookupBatch::of(targets.iter());
        let mut answered = Vec::new();
        // The last tag, the entries, and the tag of two lookups.
        for place in batch.places().into_iter().rev() {
            let seen = reply(&batch, &[place]);
            batch.note(&[place], Ok(seen), |lookup, result| {
                check(&targets[lookup], result);
                answered.push((place, lookup));
            });
        }
        let last = |lookup| {
            let places = batch.places().into_iter().filter(|place| {
                let ReadName { digest, is_tag, .. } = &batch.names[*place];
                let LookupTarget { key, tags } = &targets[lookup];
                if *is_tag { tags.iter().any(|tag| tag == digest) } else { *key == Some(*digest) }
            });
            places.min()
        };
        assert_eq!(answered.len(), 3);
        assert!(answered.iter().all(|(place, lookup)| last(*lookup) == Some(*place)));
    }

    #[test]
    fn an_error_is_that_of_each_lookup_that_needs_the_name() {
        let targets = [target(Some(1), &[1]), target(Some(2), &[1, 2]), target(Some(3), &[2])];
        let mut batch = LookupBatch::of(targets.iter());
        let shared = Tag::of("shelf").with(1).digest();
        let (failed, others): (Vec<_>, Vec<_>) =
            batch.places().into_iter().partition(|place| batch.names[*place].digest == shared);
        let mut results = Vec::new();
        let seen = reply(&batch, &others);
        batch.note(&others, Ok(seen), |lookup, result| results.push((lookup, result.is_ok())));
        assert_eq!(results, [(2, true)]);
        batch.note(&failed, Err(malformed()), |lookup, result| {
            results.push((lookup, result.is_ok()));
        });
        results.sort_unstable();
        assert_eq!(results, [(0, false), (1, false), (2, true)]);
    }

    #[test]
    fn bytes_that_are_no_tag_count_as_none() {
        let mut batch = LookupBatch::of([target(None, &[1])].iter());
        let mut found = None;
        batch.note(&[0], Ok(vec![seen(b"no tag")]), |_, result| found = Some(result));
        assert_eq!(found.expect("an answer").expect("no error").tags, [None]);
    }

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

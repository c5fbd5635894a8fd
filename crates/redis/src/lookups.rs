//! Lookups: entries and tags, read without a lease. Concurrent ones are sent as one command.

use std::collections::HashMap;
use std::iter;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;

use super::envelope::{self, Opened};
use super::reply::{self, LifeReading, Seen, SeenLife};
use super::scripts;
use super::tag_value;
use bellwether::store::{Digest, Tags};
use bellwether::store::{Entry, Remaining, TagState};
use bellwether::{Key, StoreError};
use bellwether_redis_client::{
    BatchSender, BatchedRequest, Batcher, InSlot, RedisClient, RedisRequest, RedisValue,
    ServerClock,
};

/// The lookups of a store.
///
/// A lone lookup is sent at once. Concurrent lookups are batched by what they read. In a batch, a tag,
/// which many entries share, is read once.
#[derive(Debug)]
pub(super) struct Lookups {
    batcher: Batcher<NameReader>,
    /// Shared by the callers that read now.
    active: Arc<()>,
    /// How many entries could not be read.
    unreadable: AtomicU64,
}

#[derive(Debug)]
struct NameReader {
    client: RedisClient,
    /// Whether lookups read the server's time, too. They do not until one finds an entry that needs
    /// it.
    with_time: AtomicBool,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadName {
    Entry(Digest),
    Tag(Digest),
}

/// What is there, if anything is.
type ReadResult = Result<Option<Seen>, StoreError>;

/// A request that reads names.
struct NameRequest<'a> {
    client: &'a RedisClient,
    request: RedisRequest<'static>,
    reading: LifeReading,
    /// How many names there are.
    count: usize,
    asked_at: Instant,
}

impl Lookups {
    /// Those of a store. `with_time` if they read the server's time from the first one on.
    pub(super) fn new(client: RedisClient, with_time: bool) -> Self {
        let batcher = Batcher::new(NameReader { client, with_time: AtomicBool::new(with_time) });
        Self { batcher, active: Arc::default(), unreadable: AtomicU64::new(0) }
    }

    /// Reads an entry, if there is a key, and tags. A value that is no string, and one that is no tag,
    /// count as none.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(
        &self,
        key: Option<&Digest>,
        tags: &Tags,
        reading: LifeReading,
    ) -> Result<(Option<Seen>, Vec<Option<TagState>>), StoreError> {
        let caller = Arc::clone(&self.active);
        let reader = self.batcher.sender();
        let entry = key.copied().map(ReadName::Entry);
        let names = || entry.into_iter().chain(tags.iter().copied().map(ReadName::Tag));
        // While the server is taken to be down, one caller probes it and no other waits for that.
        if reading == LifeReading::AsNeeded
            && Arc::strong_count(&caller) > 2
            && !names().next().is_some_and(|name| reader.client.is_down_for(&name))
        {
            let entry = entry.map(|entry| self.batcher.ask(entry));
            let tags: Vec<_> =
                tags.iter().map(|tag| self.batcher.ask(ReadName::Tag(*tag))).collect();
            if let Some(result) = answered(entry, tags).await {
                return result;
            }
        }
        let names: Vec<_> = names().collect();
        // Boxed, so that callers that share a command need no memory for it.
        let seen = if names.len() > 1 && reader.client.is_cluster() {
            let read = |name| reader.read(slice::from_ref(name), reading);
            Box::pin(try_join_all(names.iter().map(read))).await?.into_iter().flatten().collect()
        } else {
            let asked = reader.request(&names, reading);
            Box::pin(reader.client.run(&asked.request, |reply| asked.read(reply))).await?
        };
        let mut seen = Vec::into_iter(seen);
        let entry = entry.and_then(|_| seen.next().flatten());
        Ok((entry, seen.map(tag_state).collect()))
    }

    /// Opens an entry, with what is left of its life. One that cannot be read counts as none.
    ///
    /// # Errors
    /// If it has to be read again, and how.
    pub(super) fn open(
        &self,
        Seen { sealed, life }: Seen,
        key: &Key,
        digest: &Digest,
    ) -> Result<Option<Entry>, LifeReading> {
        let opened: Opened = match envelope::open(Bytes::from(sealed), digest) {
            Ok(opened) => opened,
            Err(what) => {
                self.unreadable.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(target: "bellwether::store", %key, "counts as a miss: {what}");
                return Ok(None);
            }
        };
        let remaining = match life {
            SeenLife::Remaining(remaining) => Remaining::Known(remaining),
            SeenLife::ReadAt(_) if opened.is_expired => return Err(LifeReading::Remaining),
            SeenLife::ReadAt(now) => match opened.life_left(now) {
                Some(left) => Remaining::Known(left),
                None => return Ok(None),
            },
            SeenLife::Estimated(_) if opened.draft.lifetimes.need_the_remaining_life() => {
                self.batcher.sender().with_time.store(true, Ordering::Relaxed);
                return Err(LifeReading::Time);
            }
            SeenLife::Estimated(now) if opened.may_be_over(now) => return Err(LifeReading::Time),
            SeenLife::Estimated(_) => Remaining::Fresh,
        };
        Ok(Some(opened.entry(remaining)))
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }
}

/// Waits for the answers of a batch. None if one of its names has to be read alone.
async fn answered(
    entry: Option<impl Future<Output = Option<ReadResult>>>,
    tags: Vec<impl Future<Output = Option<ReadResult>>>,
) -> Option<Result<(Option<Seen>, Vec<Option<TagState>>), StoreError>> {
    let entry = match entry {
        Some(entry) => entry.await?,
        None => Ok(None),
    };
    let mut states = Vec::with_capacity(tags.len());
    for tag in tags {
        states.push(tag.await?.map(tag_state));
    }
    let states = states.into_iter().collect::<Result<_, _>>();
    Some(entry.and_then(|entry| Ok((entry, states?))))
}

fn tag_state(seen: Option<Seen>) -> Option<TagState> {
    tag_value::read(&seen?.sealed)
}

impl BatchSender for NameReader {
    type Request = ReadName;
    type Answer = ReadResult;

    fn is_full(&self, names: usize) -> bool {
        is_full(names, || self.client.server_count())
    }

    async fn send(&self, batch: Vec<BatchedRequest<ReadName, ReadResult>>) {
        let groups = self.client.split(batch, |asked| asked.request.slot());
        join_all(groups.into_iter().map(|group| self.answer(group))).await;
    }
}

impl NameReader {
    /// Reads names that one command can have, and answers their callers.
    async fn answer(&self, asked: Vec<BatchedRequest<ReadName, ReadResult>>) {
        let (names, places) = distinct(asked.iter().map(|asked| asked.request));
        let mut seen = self.read(&names, LifeReading::AsNeeded).await;
        for (BatchedRequest { request, answer }, place) in iter::zip(asked, places) {
            let result = match (&mut seen, request) {
                (Ok(seen), ReadName::Entry(_)) => Ok(seen[place].take()),
                (Ok(seen), ReadName::Tag(_)) => Ok(seen[place].clone()),
                (Err(error), _) => Err(error.clone()),
            };
            // The caller may be gone.
            _ = answer.send(result);
        }
    }

    async fn read(
        &self,
        names: &[ReadName],
        reading: LifeReading,
    ) -> Result<Vec<Option<Seen>>, StoreError> {
        let asked = self.request(names, reading);
        self.client.run(&asked.request, |reply| asked.read(reply)).await
    }

    fn request(&self, names: &[ReadName], reading: LifeReading) -> NameRequest<'_> {
        let reading = match reading {
            LifeReading::AsNeeded if self.with_time.load(Ordering::Relaxed) => LifeReading::Time,
            reading => reading,
        };
        let name = |name: &ReadName| match name {
            ReadName::Entry(digest) => self.client.name(digest, ""),
            ReadName::Tag(tag) => self.client.unwatched_name("tag", tag),
        };
        let count = names.len();
        let names: Vec<_> = names.iter().map(name).collect();
        let request = match reading {
            LifeReading::AsNeeded => RedisRequest::command("MGET", names, READING),
            LifeReading::Time => RedisRequest::command("MGET", names, READING).timed(),
            LifeReading::Remaining => RedisRequest::script(&scripts::LOOKUP, names, [], READING),
        };
        NameRequest { client: &self.client, request, reading, count, asked_at: Instant::now() }
    }
}

impl NameRequest<'_> {
    /// Reads the reply, and notes the server's time if it has that.
    fn read(&self, reply: RedisValue) -> Option<Vec<Option<Seen>>> {
        let estimate = || self.client.with_clock(&self.request, ServerClock::now);
        let (now, seen) = reply::seen(reply, self.reading, estimate)?;
        if let Some(now) = now {
            self.client.with_clock(&self.request, |clock| clock.note(self.asked_at, now));
        }
        (seen.len() == self.count).then_some(seen)
    }
}

impl InSlot for ReadName {
    fn slot(&self) -> u16 {
        let (Self::Entry(digest) | Self::Tag(digest)) = self;
        digest.slot()
    }
}

/// Each tag once, and where each of these names is among them. An entry is read once per lookup, because
/// callers of one key share a flight and rarely look it up at once.
fn distinct(asked: impl Iterator<Item = ReadName>) -> (Vec<ReadName>, Vec<usize>) {
    let (mut names, mut tags) = (Vec::with_capacity(asked.size_hint().0), HashMap::new());
    let mut place = |name| {
        let next = names.len();
        let place = match name {
            ReadName::Entry(_) => next,
            ReadName::Tag(tag) => *tags.entry(tag).or_insert(next),
        };
        if place == next {
            names.push(name);
        }
        place
    };
    let places = asked.map(&mut place).collect();
    (names, places)
}

/// Whether a batch of so many names is sent without a wait for more. That of a cluster has room for
/// several nodes, because each of them gets only its part. The servers are counted at multiples of
/// [`AT_ONCE`] only, because that takes a lock.
fn is_full(names: usize, servers: impl FnOnce() -> usize) -> bool {
    names.is_multiple_of(AT_ONCE) && names >= AT_ONCE * servers().min(MOST_PARTS)
}

/// The maximum number of names in a batch for one server. With more of them, the server would wait
/// for the process and then the process for the server, and a longer reply would delay those behind
/// it.
const AT_ONCE: usize = 32;

/// For how many nodes of a cluster a batch has room. All of its keys may be of one node.
const MOST_PARTS: usize = 8;

const READING: &str = "reading an entry";

#[cfg(test)]
mod tests {
    use std::future::ready;

    use bellwether::store::StoreErrorKind;

    use super::*;

    fn digest(number: u64) -> Digest {
        Key::of("item").with(number).digest()
    }

    fn seen(sealed: &[u8]) -> Option<Seen> {
        Some(Seen { sealed: sealed.to_vec(), life: SeenLife::Estimated(None) })
    }

    async fn answer(
        entry: ReadResult,
        tags: &[ReadResult],
    ) -> Result<(Option<Seen>, Vec<Option<TagState>>), StoreError> {
        let tags = tags.iter().map(|tag| ready(Some(tag.clone()))).collect();
        answered(Some(ready(Some(entry))), tags).await.expect("all answers")
    }

    #[test]
    fn tags_are_read_once_and_entries_once_per_lookup() {
        use ReadName::{Entry, Tag};
        let [one, two, three] = [1, 2, 3].map(digest);
        let asked = [Entry(one), Tag(one), Tag(two), Entry(one), Tag(two), Tag(three), Tag(one)];
        let (names, places) = distinct(asked.into_iter());
        assert_eq!(names, [Entry(one), Tag(one), Tag(two), Entry(one), Tag(three)]);
        assert_eq!(places, [0, 1, 2, 3, 2, 4, 1]);
        assert!(asked.iter().zip(places).all(|(asked, place)| names[place] == *asked));
    }

    #[tokio::test]
    async fn tags_are_answered_in_their_order_and_bytes_that_are_no_tag_count_as_none() {
        let tags = [digest(1), digest(2)].map(|tag| tag.as_bytes()[..16].to_vec());
        let results = [Ok(seen(&tags[0])), Ok(seen(b"no tag")), Ok(None), Ok(seen(&tags[1]))];
        let (entry, states) = answer(Ok(seen(b"entry")), &results).await.expect("an answer");
        assert_eq!(entry, seen(b"entry"));
        assert_eq!(states, [tag_value::read(&tags[0]), None, None, tag_value::read(&tags[1])]);
    }

    #[tokio::test]
    async fn an_error_is_that_of_each_lookup_that_needs_the_name() {
        let error = StoreError::new(StoreErrorKind::TimedOut, "late");
        let kind = |result: Result<_, StoreError>| result.map(drop).map_err(|error| error.kind());
        let fine = answer(Ok(None), &[Ok(None)]).await;
        assert_eq!(kind(fine), Ok(()));
        let of_entry = answer(Err(error.clone()), &[Ok(None)]).await;
        assert_eq!(kind(of_entry), Err(StoreErrorKind::TimedOut));
        let of_tag = answer(Ok(None), &[Ok(None), Err(error)]).await;
        assert_eq!(kind(of_tag), Err(StoreErrorKind::TimedOut));
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

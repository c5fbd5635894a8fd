//! Lookups: entries and tags, read without a lease. Concurrent ones are sent as one command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::{iter, mem};

use bytes::Bytes;
use futures_util::future::join_all;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::envelope::{self, Opened};
use super::scripts::{self, Seen, SeenAt};
use super::tag_value;
use bellwether::adapter::locked;
use bellwether::store::{Digest, Entry, TagState, Tags};
use bellwether::{Key, StoreError};
use bellwether_redis_client::{
    BatchSender, BatchedRequest, Batcher, InSlot, RedisClient, RedisRequest, ServerClock,
};

/// The lookups of a store.
///
/// A lone lookup is sent at once. Concurrent lookups are batched by the servers of what they read. In a
/// batch, a tag, which many entries share, is read once. Entries that were large when they were last seen
/// are read by requests of their own.
#[derive(Debug)]
pub(super) struct Lookups {
    batcher: Batcher<NameReader>,
    /// Shared by the callers that read now.
    active: Arc<()>,
    /// How many entries could not be read.
    pub(super) unreadable: AtomicU64,
}

#[derive(Debug)]
struct NameReader {
    client: RedisClient,
    /// Whether lookups read the server's time, too. They do not until one finds an entry that needs
    /// it.
    with_time: AtomicBool,
    /// The server reports changes of what is read, so it is read over the connection for that.
    is_tracked: bool,
    sizes: EntrySizes,
}

/// What is left of the life of an entry needs the server's time, which was not read.
#[derive(Debug)]
pub(super) struct NeedsTime;

/// What a lookup reads: the entry of a key, if there is one, and tags.
#[derive(Clone, Debug)]
struct ReadNames {
    key: Option<Digest>,
    tags: Tags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadName {
    Entry(Digest),
    Tag(Digest),
}

/// One of the names of a lookup in a batch.
#[derive(Clone, Copy, Debug)]
struct BatchedName {
    name: ReadName,
    /// Which lookup of the batch it is of.
    lookup: usize,
    /// Which tag of the lookup it is.
    place: usize,
}

/// Lookups that are being read: what was found, and how many names are not read yet.
struct OpenLookups(Vec<(Found, usize)>);

/// What is there, if anything is: the entry, and the tags in their order.
type Found = (Option<Seen>, Vec<Option<TagState>>);

type ReadResult = Result<Found, StoreError>;

impl Lookups {
    /// Those of a store. With a near tier, they read the server's time from the first one on.
    pub(super) fn new(client: RedisClient, has_near: bool) -> Self {
        let with_time = AtomicBool::new(has_near);
        let sizes = EntrySizes::default();
        let batcher = Batcher::new(NameReader { client, with_time, is_tracked: has_near, sizes });
        Self { batcher, active: Arc::default(), unreadable: AtomicU64::new(0) }
    }

    /// Reads an entry, if there is a key, and tags. A value that is no string, and one that is no tag,
    /// count as none. If it `is_timed`, it reads the server's time in any case.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn read(
        &self,
        key: Option<&Digest>,
        tags: &Tags,
        is_timed: bool,
    ) -> ReadResult {
        let caller = Arc::clone(&self.active);
        let reader = self.batcher.sender();
        let names = ReadNames { key: key.copied(), tags: tags.clone() };
        let first = key.or_else(|| tags.iter().next());
        // While the server is taken to be down, one caller probes it and no other waits for that.
        if !is_timed
            && Arc::strong_count(&caller) > 2
            && !first.is_some_and(|name| reader.client.is_down_for(name))
            && let Some(result) = self.batcher.ask(names.clone()).await
        {
            return result;
        }
        // Boxed, so that callers that share a command need no memory for it.
        Box::pin(reader.read(&names, is_timed)).await
    }

    /// The entry of a key has so many bytes.
    pub(super) fn note_size(&self, key: &Digest, bytes: usize) {
        self.batcher.sender().sizes.note(key, bytes);
    }

    /// Opens an entry, with what is left of its life. One that cannot be read counts as none.
    ///
    /// # Errors
    /// If it has to be read again, timed.
    pub(super) fn open(
        &self,
        Seen { sealed, at }: Seen,
        key: &Key,
        digest: &Digest,
    ) -> Result<Option<Entry>, NeedsTime> {
        self.note_size(digest, sealed.len());
        let opened: Opened = match envelope::open(Bytes::from(sealed), digest) {
            Ok(opened) => opened,
            Err(what) => {
                self.unreadable.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(target: "bellwether::store", %key, "counts as a miss: {what}");
                return Ok(None);
            }
        };
        let remaining = match at {
            SeenAt::Time(now) => opened.life_left(now).map(Some),
            SeenAt::Estimated(_) if opened.entry.lifetimes().need_the_remaining_life() => {
                self.batcher.sender().with_time.store(true, Ordering::Relaxed);
                return Err(NeedsTime);
            }
            SeenAt::Estimated(now) if opened.may_be_over(now) => return Err(NeedsTime),
            // It is fresh, and nothing needs to know for how long.
            SeenAt::Estimated(_) => Some(None),
        };
        Ok(remaining.map(|remaining| opened.entry.with_remaining(remaining)))
    }
}

impl BatchSender for NameReader {
    type Request = ReadNames;
    type Answer = ReadResult;
    const AT_ONCE: usize = 32;

    /// With one command for each server. Each lookup is answered as soon as its servers have replied, or one
    /// of them has failed.
    async fn send(&self, batch: Vec<BatchedRequest<ReadNames, ReadResult>>) {
        let lookups = batch.into_iter().map(|asked| (asked.request, Some(asked.answer)));
        let (lookups, mut callers): (Vec<_>, Vec<_>) = lookups.unzip();
        let answer = |lookup: usize, result| {
            // The caller may be gone.
            _ = callers[lookup].take().map(|caller| caller.send(result));
        };
        let (open, names) = OpenLookups::of(&lookups);
        let answers = Mutex::new((open, answer));
        let groups = self.client.split(names, |asked| asked.name.slot()).into_iter();
        let groups = groups.flat_map(|group| cut(group, |asked| self.size(&asked.name)));
        let groups: Vec<_> = groups.collect();
        let read_group = async |asked: Vec<BatchedName>| {
            let (names, places) = distinct(asked.iter().map(|asked| asked.name));
            let seen = self.see(names.iter().copied(), false).await.map(|seen| (seen, places));
            let (open, answer) = &mut *locked(&answers);
            open.note(asked, seen, answer);
        };
        // One that is alone is not polled twice, as it would be in a `FuturesUnordered`.
        join_all(groups.into_iter().map(read_group)).await;
    }
}

impl NameReader {
    /// Reads what one lookup asks for: as one command, unless it is of a cluster, or its entry is large.
    async fn read(&self, lookup: &ReadNames, is_timed: bool) -> ReadResult {
        let mut names = lookup.names();
        let is_apart =
            |name: &ReadName| self.client.is_cluster() || self.size(name) >= RedisRequest::LARGE;
        let seen = match lookup.names().count() > 1 && names.any(|name| is_apart(&name)) {
            false => self.see(lookup.names(), is_timed).await?,
            true => {
                let names: Vec<_> = lookup.names().collect();
                let groups = names.chunk_by(|one, next| !is_apart(one) && !is_apart(next));
                let read = groups.map(|group| self.see(group.iter().copied(), is_timed));
                // None is dropped when another one fails: it may be the one that probes a server.
                let read: Result<Vec<_>, _> = join_all(read).await.into_iter().collect();
                read?.into_iter().flatten().collect()
            }
        };
        let mut seen = seen.into_iter();
        let entry = lookup.key.and_then(|_| seen.next().flatten());
        Ok((entry, seen.map(|seen| tag_state(seen.as_ref())).collect()))
    }

    /// What is under names that one command may read.
    async fn see(
        &self,
        names: impl Iterator<Item = ReadName> + Clone,
        is_timed: bool,
    ) -> Result<Vec<Option<Seen>>, StoreError> {
        let is_timed = is_timed || self.with_time.load(Ordering::Relaxed);
        let request = self.request(names.clone(), is_timed);
        let asked_at = Instant::now();
        let read = |reply| {
            let estimate = || self.client.with_clock(&request, ServerClock::now);
            let (now, seen) = scripts::seen(reply, is_timed, estimate)?;
            if let Some(now) = now {
                self.client.with_clock(&request, |clock| clock.note(asked_at, now));
            }
            (seen.len() == names.count()).then_some(seen)
        };
        self.client.run(&request, read).await
    }

    fn size(&self, name: &ReadName) -> usize {
        match name {
            ReadName::Entry(key) => self.sizes.of(key),
            ReadName::Tag(_) => 0,
        }
    }

    fn request(
        &self,
        names: impl Iterator<Item = ReadName> + Clone,
        is_timed: bool,
    ) -> RedisRequest<'static> {
        let bytes = names.clone().map(|name| self.size(&name)).sum();
        let name = |name| match name {
            ReadName::Entry(digest) => self.client.names().name(&digest, ""),
            ReadName::Tag(tag) => self.client.names().tag_name(&tag),
        };
        let names: Vec<_> = names.map(name).collect();
        let request = RedisRequest::command("MGET", names, [], READING).expecting(bytes);
        let request = if self.is_tracked { request.tracked() } else { request };
        if is_timed { request.timed() } else { request }
    }
}

impl ReadNames {
    /// In the order of what is found.
    fn names(&self) -> impl Iterator<Item = ReadName> + Clone {
        let tags = self.tags.iter().copied().map(ReadName::Tag);
        self.key.map(ReadName::Entry).into_iter().chain(tags)
    }
}

impl OpenLookups {
    /// With their names, in their order.
    fn of(lookups: &[ReadNames]) -> (Self, Vec<BatchedName>) {
        let mut names = Vec::with_capacity(lookups.len());
        let open = iter::zip(0.., lookups).map(|(lookup, asked)| {
            let before = names.len();
            let tags = iter::zip(asked.tags.iter().copied().map(ReadName::Tag), 0..);
            let all = asked.key.map(|key| (ReadName::Entry(key), 0)).into_iter().chain(tags);
            names.extend(all.map(|(name, place)| BatchedName { name, lookup, place }));
            ((None, vec![None; asked.tags.len()]), names.len() - before)
        });
        (Self(open.collect()), names)
    }

    /// Notes what is under some of their names, and answers those that are complete or have failed.
    fn note(
        &mut self,
        names: Vec<BatchedName>,
        seen: Result<(Vec<Option<Seen>>, Vec<usize>), StoreError>,
        answer: &mut impl FnMut(usize, ReadResult),
    ) {
        let (mut seen, places) = match seen {
            Ok(seen) => seen,
            Err(error) => {
                return names.iter().for_each(|asked| answer(asked.lookup, Err(error.clone())));
            }
        };
        for (asked, place) in iter::zip(names, places) {
            let (found, missing) = &mut self.0[asked.lookup];
            let seen = &mut seen[place];
            match asked.name {
                ReadName::Entry(_) => found.0 = seen.take(),
                ReadName::Tag(_) => found.1[asked.place] = tag_state(seen.as_ref()),
            }
            *missing -= 1;
            if *missing == 0 {
                answer(asked.lookup, Ok(mem::take(found)));
            }
        }
    }
}

impl InSlot for ReadName {
    fn slot(&self) -> u16 {
        let (Self::Entry(digest) | Self::Tag(digest)) = self;
        digest.slot()
    }
}

/// What was read of a tag, if that is one.
fn tag_state(seen: Option<&Seen>) -> Option<TagState> {
    seen.and_then(|tag| tag_value::read(&tag.sealed))
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

const READING: &str = "reading an entry";

/// How many bytes entries had that were not short when they were last seen, by key. It takes no memory until
/// there is one.
#[derive(Debug, Default)]
pub(super) struct EntrySizes(OnceLock<Cache<Digest, usize>>);

impl EntrySizes {
    /// The entry of a key has so many bytes.
    pub(super) fn note(&self, key: &Digest, bytes: usize) {
        if bytes >= SHORT {
            self.0.get_or_init(|| Cache::new(MOST)).insert(*key, bytes);
        } else if let Some(sizes) = self.0.get() {
            sizes.remove(key);
        }
    }

    /// Zero if it is short, or not known.
    pub(super) fn of(&self, key: &Digest) -> usize {
        self.0.get().and_then(|sizes| sizes.get(key)).unwrap_or(0)
    }
}

/// Cuts what is read from one server into requests: the short ones together, and large ones together, each
/// request for at most [`REPLY`] unless one alone is larger.
pub(super) fn cut<T>(names: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    if names.iter().all(|name| size(name) == 0) {
        return vec![names];
    }
    let mut requests = Vec::with_capacity(1);
    let mut open = [(Vec::new(), 0), (Vec::new(), 0)];
    for name in names {
        let size = size(&name);
        let (of_kind, bytes) = &mut open[usize::from(size >= RedisRequest::LARGE)];
        if *bytes > 0 && *bytes + size > REPLY {
            requests.push(mem::take(of_kind));
            *bytes = 0;
        }
        of_kind.push(name);
        *bytes += size;
    }
    requests.extend(open.map(|(names, _)| names).into_iter().filter(|names| !names.is_empty()));
    requests
}

/// How many bytes a reply is expected to have at most. A network of 1 Gbit/s takes 4 ms for them.
const REPLY: usize = 512 * 1024;

/// Shorter entries are not noted: 32 of them, as many as one request reads, are one reply.
const SHORT: usize = 16 * 1024;

/// How many sizes are kept. Each takes about 60 bytes.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;
    use bellwether::store::StoreErrorKind;

    fn digest(number: u64) -> Digest {
        Key::of("item").with(number).digest()
    }

    fn seen(sealed: &[u8]) -> Option<Seen> {
        Some(Seen { sealed: sealed.to_vec(), at: SeenAt::Estimated(None) })
    }

    fn names(key: u64, tags: &[u64]) -> ReadNames {
        let tags = Tags::of_entry(tags.iter().copied().map(digest));
        ReadNames { key: Some(digest(key)), tags }
    }

    /// The answers to lookups of which each group of names is read alone.
    fn answers<const N: usize>(
        lookups: [ReadNames; N],
        read: impl Fn(ReadName) -> Result<Option<Seen>, StoreError>,
    ) -> [Vec<ReadResult>; N] {
        let mut answers = [const { Vec::new() }; N];
        let (mut open, names) = OpenLookups::of(&lookups);
        for asked in names.into_iter().rev() {
            let seen = read(asked.name).map(|seen| (vec![seen], vec![0]));
            open.note(vec![asked], seen, &mut |lookup, result| answers[lookup].push(result));
        }
        answers
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

    #[test]
    fn tags_are_answered_in_their_order_and_bytes_that_are_no_tag_count_as_none() {
        let lookup = names(0, &[1, 2, 3, 4]);
        let [first, second, _, last] = lookup.tags.iter().copied().collect::<Vec<_>>()[..] else {
            panic!("four tags")
        };
        let bytes = |tag: Digest| tag.as_bytes()[..16].to_vec();
        let [answers] = answers([lookup], |name| {
            Ok(match name {
                ReadName::Entry(_) => seen(b"entry"),
                ReadName::Tag(tag) if tag == second => seen(b"no tag"),
                ReadName::Tag(tag) if [first, last].contains(&tag) => seen(&bytes(tag)),
                ReadName::Tag(_) => None,
            })
        });
        let [Ok((entry, states))] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(*entry, seen(b"entry"));
        let [first, last] = [first, last].map(|tag| tag_value::read(&bytes(tag)));
        assert_eq!(*states, [first, None, None, last]);
    }

    #[test]
    fn an_error_is_that_of_each_lookup_that_needs_the_name() {
        let lookups = || [names(0, &[1, 2]), names(3, &[2]), names(4, &[])];
        let failed = |name: ReadName| {
            let error = StoreError::new(StoreErrorKind::TimedOut, "late");
            let answers = answers(lookups(), |asked| match asked == name {
                true => Err(error.clone()),
                false => Ok(None),
            });
            answers.map(|answers| {
                let [answer] = &answers[..] else { panic!("{answers:?}") };
                answer.as_ref().err().map(StoreError::kind)
            })
        };
        let late = Some(StoreErrorKind::TimedOut);
        assert_eq!(failed(ReadName::Entry(digest(0))), [late, None, None]);
        assert_eq!(failed(ReadName::Tag(digest(2))), [late, late, None]);
        assert_eq!(failed(ReadName::Entry(digest(9))), [None; 3]);
    }

    #[test]
    fn large_entries_are_read_apart_from_short_ones_and_no_reply_is_longer_than_it_must_be() {
        let sizes = vec![0, 100_000, 0, 500_000, 900_000, 20_000];
        let cut = cut(sizes, |size| *size);
        assert_eq!(cut, [vec![100_000], vec![500_000], vec![0, 0, 20_000], vec![900_000]]);
    }

    #[test]
    fn an_entry_that_is_short_again_is_forgotten() {
        let (sizes, key) = (EntrySizes::default(), Key::of("item").digest());
        sizes.note(&key, SHORT - 1);
        assert!(sizes.0.get().is_none());
        sizes.note(&key, SHORT);
        assert_eq!(sizes.of(&key), SHORT);
        sizes.note(&key, 1);
        assert_eq!(sizes.of(&key), 0);
    }
}

//! A lookup batch: what several lookups read, each tag once, and what each of them gets.

use std::collections::HashMap;
use std::ops::Range;

use super::reply::Seen;
use super::tag_value::TagValue;
use bellwether::Digest;
use bellwether::Tags;
use bellwether::{StoreError, StoreErrorKind};
use bellwether_redis_client::InSlot;

/// What a lookup reads.
#[derive(Clone, Debug)]
pub(super) struct LookupTarget {
    /// The key of an entry. None if it reads tags only.
    pub(super) key: Option<Digest>,
    pub(super) tags: Tags,
}

/// What a lookup has found.
#[derive(Debug)]
pub(super) struct LookupAnswer {
    pub(super) entry: Option<Seen>,
    /// In the order of the tags. None for a tag that is absent.
    pub(super) tags: Vec<Option<TagValue>>,
}

pub(super) type LookupResult = Result<LookupAnswer, StoreError>;

/// What lookups read together. A tag, which many entries share, is read once. An entry is read once per
/// lookup, because callers of one key share a flight and rarely look it up at once.
#[derive(Debug, Default)]
pub(super) struct LookupBatch {
    /// What is read. Its index is its place.
    read: Vec<ReadName>,
    /// The places of tags.
    tags: HashMap<Digest, usize>,
    /// Which lookup needs which place. Those of one lookup are next to each other.
    needs: Vec<Need>,
    lookups: Vec<BatchedLookup>,
}

#[derive(Debug)]
struct ReadName {
    digest: Digest,
    is_tag: bool,
    /// The last lookup that needs it, as an index among the needs.
    needed_by: Option<usize>,
    outcome: NameOutcome,
}

#[derive(Debug)]
enum NameOutcome {
    Unknown,
    Entry(Option<Seen>),
    Tag(Option<TagValue>),
    Failed(StoreError),
}

#[derive(Clone, Copy, Debug)]
struct Need {
    lookup: usize,
    place: usize,
    /// Another need of the same place.
    other: Option<usize>,
}

#[derive(Debug)]
struct BatchedLookup {
    needs: Range<usize>,
    /// How many of them are not known yet.
    missing: usize,
}

impl LookupTarget {
    /// Something that it reads, whose slot is that of the first command.
    pub(super) fn first(&self) -> Option<&Digest> {
        self.key.as_ref().or_else(|| self.tags.iter().next())
    }
}

impl LookupBatch {
    /// What these lookups read, with room for one name of each.
    pub(super) fn of<'a>(targets: impl ExactSizeIterator<Item = &'a LookupTarget>) -> Self {
        let mut batch = Self::default();
        batch.read.reserve(targets.len());
        batch.needs.reserve(targets.len());
        batch.lookups.reserve(targets.len());
        targets.for_each(|target| batch.add(target));
        batch
    }

    fn add(&mut self, target: &LookupTarget) {
        let first = self.needs.len();
        if let Some(key) = target.key {
            self.push(key, false);
            self.need(self.read.len() - 1);
        }
        for tag in target.tags.iter() {
            let next = self.read.len();
            let place = *self.tags.entry(*tag).or_insert(next);
            if place == next {
                self.push(*tag, true);
            }
            self.need(place);
        }
        let needs = first..self.needs.len();
        self.lookups.push(BatchedLookup { missing: needs.len(), needs });
    }

    fn push(&mut self, digest: Digest, is_tag: bool) {
        self.read.push(ReadName { digest, is_tag, needed_by: None, outcome: NameOutcome::Unknown });
    }

    fn need(&mut self, place: usize) {
        let other = self.read[place].needed_by.replace(self.needs.len());
        self.needs.push(Need { lookup: self.lookups.len(), place, other });
    }

    /// The places of all that is read.
    pub(super) fn places(&self) -> Range<usize> {
        0..self.read.len()
    }

    /// The digest of a key or a tag, and whether it is a tag.
    pub(super) fn at(&self, place: usize) -> (&Digest, bool) {
        let ReadName { digest, is_tag, .. } = &self.read[place];
        (digest, *is_tag)
    }

    /// Notes what is at some places. Calls `done` with each lookup that has all it needs by that, and
    /// with its result.
    pub(super) fn note(
        &mut self,
        places: &[usize],
        seen: Result<Vec<Option<Seen>>, StoreError>,
        mut done: impl FnMut(usize, LookupResult),
    ) {
        match seen {
            Ok(seen) => {
                for (place, seen) in places.iter().zip(seen) {
                    self.read[*place].note(seen);
                }
            }
            Err(error) => {
                for place in places {
                    self.read[*place].outcome = NameOutcome::Failed(error.clone());
                }
            }
        }
        for place in places {
            let mut next = self.read[*place].needed_by.take();
            while let Some(index) = next {
                let Need { lookup, other, .. } = self.needs[index];
                self.lookups[lookup].missing -= 1;
                if self.lookups[lookup].missing == 0 {
                    done(lookup, self.result(lookup));
                }
                next = other;
            }
        }
    }

    /// The result of a lookup that has all it needs. Its entry is taken, since no other lookup needs
    /// that place.
    fn result(&mut self, lookup: usize) -> LookupResult {
        let needs = self.lookups[lookup].needs.clone();
        let mut answer = LookupAnswer { entry: None, tags: Vec::new() };
        // The first one is the entry, unless only tags are read.
        answer.tags.reserve_exact(needs.len().saturating_sub(1));
        for need in needs {
            match &mut self.read[self.needs[need].place].outcome {
                NameOutcome::Entry(seen) => answer.entry = seen.take(),
                NameOutcome::Tag(value) => answer.tags.push(*value),
                NameOutcome::Failed(error) => return Err(error.clone()),
                NameOutcome::Unknown => return Err(malformed()),
            }
        }
        Ok(answer)
    }
}

impl ReadName {
    fn note(&mut self, seen: Option<Seen>) {
        self.outcome = match self.is_tag {
            true => NameOutcome::Tag(seen.and_then(|seen| TagValue::read(&seen.sealed))),
            false => NameOutcome::Entry(seen),
        };
    }
}

impl InSlot for LookupTarget {
    /// The slot of what it reads first.
    fn slot(&self) -> u16 {
        self.first().map_or(0, InSlot::slot)
    }
}

pub(super) fn malformed() -> StoreError {
    StoreError::new(StoreErrorKind::Malformed, "redis, reading an entry: the reply makes no sense")
}

#[cfg(test)]
mod tests {
    use super::super::reply::SeenLife;
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
        let sealed = |place: &usize| match batch.at(*place) {
            (digest, true) => seen(&digest.as_bytes()[..16]),
            (digest, false) => seen(digest.as_bytes()),
        };
        places.iter().map(sealed).collect()
    }

    fn check(target: &LookupTarget, result: LookupResult) {
        let LookupAnswer { entry, tags } = result.expect("an answer");
        let sealed = target.key.map(|key| key.as_bytes().to_vec());
        assert_eq!(entry.map(|entry| entry.sealed), sealed);
        let values = target.tags.iter().map(|tag| TagValue::read(&tag.as_bytes()[..16]));
        assert_eq!(tags, values.collect::<Vec<_>>());
    }

    #[test]
    fn tags_are_read_once_and_entries_once_per_lookup() {
        let targets = [target(Some(1), &[1, 2]), target(Some(1), &[2, 3]), target(None, &[3, 1])];
        let mut batch = LookupBatch::of(targets.iter());
        let places: Vec<_> = batch.places().collect();
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
        for place in batch.places().rev() {
            let seen = reply(&batch, &[place]);
            batch.note(&[place], Ok(seen), |lookup, result| {
                check(&targets[lookup], result);
                answered.push((place, lookup));
            });
        }
        let last = |lookup| {
            let places = batch.places().filter(|place| {
                let (digest, is_tag) = batch.at(*place);
                let LookupTarget { key, tags } = &targets[lookup];
                if is_tag { tags.iter().any(|tag| tag == digest) } else { *key == Some(*digest) }
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
            batch.places().partition(|place| *batch.at(*place).0 == shared);
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
}

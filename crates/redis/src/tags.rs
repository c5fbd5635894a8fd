//! The tags of a `RedisStore`: when their epochs are read, and what follows for an entry.
//!
//! The epochs of the tags of a claim are read before its lease is requested, so before the load
//! begins. A commit reads them again before it stores, and each lookup reads them with the entry.
//! An entry counts only under the epochs under which it was loaded. So no script needs a tag and an
//! entry at once, which are in different slots. The order of the commands suffices:
//!
//! - A lookup that begins after an invalidation returned reads the new epoch, or none. An entry
//!   whose load began before has another one.
//! - A commit gives its value to callers that had joined before it began. It reads the epochs after
//!   that, so it notices an invalidation that returned before one of them joined.
//!
//! A lookup knows the tags of the request. Those that the answer has in addition are known from the
//! entry only. So it also reads those that the entry had when this process last saw it, and, in a second
//! round trip, those that the entry has and were not read. In what order an entry and a tag are read
//! does not matter: both reads begin after the lookup. An entry that is younger than what was read of
//! its tag has another epoch, and counts as none, or as stale.

use std::iter;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::lookups::Lookups;
use super::near::{Near, Version};
use super::outbox::Outbox;
use super::scripts::{self, LONGEST_MS, number, random_bytes};
use super::tag_value;
use bellwether::StoreError;
use bellwether::adapter::{micros, millis};
use bellwether::store::{Digest, Draft, Entry, Lease, Standing, TagEpoch, TagState, Tags};
use bellwether_redis_client::{InSlot, RedisClient, RedisRequest, ServerClock};

/// Reads tags, and judges entries by them.
#[derive(Debug)]
pub(super) struct TagReader {
    pub(super) client: RedisClient,
    pub(super) near: Option<Arc<Near>>,
    pub(super) lookups: Lookups,
    pub(super) outbox: Arc<Outbox>,
    pub(super) last_seen: LastSeen,
}

/// The tags that entries had when they were last seen, by key. Only of entries that had other tags than
/// were read with them, so it takes no memory until there is one.
#[derive(Debug, Default)]
pub(super) struct LastSeen(OnceLock<Cache<Digest, Tags>>);

/// The tags that a request reads, in the order of their digests.
#[derive(Debug, Default)]
pub(super) struct ReadTags(Vec<ReadTag>);

#[derive(Debug)]
struct ReadTag {
    digest: Digest,
    /// None until it is read, and for one that is absent.
    state: Option<TagState>,
    /// The time of its server when it was touched, in us. Zero for one that was read.
    touched_at: u64,
    /// Its version for the near tier, from before it was read. None for one that the server does not
    /// track.
    version: Option<Version>,
}

impl TagReader {
    /// Notes the versions of tags, before what is kept of them is repeated and they are read.
    pub(super) fn begin(&self, tags: &Tags) -> ReadTags {
        let near = self.near.as_ref();
        let tag = |tag: &Digest| {
            let version = near.and_then(|near| near.epochs.tag_version(tag));
            ReadTag { digest: *tag, state: None, touched_at: 0, version }
        };
        ReadTags(tags.iter().map(tag).collect())
    }

    /// Reads the epochs of tags, and makes those that are absent. The server keeps them at least
    /// for `life`.
    pub(super) async fn touch(&self, tags: &Tags, life: Duration) -> Result<ReadTags, StoreError> {
        if tags.is_empty() {
            return Ok(ReadTags::default());
        }
        let life = number(millis(life.max(LONGEST_LOAD)).min(LONGEST_MS));
        let groups = self.client.split(tags.iter().copied().collect(), Digest::slot);
        let touch = async |tags: Vec<Digest>| {
            let names: Vec<_> = tags.iter().map(|tag| self.client.names().tag_name(tag)).collect();
            let args = [life.clone(), random_bytes(names.len())];
            let request = RedisRequest::script(&scripts::TOUCH_TAGS, names, args, TOUCHING);
            let asked_at = Instant::now();
            let read =
                |reply| scripts::touched(reply).filter(|(_, values)| values.len() == tags.len());
            let (now, values) = self.client.run(&request, read).await?;
            self.client.with_clock(&tags[0], |clock| clock.note(asked_at, now));
            let touched = iter::zip(tags, values);
            Ok::<_, StoreError>(touched.map(move |(digest, state)| ReadTag {
                digest,
                state: Some(state),
                touched_at: now,
                version: None,
            }))
        };
        // None is dropped when another one fails: it may be the one that probes a server.
        let touched = join_all(groups.into_iter().map(touch)).await.into_iter();
        let mut touched: Vec<_> =
            touched.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        touched.sort_by_key(|tag| tag.digest);
        Ok(ReadTags(touched))
    }

    /// The tags of a draft with the epochs under which it was loaded. None if one of them, or what was
    /// not kept, has changed since its lease was granted.
    pub(super) async fn epochs_of(
        &self,
        lease: &Lease,
        draft: &Draft,
    ) -> Result<Option<Vec<TagEpoch>>, StoreError> {
        if lease.fence < self.outbox.ledger.floor() {
            return Ok(None);
        }
        let claimed = lease.claim.tags().iter().chain(draft.tags.iter());
        let tags = Tags::of_entry(claimed.copied());
        let touched = self.touch(&tags, draft.lifetimes.life()).await?;
        let is_old = draft.lease_age >= TAG_LIFE;
        let epoch = |tag: &ReadTag| {
            let now = tag.epoch()?;
            let is_unchanged = match lease.epochs.iter().find(|seen| seen.tag == tag.digest) {
                Some(seen) => *seen == now,
                // An invalidation during the load may be forgotten by now.
                None if is_old => false,
                None => {
                    let granted_at = self.granted_at(lease, draft.lease_age, tag);
                    !tag_value::has_changed_since(tag.state?, granted_at)
                }
            };
            is_unchanged.then_some(now)
        };
        Ok(touched.0.iter().map(epoch).collect())
    }

    /// The earliest time at which a lease can have been granted, by the clock of the server of a tag.
    /// On a cluster, that of the key has another clock. Zero if they cannot be compared, or if a clock was set
    /// back since the holder has counted this age, so that the tag counts as changed.
    fn granted_at(&self, lease: &Lease, counted: Duration, tag: &ReadTag) -> u64 {
        let granted_at = lease.granted_at;
        let time = |of: &Digest| self.client.with_clock(of, ServerClock::now);
        let (now, by_tag) = match self.client.is_cluster() {
            false => (tag.touched_at, tag.touched_at),
            true => match (time(&lease.key().digest()), time(&tag.digest)) {
                (Some(of_key), Some(of_tag)) => (of_key.latest, of_tag.earliest),
                _ => return 0,
            },
        };
        let Some(age) = now.checked_sub(granted_at) else { return 0 };
        // But for what two clocks differ in their speed, as in `commit.lua`.
        let is_set_back = micros(counted) > age + age / 100 + 1_000;
        if is_set_back { 0 } else { by_tag.saturating_sub(age) }
    }

    /// Reads tags alone.
    pub(super) async fn read(&self, tags: &Tags) -> Result<ReadTags, StoreError> {
        let mut read = self.begin(tags);
        self.outbox.repeat_pending(None, tags.iter()).await?;
        read.note(self.lookups.read(None, tags, false).await?.1);
        Ok(read)
    }

    /// Notes for the near tier what was read of tags.
    pub(super) fn note(&self, read: &ReadTags) {
        let Some(near) = &self.near else { return };
        for tag in &read.0 {
            if let (Some(version), Some(state)) = (&tag.version, tag.epoch()) {
                near.epochs.note_tag(version, &state);
            }
        }
    }

    /// What the tags of an entry have made of it, for a request with these tags. Reads those tags
    /// that are not `known` yet.
    pub(super) async fn judge(
        &self,
        entry: Entry,
        requested: &Tags,
        known: &mut ReadTags,
        key: &Digest,
    ) -> Result<Option<Entry>, StoreError> {
        let epochs = entry.epochs();
        let is_dropped = entry.fence() < self.outbox.ledger.floor();
        if is_dropped || !entry.has_tags(requested) {
            return Ok(None);
        }
        let missing = epochs.iter().filter(|epoch| known.of(epoch).is_none());
        let missing = Tags::of_entry(missing.map(|epoch| epoch.tag));
        if !missing.is_empty() {
            known.0.append(&mut self.read(&missing).await?.0);
        }
        if !missing.is_empty() || known.0.len() > epochs.len() {
            self.last_seen.note(key, entry.tags());
        }
        let now =
            || self.client.with_clock(key, ServerClock::now).map_or(u64::MAX, |now| now.latest);
        let standing = known.standings(&entry, key, now).map(|(_, standing)| standing).min();
        Ok(match standing {
            None | Some(Standing::Current) => Some(entry),
            Some(standing) => standing.apply(entry, now()),
        })
    }
}

impl LastSeen {
    /// The tags to read with an entry, for a request with these tags. None if it is not known which it
    /// had, or if it lacked one of these.
    pub(super) fn tags_of(&self, key: &Digest, requested: &Tags) -> Option<Tags> {
        let seen = self.0.get()?.get(key)?;
        requested.iter().all(|tag| seen.iter().any(|seen| seen == tag)).then_some(seen)
    }

    fn note(&self, key: &Digest, tags: Tags) {
        self.0.get_or_init(|| Cache::new(MOST_SEEN)).insert(*key, tags);
    }

    /// Forgets an entry. Otherwise its lookups would go on to fail by a tag that it may not have any
    /// more.
    pub(super) fn forget(&self, key: &Digest) {
        self.0.get().map(|seen| seen.remove(key));
    }
}

impl ReadTags {
    /// Notes what was read of them, in their order.
    pub(super) fn note(&mut self, states: Vec<Option<TagState>>) {
        self.0.iter_mut().zip(states).for_each(|(tag, state)| tag.state = state);
    }

    fn of(&self, seen: &TagEpoch) -> Option<&ReadTag> {
        self.0.iter().find(|tag| tag.digest == seen.tag)
    }

    /// What each tag of an entry has made of it. One that is absent was forgotten.
    pub(super) fn standings(
        &self,
        entry: &Entry,
        key: &Digest,
        now: impl Fn() -> u64,
    ) -> impl Iterator<Item = (Digest, Standing)> {
        entry.epochs().iter().map(move |seen| {
            let state = self.of(seen).and_then(|tag| tag.state);
            (seen.tag, state.map_or(Standing::Gone, |state| state.standing(seen, key, &now)))
        })
    }

    /// The versions of the tags of an entry, if it can be copied into the near tier.
    pub(super) fn versions(&self, entry: &Entry) -> Option<Vec<Version>> {
        entry.epochs().iter().map(|seen| self.of(seen)?.version).collect()
    }

    /// The epochs of those that were touched.
    pub(super) fn epochs(&self) -> Vec<TagEpoch> {
        self.0.iter().filter_map(ReadTag::epoch).collect()
    }
}

impl ReadTag {
    fn epoch(&self) -> Option<TagEpoch> {
        self.state.map(|state| TagEpoch { tag: self.digest, hard: state.hard, soft: state.soft })
    }
}

/// How long a tag is kept in addition to the life of its longest entry. The scripts have the same
/// value.
pub(super) const TAG_LIFE: Duration = Duration::from_secs(60 * 60);

/// How long the tags of a claim are needed at least. A load that takes longer may find its tags gone,
/// and is not stored then.
const LONGEST_LOAD: Duration = Duration::from_secs(600);

/// For how many keys it is remembered which tags their entries had: about 200 bytes each, with four
/// tags. Lookups of others take a second round trip.
const MOST_SEEN: usize = 10_000;

const TOUCHING: &str = "reading tags";

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

    fn digest(number: usize) -> Digest {
        Key::of("item").with(number).digest()
    }

    fn tags(numbers: impl IntoIterator<Item = usize>) -> Tags {
        Tags::of_entry(numbers.into_iter().map(digest))
    }

    #[test]
    fn tags_are_expected_for_requests_whose_tags_the_entry_had() {
        let (seen, key) = (LastSeen::default(), digest(0));
        let expected = |requested: &[usize]| {
            let tags = seen.tags_of(&key, &tags(requested.iter().copied()))?;
            Some(tags.len())
        };
        assert_eq!(expected(&[]), None);
        seen.note(&key, tags([1, 2, 3]));
        assert_eq!([expected(&[]), expected(&[3, 1]), expected(&[1, 4])], [Some(3), Some(3), None]);
        seen.note(&key, tags([4]));
        assert_eq!([expected(&[]), expected(&[1])], [Some(1), None]);
        seen.forget(&key);
        assert_eq!(expected(&[]), None);
    }

    #[test]
    fn what_was_seen_is_remembered_of_a_bounded_number_of_keys() {
        let seen = LastSeen::default();
        (0..5 * MOST_SEEN).for_each(|number| seen.note(&digest(number), tags([number])));
        let kept =
            (0..5 * MOST_SEEN).filter(|number| seen.tags_of(&digest(*number), &tags([])).is_some());
        let kept = kept.count();
        assert!(kept > 0 && kept <= MOST_SEEN + MOST_SEEN / 10, "{kept}");
    }
}

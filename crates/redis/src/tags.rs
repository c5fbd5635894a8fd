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

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::inner::Inner;
use super::kept::Change;
use super::lookup_batch::LookupTarget;
use super::near::{Near, Version};
use super::reply;
use super::tag_value::TagValue;
use bellwether::Digest;
use bellwether::StoreError;
use bellwether::Tags;
use bellwether::adapter::jitter;
use bellwether::adapter::millis;
use bellwether::store::Standing;
use bellwether::store::{Acquire, Claim, Draft, Entry, Lease, TagEpoch};
use bellwether_redis_client::{InSlot, RedisRequest, RedisValue, ServerClock, SlotGroup};

/// An acquire has found an entry that is not fresh any more, because of its tags.
#[derive(Debug)]
pub(super) struct Outdated {
    pub(super) fence: u64,
}

/// The tags that a request has read.
#[derive(Debug, Default)]
pub(super) struct ReadTags {
    tags: Tags,
    /// In the order of the tags. None for one that is absent.
    values: Vec<Option<TagValue>>,
    /// Their versions for the near tier, from before they were read, in the same order. None for one
    /// that the server does not track, and empty if there is no near tier.
    versions: Vec<Option<Version>>,
    /// Tags that were read after these.
    others: Option<Box<Self>>,
}

/// A tag that was touched.
#[derive(Debug)]
pub(super) struct TouchedTag {
    digest: Digest,
    value: TagValue,
    /// Whether it was absent.
    is_new: bool,
}

impl Inner {
    /// Invalidates or expires a tag.
    pub(super) async fn change_tag(
        &self,
        digest: &Digest,
        change: Change,
    ) -> Result<(), StoreError> {
        let (how, over): (&[u8], _) = match change {
            Change::Invalidate => (b"hard", Duration::ZERO),
            Change::Expire { over } => (b"soft", over),
        };
        let args = [how.to_vec(), random_bytes(1), number(millis(over).min(LONGEST_MS))];
        let names = [self.tag_name(digest)];
        let request = RedisRequest::script(&self.scripts.change_tag, names, args, CHANGING);
        let read = |reply| (reply == RedisValue::Int(1)).then_some(());
        let changed = self.client.run(&request, read).await;
        // Copies with this tag are not served from here on, even before the server reports it.
        self.near.as_ref().inspect(|near| near.change(digest));
        changed
    }

    /// Reads the epochs of tags, and makes those that are absent. The server keeps them at least
    /// for `life`.
    pub(super) async fn touch(
        &self,
        tags: &Tags,
        life: Duration,
    ) -> Result<Vec<TouchedTag>, StoreError> {
        let life = number(millis(life.max(LONGEST_LOAD)).min(LONGEST_MS));
        let (mut requests, mut groups) = (Vec::new(), Vec::new());
        let by_slot = self.client.split(tags.iter().collect(), |tag: &&Digest| tag.slot());
        for SlotGroup { slot, items: group } in by_slot {
            let names: Vec<_> = group.iter().map(|tag| self.tag_name(tag)).collect();
            let args = [life.clone(), random_bytes(names.len())];
            let request = RedisRequest::script(&self.scripts.touch_tags, names, args, TOUCHING);
            requests.push(request.in_slot(slot));
            groups.push(group);
        }
        let mut touched = Ok(Vec::with_capacity(tags.len()));
        let asked_at = Instant::now();
        let all = |group: usize, values: &Vec<_>| values.len() == groups[group].len();
        let read =
            |group: usize, reply| reply::touched(reply).filter(|(_, values)| all(group, values));
        let done = |group: usize, values: Result<(u64, Vec<_>), _>| match (&mut touched, values) {
            (Ok(touched), Ok((now, values))) => {
                self.client.with_clock(groups[group][0], |clock| clock.note(asked_at, now));
                touched.extend(groups[group].iter().zip(values).map(TouchedTag::new));
            }
            (_, Err(error)) => touched = Err(error),
            (Err(_), Ok(_)) => {}
        };
        self.client.run_all(&requests, read, done).await;
        let mut touched = touched?;
        // The groups are answered in any order.
        touched.sort_by_key(|touched| touched.digest);
        Ok(touched)
    }

    /// The tags of a draft with the epochs under which it was loaded. None if one of them has
    /// changed since its lease was granted.
    pub(super) async fn epochs_of(
        &self,
        lease: &Lease,
        draft: &Draft,
    ) -> Result<Option<Vec<TagEpoch>>, StoreError> {
        let claimed = lease.claim().tags().iter().chain(draft.tags().iter());
        let tags = Tags::of_entry(claimed.copied());
        let touched = self.touch(&tags, draft.lifetimes().life()).await?;
        let is_old = draft.lease_age() >= TAG_LIFE;
        let epoch = |touched: &TouchedTag| {
            let now = touched.epoch();
            let seen = lease.epochs().iter().find(|seen| *seen.tag() == touched.digest);
            let is_unchanged = match seen {
                Some(seen) => *seen == now,
                // An invalidation during the load may be forgotten by now.
                None if touched.is_new => !is_old,
                None => {
                    !is_old && !touched.value.has_changed_since(self.granted_at(lease, touched))
                }
            };
            is_unchanged.then_some(now)
        };
        Ok(touched.iter().map(epoch).collect())
    }

    /// The earliest time at which a lease can have been granted, by the clock of the server of a tag.
    /// On a cluster, that of the key has another clock. Zero if they cannot be compared, so that the
    /// tag counts as changed.
    fn granted_at(&self, lease: &Lease, tag: &TouchedTag) -> u64 {
        let granted_at = lease.granted_at();
        if !self.client.is_cluster() {
            return granted_at;
        }
        let of_key = self.client.with_clock(&lease.key().digest(), ServerClock::now);
        let of_tag = self.client.with_clock(&tag.digest, ServerClock::now);
        let age = of_key.map(|now| now.latest.saturating_sub(granted_at));
        let granted_at = of_tag.zip(age).map(|(now, age)| now.earliest.saturating_sub(age));
        granted_at.unwrap_or_default()
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
        let is_dropped = entry.fence() < self.kept.floor();
        if is_dropped || !requested.iter().all(|tag| entry.has_tag(tag)) {
            return Ok(None);
        }
        let missing = epochs.iter().filter(|epoch| !known.has(epoch.tag()));
        let missing = Tags::of_entry(missing.map(|epoch| *epoch.tag()));
        if !missing.is_empty() {
            self.settle_tags(&missing).await?;
            let mut others = self.begin_tags(&missing);
            let target = LookupTarget { key: None, tags: missing };
            others.note(self.lookups.read(&target).await?.tags);
            known.others = Some(Box::new(others));
        }
        let standing = epochs.iter().map(|epoch| known.standing(epoch, key)).min();
        let now =
            || self.client.with_clock(key, ServerClock::now).map_or(u64::MAX, |now| now.latest);
        Ok(match standing.unwrap_or(Standing::Current) {
            Standing::Current => Some(entry),
            Standing::Gone => None,
            standing => standing.apply(entry, now()),
        })
    }

    /// What the tags have made of the reply to a claim, whose own tags were touched before.
    pub(super) async fn judge_acquired(
        &self,
        acquired: Acquire,
        claim: &Claim,
        touched: &[TouchedTag],
    ) -> Result<Result<Acquire, Outdated>, StoreError> {
        let mut known = ReadTags::touched(touched);
        let acquired = match acquired {
            Acquire::Found(entry) => {
                let fence = entry.fence();
                let key = claim.key().digest();
                let found = self.judge(entry, claim.tags(), &mut known, &key).await?;
                let Some(entry) = found.filter(Entry::is_fresh) else {
                    return Ok(Err(Outdated { fence }));
                };
                Acquire::Found(entry)
            }
            Acquire::Busy { other, remaining, stale, trace } => {
                let stale = self.judge_stale(stale, claim, &mut known).await;
                let other = other.seen_under(touched.iter().map(TouchedTag::epoch).collect());
                Acquire::Busy { other, remaining, stale, trace }
            }
            Acquire::Failed { failure, remaining, stale } => {
                let stale = self.judge_stale(stale, claim, &mut known).await;
                Acquire::Failed { failure, remaining, stale }
            }
            Acquire::Lead { lease, stale, failures, probe } => {
                let stale = self.judge_stale(stale, claim, &mut known).await;
                let lease = lease.under(touched.iter().map(TouchedTag::epoch).collect());
                Acquire::Lead { lease, stale, failures, probe }
            }
        };
        Ok(Ok(acquired))
    }

    async fn judge_stale(
        &self,
        stale: Option<Entry>,
        claim: &Claim,
        known: &mut ReadTags,
    ) -> Option<Entry> {
        let judged = self.judge(stale?, claim.tags(), known, &claim.key().digest()).await;
        // An entry whose tags cannot be read may have been invalidated.
        judged.inspect_err(|error| tracing::debug!(target: "bellwether::store", %error, "a stale entry is not used")).ok()?
    }

    /// Prepares to read tags together with an entry.
    pub(super) fn begin_tags(&self, tags: &Tags) -> ReadTags {
        let version = |near: &Arc<Near>| tags.iter().map(|tag| near.tag_version(tag)).collect();
        let versions = self.near.as_ref().map(version).unwrap_or_default();
        ReadTags { tags: tags.clone(), versions, ..ReadTags::default() }
    }
}

impl ReadTags {
    /// Notes what was read of them, in their order.
    pub(super) fn note(&mut self, values: Vec<Option<TagValue>>) {
        self.values = values;
    }

    /// Tags that were touched, which the server does not track. They are in the order of their
    /// digests.
    pub(super) fn touched(touched: &[TouchedTag]) -> Self {
        Self {
            tags: Tags::of_entry(touched.iter().map(|touched| touched.digest)),
            values: touched.iter().map(|touched| Some(touched.value)).collect(),
            ..Self::default()
        }
    }

    fn has(&self, tag: &Digest) -> bool {
        self.place(tag).is_some()
    }

    /// Where a tag is: which of the tags read together, and its index.
    fn place(&self, tag: &Digest) -> Option<(&Self, usize)> {
        match self.tags.iter().position(|ours| ours == tag) {
            Some(index) => Some((self, index)),
            None => self.others.as_ref()?.place(tag),
        }
    }

    fn standing(&self, seen: &TagEpoch, key: &Digest) -> Standing {
        let state = self.place(seen.tag()).and_then(|(it, index)| *it.values.get(index)?);
        state.map_or(Standing::Gone, |TagValue(state)| state.standing(seen, key))
    }

    /// The versions of the tags of an entry, if it can be copied into the near tier.
    pub(super) fn versions(&self, entry: &Entry) -> Option<Vec<Version>> {
        let version = |seen: &TagEpoch| {
            let (it, index) = self.place(seen.tag())?;
            *it.versions.get(index)?
        };
        entry.epochs().iter().map(version).collect()
    }
}

impl TouchedTag {
    fn new((digest, (value, is_new)): (&&Digest, (TagValue, bool))) -> Self {
        Self { digest: **digest, value, is_new }
    }

    pub(super) fn epoch(&self) -> TagEpoch {
        let TagValue(state) = self.value;
        TagEpoch::new(self.digest, state.hard, state.soft)
    }
}

fn random_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|_| (jitter() * 256.0) as u8).collect()
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// How long a tag is kept in addition to the life of its longest entry. The scripts have the same
/// value.
pub(super) const TAG_LIFE: Duration = Duration::from_secs(60 * 60);

/// How long the tags of a claim are needed at least. A load that takes longer may find its tags gone,
/// and is not stored then.
const LONGEST_LOAD: Duration = Duration::from_secs(600);

/// The maximum of a time. Scripts add to it in floating point. No layer sets such times.
const LONGEST_MS: u64 = 1 << 50;

const CHANGING: &str = "changing a tag";

const TOUCHING: &str = "reading tags";

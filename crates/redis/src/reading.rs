//! Lookups: an entry and its tags, read without a lease.

use std::sync::Arc;

use super::envelope::Stamp;
use super::inner::Inner;
use super::life::{life_left, may_be_over};
use super::lookup_batch::{LookupAnswer, LookupTarget};
use super::lookups::LifeReading;
use super::reply::{Seen, SeenLife};
use super::tags::ReadTags;
use bellwether::StoreError;
use bellwether::Tags;
use bellwether::store::{Draft, Entry, Remaining, TagEpoch};
use bellwether::{Digest, Key};

/// An entry as it was found.
struct OpenedEntry {
    draft: Draft,
    stamp: Stamp,
    epochs: Vec<TagEpoch>,
    remaining: Remaining,
}

impl Inner {
    /// Reads an entry and the tags of the request as one command. Tags that only the entry has are
    /// read after it.
    pub(super) async fn lookup(
        self: &Arc<Self>,
        key: &Key,
        tags: &Tags,
    ) -> Result<Option<Entry>, StoreError> {
        let digest = key.digest();
        let start = self.start_read(&digest);
        let mut known = self.begin_tags(tags);
        let target = LookupTarget { key: Some(digest), tags: tags.clone() };
        let Some(found) = self.find(key, &digest, &target, &mut known).await? else {
            return Ok(None);
        };
        let OpenedEntry { draft, stamp, epochs, remaining } = found;
        let entry = draft.into_tagged_entry(stamp.fence, stamp.stored_at, remaining, epochs);
        let Some(entry) = self.judge(entry, tags, &mut known, &digest).await? else {
            return Ok(None);
        };
        if let Some(versions) = known.versions(&entry) {
            self.keep(start, versions, key, &entry);
        }
        Ok(Some(entry))
    }

    async fn find(
        &self,
        key: &Key,
        digest: &Digest,
        target: &LookupTarget,
        known: &mut ReadTags,
    ) -> Result<Option<OpenedEntry>, StoreError> {
        let lookups = &self.lookups;
        let mut reading = LifeReading::AsNeeded;
        loop {
            let LookupAnswer { entry, tags } = match reading {
                LifeReading::AsNeeded => lookups.read(target).await?,
                // Rare, and boxed, so that other lookups need no memory for it.
                reading => Box::pin(lookups.read_with(target, reading)).await?,
            };
            let Some(Seen { sealed, life }) = entry else { return Ok(None) };
            known.note(tags);
            let Some((draft, stamp, epochs)) = self.open(sealed, key, digest) else {
                return Ok(None);
            };
            let remaining = match life {
                SeenLife::Remaining(remaining) => Remaining::Known(remaining),
                SeenLife::ReadAt(_) if stamp.is_expired => {
                    reading = LifeReading::Remaining;
                    continue;
                }
                SeenLife::ReadAt(now) => match life_left(draft.lifetimes(), stamp, now) {
                    Some(left) => Remaining::Known(left),
                    None => return Ok(None),
                },
                SeenLife::Estimated(_) if draft.lifetimes().need_the_remaining_life() => {
                    lookups.ask_for_time();
                    continue;
                }
                SeenLife::Estimated(now) if may_be_over(draft.lifetimes(), stamp, now) => {
                    reading = LifeReading::Time;
                    continue;
                }
                SeenLife::Estimated(_) => Remaining::Fresh,
            };
            return Ok(Some(OpenedEntry { draft, stamp, epochs, remaining }));
        }
    }
}

//! Lookups: an entry and its tags, read without a lease.

use std::iter;
use std::sync::Arc;

use super::client::ServerClock;
use super::envelope::Stamp;
use super::inner::Inner;
use super::operations::DRIFT;
use super::reply::Seen;
use super::tags::ReadTags;
use crate::duration::micros;
use crate::error::StoreError;
use crate::key::{Digest, Key};
use crate::lifetimes::Lifetimes;
use crate::store::{Draft, Entry, Remaining, TagEpoch};
use crate::tag::Tags;

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
        let mut known = self.begin_tags(tags.iter().copied());
        let Some(found) = self.find(key, &digest, &mut known).await? else { return Ok(None) };
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
        known: &mut ReadTags,
    ) -> Result<Option<OpenedEntry>, StoreError> {
        let lookups = self.lookups(digest);
        let mut with_life = false;
        loop {
            let names = iter::once(self.entry_name(digest)).chain(known.names(self)).collect();
            let seen = match with_life {
                true => lookups.read_with_lives(names).await?,
                false => lookups.read(names).await?,
            };
            let mut seen = seen.into_iter();
            let Some(Seen { sealed, remaining }) = seen.next().flatten() else {
                return Ok(None);
            };
            known.note(seen);
            let Some((draft, stamp, epochs)) = self.open(sealed, key, digest) else {
                return Ok(None);
            };
            let remaining = match remaining {
                Some(remaining) => Remaining::Known(remaining),
                None if draft.lifetimes().need_the_remaining_life() => {
                    lookups.ask_for_lives();
                    continue;
                }
                None if self.may_be_over(digest, draft.lifetimes(), stamp) => {
                    with_life = true;
                    continue;
                }
                None => Remaining::Fresh,
            };
            return Ok(Some(OpenedEntry { draft, stamp, epochs, remaining }));
        }
    }

    /// Whether an entry may be invalid because the server's clock was set back: its life may be
    /// over, or may not have begun. If the clock was not set, this holds only at the very end of a
    /// life.
    fn may_be_over(&self, digest: &Digest, lifetimes: Lifetimes, stamp: Stamp) -> bool {
        let life = micros(lifetimes.life());
        let now = self.client.with_clock(digest, ServerClock::now);
        now.is_none_or(|now| {
            stamp.stored_at > now.start().saturating_add(DRIFT)
                || now.end().saturating_sub(stamp.stored_at) >= life
        })
    }
}

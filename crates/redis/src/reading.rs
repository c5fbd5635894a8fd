//! Lookups: an entry and its tags, read without a lease.

use std::sync::Arc;
use std::time::Duration;

use super::envelope::Stamp;
use super::inner::Inner;
use super::lookup_batch::{LookupAnswer, LookupTarget};
use super::lookups::LifeReading;
use super::operations::DRIFT;
use super::reply::{Seen, SeenLife};
use super::tags::ReadTags;
use bellwether::Lifetimes;
use bellwether::StoreError;
use bellwether::Tags;
use bellwether::adapter::micros;
use bellwether::store::{Draft, Entry, Remaining, TagEpoch};
use bellwether::{Digest, Key};
use bellwether_redis_client::ServerTime;

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
        let lookups = self.lookups(digest);
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

/// Whether an entry may be invalid because the server's clock was set back: its life may be over, or
/// may not have begun. If the clock was not set, this holds only at the very end of a life.
fn may_be_over(lifetimes: Lifetimes, stamp: Stamp, now: Option<ServerTime>) -> bool {
    now.is_none_or(|now| {
        stamp.stored_at > now.earliest.saturating_add(DRIFT)
            || now.latest.saturating_sub(stamp.stored_at) >= micros(lifetimes.life())
    })
}

/// What is left of a life at a time of the server, or none if it is over. The life of an entry from a
/// later time has not begun: the server's clock was set back. `lookup.lua` goes by the same rules.
fn life_left(lifetimes: Lifetimes, stamp: Stamp, now: u64) -> Option<Duration> {
    if stamp.stored_at > now.saturating_add(DRIFT) {
        return None;
    }
    let age = now.saturating_sub(stamp.stored_at);
    let left = micros(lifetimes.life()).saturating_sub(age);
    (left > 0).then(|| Duration::from_micros(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_ends_by_the_time_of_the_server_and_is_never_longer_than_it_was() {
        let lifetimes = Lifetimes::fresh_for(Duration::from_secs(2))
            .stale_while_revalidate(Duration::from_secs(1));
        let stored_at = 1_000_000_000;
        let stamp = Stamp { fence: 1, stored_at, is_expired: false };
        let left = |now| life_left(lifetimes, stamp, now).map(|left| left.as_micros());
        assert_eq!(left(stored_at), Some(3_000_000));
        assert_eq!(left(stored_at + 2_999_999), Some(1));
        assert_eq!(left(stored_at + 3_000_000), None);
        assert_eq!(left(stored_at - DRIFT), Some(3_000_000));
        assert_eq!(left(stored_at - DRIFT - 1), None);
        assert_eq!(left(u64::MAX), None);
    }
}

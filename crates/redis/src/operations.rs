//! The operations of a `RedisStore`: their requests, and how their replies are read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, slice};

use bytes::Bytes;
use tokio::time::Instant;

use super::envelope::{self, Opened, Stamp};
use super::heartbeat;
use super::inner::Inner;
use super::kept::Change;
use super::near::{ReadStart, Version};
use super::record;
use super::reminder::Reminder;
use super::reply::{AcquireReply, Acquired, Found};
use super::tags::Outdated;
use super::unacknowledged::LeaseCommand;
use bellwether::adapter::{micros, millis};
use bellwether::store::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, WATERMARK_TTL,
};
use bellwether::store::{OtherLease, Remaining, Renew, Token};
use bellwether::trace::TraceParent;
use bellwether::{Digest, Key};
use bellwether::{StoreError, StoreErrorKind};
use bellwether_redis_client::{InSlot, RedisRequest, RedisValue, ServerClock, SlotGroup};

impl Inner {
    /// Acquires. An unreadable entry counts as none and must not prevent a load, so the request is
    /// sent again and declines the fence of that entry.
    ///
    /// If the server refuses a request as late, but the refusal arrives in time, the server's clock
    /// was set. The reply corrects the estimate, and the request is sent again.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        term: Duration,
        mut accept: Accept,
    ) -> Result<Acquire, StoreError> {
        self.unacknowledged.forget(claim);
        self.unacknowledged.note_term(term);
        let key = claim.key();
        let digest = key.digest();
        let tags = self.touch(claim.tags(), Duration::ZERO).await?;
        let [mut late, mut unreadable, mut outdated] = [0; 3];
        while late < TRIES && outdated < TRIES {
            let start = self.start_read(&digest);
            let AcquireReply { now, answer } =
                self.request_lease(claim, &digest, term, accept).await?;
            let Some(acquired) = answer else {
                late += 1;
                continue;
            };
            match self.read(acquired, claim, (term, now), &digest) {
                Ok(acquired) => match self.judge_acquired(acquired, claim, &tags).await? {
                    Ok(acquired) => {
                        self.keep_found(start, claim, &acquired);
                        return Ok(acquired);
                    }
                    Err(Outdated { fence }) => {
                        outdated += 1;
                        accept = Accept::Other { than: fence };
                    }
                },
                Err(UnreadableReply::Entry { fence }) if unreadable == 0 => {
                    unreadable += 1;
                    accept = Accept::Other { than: fence };
                }
                Err(_) => {
                    return Err(acquiring(
                        StoreErrorKind::Malformed,
                        key,
                        "the reply makes no sense",
                    ));
                }
            }
        }
        let late = format!("no answer within {:?}", self.timeout());
        Err(acquiring(StoreErrorKind::TimedOut, key, &late))
    }

    async fn request_lease(
        self: &Arc<Self>,
        claim: &Claim,
        digest: &Digest,
        term: Duration,
        accept: Accept,
    ) -> Result<AcquireReply, StoreError> {
        let asked_at = Instant::now();
        let args = self.acquire_args(claim, digest, term, accept);
        let names = self.names(digest);
        let request = RedisRequest::script(&self.scripts.acquire, names, args, ACQUIRING);
        let request = request.of(claim.key());
        let reminder = Reminder::new(self, claim, LeaseCommand::Take);
        let replied = self.client.run(&request, AcquireReply::read).await;
        let reply = reminder.settle(replied)?;
        self.client.with_clock(digest, |clock| clock.note(asked_at, reply.now));
        Ok(reply)
    }

    fn acquire_args(
        &self,
        claim: &Claim,
        digest: &Digest,
        term: Duration,
        accept: Accept,
    ) -> Vec<Vec<u8>> {
        let trace = claim.trace().map_or("", TraceParent::as_str);
        vec![
            [claim.token().as_bytes(), trace.as_bytes()].concat(),
            number(millis(term)),
            acceptable(accept),
            self.latest_arrival(digest),
            self.unacknowledged.tokens(digest),
            self.client.mark(),
        ]
    }

    /// The server's time at which a caller that starts now has stopped waiting. Empty if the
    /// server's time is not known.
    fn latest_arrival(&self, digest: &Digest) -> Vec<u8> {
        let now = self.client.with_clock(digest, ServerClock::now);
        let latest = now.map(|now| now.latest + micros(self.timeout()));
        latest.map(number).unwrap_or_default()
    }

    /// Reads the reply to a claim that requested this term, at this time of the server.
    fn read(
        &self,
        acquired: Acquired,
        claim: &Claim,
        (term, now): (Duration, u64),
        digest: &Digest,
    ) -> Result<Acquire, UnreadableReply> {
        let key = claim.key();
        let readable =
            |found: Option<Found>| found.and_then(|found| self.entry(found, key, digest));
        Ok(match acquired {
            Acquired::Found(found) => {
                let fence = envelope::fence(&found.sealed);
                let found = readable(Some(found)).ok_or(UnreadableReply::Entry { fence })?;
                Acquire::Found(exactly(found, now))
            }
            Acquired::Busy { remaining, fence, stale, trace } => {
                let other = OtherLease::new(fence);
                Acquire::Busy { other, remaining, stale: readable(stale), trace }
            }
            Acquired::Failed { record, remaining, stale } => {
                let failure = record::read(&record).ok_or(UnreadableReply::Failure)?;
                Acquire::Failed { failure, remaining, stale: readable(stale) }
            }
            Acquired::Lead { fence, stale, failures, probe } => {
                let lease = Lease::granted(claim.clone(), term, fence, now);
                let probe = probe.as_deref().and_then(record::read);
                Acquire::Lead { lease, stale: readable(stale), failures, probe }
            }
        })
    }

    pub(super) async fn renew(
        &self,
        claim: &Claim,
        fence: u64,
        term: Duration,
    ) -> Result<Renew, StoreError> {
        self.unacknowledged.note_term(term);
        let names = [self.lease_name(&claim.key().digest())];
        let args = [token(claim.token()), number(millis(term)), number(fence)];
        let request = RedisRequest::script(&self.scripts.renew, names, args, "renewing the lease");
        let read = |reply| Some(if is_done(reply)? { Renew::Held } else { Renew::Lost });
        self.client.run(&request.of(claim.key()), read).await
    }

    pub(super) async fn commit(
        self: &Arc<Self>,
        lease: Lease,
        draft: Draft,
    ) -> Result<Commit, StoreError> {
        let reminder = Reminder::new(self, lease.claim(), LeaseCommand::Release);
        let key = lease.key();
        let digest = lease.key().digest();
        let stored_at = lease.granted_at().saturating_add(micros(draft.lease_age()));
        let stamp = Stamp { fence: lease.fence(), stored_at, is_expired: false };
        let Some(epochs) = self.epochs_of(&lease, &draft).await? else {
            // The lease blocks the key for nothing.
            let abandoned = self.abandon(lease.claim()).await;
            return reminder.settle(abandoned.map(|()| Commit::Superseded));
        };
        let args = [
            token(lease.token()),
            envelope::seal(&draft, &digest, stamp, &epochs),
            number(millis(draft.lifetimes().life())),
            number(lease.fence()),
            number(lease.granted_at()),
            number(micros(WATERMARK_TTL)),
        ];
        let names = self.names(&digest);
        let request = RedisRequest::script(&self.scripts.commit, names, args, "storing the entry");
        let read = |reply| Some(if is_done(reply)? { Commit::Stored } else { Commit::Superseded });
        let committed = self.client.run(&request.of(key), read).await;
        self.forget(&digest);
        reminder.settle(committed)
    }

    pub(super) async fn fail(
        self: &Arc<Self>,
        lease: &Lease,
        failure: Failure,
    ) -> Result<(), StoreError> {
        let reminder = Reminder::new(self, lease.claim(), LeaseCommand::Release);
        let digest = lease.key().digest();
        let names = [self.lease_name(&digest), self.failed_name(&digest)];
        let life = number(millis(failure.life()));
        let fence = number(lease.fence());
        let args = [token(lease.token()), record::write(&failure), life, fence];
        let request =
            RedisRequest::script(&self.scripts.fail, names, args, "remembering a failure");
        reminder.settle(self.client.run(&request.of(lease.key()), any).await)
    }

    pub(super) async fn abandon(self: &Arc<Self>, claim: &Claim) -> Result<(), StoreError> {
        let reminder = Reminder::new(self, claim, LeaseCommand::Release);
        let request = self.abandoning(slice::from_ref(claim), "giving the lease up");
        reminder.settle(self.client.run(&request.of(claim.key()), any).await)
    }

    /// Releases the leases that may be left of claims that no flight holds any more.
    pub(super) async fn give_up_unacknowledged(&self) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        let claims = self.unacknowledged.claims();
        for some in claims.chunks(AT_ONCE) {
            let groups = self.client.split(some.to_vec(), |claim| claim.key().digest().slot());
            let giving_up =
                |group: &SlotGroup<_>| self.abandoning(&group.items, "giving leases up");
            let requests: Vec<_> = groups.iter().map(giving_up).collect();
            let mut outcome = Ok(());
            let done = |group: usize, given_up: Result<(), StoreError>| match given_up {
                Ok(()) => self.unacknowledged.given_up(&groups[group].items, sent_at),
                Err(error) => outcome = Err(error),
            };
            self.client.run_all(&requests, |_, reply| any(reply), done).await;
            outcome?;
        }
        Ok(())
    }

    fn abandoning(&self, claims: &[Claim], doing: &'static str) -> RedisRequest<'_> {
        let names = claims.iter().map(|claim| self.lease_name(&claim.key().digest()));
        let tokens = claims.iter().flat_map(|claim| *claim.token().as_bytes());
        let names = names.collect::<Vec<_>>();
        let args = [tokens.collect()];
        RedisRequest::script(&self.scripts.abandon, names, args, doing)
    }

    /// Invalidates or expires a key. Returns whether there was an entry. The key is for the error.
    pub(super) async fn change_key(
        &self,
        digest: &Digest,
        change: Change,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        let keep: &[u8] = if change == Change::Invalidate { b"0" } else { b"1" };
        let args = [number(millis(WATERMARK_TTL)), keep.to_vec()];
        let names = self.names(digest);
        let request = RedisRequest::script(&self.scripts.invalidate, names, args, "invalidating");
        let request = match key {
            Some(key) => request.of(key),
            None => request,
        };
        let changed = self.client.run(&request, is_done).await;
        self.forget(digest);
        changed
    }

    /// Notes the version of a key for the near tier. Call it before a request is sent.
    pub(super) fn start_read(&self, digest: &Digest) -> Option<ReadStart> {
        self.near.as_ref().and_then(|near| near.start_read(digest))
    }

    pub(super) fn keep(
        self: &Arc<Self>,
        start: Option<ReadStart>,
        tags: Vec<Version>,
        key: &Key,
        entry: &Entry,
    ) {
        // What was read may be older than an invalidation that was kept after the version was taken.
        if let (Some(near), Some(start)) = (&self.near, start)
            && self.kept.is_quiet()
            && near.keep(start, tags, key, entry)
        {
            heartbeat::start(self);
        }
    }

    /// Keeps an entry that an acquire found. One with tags is not kept, because the tags were not read
    /// with it.
    fn keep_found(self: &Arc<Self>, start: Option<ReadStart>, claim: &Claim, acquired: &Acquire) {
        if let Acquire::Found(entry) = acquired
            && entry.epochs().is_empty()
        {
            self.keep(start, Vec::new(), claim.key(), entry);
        }
    }

    /// Drops the near copy after a change by this process, whose push message may still be under
    /// way.
    fn forget(&self, digest: &Digest) {
        self.near.as_ref().inspect(|near| near.change(digest));
    }

    fn entry(&self, found: Found, key: &Key, digest: &Digest) -> Option<Entry> {
        let (draft, stamp, epochs) = self.open(found.sealed, key, digest)?;
        let remaining = Remaining::Known(found.remaining);
        Some(draft.into_tagged_entry(stamp.fence, stamp.stored_at, remaining, epochs))
    }

    pub(super) fn open(&self, sealed: Vec<u8>, key: &Key, digest: &Digest) -> Option<Opened> {
        envelope::open(Bytes::from(sealed), digest)
            .inspect_err(|unreadable| self.note_unreadable(key, unreadable))
            .ok()
    }

    fn note_unreadable(&self, key: &Key, what: &dyn fmt::Display) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(target: "bellwether::store", %key, "counts as a miss: {what}");
    }
}

/// The part of a reply to an acquire that cannot be read.
enum UnreadableReply {
    /// The entry that was found.
    Entry {
        fence: u64,
    },
    Failure,
}

/// Reads 1 or 0.
fn is_done(reply: RedisValue) -> Option<bool> {
    Some(reply.whole()? == 1)
}

/// Accepts any reply.
fn acquiring(kind: StoreErrorKind, key: &Key, what: &str) -> StoreError {
    StoreError::new(kind, format!("redis, {ACQUIRING} of `{key}`: {what}"))
}

fn any(_: RedisValue) -> Option<()> {
    Some(())
}

/// An entry with what is left of its life to the microsecond, by the store's time. The script rounds it
/// up to a millisecond, which is longer than it takes to be woken.
fn exactly(entry: Entry, now: u64) -> Entry {
    let Remaining::Known(rounded) = entry.remaining() else { return entry };
    let age = Duration::from_micros(now.saturating_sub(entry.stored_at()));
    let exact = entry.lifetimes().life().saturating_sub(age);
    match rounded.checked_sub(exact) {
        Some(rounding) if rounding < Duration::from_millis(1) => {
            entry.with_remaining(Remaining::Known(exact))
        }
        // The life ends earlier, for example by an expiry.
        _ => entry,
    }
}

const ACQUIRING: &str = "taking the lease";

/// How often an acquire is sent while the server's clock is being set.
const TRIES: u32 = 3;

/// The maximum number of leases that one command gives up, because other requests wait while it
/// runs.
const AT_ONCE: usize = 256;

fn acceptable(accept: Accept) -> Vec<u8> {
    match accept {
        Accept::Fresh => b"1".to_vec(),
        Accept::Nothing => b"0".to_vec(),
        Accept::Other { than } => than.to_be_bytes().to_vec(),
    }
}

fn token(token: Token) -> Vec<u8> {
    token.as_bytes().to_vec()
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::life::DRIFT;
    use super::super::tags::TAG_LIFE;
    use super::*;

    #[test]
    fn the_scripts_go_by_the_same_times() {
        let prelude = include_str!("prelude.lua");
        assert!(prelude.contains(&format!("local watermark_life = {}\n", millis(WATERMARK_TTL))));
        assert!(prelude.contains(&format!("local drift = {DRIFT}\n")));
        assert!(prelude.contains(&format!("local tag_life = {}\n", millis(TAG_LIFE))));
    }
}

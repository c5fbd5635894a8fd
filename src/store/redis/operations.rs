//! The operations of a `RedisStore`: what is asked, and what is made of the answers.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, slice};

use bytes::Bytes;
use redis::Value;
use tokio::time::Instant;

use super::Inner;
use super::envelope::{self, Stamp};
use super::link::Question;
use super::looks::Looks;
use super::near::Asked;
use super::pulse;
use super::record;
use super::reply::{AcquireReply, Acquired, Found, Seen};
use super::script::Source;
use super::trouble::Trouble;
use crate::error::StoreError;
use crate::key::{Digest, Key};
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, WATERMARK_TTL};
use crate::store::{Lifetimes, Remaining, Renew, Token};

impl Inner {
    pub(super) async fn look(self: &Arc<Self>, key: &Key) -> Result<Option<Entry>, StoreError> {
        let digest = key.digest();
        let (looks, mut with_life) = (self.looks(&digest), false);
        loop {
            let (asked, name) = (self.will_ask(&digest), self.names.entry(&digest));
            let seen = match with_life {
                true => looks.look_with_life(name).await,
                false => looks.look(name).await,
            };
            let seen = seen.map_err(|trouble| trouble.during("looking", Some(key)))?;
            let Some(Seen { sealed, remaining }) = seen else {
                return Ok(None);
            };
            let Some((draft, stamp)) = self.open(sealed, key, &digest) else {
                return Ok(None);
            };
            let remaining = match remaining {
                Some(remaining) => Remaining::Known(remaining),
                None if draft.windows().need_the_remaining_life() => {
                    looks.ask_for_lives();
                    continue;
                }
                None if self.may_be_over(draft.windows(), stamp) => {
                    with_life = true;
                    continue;
                }
                None => Remaining::Fresh,
            };
            let entry = draft.into_entry(stamp.fence, stamp.stored_at, remaining);
            self.keep(asked, key, &entry);
            return Ok(Some(entry));
        }
    }

    /// Whether an entry that is there may be none, as the server's clock was set back: its life may
    /// be over, or may not have begun. If the clock is as it was, that is so only at its very end.
    fn may_be_over(&self, windows: Lifetimes, stamp: Stamp) -> bool {
        let life = micros(windows.life());
        self.clock.now().is_none_or(|now| {
            stamp.stored_at > now.start().saturating_add(DRIFT)
                || now.end().saturating_sub(stamp.stored_at) >= life
        })
    }

    pub(super) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        self.unacknowledged.forget(claim);
        self.unacknowledged.note_term(term);
        match self.acquire_readable(claim, term, accept).await? {
            Ok(acquired) => Ok(acquired),
            // What cannot be read is as good as nothing, and must not keep its key from ever being
            // loaded: who meets it asks for the lease all the same.
            Err(than) => {
                let again = self.acquire_readable(claim, term, Accept::Other { than }).await?;
                let during = |_| Trouble::Malformed.during(ACQUIRING, Some(claim.key()));
                again.map_err(during)
            }
        }
    }

    /// Acquires; or gives the fence of the entry that is in the way and cannot be read.
    async fn acquire_readable(
        self: &Arc<Self>,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Result<Acquire, u64>, StoreError> {
        let (key, digest) = (claim.key(), claim.key().digest());
        let during = |trouble: Trouble| trouble.during(ACQUIRING, Some(key));
        let asked = self.will_ask(&digest);
        let (now, acquired) = self.ask_for_lease(claim, term, accept).await.map_err(during)?;
        let readable =
            |found: Option<Found>| found.and_then(|found| self.entry(found, key, &digest));
        Ok(match acquired {
            Acquired::Found(found) => {
                let fence = envelope::fence(&found.sealed);
                let entry = readable(Some(found));
                entry.as_ref().inspect(|entry| self.keep(asked, key, entry));
                entry.map(Acquire::Found).ok_or(fence)
            }
            Acquired::Busy { remaining, stale } => {
                Ok(Acquire::Busy { remaining, stale: readable(stale) })
            }
            Acquired::Failed { record, remaining, stale } => {
                let failure = record::read(&record).ok_or(Trouble::Malformed).map_err(during)?;
                Ok(Acquire::Failed { failure, remaining, stale: readable(stale) })
            }
            Acquired::Lead { fence, stale, failures, probe } => {
                let lease = Lease::granted(claim.clone(), term, fence, now);
                let probe = probe.as_deref().and_then(record::read);
                Ok(Acquire::Lead { lease, stale: readable(stale), failures, probe })
            }
        })
    }

    /// Asks for the lease; gives the server's time as well. A refusal for being late that arrives
    /// in time shows that the server's clock was set: the estimate is corrected by it, and the lease
    /// is asked for again.
    async fn ask_for_lease(
        &self,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<(u64, Acquired), Trouble> {
        let digest = claim.key().digest();
        for _ in 0..TRIES {
            let asked_at = Instant::now();
            let args = vec![
                token(claim.token()),
                number(millis(term)),
                acceptable(accept),
                self.latest_arrival(),
                self.unacknowledged.tokens(&digest),
            ];
            let reply = self.run(&self.hearing, &self.scripts.acquire, &digest, args).await?;
            let AcquireReply { now, answer } =
                AcquireReply::read(reply).ok_or(Trouble::Malformed)?;
            self.clock.note(asked_at, now);
            if let Some(acquired) = answer {
                return Ok((now, acquired));
            }
        }
        Err(Trouble::TimedOut(self.options.timeout))
    }

    /// The server's time at which a caller that asks now has stopped waiting, or nothing if that
    /// is not known.
    fn latest_arrival(&self) -> Vec<u8> {
        let latest = |now: RangeInclusive<u64>| now.end() + micros(self.options.timeout);
        self.clock.now().map(latest).map(number).unwrap_or_default()
    }

    pub(super) async fn renew(&self, claim: &Claim, term: Duration) -> Result<Renew, StoreError> {
        self.unacknowledged.note_term(term);
        let key = claim.key();
        let keys = vec![self.names.lease(&key.digest())];
        let args = vec![token(claim.token()), number(millis(term))];
        let renew = Question::Script { source: &self.scripts.renew, keys, args };
        let reply = self.hearing.lane().ask(&renew).await;
        match reply.map_err(|trouble| trouble.during("renewing the lease", Some(key)))? {
            Value::Int(1) => Ok(Renew::Held),
            Value::Int(_) => Ok(Renew::Lost),
            _ => Err(Trouble::Malformed.during("renewing the lease", Some(key))),
        }
    }

    pub(super) async fn commit(&self, lease: Lease, draft: Draft) -> Result<Commit, StoreError> {
        let (key, digest) = (lease.key(), lease.key().digest());
        let stored_at = lease.granted_at().saturating_add(micros(draft.lease_age()));
        let stamp = Stamp { fence: lease.fence(), stored_at };
        let args = vec![
            token(lease.token()),
            envelope::seal(&draft, &digest, stamp),
            number(millis(draft.windows().life())),
            number(lease.fence()),
            number(lease.granted_at()),
            number(micros(WATERMARK_TTL)),
        ];
        let reply = self.run(&self.hearing, &self.scripts.commit, &digest, args).await;
        self.forget(&digest);
        match reply.map_err(|trouble| trouble.during("storing the entry", Some(key)))? {
            Value::Int(1) => Ok(Commit::Stored),
            Value::Int(_) => Ok(Commit::Superseded),
            _ => Err(Trouble::Malformed.during("storing the entry", Some(key))),
        }
    }

    pub(super) async fn fail(&self, claim: &Claim, failure: Failure) -> Result<(), StoreError> {
        let (key, digest) = (claim.key(), claim.key().digest());
        let keys = vec![self.names.lease(&digest), self.names.failed(&digest)];
        let life = number(millis(failure.life()));
        let args = vec![token(claim.token()), record::write(&failure), life];
        let fail = Question::Script { source: &self.scripts.fail, keys, args };
        let reply = self.hearing.lane().ask(&fail).await;
        reply.map_err(|trouble| trouble.during("remembering a failure", Some(key)))?;
        Ok(())
    }

    pub(super) async fn abandon(&self, claim: &Claim) -> Result<(), StoreError> {
        let abandoned = self.abandon_all(slice::from_ref(claim)).await;
        abandoned.map_err(|trouble| trouble.during("giving the lease up", Some(claim.key())))
    }

    /// Gives up what may be left of claims of which no flight knows any more.
    pub(super) async fn give_up_unacknowledged(&self) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        let claims = self.unacknowledged.claims();
        for some in claims.chunks(AT_ONCE) {
            let abandoned = self.abandon_all(some).await;
            abandoned.map_err(|trouble| trouble.during("giving leases up", None))?;
            self.unacknowledged.given_up(some, sent_at);
        }
        Ok(())
    }

    async fn abandon_all(&self, claims: &[Claim]) -> Result<(), Trouble> {
        let keys = claims.iter().map(|claim| self.names.lease(&claim.key().digest())).collect();
        let tokens = claims.iter().flat_map(|claim| *claim.token().as_bytes()).collect();
        let source = &self.scripts.abandon;
        let abandon = Question::Script { source, keys, args: vec![tokens] };
        self.hearing.lane().ask(&abandon).await.map(drop)
    }

    pub(super) async fn invalidate(&self, key: Key, keep_stale: bool) -> Result<(), StoreError> {
        let keep: &[u8] = if keep_stale { b"1" } else { b"0" };
        let args = vec![number(millis(WATERMARK_TTL)), keep.to_vec()];
        let digest = key.digest();
        // Not where changes are heard: nobody here waits for those of what is not there.
        let reply = self.run(self.looks(&digest), &self.scripts.invalidate, &digest, args).await;
        self.forget(&digest);
        reply.map_err(|trouble| trouble.during("invalidating", Some(&key)))?;
        Ok(())
    }

    /// Runs a script on the names of a key. It makes those of floor and failure by itself.
    async fn run(
        &self,
        over: &Looks,
        source: &Source,
        digest: &Digest,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, Trouble> {
        let names = &self.names;
        let keys = vec![names.entry(digest), names.lease(digest)];
        over.lane().ask(&Question::Script { source, keys, args }).await
    }

    /// To be done before a question about an entry is sent.
    fn will_ask(&self, digest: &Digest) -> Option<Asked> {
        self.near.as_ref().and_then(|near| near.ask(digest))
    }

    fn keep(self: &Arc<Self>, asked: Option<Asked>, key: &Key, entry: &Entry) {
        if let (Some(near), Some(asked)) = (&self.near, asked)
            && near.keep(asked, key, entry)
        {
            pulse::start(self);
        }
    }

    /// After a change by ourselves, of which the server's message may still be under way.
    fn forget(&self, digest: &Digest) {
        self.near.as_ref().inspect(|near| near.change(digest));
    }

    fn looks(&self, digest: &Digest) -> &Looks {
        if self.near.is_some() {
            return &self.hearing;
        }
        &self.plain[usize::from(digest.as_bytes()[0]) % self.plain.len()]
    }

    fn entry(&self, found: Found, key: &Key, digest: &Digest) -> Option<Entry> {
        let (draft, stamp) = self.open(found.sealed, key, digest)?;
        let remaining = Remaining::Known(found.remaining);
        Some(draft.into_entry(stamp.fence, stamp.stored_at, remaining))
    }

    fn open(&self, sealed: Vec<u8>, key: &Key, digest: &Digest) -> Option<(Draft, Stamp)> {
        envelope::open(Bytes::from(sealed), digest)
            .inspect_err(|unreadable| self.note_unreadable(key, unreadable))
            .ok()
    }

    fn note_unreadable(&self, key: &Key, what: &dyn fmt::Display) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%key, "counts as a miss: {what}");
    }
}

const ACQUIRING: &str = "taking the lease";

/// How far two clocks may drift apart during one load, in us, as the scripts have it.
const DRIFT: u64 = 1_000_000;
/// How often a lease is asked for while the server's clock is being set.
const TRIES: u32 = 3;

/// How many leases one command gives up: others wait while it runs.
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_go_by_the_same_times() {
        let prelude = include_str!("prelude.lua");
        assert!(prelude.contains(&format!("local floor_life = {}\n", millis(WATERMARK_TTL))));
        assert!(prelude.contains(&format!("local drift = {DRIFT}\n")));
    }
}

//! The outbox: sends again what a server may not have executed, before its keys and tags are read, and by
//! a task. The [ledger] has what that is.

pub(crate) mod ledger;

use std::future::ready;
use std::slice;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::select;
use tokio::time::{Instant, sleep};

use self::ledger::{ChangedDigest, KeptChange, Ledger, OutboxItem, merged};
use crate::scripts::{self, LONGEST_MS, StoreScript, any, number};
use bellwether::adapter::millis;
use bellwether::store::{Change, Claim};
use bellwether::{Digest, Key, StoreError, StoreErrorKind};
use bellwether_redis_client::{InSlot, RedisClient, RedisRequest, SlotGroup};

/// Sends what is in the ledger.
#[derive(Debug)]
pub(crate) struct Outbox {
    client: RedisClient,
    pub(crate) ledger: Arc<Ledger>,
}

/// A command that is under way. What its server may not have executed is filed when this is dropped,
/// unless it was settled before.
pub(crate) struct Unsettled<'a> {
    ledger: &'a Ledger,
    item: Option<OutboxItem>,
    /// Whether an error leaves open that there is something to do.
    is_open: fn(StoreErrorKind) -> bool,
}

impl Unsettled<'_> {
    /// Files the item, if that is open after this outcome. Returns the outcome.
    pub(crate) fn settle<T>(mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let item = self.item.take();
        outcome.map_err(|error| match item {
            Some(item) if (self.is_open)(error.kind()) => {
                self.ledger.file(item, Some(error.clone())).unwrap_or(error)
            }
            _ => error,
        })
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.item.take().and_then(|item| self.ledger.file(item, None));
    }
}

impl Outbox {
    pub(crate) fn new(client: RedisClient, ledger: Arc<Ledger>) -> Arc<Self> {
        let outbox = Arc::new(Self { client, ledger });
        let weak = Arc::downgrade(&outbox);
        outbox.ledger.task.set(move || {
            let is_due = weak.upgrade()?.ledger.is_due(Instant::now());
            is_due.then(|| empty(Weak::clone(&weak)).boxed())
        });
        outbox
    }

    /// A command that takes a lease is sent next.
    pub(crate) fn taking(&self, claim: &Claim) -> Unsettled<'_> {
        use StoreErrorKind::{Malformed, NotReady, TimedOut, Unreachable};
        // A request that was lost with its connection may have been executed. When it was sent
        // again, the server may not have been ready.
        let is_open = |kind| matches!(kind, TimedOut | Unreachable | Malformed | NotReady);
        self.unsettled(OutboxItem::Release(claim.clone()), is_open)
    }

    /// A command that gives up a lease is sent next. One that was refused or not sent has not ended the
    /// lease.
    pub(crate) fn releasing(&self, claim: &Claim) -> Unsettled<'_> {
        self.unsettled(OutboxItem::Release(claim.clone()), |_| true)
    }

    fn unsettled(&self, item: OutboxItem, is_open: fn(StoreErrorKind) -> bool) -> Unsettled<'_> {
        Unsettled { ledger: &self.ledger, item: Some(item), is_open }
    }

    /// Gives up the lease of a claim, if it has one.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<(), StoreError> {
        let unsettled = self.releasing(claim);
        let request = self.abandoning(slice::from_ref(claim), "giving the lease up");
        unsettled.settle(self.client.run(&request.of(claim.key()), any).await)
    }

    /// Invalidates or expires a key or a tag, together with what is kept of it. Returns whether there was
    /// an entry of a key. The key is for the error.
    pub(crate) async fn change(
        &self,
        target: ChangedDigest,
        change: Change,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        let kept = self.ledger.change_of(&target);
        let merged = kept.map_or(change, |kept| merged(kept.change(), change));
        let unsettled = self.unsettled(OutboxItem::Change(target, change), |_| true);
        let was_there = unsettled.settle(self.execute(target, merged, key).await)?;
        self.ledger.executed(target, merged, kept);
        Ok(was_there)
    }

    async fn execute(
        &self,
        target: ChangedDigest,
        change: Change,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        let (how, over): (&[u8], _) = match change {
            Change::Invalidate => (b"hard", Duration::ZERO),
            Change::Expire { over } => (b"soft", over),
        };
        let mut args = vec![how.to_vec()];
        let (script, names, doing) = match &target {
            ChangedDigest::Key(digest) => {
                (StoreScript::Invalidate, scripts::names(&self.client, digest), "invalidating")
            }
            ChangedDigest::Tag(tag) => {
                args.extend([scripts::random_bytes(1), number(millis(over).min(LONGEST_MS))]);
                (
                    StoreScript::ChangeTag,
                    vec![self.client.unwatched_name("tag", tag)],
                    "changing a tag",
                )
            }
        };
        let request = RedisRequest::script(script.get(), names, args, doing);
        let request = match key {
            Some(key) => request.of(key),
            None => request,
        };
        let changed = self.client.run(&request, scripts::is_done).await;
        // Copies are not served from here on, even before the server reports the change.
        self.ledger.end_copies(target.digest());
        changed
    }

    /// Repeats a kept invalidation. If that fails, it stays.
    async fn repeat(&self, target: ChangedDigest, kept: KeptChange) -> Result<(), StoreError> {
        let change = kept.change();
        self.execute(target, change, None).await?;
        self.ledger.executed(target, change, Some(kept));
        Ok(())
    }

    /// Repeats the kept invalidations of a key and of tags. Call it before any of them is read.
    ///
    /// # Errors
    /// If one of them fails again.
    pub(crate) async fn settle(
        &self,
        key: Option<&Key>,
        tags: impl Iterator<Item = &Digest>,
    ) -> Result<(), StoreError> {
        if self.ledger.is_quiet() {
            return Ok(());
        }
        let key = key.map(|key| ChangedDigest::Key(key.digest()));
        let tags = tags.copied().map(ChangedDigest::Tag);
        let targets: Vec<_> = key.into_iter().chain(tags).collect();
        // The task may not have been started where there was no runtime.
        self.ledger.task.start();
        if self.ledger.is_floor_due() && !self.ledger.raise_floor(|| self.client.latest_time()) {
            return Err(StoreError::new(StoreErrorKind::NotReady, UNREADABLE));
        }
        for target in targets {
            if let Some(kept) = self.ledger.change_of(&target) {
                // Boxed, so that operations need no memory for it as long as nothing is kept.
                Box::pin(self.repeat(target, kept)).await?;
            }
        }
        Ok(())
    }

    /// Repeats all kept invalidations, and returns how many of them the server has executed.
    async fn repeat_all(&self) -> usize {
        let changes = stream::iter(self.ledger.changes());
        let repeated = changes.map(|(target, kept)| self.repeat(target, kept));
        repeated.buffer_unordered(CHANGES_AT_ONCE).filter(|done| ready(done.is_ok())).count().await
    }

    /// Releases the leases of all claims that no flight holds any more. Several by one command: if each
    /// had its own, a server that refuses them would soon be taken to be down.
    async fn release_all(&self) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        for some in self.ledger.claims().chunks(CLAIMS_AT_ONCE) {
            let groups = self.client.split(some.to_vec(), |claim| claim.key().digest().slot());
            let releasing =
                |group: &SlotGroup<_>| self.abandoning(&group.items, "giving leases up");
            let requests: Vec<_> = groups.iter().map(releasing).collect();
            let mut outcome = Ok(());
            let done = |group: usize, released: Result<(), StoreError>| match released {
                Ok(()) => self.ledger.released(&groups[group].items, sent_at),
                Err(error) => outcome = Err(error),
            };
            self.client.run_all(&requests, |_, reply| any(reply), done).await;
            outcome?;
        }
        Ok(())
    }

    fn abandoning(&self, claims: &[Claim], doing: &'static str) -> RedisRequest<'static> {
        let names = claims.iter().map(|claim| self.client.name(&claim.key().digest(), ":lease"));
        let tokens = claims.iter().flat_map(|claim| *claim.token().as_bytes());
        let names = names.collect::<Vec<_>>();
        RedisRequest::script(StoreScript::Abandon.get(), names, [tokens.collect()], doing)
    }
}

/// The work of the task: sends all that is in the ledger, until nothing is.
async fn empty(outbox: Weak<Outbox>) {
    let before = outbox.upgrade().map(|outbox| outbox.ledger.stats().replayed);
    let mut pause = FIRST_PAUSE;
    while let Some(outbox) = outbox.upgrade() {
        let executed = outbox.repeat_all().await;
        // Without other requests, this one detects that the server is back.
        if let Err(error) = outbox.release_all().await {
            tracing::debug!(target: "bellwether::store", %error, "leases that no flight holds are not given up yet");
        }
        if !outbox.ledger.is_due(Instant::now()) {
            let replayed = outbox.ledger.stats().replayed - before.unwrap_or_default();
            if replayed > 0 {
                tracing::info!(store = %outbox.ledger.store, replayed, "all kept invalidations were repeated");
            }
            return;
        }
        let longest = match outbox.ledger.claims().is_empty() {
            true => LONGEST_PAUSE,
            false => LONGEST_PAUSE_OF_CLAIMS,
        };
        pause = if executed > 0 { FIRST_PAUSE } else { longest.min(pause * 2) };
        let is_back = outbox.client.is_back();
        drop(outbox);
        select! {
            () = is_back.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// How many invalidations are repeated at once.
const CHANGES_AT_ONCE: usize = 64;

/// The maximum number of leases that one command gives up, because other requests wait while it
/// runs.
const CLAIMS_AT_ONCE: usize = 256;

/// The pauses between attempts, unless the server is back before. They double while none succeeds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause while there are leases: about as long as callers can bear to wait for one that no
/// flight holds.
const LONGEST_PAUSE_OF_CLAIMS: Duration = Duration::from_millis(100);

const UNREADABLE: &str = "redis: invalidations have failed that were too many to be kept, and the \
     time of the server is not known: nothing is read until it is";

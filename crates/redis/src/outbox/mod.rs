//! The outbox: sends again what a server may not have executed, before its keys and tags are read, and by
//! a task. The [ledger] has what that is.

pub(crate) mod ledger;

use std::future::ready;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::select;
use tokio::time::{Instant, sleep};

use self::ledger::{Keeping, Ledger, OutboxItem, PendingWithdrawal, WithdrawnDigest, merged};
use crate::scripts::{self, LONGEST_MS, any, is_done, number};
use bellwether::adapter::millis;
use bellwether::store::{Claim, Digest, Withdrawal};
use bellwether::{Key, StoreError};
use bellwether_redis_client::{InSlot, OneTask, RedisClient, RedisRequest};

/// Sends what is in the ledger.
#[derive(Debug)]
pub(crate) struct Outbox {
    client: RedisClient,
    pub(crate) ledger: Arc<Ledger>,
    task: OneTask,
}

/// A command that is under way. What its server may not have executed is filed when this is dropped,
/// unless it was taken out before.
pub(crate) struct Unsettled<'a> {
    ledger: &'a Ledger,
    pub(crate) item: Option<OutboxItem<'a>>,
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.item.take().map(|item| self.ledger.file(item));
    }
}

impl Outbox {
    pub(crate) fn new(client: RedisClient, ledger: Arc<Ledger>) -> Self {
        Self { client, ledger, task: OneTask::default() }
    }

    /// Starts the task that sends what is in the ledger. It has an outbox of its own, because it ends when this
    /// one is dropped.
    fn start(&self) {
        let (client, ledger) = (self.client.clone(), Arc::clone(&self.ledger));
        self.task.start(|| async {
            let outbox = Self::new(client, ledger);
            loop {
                outbox.empty().await;
                outbox.ledger.filed.notified().await;
            }
        });
    }

    /// A command is sent next that ends the lease of a claim. One that was refused or not sent has not
    /// ended it.
    pub(crate) fn unsettled<'a>(&'a self, claim: Option<&'a Claim>) -> Unsettled<'a> {
        self.start();
        Unsettled { ledger: &self.ledger, item: claim.map(OutboxItem::Release) }
    }

    /// Gives up the lease of a claim, if it has one.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<(), StoreError> {
        let mut unsettled = self.unsettled(Some(claim));
        let request = self.abandoning(slice::from_ref(claim), "giving the lease up");
        self.client.run(&request.of(claim.key()), any).await?;
        unsettled.item = None;
        Ok(())
    }

    /// Invalidates or expires a key or a tag, together with what is kept of it. Returns whether there was
    /// an entry of a key. Errors name the key, if it is known.
    pub(crate) async fn withdraw(
        &self,
        changed: WithdrawnDigest,
        change: Withdrawal,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        let kept = self.ledger.change_of(&changed);
        let merged = kept.map_or(change, |kept| merged(kept.change(), change));
        let item = OutboxItem::Withdrawal(changed, change);
        let mut unsettled = self.unsettled(None);
        unsettled.item = Some(item);
        let executed = self.execute(changed, merged, kept, key).await;
        let item = unsettled.item.take();
        executed.map_err(|error| match item.map(|item| self.ledger.file(item)) {
            Some(Keeping::Kept) => error.pending(),
            Some(Keeping::Dropped) => {
                let said = format!("{error}; too many invalidations are to be repeated already");
                StoreError::new(error.kind(), said).with_source(error)
            }
            _ => error,
        })
    }

    /// Has a server execute an invalidation, and with it what is kept of that. If it fails, that stays.
    async fn execute(
        &self,
        target: WithdrawnDigest,
        change: Withdrawal,
        kept: Option<PendingWithdrawal>,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        let request = self.changing(&target, change);
        let request = match key {
            Some(key) => request.of(key),
            None => request,
        };
        let losses = self.ledger.losses();
        let executed = self.client.run(&request, is_done).await;
        // Copies are not served from here on, even before the server reports the change.
        self.ledger.end_copies(&target);
        let was_there = executed?;
        self.ledger.executed(target, change, kept, losses);
        Ok(was_there)
    }

    fn changing(&self, target: &WithdrawnDigest, change: Withdrawal) -> RedisRequest<'static> {
        let (how, over): (&[u8], _) = match change {
            Withdrawal::Invalidate => (b"hard", Duration::ZERO),
            Withdrawal::Expire { over } => (b"soft", over),
        };
        match target {
            WithdrawnDigest::Key(digest) => {
                let names = scripts::names(&self.client, digest);
                let script = &scripts::INVALIDATE;
                RedisRequest::script(script, names, [how.to_vec()], "invalidating")
            }
            WithdrawnDigest::Tag(tag) => {
                let names = [self.client.names().tag_name(tag)];
                let over = number(millis(over).min(LONGEST_MS));
                let args = [how.to_vec(), scripts::random_bytes(1), over];
                let script = &scripts::CHANGE_TAG;
                RedisRequest::script(script, names, args, "changing a tag")
            }
        }
    }

    /// Repeats the pending invalidations of a key and of tags. Call it before any of them is read.
    ///
    /// # Errors
    /// If one of them fails again.
    pub(crate) async fn repeat_pending(
        &self,
        key: Option<&Digest>,
        tags: impl Iterator<Item = &Digest>,
    ) -> Result<(), StoreError> {
        if self.ledger.is_quiet() {
            return Ok(());
        }
        let key = key.copied().map(WithdrawnDigest::Key);
        let tags = tags.copied().map(WithdrawnDigest::Tag);
        let targets: Vec<_> = key.into_iter().chain(tags).collect();
        // The runtime of the task may have ended.
        self.start();
        self.ledger.raise_floor(|| self.client.latest_time());
        for target in targets {
            if let Some(kept) = self.ledger.change_of(&target) {
                // Boxed, so that operations need no memory for it as long as nothing is kept.
                Box::pin(self.execute(target, kept.change(), Some(kept), None)).await?;
            }
        }
        Ok(())
    }

    /// Repeats all pending invalidations, and returns how many of them the server has executed.
    async fn repeat_all(&self) -> usize {
        let changes = stream::iter(self.ledger.changes());
        let repeated =
            changes.map(|(target, kept)| self.execute(target, kept.change(), Some(kept), None));
        repeated.buffer_unordered(CHANGES_AT_ONCE).filter(|done| ready(done.is_ok())).count().await
    }

    /// Releases the leases of all claims that no flight holds any more. Several by one command: if each
    /// had its own, a server that refuses them would soon be taken to be down.
    async fn release_all(&self) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        for some in self.ledger.claims().chunks(CLAIMS_AT_ONCE) {
            let groups = self.client.split(some.to_vec(), |claim| claim.key().digest().slot());
            let release = async |claims: Vec<Claim>| {
                let request = self.abandoning(&claims, "giving leases up");
                let released = self.client.run(&request, any).await;
                released.map(|()| self.ledger.released(&claims, sent_at))
            };
            join_all(groups.into_iter().map(release))
                .await
                .into_iter()
                .collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    fn abandoning(&self, claims: &[Claim], doing: &'static str) -> RedisRequest<'static> {
        let names =
            claims.iter().map(|claim| self.client.names().name(&claim.key().digest(), ":lease"));
        let tokens = claims.iter().flat_map(|claim| *claim.token().as_bytes());
        let names = names.collect::<Vec<_>>();
        RedisRequest::script(&scripts::ABANDON, names, [tokens.collect()], doing).urgent()
    }

    /// Sends all that is in the ledger, until nothing is.
    async fn empty(&self) {
        let before = self.ledger.stats().replayed;
        let (mut pause, mut repeat_at) = (PAUSE / 2, Instant::now());
        loop {
            if repeat_at <= Instant::now() {
                let executed = self.repeat_all().await;
                pause = if executed > 0 { PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
                repeat_at = Instant::now() + pause;
            }
            // Without other requests, this one detects that the server is back.
            if let Err(error) = self.release_all().await {
                tracing::debug!(target: "bellwether::store", %error, "leases that no flight holds are not given up yet");
            }
            if !self.ledger.is_due(Instant::now()) {
                break;
            }
            let is_back = self.client.is_back();
            select! {
                biased;
                () = is_back.notified() => repeat_at = Instant::now(),
                () = sleep(PAUSE) => {}
            }
        }
        let replayed = self.ledger.stats().replayed - before;
        if replayed > 0 {
            tracing::info!(store = %self.ledger.store, replayed, "all pending invalidations were repeated");
        }
    }
}

/// How many invalidations are repeated at once.
const CHANGES_AT_ONCE: usize = 64;

/// The maximum number of leases that one command gives up, because other requests wait while it
/// runs.
const CLAIMS_AT_ONCE: usize = 256;

/// The pause between attempts, unless the server is back before: about as long as callers can bear to wait
/// for a lease that no flight holds. That of invalidations doubles while none succeeds: there may be many.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

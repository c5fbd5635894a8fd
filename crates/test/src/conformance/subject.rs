//! The store under a check.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::StoreExt as _;
use crate::suite::{Checked, Deviation, Trial, ensure};
use bellwether::store::{
    Accept, Acquire, Claim, Draft, Entry, Failure, Lease, Settled, Store, StoreErrorKind, Tags,
    Value,
};
use bellwether::{FailureCause, Key, Lifetimes, Tag};

/// A store, and a key that only this check uses.
pub(super) struct StoreSubject {
    pub(super) store: Arc<dyn Store>,
    pub(super) trial: Trial,
}

impl StoreSubject {
    pub(super) fn key(&self) -> Key {
        self.trial.key()
    }

    pub(super) fn claim(&self) -> Claim {
        self.trial.claim()
    }

    pub(super) async fn acquire(
        &self,
        claim: &Claim,
        term: Duration,
    ) -> Result<Acquire, Deviation> {
        Ok(self.store.acquire(claim.clone(), term, Accept::Fresh).await?)
    }

    /// Takes the lease of a free key.
    pub(super) async fn lead(&self, term: Duration) -> Result<Lease, Deviation> {
        self.lead_unless(term, Accept::Fresh).await
    }

    /// Takes the lease of a key that is free, or whose lease this claim has.
    pub(super) async fn lead_by(&self, claim: &Claim) -> Result<Lease, Deviation> {
        match self.acquire(claim, LONG).await? {
            Acquire::Lead { lease, .. } => Ok(lease),
            other => Err(Deviation::new(format!("gave no lease to a claim, but {other:?}"))),
        }
    }

    pub(super) async fn lead_unless(
        &self,
        term: Duration,
        accept: Accept,
    ) -> Result<Lease, Deviation> {
        match self.store.acquire(self.claim(), term, accept).await? {
            Acquire::Lead { lease, .. } => Ok(lease),
            other => Err(Deviation::new(format!("gave no lease of a free key, but {other:?}"))),
        }
    }

    /// Takes a lease and waits until it has lapsed.
    pub(super) async fn lapsed(&self) -> Result<Lease, Deviation> {
        let lease = self.lead(SHORT).await?;
        sleep(SHORT * 2).await;
        Ok(lease)
    }

    pub(super) async fn is_busy(&self) -> Result<bool, Deviation> {
        let acquired = self.store.acquire(self.claim(), LONG, Accept::Nothing).await?;
        Ok(matches!(acquired, Acquire::Busy { .. }))
    }

    pub(super) async fn commit(
        &self,
        lease: Lease,
        value: &'static str,
    ) -> Result<Settled, Deviation> {
        self.commit_for(lease, value, Lifetimes::fresh_for(LONG)).await
    }

    pub(super) async fn commit_for(
        &self,
        lease: Lease,
        value: &'static str,
        lifetimes: Lifetimes,
    ) -> Result<Settled, Deviation> {
        let value = Value::new(Bytes::from_static(value.as_bytes()));
        Ok(self.store.commit(lease, Draft::new(value, CODEC, lifetimes)).await?)
    }

    /// Commits a value with tags that are known only after its load.
    pub(super) async fn commit_tagged(
        &self,
        lease: Lease,
        tags: &Tags,
    ) -> Result<Settled, Deviation> {
        let value = Value::new(Bytes::from_static(b"value"));
        let draft = Draft::new(value, CODEC, Lifetimes::fresh_for(LONG)).tagged(tags.clone());
        Ok(self.store.commit(lease, draft).await?)
    }

    /// Stores a value under a lease, and returns its fence.
    pub(super) async fn store_one(
        &self,
        value: &'static str,
        lifetimes: Lifetimes,
    ) -> Result<u64, Deviation> {
        let lease = self.lead(LONG).await?;
        let fence = lease.fence;
        let commit = self.commit_for(lease, value, lifetimes).await?;
        ensure!(commit == Settled::Done, "a commit under its own lease was {commit:?}");
        Ok(fence)
    }

    pub(super) async fn lookup(&self) -> Result<Option<Entry>, Deviation> {
        Ok(self.store.find(self.key()).await?)
    }

    pub(super) async fn ensure_text(&self, expected: Option<&str>) -> Checked {
        let entry = self.lookup().await?;
        let found = entry.map(|entry| entry.value().encoded().clone());
        let is_as_expected = found.as_deref() == expected.map(str::as_bytes);
        ensure!(is_as_expected, "found {found:?} instead of {expected:?}");
        Ok(())
    }

    pub(super) async fn fail(&self, lease: Lease, window: Duration) -> Checked {
        let failure = Failure::new(FailureCause::TimedOut, 3, window).with_message("no answer: ü");
        Ok(self.store.fail(lease, failure).await?)
    }

    /// The remembered failure, for how long it holds, and the stale entry.
    pub(super) async fn failed(&self) -> Result<(Failure, Duration, Option<Entry>), Deviation> {
        match self.acquire(&self.claim(), LONG).await? {
            Acquire::Failed { failure, remaining, stale } => Ok((failure, remaining, stale)),
            other => Err(Deviation::new(format!("after a failure, gave {other:?}"))),
        }
    }

    /// Lets the window of a failure end, and acquires. A failure counts until twice its window is
    /// over, so a store that answers later is given a longer one.
    pub(super) async fn acquire_after_window(
        &self,
        failure: impl Fn(Duration) -> Failure,
    ) -> Result<Acquire, Deviation> {
        let mut held = self.lead(LONG).await?;
        for window in [SHORT, SHORT * 4, SHORT * 16] {
            let began = Instant::now();
            self.store.fail(held, failure(window)).await?;
            sleep(window + window / 2).await;
            held = match self.acquire(&self.claim(), LONG).await? {
                Acquire::Lead { lease, .. } if began.elapsed() >= window * 2 => lease,
                acquired => return Ok(acquired),
            };
        }
        Err(Deviation::new("it answers too slowly to tell how long a failure counts"))
    }

    /// A tag that only this check uses.
    pub(super) fn tag(&self, name: &str) -> Tag {
        Tag::of("check").with(name).with(self.key().digest().as_bytes())
    }

    pub(super) fn tags<const N: usize>(&self, names: [&str; N]) -> Result<Tags, Deviation> {
        let tags = Tags::new(names.map(|name| self.tag(name)));
        tags.map_err(|error| Deviation::new(error.to_string()))
    }

    /// Whether the store has tags. One that has none says so.
    pub(super) async fn has_tags(&self) -> Result<bool, Deviation> {
        match self.store.invalidate_tag(self.tag("none")).await {
            Err(error) if error.kind() == StoreErrorKind::Unsupported => Ok(false),
            invalidated => Ok(invalidated.map(|()| true)?),
        }
    }

    pub(super) async fn lead_tagged(&self, tags: &Tags) -> Result<Lease, Deviation> {
        self.lead_tagged_unless(tags, Accept::Fresh).await
    }

    pub(super) async fn lead_tagged_unless(
        &self,
        tags: &Tags,
        accept: Accept,
    ) -> Result<Lease, Deviation> {
        match self.store.acquire(self.claim().tagged(tags.clone()), LONG, accept).await? {
            Acquire::Lead { lease, .. } => Ok(lease),
            other => Err(Deviation::new(format!("gave no lease of a free key, but {other:?}"))),
        }
    }

    /// Stores a value with tags that are known before its load.
    pub(super) async fn store_tagged(&self, tags: &Tags, lifetimes: Lifetimes) -> Checked {
        let lease = self.lead_tagged(tags).await?;
        let commit = self.commit_for(lease, "value", lifetimes).await?;
        ensure!(commit == Settled::Done, "a commit under its own lease was {commit:?}");
        Ok(())
    }

    /// Stores a value with tags that are known only after its load.
    pub(super) async fn store_tagged_late(&self, tags: &Tags) -> Result<Settled, Deviation> {
        let lease = self.lead(LONG).await?;
        self.commit_tagged(lease, tags).await
    }

    /// Checks what is found, with and without the tags of the request.
    pub(super) async fn ensure_tagged(&self, tags: &Tags, expected: Option<&str>) -> Checked {
        let entry = self.store.lookup(self.key(), tags.clone()).await?;
        let found = entry.map(|entry| entry.value().encoded().clone());
        let is_as_expected = found.as_deref() == expected.map(str::as_bytes);
        ensure!(is_as_expected, "found {found:?} instead of {expected:?}");
        self.ensure_text(expected).await
    }
}

/// Short enough to wait for its end, long enough for an operation before that.
pub(super) const SHORT: Duration = Duration::from_millis(150);

pub(super) const MEDIUM: Duration = Duration::from_millis(300);

/// Longer than any check.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// An id that no codec uses.
pub(super) const CODEC: u8 = 99;

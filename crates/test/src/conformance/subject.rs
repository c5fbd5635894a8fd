//! The store under a check.

use crate::StoreExt as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::suite::{Checked, Deviation, Trial, ensure};
use bellwether::Key;
use bellwether::Lifetimes;
use bellwether::Tags;
use bellwether::store::{Accept, Acquire, Claim, Draft, Entry, Lease, Settled, Store, Value};

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
        let fence = lease.fence();
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
}

/// Short enough to wait for its end, long enough for an operation before that.
pub(super) const SHORT: Duration = Duration::from_millis(150);

pub(super) const MEDIUM: Duration = Duration::from_millis(300);

/// Longer than any check.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// An id that no codec uses.
pub(super) const CODEC: u8 = 99;

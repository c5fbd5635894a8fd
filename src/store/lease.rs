//! Leases: the right to load a key for a while.

use std::time::Duration;

use super::entry::{Entry, TagEpoch};
use crate::claim::{Claim, Token};
use crate::key::Key;

/// The right to load a key for a while.
///
/// It is spent by [`End::Commit`](super::End::Commit) or, after [`into_claim`](Lease::into_claim), by
/// [`End::Abandon`](super::End::Abandon), and cannot be spent twice:
///
/// ```compile_fail,E0382
/// # fn twice(store: &dyn bellwether::store::Store, lease: bellwether::store::Lease,
/// #     one: bellwether::store::Draft, two: bellwether::store::Draft) {
/// # use bellwether::store::End;
/// let first = store.settle(End::Commit(lease, one));
/// let second = store.settle(End::Commit(lease, two));
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a lease that is dropped blocks its key until it lapses"]
pub struct Lease {
    claim: Claim,
    term: Duration,
    fence: u64,
    granted_at: u64,
    epochs: Vec<TagEpoch>,
}

impl Lease {
    /// A lease as a store grants it: with its term, its fencing token, and the time of the grant by
    /// the store's clock, in microseconds since the Unix epoch.
    pub fn granted(claim: Claim, term: Duration, fence: u64, granted_at: u64) -> Self {
        Self { claim, term, fence, granted_at, epochs: Vec::new() }
    }

    /// Sets the epochs that the [tags of the claim](Claim::tags) had at the grant or before, in the
    /// order of the tags.
    pub fn under(self, epochs: Vec<TagEpoch>) -> Self {
        Self { epochs, ..self }
    }

    /// The claim it was granted to.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The key it is for.
    pub fn key(&self) -> &Key {
        self.claim.key()
    }

    /// The token that proves it.
    pub fn token(&self) -> Token {
        self.claim.token()
    }

    /// For how long it was granted. A [renewal](super::Store::renew) sets its own term.
    pub fn term(&self) -> Duration {
        self.term
    }

    /// The fencing token. A later lease of the key has a larger one.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// When it was granted, by the store's clock, in microseconds since the Unix epoch.
    pub fn granted_at(&self) -> u64 {
        self.granted_at
    }

    /// The epochs of the tags of the claim, under which the load begins.
    pub fn epochs(&self) -> &[TagEpoch] {
        &self.epochs
    }

    /// Gives the claim back, to abandon it.
    pub fn into_claim(self) -> Claim {
        self.claim
    }
}

/// The lease of another claim, as an [`acquire`](super::Store::acquire) found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLease {
    /// `None` if the store does not say it.
    fence: Option<u64>,
    epochs: Vec<TagEpoch>,
}

impl OtherLease {
    /// A lease of which nothing more is known. No entry is known to be stored under it.
    pub fn unknown() -> Self {
        Self { fence: None, epochs: Vec::new() }
    }

    /// The lease with this fencing token, for a claim without tags.
    pub fn new(fence: u64) -> Self {
        Self { fence: Some(fence), epochs: Vec::new() }
    }

    /// Sets the epochs of the [tags of the claim](Claim::tags) that asked. They were read after it
    /// began to ask.
    pub fn seen_under(self, epochs: Vec<TagEpoch>) -> Self {
        Self { epochs, ..self }
    }

    /// Whether an entry was stored under this lease, and is as new to the claim that asked as one that
    /// it had been given: it has the tags of the claim and no others, under the epochs that the claim
    /// has seen. An invalidation of a tag does not end a lease, so the lease alone does not say that.
    pub fn has_stored(&self, entry: &Entry) -> bool {
        let are_seen = || entry.epochs().iter().all(|epoch| self.epochs.contains(epoch));
        let is_ours = self.fence == Some(entry.fence());
        is_ours && entry.epochs().len() == self.epochs.len() && are_seen()
    }
}

//! Claims and leases: a request for the right to load a key for a while, that right, and the proof of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::entry::{Entry, TagEpoch};
use crate::error::StoreError;
use crate::key::Key;
use crate::tag::Tags;
use crate::trace::TraceParent;

/// A request for a lease, to load a key or to lock it: the key and a unique token.
///
/// A claim exists before the request is sent, so that its lease can be released even if the reply
/// that granted it was lost.
///
/// A clone copies nothing.
#[derive(Clone, Debug)]
pub struct Claim(Arc<ClaimCore>);

#[derive(Clone, Debug)]
struct ClaimCore {
    key: Key,
    token: Token,
    tags: Tags,
    trace: Option<TraceParent>,
}

impl Claim {
    /// A new claim on a key.
    pub fn new(key: Key) -> Self {
        let token = Token(Uuid::new_v4());
        // Each request for it needs the digest.
        let key = key.digested();
        Self(Arc::new(ClaimCore { key, token, tags: Tags::none(), trace: None }))
    }

    /// Sets the tags of the entry that is to be loaded, as far as they are known before the load.
    #[must_use]
    pub fn tagged(mut self, tags: Tags) -> Self {
        Arc::make_mut(&mut self.0).tags = tags;
        self
    }

    /// Sets the trace in which the load runs. A store may give it to those that wait for the lease.
    #[must_use]
    pub fn traced(mut self, trace: Option<TraceParent>) -> Self {
        Arc::make_mut(&mut self.0).trace = trace;
        self
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The tags that are known before the load.
    pub fn tags(&self) -> &Tags {
        &self.0.tags
    }

    /// The trace in which the load runs, if that is known.
    pub fn trace(&self) -> Option<&TraceParent> {
        self.0.trace.as_ref()
    }

    /// The token, which proves that a lease belongs to this claim.
    pub fn token(&self) -> Token {
        self.0.token
    }
}

/// The proof of a lease: 122 random bits, new for every claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(Uuid);

impl Token {
    /// The bytes of the token.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

/// Shows the start only: with a whole token, a reader of a log could release its lease.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.simple().to_string();
        write!(f, "Token({}..)", &text[..8])
    }
}

/// The right to load a key for a while.
///
/// It is spent by [`End::Commit`](super::End::Commit) or, with its [claim](Lease::claim), by
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
#[non_exhaustive]
pub struct Lease {
    /// The claim it was granted to. Its token proves the lease.
    pub claim: Claim,
    /// For how long it was granted. A [renewal](super::Store::renew) sets its own term.
    pub term: Duration,
    /// The fencing token. A later lease of the key has a larger one.
    pub fence: u64,
    /// When it was granted, by the store's clock, in microseconds since the Unix epoch.
    pub granted_at: u64,
    /// The epochs that the [tags of the claim](Claim::tags) had at the grant or before, in the order
    /// of the tags. The load begins under them.
    pub epochs: Vec<TagEpoch>,
    /// Set if the store did not answer, and the process granted it to itself: why. Other processes may load
    /// the key meanwhile, and what is stored under it is for this process only. See
    /// [`OutageStore`](super::OutageStore).
    pub outage: Option<StoreError>,
}

impl Lease {
    /// The same one, to be renewed until what has spent it has taken effect.
    pub(crate) fn for_renewals(&self) -> Self {
        let Self { term, fence, granted_at, .. } = *self;
        let outage = self.outage.clone();
        Self { claim: self.claim.clone(), term, fence, granted_at, epochs: Vec::new(), outage }
    }

    /// A lease as a store grants it.
    pub fn granted(
        claim: Claim,
        term: Duration,
        fence: u64,
        granted_at: u64,
        epochs: Vec<TagEpoch>,
    ) -> Self {
        Self { claim, term, fence, granted_at, epochs, outage: None }
    }

    /// The key it is for.
    pub fn key(&self) -> &Key {
        self.claim.key()
    }
}

/// The lease of another claim, as an [`acquire`](super::Store::acquire) found it. By default nothing more
/// is known of it, and no entry is known to be stored under it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherLease {
    /// `None` if the store does not say it.
    fence: Option<u64>,
    epochs: Vec<TagEpoch>,
}

impl OtherLease {
    /// The lease with this fencing token, and the epochs of the [tags of the claim](Claim::tags) that
    /// asked. They were read after it began to ask.
    pub fn new(fence: u64, epochs: Vec<TagEpoch>) -> Self {
        Self { fence: Some(fence), epochs }
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

//! Claims and tokens: a request for a lease of a key, and the proof of it.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

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
pub struct Claim(Arc<ClaimParts>);

#[derive(Clone, Debug)]
struct ClaimParts {
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
        Self(Arc::new(ClaimParts { key, token, tags: Tags::none(), trace: None }))
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

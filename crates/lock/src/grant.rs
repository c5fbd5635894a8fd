//! Requests to a lock, and its answers.

use std::fmt;
use std::time::Duration;

use bellwether::store::Claim;
use tokio::select;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::instants::reached;

/// A claim that asks for its key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The claim, which has the key and the token.
    pub claim: Claim,
    /// The owner that the claim is for. Only a [`Reentrant`](super::Reentrant) lock uses it.
    pub owner: Owner,
    /// How long the key is held without being renewed. A lock by sessions ignores it.
    pub lease: Duration,
    /// How long the lock itself may wait before it answers, if it can block.
    ///
    /// Zero is a try: the claim waits in no queue after it. With more than zero, a lock that has a
    /// queue keeps the claim's place until the claim is granted, [released](super::Lock::release),
    /// or no longer asked for.
    pub patience: Duration,
    /// Whether the claim has asked before and was told that the key is taken. A lock may ask in
    /// another way for a key that is probably free.
    pub is_repeated: bool,
}

impl Request {
    /// A try, without patience, by an owner that has no other claims.
    pub fn new(claim: Claim, lease: Duration) -> Self {
        let owner = Owner::of(&claim);
        Self { claim, owner, lease, patience: Duration::ZERO, is_repeated: false }
    }

    /// Sets the owner that the claim is for.
    #[must_use]
    pub fn owned_by(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// Sets how long the lock itself may wait.
    #[must_use]
    pub fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

/// A logical holder. Claims of one owner can hold a [`Reentrant`](super::Reentrant) lock together,
/// on any thread and in any task of its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(Uuid);

impl Owner {
    /// A new owner, different from all others.
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The owner of one claim and of no other.
    pub(super) fn of(claim: &Claim) -> Self {
        Self(Uuid::from_bytes(*claim.token().as_bytes()))
    }

    /// The bytes of the owner's random number.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the start only: code that knows an owner can take what it holds.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.simple().to_string();
        write!(f, "Owner({}..)", &text[..8])
    }
}

/// The answer to a request for a key.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The claim holds the key.
    Granted(Grant),
    /// Another claim holds the key, or is before this one in the queue.
    Busy(Busy),
}

/// The right to a key.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// A number that grows with every grant of the key, if the lock is [`Fenced`](super::Fenced).
    pub fence: Option<u64>,
    /// What the grant ends with.
    pub term: Term,
}

impl Grant {
    /// A grant for the lease that was asked for.
    pub fn by_lease() -> Self {
        Self { fence: None, term: Term::Lease }
    }

    /// A grant for as long as this session lives.
    pub fn by_session(session: Session) -> Self {
        Self { fence: None, term: Term::Session(session) }
    }

    /// Adds the fencing token.
    #[must_use]
    pub fn fenced(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }
}

/// What a grant ends with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Term {
    /// With the lease that was asked for, counted from before the request was sent, unless it is
    /// renewed.
    Lease,
    /// With a session of this process.
    Session(Session),
}

/// A session with a server. It holds keys for this process as long as it lives.
#[derive(Clone, Debug)]
pub struct Session(watch::Receiver<Option<Instant>>);

impl Session {
    /// A session that has ended from the instant on that was sent last; with `None`, it has no end
    /// yet. It ends, too, when the sender is dropped.
    ///
    /// A lock sends when the server may end the session. It counts from before the last answered
    /// request, and the instant must be before the server's own timeout. So a holder whose runtime
    /// stood still can see that it may have lost its key, before any other task has run.
    ///
    /// A lock must not send a later instant after one that has passed: the end of a session is
    /// final.
    pub fn new(until: watch::Receiver<Option<Instant>>) -> Self {
        Self(until)
    }

    /// Whether the session has ended, as far as this process knows, or may have by the clock.
    pub fn has_ended(&self) -> bool {
        let until = *self.0.borrow();
        until.is_some_and(|until| until <= Instant::now()) || self.0.has_changed().is_err()
    }

    /// Waits until the session has ended, or may have by the clock.
    ///
    /// # Cancel safety
    /// It can be dropped and called again: an end in between is noticed.
    pub async fn ended(&mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            select! {
                biased;
                () = reached(until) => return,
                // An error says that the sender was dropped, and the session with it.
                changed = self.0.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }
}

/// Another claim holds the key, or is before this one in the queue.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Busy {
    /// The holder, if the lock tells.
    pub holder: Option<Holder>,
    /// How long the holder's lease still runs unless it is renewed, if the lock tells.
    pub remaining: Option<Duration>,
    /// How many claims are before this one, the holder included, if the lock has a queue.
    pub ahead: Option<u32>,
}

impl Busy {
    /// Busy, with no details.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The holder of a key, as other claims see it: which grant it has, and when it last renewed it, if
/// the lock tells. It is no proof: a holder proves its hold by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Holder {
    /// A number of the grant: its fence, for a lock that is [`Fenced`](super::Fenced).
    pub grant: u64,
    /// When the grant was last renewed, by the server's clock, in milliseconds since the Unix
    /// epoch.
    pub renewed_at: u64,
}

impl Holder {
    /// A holder by its grant and its last renewal, which is zero if the lock does not tell.
    pub fn new(grant: u64, renewed_at: u64) -> Self {
        Self { grant, renewed_at }
    }
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The claim held the key, and no longer does.
    Freed,
    /// The claim did not hold the key: it was never granted, or was released or lost before.
    NotHeld,
}

//! Requests to a lock, and its answers.

use std::fmt;
use std::future;
use std::time::Duration;

use bellwether::store::Claim;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

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
    /// Whether the claim is for an owner that holds the key, or for none: a free key need not be
    /// granted. Only a [`Reentrant`](super::Reentrant) lock uses it.
    pub is_again: bool,
}

impl Request {
    /// A try, without patience, by an owner that has no other claims.
    pub fn new(claim: Claim, lease: Duration) -> Self {
        let owner = Owner::of(&claim);
        Self { claim, owner, lease, patience: Duration::ZERO, is_repeated: false, is_again: false }
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

    /// Says whether the claim was told before that the key is taken.
    #[must_use]
    pub fn repeated(self, is_repeated: bool) -> Self {
        Self { is_repeated, ..self }
    }

    /// Says whether only an owner that holds the key already needs to be granted it.
    #[must_use]
    pub fn again(self, is_again: bool) -> Self {
        Self { is_again, ..self }
    }
}

/// A logical holder. Claims of one owner can hold a [`Reentrant`](super::Reentrant) lock together,
/// on any thread and in any process.
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
pub struct Session {
    ended: watch::Receiver<bool>,
    alive_until: Option<watch::Receiver<Option<Instant>>>,
}

impl Session {
    /// A session that has ended when `true` is sent, or when the sender is dropped.
    pub fn new(ended: watch::Receiver<bool>) -> Self {
        Self { ended, alive_until: None }
    }

    /// Bounds the session by the clock: it counts as ended from the instant that was sent last,
    /// until another one is sent. `None` bounds nothing.
    ///
    /// A lock sends when the server may end the session. It counts from before the last answered
    /// request, and the instant must be before the server's own timeout. So a holder whose runtime
    /// stood still can see that it may have lost its key, before any other task has run.
    ///
    /// A lock must not send a later instant after one that has passed: the end of a session is
    /// final.
    #[must_use]
    pub fn alive_until(self, until: watch::Receiver<Option<Instant>>) -> Self {
        Self { alive_until: Some(until), ..self }
    }

    /// Whether the session has ended, as far as this process knows, or may have by the clock.
    pub fn has_ended(&self) -> bool {
        let until = self.alive_until.as_ref().and_then(|until| *until.borrow());
        *self.ended.borrow()
            || self.ended.has_changed().is_err()
            || until.is_some_and(|until| until <= Instant::now())
    }

    /// Waits until the session has ended, or may have by the clock.
    ///
    /// # Cancel safety
    /// It can be dropped and called again: an end in between is noticed.
    pub async fn ended(&mut self) {
        let Self { ended, alive_until } = self;
        select! {
            // An error says that the sender was dropped, and the session with it.
            _ = ended.wait_for(|ended| *ended) => {}
            () = passed(alive_until.as_mut()) => {}
        }
    }
}

/// Waits until the instant that was sent last has passed.
async fn passed(until: Option<&mut watch::Receiver<Option<Instant>>>) {
    let Some(until) = until else { return future::pending().await };
    loop {
        let at = *until.borrow_and_update();
        select! {
            biased;
            () = reached(at) => return,
            changed = until.changed() => if changed.is_err() {
                return reached(at).await;
            }
        }
    }
}

async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
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

    /// Adds the holder.
    #[must_use]
    pub fn held_by(self, holder: Holder) -> Self {
        Self { holder: Some(holder), ..self }
    }

    /// Adds how long the holder's lease still runs.
    #[must_use]
    pub fn for_another(self, remaining: Duration) -> Self {
        Self { remaining: Some(remaining), ..self }
    }

    /// Adds how many claims are before this one.
    #[must_use]
    pub fn behind(self, ahead: u32) -> Self {
        Self { ahead: Some(ahead), ..self }
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

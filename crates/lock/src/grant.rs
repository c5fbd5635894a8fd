//! What is asked of a lock, and what it answers.

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
    /// Who asks, and for what.
    pub claim: Claim,
    /// For whom. Only a [`Reentrant`](super::Reentrant) lock asks for it.
    pub owner: Owner,
    /// How long the key is held without being renewed. A lock by sessions has no use for it.
    pub lease: Duration,
    /// How long the answer may be waited for in the lock itself, by locks that can block.
    ///
    /// Zero is a try: the claim waits in no queue after it. With more than zero a lock that has a
    /// queue keeps the claim's place until it is granted, [released](super::Lock::release), or not
    /// heard of any more.
    pub patience: Duration,
}

impl Request {
    /// A try: by an owner that has no other claims, and without patience.
    pub fn new(claim: Claim, lease: Duration) -> Self {
        let owner = Owner::of(&claim);
        Self { claim, owner, lease, patience: Duration::ZERO }
    }

    /// On behalf of this owner.
    #[must_use]
    pub fn owned_by(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// With so much patience.
    #[must_use]
    pub fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

/// A logical holder: whoever takes a [`Reentrant`](super::Reentrant) lock by the same owner again,
/// on whatever thread, takes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(Uuid);

impl Owner {
    /// An owner that nobody else is.
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The owner of one claim and of no other.
    pub(super) fn of(claim: &Claim) -> Self {
        Self(Uuid::from_bytes(*claim.token().as_bytes()))
    }

    /// The bytes of it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the start only: who knows an owner can take what it holds.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.simple().to_string();
        write!(f, "Owner({}..)", &text[..8])
    }
}

/// What came of asking for a key.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// It is ours.
    Granted(Grant),
    /// Somebody else has it, or was there first.
    Busy(Busy),
}

/// The right to a key.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// A number that grows with every grant of the key, if the lock is [`Fenced`](super::Fenced).
    pub fence: Option<u64>,
    /// What it ends with.
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

    /// With the number that grows.
    #[must_use]
    pub fn fenced(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }
}

/// What a grant ends with.
#[derive(Debug)]
#[non_exhaustive]
pub enum Term {
    /// With the lease that was asked for, counted from before the question was sent, unless it is
    /// renewed.
    Lease,
    /// With a session of ours.
    Session(Session),
}

/// A session with a server that holds keys for us as long as it lives.
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

    /// Bounds the session by the clock: it counts as ended from the instant that was sent last, until
    /// another one is sent. A lock sends when the server may end the session, which is counted from
    /// before the last question that was answered, and has to come before the server's own time. So
    /// a holder whose runtime stood still knows that it may have lost its key when it looks, before
    /// any task has run. `None` bounds nothing.
    ///
    /// A lock must not send a later instant after one that has passed: the end of a session is final.
    #[must_use]
    pub fn alive_until(self, until: watch::Receiver<Option<Instant>>) -> Self {
        Self { alive_until: Some(until), ..self }
    }

    /// Whether it has ended, as far as this process knows, or may have by the clock.
    pub fn has_ended(&self) -> bool {
        let until = self.alive_until.as_ref().and_then(|until| *until.borrow());
        *self.ended.borrow()
            || self.ended.has_changed().is_err()
            || until.is_some_and(|until| until <= Instant::now())
    }

    /// Waits for its end, or until it may have ended by the clock.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped: an end that came meanwhile is told the next time.
    pub async fn ended(&mut self) {
        let Self { ended, alive_until } = self;
        select! {
            // An error is a sender that has gone, with the session.
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

/// Somebody else has the key, or was there first.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Busy {
    /// Who has it, if the lock tells.
    pub holder: Option<Holder>,
    /// What is left of their lease if they do not renew it, if the lock tells.
    pub remaining: Option<Duration>,
    /// How many were there before us, with the holder, if the lock has a queue.
    pub ahead: Option<u32>,
}

impl Busy {
    /// That, and nothing more is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Who has it.
    #[must_use]
    pub fn held_by(self, holder: Holder) -> Self {
        Self { holder: Some(holder), ..self }
    }

    /// What is left of their lease.
    #[must_use]
    pub fn for_another(self, remaining: Duration) -> Self {
        Self { remaining: Some(remaining), ..self }
    }

    /// How many were there before us.
    #[must_use]
    pub fn behind(self, ahead: u32) -> Self {
        Self { ahead: Some(ahead), ..self }
    }
}

/// Who has a key, as far as others may know: a name of one grant, and how often it was renewed if
/// the lock tells. It proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Holder {
    /// Of the grant: its fence, for a lock that is [`Fenced`](super::Fenced).
    pub grant: u64,
    /// When it was last renewed, by the server's clock, in milliseconds since the Unix epoch.
    pub renewed_at: u64,
}

impl Holder {
    /// A holder by its grant, and by when it was last renewed: zero, if the lock does not tell.
    pub fn new(grant: u64, renewed_at: u64) -> Self {
        Self { grant, renewed_at }
    }
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The claim held the key, and does not any more.
    Freed,
    /// The claim did not hold it: it never did, has been released, or has been lost.
    NotHeld,
}

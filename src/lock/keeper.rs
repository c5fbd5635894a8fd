//! Keepers: the task behind a claim, which renews what was granted to it and releases it.
//!
//! ```text
//! Asking ──refused──────────────────────────────► gone: nothing was granted, nothing waits
//!   ├─left──────────────────────────────► Release ► gone
//!   ├─dropped─────────► Release ► a while later ► Release ► gone
//!   └─granted► Keep ──released, dropped─► Release ► gone
//!                └────lost► wait for its end ► Release ► gone
//! ```
//!
//! It begins before the lock is asked for the first time, so the claim is released whatever becomes of
//! the asker. The asker, and later the [`Held`](super::Held), has a
//! [`Departure`]; dropping that is all it takes.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::drift::dependable;
use super::error::{is_unknown, may_pass};
use super::gates::{Gates, Pass, PendingRelease};
use super::renewal::{Hearing, Renewal};
use super::{Claim, Lock, Released, Renew, Session, Watch};
use crate::error::StoreError;
use crate::key::Digest;
use crate::quiet::warn_seldom;

/// Whom to tell what came of a release.
pub(super) type Reply = oneshot::Sender<Result<Released, StoreError>>;

/// That a claim is to be released.
#[derive(Debug)]
pub(super) struct Ending {
    /// The next attempt of this process waits as long as this is here.
    pending: PendingRelease,
    reply: Option<Reply>,
}

impl Ending {
    fn tell(self, released: Result<Released, StoreError>) {
        drop(self.pending);
        // A holder that does not wait for the answer has dropped the other end.
        let _ = self.reply.map(|reply| reply.send(released));
    }
}

/// What a keeper has to be told when its claim is to be released: by dropping this, if by nothing
/// else.
pub(super) struct Departure {
    gates: Gates,
    digest: Digest,
    ending: Option<oneshot::Sender<Ending>>,
}

impl Departure {
    /// Has it released, and gives what will be answered. None if the keeper has gone.
    pub(super) fn release(mut self) -> Option<oneshot::Receiver<Result<Released, StoreError>>> {
        let (reply, answer) = oneshot::channel();
        self.tell(Some(reply)).then_some(answer)
    }

    fn tell(&mut self, reply: Option<Reply>) -> bool {
        let Some(ending) = self.ending.take() else { return false };
        let pending = self.gates.releasing(self.digest);
        ending.send(Ending { pending, reply }).is_ok()
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        // A keeper that has gone has nothing to release.
        self.tell(None);
    }
}

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It holds until then, if it is not renewed; or as long as a session does.
    Held { until: Option<Instant> },
    /// It does not hold any more, or nobody knows.
    Lost,
    /// It was given up.
    Released,
}

/// What came of asking.
pub(super) enum Outcome {
    /// The claim was granted the key.
    Granted(Granted),
    /// It may have a place in a queue.
    Left,
    /// It was refused, and there is nothing to release.
    Refused,
}

/// What was granted, and whom to tell how it stands.
pub(super) struct Granted {
    pub(super) asked_at: Instant,
    pub(super) session: Option<Session>,
    pub(super) state: watch::Sender<State>,
    /// Tells of the key from before it was asked for.
    pub(super) watch: Watch,
}

/// Whether locks are still given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Open,
    /// No new ones.
    Closing,
    /// And those that are held are taken away.
    Closed,
}

/// All keepers of one [`Locks`](super::Locks).
#[derive(Debug)]
pub(super) struct Keepers {
    pub(super) stage: watch::Sender<Stage>,
    pub(super) count: watch::Sender<usize>,
}

impl Keepers {
    pub(super) fn new() -> Self {
        Self { stage: watch::Sender::new(Stage::Open), count: watch::Sender::new(0) }
    }
}

/// Who asks by a claim.
pub(super) struct Asking {
    /// Dropped before the outcome: a keeper that finds out that its asker has gone has been told.
    pub(super) departure: Departure,
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// The task behind a claim.
pub(super) struct Keeper<L> {
    pub(super) lock: Arc<L>,
    pub(super) claim: Claim,
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    /// Others of this process come after what this has released.
    pub(super) pass: Option<Pass>,
    pub(super) gates: Gates,
    pub(super) keepers: Arc<Keepers>,
}

/// Those to whom a keeper listens.
struct Ears {
    ending: oneshot::Receiver<Ending>,
    stage: watch::Receiver<Stage>,
}

/// Why a hold is not kept any longer.
enum End {
    /// Its holder has gone, and perhaps waits for an answer.
    Given(Option<Ending>),
    /// It is lost, and not to be released before its holder says so, or until then.
    Lost { release_at: Option<Instant> },
}

/// Until when a lease that was asked for then is sure to hold.
pub(super) fn valid_until(asked_at: Instant, lease: Duration) -> Instant {
    asked_at + dependable(lease)
}

/// Counts a keeper as long as it is there.
struct Counted(Arc<Keepers>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

impl<L: Lock> Keeper<L> {
    /// Begins. To be called within a tokio runtime.
    pub(super) fn begin(self) -> Asking {
        let (asked, outcome) = oneshot::channel();
        let (end, ending) = oneshot::channel();
        let (gates, digest) = (self.gates.clone(), self.claim.key().digest());
        let departure = Departure { gates, digest, ending: Some(end) };
        let asking = Asking { departure, outcome: asked };
        let ears = Ears { ending, stage: self.keepers.stage.subscribe() };
        self.keepers.count.send_modify(|count| *count += 1);
        let counted = Counted(Arc::clone(&self.keepers));
        tokio::spawn(async move {
            self.run(outcome, ears).await;
            drop(counted);
        });
        asking
    }

    async fn run(mut self, outcome: oneshot::Receiver<Outcome>, mut ears: Ears) {
        match outcome.await {
            // Before the ending in the channel is dropped: an attempt that waits for it then finds the
            // gate open.
            Ok(Outcome::Refused) => self.pass = None,
            Ok(Outcome::Left) => self.give_up(&mut ears).await,
            Ok(Outcome::Granted(granted)) => self.see_through(granted, &mut ears).await,
            Err(_) => {
                self.give_up(&mut ears).await;
                // The question may still be on its way, on another connection than the release.
                ears.closing_or(OVERTAKEN.min(self.lease)).await;
                // An error has been told by the log, and ends with the lease.
                let _ = self.release(&mut None, true).await;
            }
        }
    }

    /// Releases what was perhaps granted, and perhaps waits in a queue.
    async fn give_up(&mut self, ears: &mut Ears) {
        let mut ending = (&mut ears.ending).await.ok();
        let released = self.release(&mut ending, true).await;
        self.pass = None;
        tell(ending, released);
    }

    /// From the grant to the release.
    async fn see_through(&mut self, mut granted: Granted, ears: &mut Ears) {
        let mut ending = match self.keep(&mut granted, ears).await {
            End::Given(ending) => ending,
            End::Lost { release_at } => {
                granted.state.send_replace(State::Lost);
                warn_seldom!(key = %self.claim.key(), "a lock was lost while it was held");
                // Others of this process need not wait for a holder that does not hold.
                self.pass = None;
                ears.given_up_before(release_at).await
            }
        };
        let is_lost = *granted.state.borrow() == State::Lost;
        let released = self.release(&mut ending, is_lost).await;
        if !is_lost {
            granted.state.send_replace(State::Released);
        }
        self.pass = None;
        tell(ending, released);
    }

    /// Renews the hold until it is given up or lost.
    async fn keep(&self, granted: &mut Granted, ears: &mut Ears) -> End {
        let Granted { asked_at, session, state, watch } = granted;
        let by_lease = session.is_none();
        let longest = Instant::now() + self.max_hold;
        let mut until = by_lease.then(|| valid_until(*asked_at, self.lease));
        let mut renewal = Renewal::due(*asked_at + self.lease / 3);
        let mut hearing = Hearing::of(watch, self.lease);
        let dues = [until, hearing.due_at(), Some(renewal.due_at())].into_iter().flatten();
        if let Some(end) = idle_until(dues.fold(longest, Instant::min), session, ears).await {
            return end;
        }
        loop {
            tokio::select! {
                biased;
                ending = &mut ears.ending => return End::Given(ending.ok()),
                _ = ears.stage.wait_for(|stage| *stage == Stage::Closed) => {
                    return End::Lost { release_at: Some(Instant::now()) };
                }
                () = ended(session) => return End::Lost { release_at: None },
                () = reached(until) => return End::Lost { release_at: None },
                () = sleep_until(longest) => {
                    let release_at = until.unwrap_or_else(|| longest + self.lease);
                    return End::Lost { release_at: Some(release_at) };
                }
                () = hearing.loss(|| self.lock.verify(&self.claim)) => {
                    return End::Lost { release_at: None };
                }
                (asked_at, renewed) = renewal.next(|| self.lock.renew(&self.claim, self.lease)) => {
                    match renewed {
                        Ok(Renew::Lost) => return End::Lost { release_at: None },
                        Ok(Renew::Held) => {
                            until = by_lease.then(|| valid_until(asked_at, self.lease));
                            state.send_replace(State::Held { until });
                            renewal = Renewal::due(asked_at + self.lease / 3);
                        }
                        // It still holds; the next try is soon enough to save it.
                        Err(error) => {
                            warn_seldom!(key = %self.claim.key(), %error, "a lock was not renewed");
                            renewal = Renewal::due(Instant::now() + self.lease / 12);
                        }
                    }
                }
            }
        }
    }

    /// Releases the claim, and retries what may pass. After [`LONGEST_REPLY`] of errors, waiters for
    /// the release are told the error.
    async fn release(
        &self,
        ending: &mut Option<Ending>,
        is_lost: bool,
    ) -> Result<Released, StoreError> {
        let began = Instant::now();
        let (mut pause, mut may_be_done) = (FIRST_PAUSE, false);
        let released = loop {
            let error = match self.lock.release(self.claim.clone()).await {
                // By an earlier try, whose answer was lost: nobody else can have done it.
                Ok(Released::NotHeld) if may_be_done && !is_lost => break Ok(Released::Freed),
                Ok(released) => break Ok(released),
                Err(error) if may_pass(&error) && began.elapsed() < self.lease => error,
                Err(error) => break Err(error),
            };
            may_be_done |= is_unknown(&error);
            if began.elapsed() >= LONGEST_REPLY {
                tell(ending.take(), Err(error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        if let Err(error) = &released {
            warn_seldom!(key = %self.claim.key(), %error, "a lock was not released");
        }
        released
    }
}

impl Ears {
    /// Waits so long, but not while everybody waits for the end.
    async fn closing_or(&mut self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            _ = self.stage.wait_for(|stage| *stage != Stage::Open) => {}
        }
    }

    /// Waits for the holder to go, or for the time when it is not waited for any longer.
    async fn given_up_before(&mut self, release_at: Option<Instant>) -> Option<Ending> {
        tokio::select! {
            biased;
            ending = &mut self.ending => ending.ok(),
            () = reached(release_at) => None,
            _ = self.stage.wait_for(|stage| *stage == Stage::Closed) => None,
        }
    }
}

fn tell(ending: Option<Ending>, released: Result<Released, StoreError>) {
    if let Some(ending) = ending {
        ending.tell(released);
    }
}

/// Waits until there is something to do for a hold, or for its end. Most holds end first, and one
/// timer is enough for those.
async fn idle_until(due: Instant, session: &mut Option<Session>, ears: &mut Ears) -> Option<End> {
    tokio::select! {
        biased;
        ending = &mut ears.ending => Some(End::Given(ending.ok())),
        _ = ears.stage.wait_for(|stage| *stage == Stage::Closed) => {
            Some(End::Lost { release_at: Some(Instant::now()) })
        }
        () = ended(session) => Some(End::Lost { release_at: None }),
        () = sleep_until(due) => None,
    }
}

async fn ended(session: &mut Option<Session>) {
    match session {
        Some(session) => session.ended().await,
        None => future::pending().await,
    }
}

async fn reached(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => future::pending().await,
    }
}

/// After how long a release is repeated that may have overtaken a question: longer than a question
/// is on its way, by the budgets of the locks here.
const OVERTAKEN: Duration = Duration::from_secs(3);

/// How long a holder waits for its release at most, while the lock fails.
const LONGEST_REPLY: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

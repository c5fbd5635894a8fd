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
//! It begins before the lock is asked for the first time, so whatever becomes of who asked, there is
//! somebody to release the claim. Who asks, and later the [`Held`](super::Held), has one end of a
//! channel; dropping that is all it takes.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::error::{is_unknown, may_pass};
use super::gates::Pass;
use super::{Answer, Claim, Lock, Released, Renew, Session};
use crate::error::StoreError;
use crate::quiet::warn_seldom;

/// Whom to tell what came of a release.
pub(super) type Ending = oneshot::Sender<Result<Released, StoreError>>;

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
    pub(super) outcome: oneshot::Sender<Outcome>,
    pub(super) ending: oneshot::Sender<Ending>,
}

/// The task behind a claim.
pub(super) struct Keeper<L> {
    pub(super) lock: Arc<L>,
    pub(super) claim: Claim,
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    /// Others of this process come after what this has released.
    pub(super) pass: Option<Pass>,
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

/// Until when a lease that was asked for then is sure to hold: a clock may run 1 % faster than
/// another, and servers count in whole milliseconds.
pub(super) fn valid_until(asked_at: Instant, lease: Duration) -> Instant {
    asked_at + lease.saturating_sub(lease / 100 + Duration::from_millis(2))
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
        let asking = Asking { outcome: asked, ending: end };
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
            Ok(Outcome::Refused) => {}
            Ok(Outcome::Left) => {
                self.release().await;
            }
            Ok(Outcome::Granted(granted)) => self.see_through(granted, &mut ears).await,
            Err(_) => {
                self.release().await;
                self.pass = None;
                // The question may still be on its way, on another connection than the release.
                ears.closing_or(OVERTAKEN.min(self.lease)).await;
                self.release().await;
            }
        }
    }

    /// From the grant to the release.
    async fn see_through(&mut self, granted: Granted, ears: &mut Ears) {
        let Granted { asked_at, session, state } = granted;
        let reply = match self.keep(asked_at, session, &state, ears).await {
            End::Given(reply) => reply,
            End::Lost { release_at } => {
                state.send_replace(State::Lost);
                warn_seldom!(key = %self.claim.key(), "a lock was lost while it was held");
                // Others of this process need not wait for a holder that does not hold.
                self.pass = None;
                ears.given_up_before(release_at).await
            }
        };
        self.end(reply, &state).await;
    }

    /// Renews the hold until it is given up or lost.
    async fn keep(
        &self,
        asked_at: Instant,
        mut session: Option<Session>,
        state: &watch::Sender<State>,
        ears: &mut Ears,
    ) -> End {
        let by_lease = session.is_none();
        let longest = Instant::now() + self.max_hold;
        let mut until = by_lease.then(|| valid_until(asked_at, self.lease));
        let mut renewal = Renewal::due(asked_at + self.lease / 3);
        loop {
            tokio::select! {
                biased;
                ending = &mut ears.ending => return End::Given(ending.ok()),
                _ = ears.stage.wait_for(|stage| *stage == Stage::Closed) => {
                    return End::Lost { release_at: Some(Instant::now()) };
                }
                () = ended(&mut session) => return End::Lost { release_at: None },
                () = reached(until) => return End::Lost { release_at: None },
                () = sleep_until(longest) => {
                    let release_at = until.unwrap_or_else(|| longest + self.lease);
                    return End::Lost { release_at: Some(release_at) };
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

    /// Releases it, and tells whom it concerns.
    async fn end(&mut self, mut reply: Option<Ending>, state: &watch::Sender<State>) {
        let is_lost = *state.borrow() == State::Lost;
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
                tell(reply.take(), Err(error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        if let Err(error) = &released {
            warn_seldom!(key = %self.claim.key(), %error, "a lock was not released");
        }
        if !is_lost {
            state.send_replace(State::Released);
        }
        self.pass = None;
        tell(reply, released);
    }

    /// Releases what nobody holds any more, or ever did.
    async fn release(&self) {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.lock.release(self.claim.clone()).await {
            if !may_pass(&error) || began.elapsed() >= self.lease {
                warn_seldom!(key = %self.claim.key(), %error, "a lock was not released");
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
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

fn tell(reply: Option<Ending>, released: Result<Released, StoreError>) {
    // Who does not wait for the answer has dropped the other end.
    let _ = reply.map(|reply| reply.send(released));
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

/// The next renewal: due, or under way. It goes on where it was, however often it is waited for.
struct Renewal {
    due: Instant,
    under_way: Option<(Instant, Answer<Renew>)>,
}

impl Renewal {
    fn due(due: Instant) -> Self {
        Self { due, under_way: None }
    }

    /// When it was asked, and the answer.
    async fn next(
        &mut self,
        ask: impl FnOnce() -> Answer<Renew>,
    ) -> (Instant, Result<Renew, StoreError>) {
        if self.under_way.is_none() {
            sleep_until(self.due).await;
        }
        let (asked_at, answer) = self.under_way.get_or_insert_with(|| (Instant::now(), ask()));
        let asked_at = *asked_at;
        (asked_at, answer.await)
    }
}

/// After how long a release is repeated that may have overtaken a question: longer than a question
/// is on its way, by the budgets of the locks here.
const OVERTAKEN: Duration = Duration::from_secs(3);

/// How long a holder waits for its release at most, while the lock fails.
const LONGEST_REPLY: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

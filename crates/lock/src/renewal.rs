//! When a hold is renewed, and when it is verified between renewals.

use std::future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::drift::dependable;
use super::{LockFuture, Renew, Watch};
use crate::LockError;

/// Until when a lease that was asked for at an instant holds for certain. It is 1 % and 2 ms
/// shorter, because clocks run at different speeds, and servers count in whole milliseconds.
pub(super) fn valid_until(asked_at: Instant, lease: Duration) -> Instant {
    asked_at + dependable(lease)
}

/// The next renewal: due, or under way. A renewal that is under way survives the futures that wait
/// for it.
pub(super) struct Renewal {
    due: Instant,
    under_way: Option<(Instant, LockFuture<Renew>)>,
}

impl Renewal {
    pub(super) fn due(due: Instant) -> Self {
        Self { due, under_way: None }
    }

    /// When the renewal was sent, and its answer.
    pub(super) async fn next(
        &mut self,
        ask: impl FnOnce() -> LockFuture<Renew>,
    ) -> (Instant, Result<Renew, LockError>) {
        if self.under_way.is_none() {
            sleep_until(self.due).await;
        }
        let (asked_at, answer) = self.under_way.get_or_insert_with(|| (Instant::now(), ask()));
        let asked_at = *asked_at;
        (asked_at, answer.await)
    }
}

/// Verifies a hold between renewals, each time the lock reports a change of the key.
///
/// The first verification is due 0.1 s after the grant. It subscribes to changes of the key, so a
/// hold that ends before costs nothing. A renewal changes the key as well: the change is reported
/// and verified, and is no loss.
pub(super) struct Verification<'a> {
    watch: &'a mut Watch,
    lease: Duration,
    /// When to verify although no change was reported.
    due: Option<Instant>,
    /// How long after the next failure that is.
    pause: Duration,
    under_way: Option<LockFuture<Renew>>,
}

impl<'a> Verification<'a> {
    pub(super) fn of(watch: &'a mut Watch, lease: Duration, granted_at: Instant) -> Self {
        let due = Self::first_due(watch, lease, granted_at);
        Self { watch, lease, due, pause: FIRST_PAUSE, under_way: None }
    }

    /// When a hold is verified first. Without change reports it is never verified, only renewed.
    pub(super) fn first_due(
        watch: &Watch,
        lease: Duration,
        granted_at: Instant,
    ) -> Option<Instant> {
        (!watch.is_silent()).then(|| granted_at + FIRST_VERIFIED.min(lease / 3))
    }

    /// Waits until a verification finds that the hold is lost.
    ///
    /// # Cancel safety
    /// It can be dropped and called again: reports and answers in between are kept.
    pub(super) async fn loss(&mut self, verify: impl Fn() -> Option<LockFuture<Renew>>) {
        loop {
            let Some(answer) = &mut self.under_way else {
                self.until_due().await;
                self.under_way = verify();
                if self.under_way.is_none() {
                    future::pending::<()>().await;
                }
                continue;
            };
            let verified = answer.await;
            self.under_way = None;
            match verified {
                Ok(Renew::Lost) => return,
                Ok(Renew::Held) => (self.due, self.pause) = (None, FIRST_PAUSE),
                // Only an answered verification subscribes to changes.
                Err(error) => {
                    tracing::debug!(target: "bellwether::lock", %error, "a lock was not verified");
                    self.due = Some(Instant::now() + self.pause.min(self.lease / 12));
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits until it is time to verify.
    async fn until_due(&mut self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => {
                self.watch.changed().await;
            }
        }
    }
}

/// How long after its grant a hold is verified first: longer than most holds last, and a small part
/// of most leases.
const FIRST_VERIFIED: Duration = Duration::from_millis(100);

/// How long after a verification that failed the next one is due. That doubles with each failure in a
/// row, so both a holder and a rival are sure for no longer than the server was down.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

//! Renewals: when a hold is renewed, and when it is verified between renewals.

use std::future;
use std::time::Duration;

use bellwether::StoreError;
use tokio::time::{Instant, sleep_until};

use super::{LockFuture, Renew, Watch};

/// The next renewal: due, or under way. It goes on where it was, however often it is waited for.
pub(super) struct Renewal {
    due: Instant,
    under_way: Option<(Instant, LockFuture<Renew>)>,
}

impl Renewal {
    pub(super) fn due(due: Instant) -> Self {
        Self { due, under_way: None }
    }

    /// When it was asked, and the answer.
    pub(super) async fn next(
        &mut self,
        ask: impl FnOnce() -> LockFuture<Renew>,
    ) -> (Instant, Result<Renew, StoreError>) {
        if self.under_way.is_none() {
            sleep_until(self.due).await;
        }
        let (asked_at, answer) = self.under_way.get_or_insert_with(|| (Instant::now(), ask()));
        let asked_at = *asked_at;
        (asked_at, answer.await)
    }
}

/// What a holder hears of its own key between renewals: when the lock tells of a change, the hold is
/// verified.
///
/// The first verification is due a moment after the grant. It is what has a server tell of the key
/// from then on, so a hold that ends before costs nothing. A renewal changes the key as well, which
/// is told, verified, and found to be no loss.
pub(super) struct Hearing<'a> {
    watch: &'a mut Watch,
    lease: Duration,
    /// When to verify although nothing was heard.
    due: Option<Instant>,
    under_way: Option<LockFuture<Renew>>,
}

impl<'a> Hearing<'a> {
    pub(super) fn of(watch: &'a mut Watch, lease: Duration, granted_at: Instant) -> Self {
        let due = Self::first_due(watch, lease, granted_at);
        Self { watch, lease, due, under_way: None }
    }

    /// When a hold is verified first. Where nothing is told, the renewals are what there is.
    pub(super) fn first_due(
        watch: &Watch,
        lease: Duration,
        granted_at: Instant,
    ) -> Option<Instant> {
        (!watch.is_silent()).then(|| granted_at + FIRST_VERIFIED.min(lease / 3))
    }

    /// Waits until the hold is verified to be lost.
    ///
    /// # Cancel safety
    /// What was heard or asked is kept for the next time.
    pub(super) async fn loss(&mut self, verify: impl Fn() -> Option<LockFuture<Renew>>) {
        loop {
            let Some(answer) = &mut self.under_way else {
                self.heard().await;
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
                Ok(Renew::Held) => self.due = None,
                // Nothing is told before a verification has been answered.
                Err(error) => {
                    tracing::debug!(%error, "a lock was not verified");
                    self.due = Some(Instant::now() + LONGEST_PAUSE.min(self.lease / 12));
                }
            }
        }
    }

    /// Waits until it is time to verify.
    async fn heard(&mut self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => self.watch.changed().await,
        }
    }
}

/// How long after its grant a hold is verified first: longer than most holds last, and a small part
/// of the leases that most have.
const FIRST_VERIFIED: Duration = Duration::from_millis(100);

/// How long after a verification that failed the next one is due, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

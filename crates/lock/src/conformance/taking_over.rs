//! Taking a key from who is silent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::sleep;

use super::subject::{HeldKey, LONG, LockSubject};
use crate::{Attempt, Claim, Holder, Released, Renew, Request};
use bellwether::conformance::{Checked, Deviation, ensure};

impl LockSubject {
    async fn take_over(&self, claim: &Claim, from: Holder) -> Result<Attempt, Deviation> {
        let Some(lock) = &self.take_over else { return Err(Deviation::new("no such lock")) };
        Ok(lock.take_over(Request::new(claim.clone(), LONG), from).await?)
    }

    /// Who holds the key, as others see it.
    async fn seen(&self) -> Result<Holder, Deviation> {
        self.busy().await?.holder.ok_or_else(|| Deviation::new("it does not tell who holds it"))
    }

    async fn ensure_refused(&self, from: Holder, whom: &str) -> Checked {
        let attempt = self.take_over(&self.claim(), from).await?;
        ensure!(matches!(attempt, Attempt::Busy(_)), "it was taken from {whom}");
        Ok(())
    }
}

pub(super) async fn of_many_who_take_it_from_a_silent_holder_one_wins(
    on: Arc<LockSubject>,
) -> Checked {
    let silent = on.take(LONG).await?;
    let seen = on.seen().await?;
    let claims: Vec<_> = (0..16).map(|_| on.claim()).collect();
    let asked = claims.iter().map(|claim| on.take_over(claim, seen));
    let attempts = try_join_all(asked).await?;
    let mut winners = Vec::new();
    for (claim, attempt) in claims.into_iter().zip(attempts) {
        if let Attempt::Granted(grant) = attempt {
            winners.push(HeldKey { claim, owner: silent.owner, grant });
        }
    }
    ensure!(winners.len() == 1, "{} of 16 took it", winners.len());
    for winner in winners {
        let (before, after) = (silent.grant.fence, winner.grant.fence);
        ensure!(before.is_none() || after > before, "its fence {after:?} came after {before:?}");
        on.free(winner).await?;
    }
    Ok(())
}

pub(super) async fn it_is_not_taken_from_another_than_was_seen(on: Arc<LockSubject>) -> Checked {
    let first = on.take(LONG).await?;
    let seen = on.seen().await?;
    on.free(first).await?;
    let next = on.take(LONG).await?;
    on.ensure_refused(seen, "a holder that nobody had seen").await?;
    on.free(next).await
}

pub(super) async fn it_is_not_taken_from_who_has_renewed_it(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let seen = on.seen().await?;
    // Renewals are told apart by the millisecond.
    sleep(Duration::from_millis(20)).await;
    on.lock.renew(&hold.claim, LONG).await?;
    let renewed = on.seen().await?;
    if renewed != seen {
        on.ensure_refused(seen, "a holder that had renewed it").await?;
    }
    on.free(hold).await
}

pub(super) async fn who_lost_it_is_told(on: Arc<LockSubject>) -> Checked {
    let silent = on.take(LONG).await?;
    let (seen, winner) = (on.seen().await?, on.claim());
    let attempt = on.take_over(&winner, seen).await?;
    ensure!(matches!(attempt, Attempt::Granted(_)), "it was not granted, but {attempt:?}");
    let renewed = on.lock.renew(&silent.claim, LONG).await?;
    ensure!(renewed == Renew::Lost, "who had lost it could renew it");
    let released = on.release(silent.claim).await?;
    ensure!(released == Released::NotHeld, "its release by who had lost it was {released:?}");
    ensure!(on.is_busy().await?, "who had lost it freed it");
    let released = on.release(winner).await?;
    ensure!(released == Released::Freed, "its release by the winner was {released:?}");
    Ok(())
}

pub(super) async fn what_is_free_is_taken(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let seen = on.seen().await?;
    on.free(hold).await?;
    let claim = on.claim();
    let attempt = on.take_over(&claim, seen).await?;
    ensure!(matches!(attempt, Attempt::Granted(_)), "it was not granted, but {attempt:?}");
    on.release(claim).await?;
    Ok(())
}

//! Take-over of a key from a silent holder.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::sleep;

use super::subject::{HeldKey, LONG, LockSubject};
use crate::{Attempt, Released, Renew};
use bellwether_test::suite::{Checked, ensure};

pub(super) async fn one_of_many_take_overs_from_a_silent_holder_wins(
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
        let before = silent.grant.fence;
        let after = winner.grant.fence;
        ensure!(before.is_none() || after > before, "its fence {after:?} came after {before:?}");
        on.free(winner).await?;
    }
    Ok(())
}

pub(super) async fn a_take_over_from_another_holder_than_was_seen_is_refused(
    on: Arc<LockSubject>,
) -> Checked {
    let first = on.take(LONG).await?;
    let seen = on.seen().await?;
    on.free(first).await?;
    let next = on.take(LONG).await?;
    on.ensure_refused(seen, "a holder that was not seen").await?;
    on.free(next).await
}

pub(super) async fn a_take_over_from_a_holder_that_has_renewed_is_refused(
    on: Arc<LockSubject>,
) -> Checked {
    let hold = on.take(LONG).await?;
    let seen = on.seen().await?;
    // Renewals differ by the millisecond.
    sleep(Duration::from_millis(20)).await;
    on.lock.renew(&hold.claim, LONG).await?;
    let renewed = on.seen().await?;
    if renewed != seen {
        on.ensure_refused(seen, "a holder that had renewed it").await?;
    }
    on.free(hold).await
}

pub(super) async fn a_holder_that_was_taken_over_is_told(on: Arc<LockSubject>) -> Checked {
    let silent = on.take(LONG).await?;
    let seen = on.seen().await?;
    let winner = on.claim();
    let attempt = on.take_over(&winner, seen).await?;
    ensure!(matches!(attempt, Attempt::Granted(_)), "it was not granted, but {attempt:?}");
    let renewed = on.lock.renew(&silent.claim, LONG).await?;
    ensure!(renewed == Renew::Lost, "the old holder could renew it");
    let released = on.release(silent.claim).await?;
    ensure!(released == Released::NotHeld, "its release by the old holder was {released:?}");
    ensure!(on.is_busy().await?, "the old holder freed it");
    let released = on.release(winner).await?;
    ensure!(released == Released::Freed, "its release by the winner was {released:?}");
    Ok(())
}

pub(super) async fn a_take_over_takes_a_free_key(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let seen = on.seen().await?;
    on.free(hold).await?;
    let claim = on.claim();
    let attempt = on.take_over(&claim, seen).await?;
    ensure!(matches!(attempt, Attempt::Granted(_)), "it was not granted, but {attempt:?}");
    on.release(claim).await?;
    Ok(())
}

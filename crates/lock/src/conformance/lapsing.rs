//! The end of a lease, and its renewal.

use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout};

use super::subject::{LONG, LockSubject, MEDIUM, SHORT};
use crate::{Released, Renew};
use bellwether_test::suite::{Checked, ensure};

pub(super) async fn a_lease_lapses(on: Arc<LockSubject>) -> Checked {
    let Some(_lapsed) = on.lapsed().await? else { return Ok(()) };
    let next = on.take(LONG).await?;
    on.free(next).await
}

pub(super) async fn a_waiter_gets_it_right_at_the_end_of_the_lease(
    on: Arc<LockSubject>,
) -> Checked {
    let hold = on.take(MEDIUM).await?;
    if !hold.is_by_lease() {
        return on.free(hold).await;
    }
    let began = Instant::now();
    let waiting = on.claim();
    let granted = timeout(MEDIUM * 4, on.wait_by(&waiting, LONG)).await;
    let took = began.elapsed();
    ensure!(granted.is_ok(), "it was not granted within {took:?} of a lease of {MEDIUM:?}");
    ensure!(took + SHORT > MEDIUM, "it was granted after {took:?} of a lease of {MEDIUM:?}");
    on.release(waiting).await?;
    Ok(())
}

pub(super) async fn a_renewed_lock_does_not_lapse(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(MEDIUM).await?;
    for _ in 0..6 {
        sleep(MEDIUM / 3).await;
        let renewed = on.renew(&hold, MEDIUM).await?;
        ensure!(renewed == Renew::Held, "it could not be renewed");
    }
    ensure!(on.is_busy().await?, "it lapsed all the same");
    on.free(hold).await
}

pub(super) async fn a_lapsed_lease_is_not_renewed(on: Arc<LockSubject>) -> Checked {
    let Some(lapsed) = on.lapsed().await? else { return Ok(()) };
    let renewed = on.renew(&lapsed, LONG).await?;
    ensure!(renewed == Renew::Lost, "it was");
    let next = on.take(LONG).await?;
    let renewed = on.renew(&lapsed, LONG).await?;
    ensure!(renewed == Renew::Lost, "it was, after another claim had been granted the key");
    on.free(next).await
}

pub(super) async fn nothing_is_renewed_after_a_release(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    on.release(hold.claim.clone()).await?;
    let renewed = on.renew(&hold, LONG).await?;
    ensure!(renewed == Renew::Lost, "what was released was renewed");
    ensure!(!on.is_busy().await?, "the renewal took it");
    Ok(())
}

pub(super) async fn another_claim_renews_nothing(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let renewed = on.lock.renew(&on.claim(), LONG).await?;
    ensure!(renewed == Renew::Lost, "a claim that was never granted was renewed");
    on.free(hold).await
}

pub(super) async fn a_renewal_does_not_prolong_the_lease_of_others(
    on: Arc<LockSubject>,
) -> Checked {
    let Some(lapsed) = on.lapsed().await? else { return Ok(()) };
    let _theirs = on.take(SHORT).await?;
    // The lease is long, so a wrong renewal of the other hold would show.
    on.renew(&lapsed, LONG).await?;
    sleep(SHORT * 2).await;
    ensure!(!on.is_busy().await?, "the lease of others was prolonged");
    Ok(())
}

pub(super) async fn what_remains_of_the_lease_is_told(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG / 2).await?;
    let told = on.busy().await?.remaining;
    if let Some(remaining) = told.filter(|_| hold.is_by_lease()) {
        let is_right = remaining <= LONG / 2 && remaining > LONG / 4;
        ensure!(is_right, "{remaining:?} remain of {:?}", LONG / 2);
        on.renew(&hold, LONG).await?;
        let remaining = on.busy().await?.remaining.unwrap_or_default();
        ensure!(remaining > LONG / 2, "{remaining:?} remain of a renewed lease of {LONG:?}");
    }
    on.free(hold).await
}

pub(super) async fn the_release_of_a_lapsed_lease_is_not_held(on: Arc<LockSubject>) -> Checked {
    let Some(lapsed) = on.lapsed().await? else { return Ok(()) };
    let released = on.release(lapsed.claim.clone()).await?;
    ensure!(released == Released::NotHeld, "it was {released:?}");
    let next = on.take(LONG).await?;
    let released = on.release(lapsed.claim).await?;
    ensure!(released == Released::NotHeld, "it was {released:?} while another claim had the key");
    ensure!(on.is_busy().await?, "it freed the key of the next holder");
    on.free(next).await
}

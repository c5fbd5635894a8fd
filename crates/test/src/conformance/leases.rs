//! Checks of leases and watches.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::subject::{LONG, MEDIUM, SHORT, StoreSubject};
use crate::StoreExt as _;
use crate::suite::{Checked, Deviation, ensure};
use bellwether::store::{Accept, Acquire, Failure, Renew, Settled};
use bellwether::{FailureCause, Lifetimes};

pub(super) async fn a_lease_is_given_to_one_at_a_time(on: StoreSubject) -> Checked {
    let _lease = on.lead(LONG).await?;
    match on.acquire(&on.claim(), LONG).await? {
        Acquire::Busy { remaining, stale: None, .. } if remaining <= LONG => Ok(()),
        other => Err(Deviation::new(format!("gave {other:?} while another claim held the lease"))),
    }
}

pub(super) async fn of_many_concurrent_claims_one_leads(on: StoreSubject) -> Checked {
    let asked = join_all((0..64).map(|_| on.store.acquire(on.claim(), LONG, Accept::Fresh))).await;
    let mut leads = 0;
    for acquired in asked {
        leads += usize::from(matches!(acquired?, Acquire::Lead { .. }));
    }
    ensure!(leads == 1, "{leads} of 64 were given the lease");
    Ok(())
}

pub(super) async fn the_same_claim_is_granted_again(on: StoreSubject) -> Checked {
    let claim = on.claim();
    let first = on.lead_by(&claim).await?;
    let again = on.lead_by(&claim).await?;
    let renewed = on.store.renew(&first, LONG).await?;
    ensure!(renewed == Renew::Held, "the first grant was lost by a copy of its request");
    ensure!(on.commit(again, "value").await? == Settled::Done, "it could not be used");
    Ok(())
}

pub(super) async fn a_claim_that_asks_again_does_not_revive_a_lease(on: StoreSubject) -> Checked {
    let claim = on.claim();
    let ended = on.lead_by(&claim).await?;
    on.store.invalidate(on.key()).await?;
    let _next = on.lead_by(&claim).await?;
    let renewed = on.store.renew(&ended, LONG).await?;
    ensure!(renewed == Renew::Lost, "it was renewed");
    let commit = on.commit(ended, "old").await?;
    ensure!(commit == Settled::Superseded, "after an invalidation it was {commit:?}");
    on.ensure_text(None).await
}

pub(super) async fn a_dropped_request_can_be_abandoned(on: StoreSubject) -> Checked {
    let claim = on.claim();
    {
        let mut request = pin!(on.store.acquire(claim.clone(), LONG, Accept::Fresh));
        // Polled once: perhaps sent, and dropped without its answer.
        let _ = request.as_mut().now_or_never();
    }
    on.store.abandon(claim).await?;
    on.lead(LONG).await.map(drop)
}

pub(super) async fn an_abandoned_lease_is_free(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.store.abandon(lease.claim).await?;
    on.lead(LONG).await.map(drop)
}

pub(super) async fn only_its_own_claim_abandons_a_lease(on: StoreSubject) -> Checked {
    let _lease = on.lead(LONG).await?;
    on.store.abandon(on.claim()).await?;
    ensure!(on.is_busy().await?, "another claim gave it up");
    Ok(())
}

pub(super) async fn a_lease_lapses(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    let next = on.lead(LONG).await?;
    ensure!(next.fence > lapsed.fence, "the next fence is not above that of the lapsed lease");
    Ok(())
}

pub(super) async fn a_renewed_lease_does_not_lapse(on: StoreSubject) -> Checked {
    let lease = on.lead(MEDIUM).await?;
    for _ in 0..4 {
        sleep(MEDIUM / 3).await;
        let renewed = on.store.renew(&lease, MEDIUM).await?;
        ensure!(renewed == Renew::Held, "it could not be renewed");
    }
    ensure!(on.is_busy().await?, "it lapsed all the same");
    Ok(())
}

pub(super) async fn a_renewed_lease_holds_for_the_term_of_its_renewal(on: StoreSubject) -> Checked {
    let lease = on.lead(MEDIUM).await?;
    let renewed = on.store.renew(&lease, LONG).await?;
    ensure!(renewed == Renew::Held, "it could not be renewed to a longer term");
    sleep(MEDIUM * 2).await;
    ensure!(on.is_busy().await?, "it lapsed with the term for which it was granted");
    let renewed = on.store.renew(&lease, SHORT).await?;
    ensure!(renewed == Renew::Held, "it could not be renewed to a shorter term");
    sleep(SHORT * 2).await;
    ensure!(!on.is_busy().await?, "it outlived the shorter term");
    Ok(())
}

pub(super) async fn a_lapsed_lease_is_not_renewed(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    let renewed = on.store.renew(&lapsed, LONG).await?;
    ensure!(renewed == Renew::Lost, "it was");
    on.lead(LONG).await.map(drop)
}

pub(super) async fn renewing_does_not_prolong_the_lease_of_others(on: StoreSubject) -> Checked {
    // The term is long, so that a wrong renewal of the other lease shows.
    let lease = on.lead(LONG).await?;
    on.store.invalidate(on.key()).await?;
    let _theirs = on.lead(SHORT).await?;
    let renewed = on.store.renew(&lease, LONG).await?;
    ensure!(renewed == Renew::Lost, "a lease that has passed on was renewed");
    sleep(SHORT * 2).await;
    ensure!(!on.is_busy().await?, "the lease of others was prolonged");
    Ok(())
}

pub(super) async fn a_commit_ends_its_lease(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    ensure!(!on.is_busy().await?, "the key is still leased");
    Ok(())
}

pub(super) async fn fences_grow(on: StoreSubject) -> Checked {
    let mut last = 0;
    for round in 0..20 {
        let lease = on.lead_unless(LONG, Accept::Nothing).await?;
        ensure!(lease.fence > last, "{} came after {last}", lease.fence);
        last = lease.fence;
        match round % 3 {
            0 => on.store.abandon(lease.claim).await?,
            1 => drop(on.commit(lease, "value").await?),
            _ => drop(on.store.invalidate(on.key()).await?),
        }
    }
    Ok(())
}

pub(super) async fn watchers_are_told(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    is_reported(&on, on.store.abandon(lease.claim).map(drop), "an abandoned lease").await?;
    let lease = on.lead(LONG).await?;
    let failure = Failure::new(FailureCause::Error, 1, Duration::from_millis(1));
    is_reported(&on, on.store.fail(lease, failure).map(drop), "a failure").await?;
    let lease = on.lead_unless(LONG, Accept::Nothing).await?;
    is_reported(&on, on.commit(lease, "value").map(drop), "a commit").await?;
    let _lease = on.lead_unless(LONG, Accept::Nothing).await?;
    is_reported(&on, on.store.invalidate(on.key()).map(drop), "an invalidation").await?;
    let _lease = on.lead(LONG).await?;
    is_reported(&on, on.store.expire(on.key()).map(drop), "an expiry").await
}

/// Checks that a watch reports an event to a caller that was told `Busy`. A store that reports no
/// changes has to give a silent watch.
async fn is_reported(on: &StoreSubject, event: impl Future<Output = ()>, what: &str) -> Checked {
    let mut watch = on.store.watch(&on.key());
    ensure!(on.is_busy().await?, "the lease does not hold");
    event.await;
    if watch.is_silent() {
        return Ok(());
    }
    let reported = timeout(Duration::from_secs(5), watch.changed()).await;
    ensure!(reported.is_ok(), "{what} was not reported within 5 s");
    Ok(())
}

//! Fencing tokens: numbers that grow.

use std::sync::Arc;

use tokio::time::sleep;

use super::subject::{LONG, LockSubject, MEDIUM, SHORT};
use crate::{Attempt, Renew};
use bellwether_test::suite::{Checked, Deviation, ensure};

pub(super) async fn every_grant_has_a_fence(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let fence = hold.fence()?;
    ensure!(fence > 0, "its fence is zero, and nothing is below that");
    on.free(hold).await
}

pub(super) async fn fences_grow_over_releases(on: Arc<LockSubject>) -> Checked {
    let mut last = 0;
    for _ in 0..20 {
        let hold = on.take(LONG).await?;
        let fence = hold.fence()?;
        ensure!(fence > last, "{fence} came after {last}");
        last = fence;
        on.free(hold).await?;
    }
    Ok(())
}

pub(super) async fn fences_grow_over_lapsed_leases(on: Arc<LockSubject>) -> Checked {
    let lapses = on.take(SHORT).await?;
    let before = lapses.fence()?;
    if !lapses.is_by_lease() {
        return on.free(lapses).await;
    }
    sleep(SHORT * 2).await;
    let next = on.take(LONG).await?;
    let after = next.fence()?;
    ensure!(after > before, "{after} came after {before}, whose lease had lapsed");
    on.free(next).await
}

pub(super) async fn a_repeated_request_has_the_same_fence(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let fence = hold.fence()?;
    match on.attempt(&hold.claim, LONG).await? {
        Attempt::Granted(again) if again.fence == Some(fence) => on.free(hold).await,
        other => Err(Deviation::new(format!("it had {fence}, and was answered with {other:?}"))),
    }
}

pub(super) async fn renewing_keeps_the_fence(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(MEDIUM).await?;
    let fence = hold.fence()?;
    let renewed = on.lock.renew(&hold.claim, LONG).await?;
    ensure!(renewed == Renew::Held, "it could not be renewed");
    if let Some(holder) = on.busy().await?.holder {
        ensure!(holder.grant == fence, "the holder of {fence} is told to be {}", holder.grant);
    }
    on.free(hold).await
}

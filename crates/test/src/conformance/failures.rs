//! Checks of failures: what is remembered of a failed load.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::subject::{LONG, SHORT, StoreSubject};
use crate::StoreExt as _;
use crate::suite::{Checked, Deviation, ensure};
use bellwether::store::{Accept, Acquire, Failure, Settled};
use bellwether::{FailureCause, Lifetimes};

pub(super) async fn a_failure_is_told_to_every_caller(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.fail(lease, LONG).await?;
    let (failure, remaining, stale) = on.failed().await?;
    let expected = Failure::new(FailureCause::TimedOut, 3, LONG).with_message("no answer: ü");
    ensure!(failure == expected, "remembered {failure:?}");
    ensure!(remaining <= LONG && remaining > LONG / 2, "its window is {remaining:?} long");
    ensure!(stale.is_none(), "found {stale:?} where nothing was stored");
    Ok(())
}

pub(super) async fn after_its_cooldown_one_caller_leads_as_a_probe(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    let failure = probed(LONG, SHORT);
    on.store.fail(lease, failure.clone()).await?;
    let (_, remaining, _) = on.failed().await?;
    ensure!(remaining <= SHORT, "the cooldown is {remaining:?} long");
    sleep(SHORT + SHORT / 2).await;
    let Acquire::Lead { lease, failures, probe, .. } = on.acquire(&on.claim(), LONG).await? else {
        return Err(Deviation::new("no caller may try again after the cooldown"));
    };
    ensure!(failures == 3, "the number of failures in a row is {failures}, not 3");
    ensure!(probe.as_ref() == Some(&failure), "the failure to be shared meanwhile is {probe:?}");
    on.failed().await?;
    on.store.abandon(lease.claim).await?;
    match on.acquire(&on.claim(), LONG).await? {
        Acquire::Lead { probe: Some(_), .. } => Ok(()),
        other => Err(Deviation::new(format!("after a probe that was abandoned, gave {other:?}"))),
    }
}

pub(super) async fn no_caller_waits_for_a_probe_that_outlives_the_window(
    on: StoreSubject,
) -> Checked {
    let lease = on.lead(LONG).await?;
    on.store.fail(lease, probed(SHORT, SHORT / 2).with_life(LONG)).await?;
    sleep(SHORT * 3 / 4).await;
    let probe = on.acquire(&on.claim(), LONG).await?;
    let Acquire::Lead { lease, probe: Some(_), .. } = probe else {
        // The store was so slow that the window is over. Then this is no probe, and nothing to
        // check.
        return Ok(());
    };
    sleep(SHORT).await;
    on.failed().await?;
    on.commit(lease, "value").await.map(drop)
}

pub(super) async fn a_lease_that_is_granted_after_the_window_is_waited_for(
    on: StoreSubject,
) -> Checked {
    let short = |window| probed(window, window / 2).with_life(LONG);
    match on.acquire_after_window(short).await? {
        Acquire::Lead { probe: None, failures: 3, .. } => {}
        other => return Err(Deviation::new(format!("after the window, gave {other:?}"))),
    }
    match on.acquire(&on.claim(), LONG).await? {
        Acquire::Busy { .. } => Ok(()),
        other => {
            Err(Deviation::new(format!("while it is loaded after the window, gave {other:?}")))
        }
    }
}

pub(super) async fn a_failure_without_a_window_only_counts(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.store.fail(lease, probed(Duration::ZERO, Duration::ZERO).with_life(LONG)).await?;
    match on.acquire(&on.claim(), LONG).await? {
        Acquire::Lead { probe: None, failures: 3, .. } => {}
        other => {
            return Err(Deviation::new(format!(
                "after a failure without a window, gave {other:?}"
            )));
        }
    }
    ensure!(on.is_busy().await?, "the lease is held, and was granted again");
    Ok(())
}

fn probed(window: Duration, cooldown: Duration) -> Failure {
    Failure::new(FailureCause::TimedOut, 3, window).with_cooldown(cooldown)
}

pub(super) async fn after_its_window_a_failure_counts_for_the_next(on: StoreSubject) -> Checked {
    let short = |window| Failure::new(FailureCause::TimedOut, 3, window);
    let Acquire::Lead { failures, .. } = on.acquire_after_window(short).await? else {
        return Err(Deviation::new("no caller may try again after the window"));
    };
    ensure!(failures == 3, "the number of failures in a row is {failures}, not 3");
    Ok(())
}

pub(super) async fn a_failure_is_forgotten_after_twice_its_window(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.fail(lease, SHORT).await?;
    sleep(SHORT * 3).await;
    let Acquire::Lead { failures, .. } = on.acquire(&on.claim(), LONG).await? else {
        return Err(Deviation::new("no caller may try again long after the window"));
    };
    ensure!(failures == 0, "{failures} failures are remembered");
    Ok(())
}

pub(super) async fn only_the_holder_of_the_lease_can_fail(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    on.fail(lapsed, LONG).await?;
    let lease = on.lead(LONG).await?;
    on.store.invalidate(on.key()).await?;
    let _theirs = on.lead(LONG).await?;
    on.fail(lease, LONG).await?;
    ensure!(on.is_busy().await?, "the lease of others was ended");
    Ok(())
}

pub(super) async fn the_end_of_a_failure_is_reported(on: StoreSubject) -> Checked {
    for is_expiry in [false, true] {
        let lease = on.lead(LONG).await?;
        on.fail(lease, LONG).await?;
        let mut watch = on.store.watch(&on.key());
        on.failed().await?;
        match is_expiry {
            false => on.store.invalidate(on.key()).await?,
            true => on.store.expire(on.key()).await?,
        };
        // A store that reports no changes gives a silent watch.
        if !watch.is_silent() {
            let reported = timeout(Duration::from_secs(5), watch.changed()).await;
            ensure!(reported.is_ok(), "it was not reported within 5 s");
        }
    }
    Ok(())
}

pub(super) async fn a_load_from_before_an_invalidation_cannot_fail(on: StoreSubject) -> Checked {
    let claim = on.claim();
    let ended = on.lead_by(&claim).await?;
    on.store.invalidate(on.key()).await?;
    let _next = on.lead_by(&claim).await?;
    on.fail(ended, LONG).await?;
    let acquired = on.acquire(&on.claim(), LONG).await?;
    ensure!(!matches!(acquired, Acquire::Failed { .. }), "its failure is remembered");
    Ok(())
}

pub(super) async fn a_caller_that_accepts_nothing_is_not_told_of_failures(
    on: StoreSubject,
) -> Checked {
    let lease = on.lead(LONG).await?;
    on.fail(lease, LONG).await?;
    on.lead_unless(LONG, Accept::Nothing).await.map(drop)
}

pub(super) async fn a_failure_leaves_what_is_stale(on: StoreSubject) -> Checked {
    let lifetimes = Lifetimes::fresh_for(SHORT).stale_if_error(LONG);
    on.store_one("value", lifetimes).await?;
    sleep(SHORT * 2).await;
    let lease = on.lead(LONG).await?;
    on.fail(lease, LONG).await?;
    let (_, _, stale) = on.failed().await?;
    ensure!(stale.is_some_and(|entry| entry.serves_if_error()), "the stale entry is gone");
    on.ensure_text(Some("value")).await
}

pub(super) async fn what_is_fresh_is_found_whatever_failed(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    let lease = on.lead_unless(LONG, Accept::Nothing).await?;
    on.fail(lease, LONG).await?;
    match on.acquire(&on.claim(), LONG).await? {
        Acquire::Found(_) => Ok(()),
        other => Err(Deviation::new(format!("gave {other:?} instead of the fresh entry"))),
    }
}

pub(super) async fn a_commit_forgets_failures(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.fail(lease, LONG).await?;
    let lease = on.lead_unless(LONG, Accept::Nothing).await?;
    let commit = on.commit_for(lease, "value", Lifetimes::fresh_for(Duration::ZERO)).await?;
    ensure!(commit == Settled::Done, "it was {commit:?}");
    on.lead(LONG).await.map(drop)
}

pub(super) async fn an_invalidation_forgets_failures(on: StoreSubject) -> Checked {
    for keeps_stale in [false, true] {
        let lease = on.lead(LONG).await?;
        on.fail(lease, LONG).await?;
        match keeps_stale {
            true => drop(on.store.expire(on.key()).await?),
            false => drop(on.store.invalidate(on.key()).await?),
        }
        let lease = on.lead(LONG).await?;
        on.store.abandon(lease.claim).await?;
    }
    Ok(())
}

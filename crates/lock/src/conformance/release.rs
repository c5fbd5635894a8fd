//! What a release frees, and which waiters are told.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::subject::{LONG, LockSubject, SHORT};
use crate::{Released, Request};
use bellwether_test::suite::{Checked, ensure};

pub(super) async fn another_claim_cannot_release(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let released = on.release(on.claim()).await?;
    ensure!(released == Released::NotHeld, "the release by another claim was {released:?}");
    ensure!(on.is_busy().await?, "another claim freed it");
    on.free(hold).await
}

pub(super) async fn a_release_of_what_was_never_granted_is_safe(on: Arc<LockSubject>) -> Checked {
    let released = on.release(on.claim()).await?;
    ensure!(released == Released::NotHeld, "of a free key, it was {released:?}");
    let hold = on.take(LONG).await?;
    let refused = on.claim();
    on.attempt(&refused, LONG).await?;
    let released = on.release(refused).await?;
    ensure!(released == Released::NotHeld, "of a claim that was refused, it was {released:?}");
    ensure!(on.is_busy().await?, "it freed the key of the holder");
    on.free(hold).await
}

pub(super) async fn a_second_release_frees_nothing(on: Arc<LockSubject>) -> Checked {
    let claim = on.take(LONG).await?.claim;
    let first = on.release(claim.clone()).await?;
    let second = on.release(claim).await?;
    let expected = (Released::Freed, Released::NotHeld);
    ensure!((first, second) == expected, "{first:?}, then {second:?}");
    Ok(())
}

pub(super) async fn a_repeated_release_never_frees_the_next_holder(
    on: Arc<LockSubject>,
) -> Checked {
    let claim = on.take(LONG).await?.claim;
    on.release(claim.clone()).await?;
    let next = on.take(LONG).await?;
    let released = on.release(claim).await?;
    ensure!(released == Released::NotHeld, "it was {released:?}");
    ensure!(on.is_busy().await?, "the key of the next holder was freed");
    on.free(next).await
}

pub(super) async fn another_task_with_the_claim_can_release(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let lock = Arc::clone(&on.lock);
    let known = hold.claim.clone();
    drop(hold);
    let released = lock.release(known).await?;
    ensure!(released == Released::Freed, "it was {released:?}");
    ensure!(!on.is_busy().await?, "the key is still held");
    Ok(())
}

pub(super) async fn a_dropped_request_can_be_released(on: Arc<LockSubject>) -> Checked {
    for _ in 0..4 {
        let claim = on.claim();
        {
            let mut request = pin!(on.lock.acquire(Request::new(claim.clone(), LONG)));
            // Polled once: the request may be sent, and is dropped before its answer.
            let _ = request.as_mut().now_or_never();
        }
        on.release(claim).await?;
        let next = on.take_soon().await?;
        on.free(next).await?;
    }
    Ok(())
}

/// A dropped wait is not granted the key when it becomes free.
pub(super) async fn a_dropped_wait_can_be_released(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let waiting = on.claim();
    let _ = timeout(SHORT, on.wait_by(&waiting, LONG)).await;
    on.release(waiting).await?;
    on.free(hold).await?;
    let next = on.take_soon().await?;
    on.free(next).await
}

pub(super) async fn a_waiter_that_leaves_blocks_no_other(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let gone = on.claim();
    let patient = on.claim();
    let _ = timeout(SHORT, on.wait_by(&gone, LONG)).await;
    let waits = on.wait_by(&patient, LONG);
    let leaves = async {
        let released = on.release(gone).await?;
        ensure!(released == Released::NotHeld, "the release of a waiter was {released:?}");
        on.free(hold).await
    };
    let (waited, left) = tokio::join!(timeout(Duration::from_secs(5), waits), leaves);
    left?;
    ensure!(waited.is_ok(), "the next waiter waits for one that has gone");
    let released = on.release(patient).await?;
    ensure!(released == Released::Freed, "the release of the next waiter was {released:?}");
    Ok(())
}

/// A wake-up must not be lost between the answer and the wait.
pub(super) async fn a_release_after_the_busy_answer_is_reported(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let mut watch = on.lock.watch(&on.key());
    on.busy().await?;
    on.free(hold).await?;
    if watch.is_silent() {
        return Ok(());
    }
    let reported = timeout(Duration::from_secs(5), watch.changed()).await;
    ensure!(reported.is_ok(), "the watch did not report the release within 5 s");
    Ok(())
}

pub(super) async fn a_watch_reports_every_hand_over(on: Arc<LockSubject>) -> Checked {
    let mut watch = on.lock.watch(&on.key());
    for round in 0..5 {
        let hold = on.take(LONG).await?;
        on.busy().await?;
        // Earlier reports may be of the last round.
        while watch.changed().now_or_never().is_some() {}
        on.free(hold).await?;
        if watch.is_silent() {
            continue;
        }
        let reported = timeout(Duration::from_secs(5), watch.changed()).await;
        ensure!(reported.is_ok(), "the watch did not report release {round} within 5 s");
    }
    Ok(())
}

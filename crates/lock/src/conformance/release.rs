//! What a release frees, and who is told.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::subject::{LONG, LockSubject, SHORT};
use crate::{Released, Request};
use bellwether::conformance::{Checked, ensure};

pub(super) async fn a_stranger_cannot_release(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let released = on.release(on.claim()).await?;
    ensure!(released == Released::NotHeld, "the release of a stranger was {released:?}");
    ensure!(on.is_busy().await?, "a stranger freed it");
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

pub(super) async fn a_second_release_frees_nobody(on: Arc<LockSubject>) -> Checked {
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

pub(super) async fn whoever_knows_the_claim_can_release(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let (lock, known) = (Arc::clone(&on.lock), hold.claim.clone());
    drop(hold);
    let released = lock.release(known).await?;
    ensure!(released == Released::Freed, "it was {released:?}");
    ensure!(!on.is_busy().await?, "the key is still held");
    Ok(())
}

pub(super) async fn a_dropped_question_can_be_released(on: Arc<LockSubject>) -> Checked {
    for _ in 0..4 {
        let claim = on.claim();
        {
            let mut question = pin!(on.lock.acquire(Request::new(claim.clone(), LONG)));
            // Polled once: sent perhaps, and dropped without having heard the answer.
            let _ = question.as_mut().now_or_never();
        }
        on.release(claim).await?;
        let next = on.take_soon().await?;
        on.free(next).await?;
    }
    Ok(())
}

/// What was dropped is granted to nobody when the key becomes free.
pub(super) async fn a_dropped_wait_can_be_released(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let waiting = on.claim();
    let _ = timeout(SHORT, on.wait_by(&waiting, LONG)).await;
    on.release(waiting).await?;
    on.free(hold).await?;
    let next = on.take_soon().await?;
    on.free(next).await
}

pub(super) async fn who_stops_waiting_is_in_nobodys_way(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let (gone, patient) = (on.claim(), on.claim());
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

/// Between the answer and the wait is where a wake-up is lost.
pub(super) async fn a_release_after_the_busy_answer_is_told(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let mut watch = on.lock.watch(&on.key());
    on.busy().await?;
    on.free(hold).await?;
    if watch.is_silent() {
        return Ok(());
    }
    let heard = timeout(Duration::from_secs(5), watch.changed()).await;
    ensure!(heard.is_ok(), "nothing was heard of the release within 5 s");
    Ok(())
}

pub(super) async fn who_watches_hears_of_every_hand_over(on: Arc<LockSubject>) -> Checked {
    let mut watch = on.lock.watch(&on.key());
    for round in 0..5 {
        let hold = on.take(LONG).await?;
        on.busy().await?;
        // What is heard up to here may be of the last round.
        while watch.changed().now_or_never().is_some() {}
        on.free(hold).await?;
        if watch.is_silent() {
            continue;
        }
        let heard = timeout(Duration::from_secs(5), watch.changed()).await;
        ensure!(heard.is_ok(), "nothing was heard of release {round} within 5 s");
    }
    Ok(())
}

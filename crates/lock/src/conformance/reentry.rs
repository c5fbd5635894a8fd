//! Locks that their owner may take again.

use std::sync::Arc;

use tokio::time::sleep;

use super::subject::{LONG, LockSubject, MEDIUM, SHORT};
use crate::{Attempt, Owner, Released, Request};
use bellwether_test::suite::{Checked, ensure};

pub(super) async fn an_owner_takes_it_again_and_releases_as_often(on: Arc<LockSubject>) -> Checked {
    let owner = Owner::new();
    let mut holds = Vec::new();
    for _ in 0..3 {
        holds.push(on.take_for(on.claim(), owner, LONG).await?);
    }
    while let Some(hold) = holds.pop() {
        ensure!(on.is_busy().await?, "it is free, and {} holds are left", holds.len() + 1);
        on.free(hold).await?;
    }
    ensure!(!on.is_busy().await?, "it is held after the last release");
    Ok(())
}

pub(super) async fn a_claim_is_counted_once(on: Arc<LockSubject>) -> Checked {
    let owner = Owner::new();
    let claim = on.claim();
    for _ in 0..3 {
        on.take_for(claim.clone(), owner, LONG).await?;
    }
    let released = on.release(claim.clone()).await?;
    ensure!(released == Released::Freed, "the release was {released:?}");
    ensure!(!on.is_busy().await?, "it is held as often as it was asked for");
    let released = on.release(claim).await?;
    ensure!(released == Released::NotHeld, "the second release was {released:?}");
    Ok(())
}

pub(super) async fn another_owner_is_refused_until_the_last_release(
    on: Arc<LockSubject>,
) -> Checked {
    let owner = Owner::new();
    let outer = on.take_for(on.claim(), owner, LONG).await?;
    let inner = on.take_for(on.claim(), owner, LONG).await?;
    on.busy().await?;
    on.free(inner).await?;
    on.busy().await?;
    on.free(outer).await?;
    let theirs = on.take_for(on.claim(), Owner::new(), LONG).await?;
    let refused = on.lock.acquire(Request::new(on.claim(), LONG).owned_by(owner)).await?;
    ensure!(matches!(refused, Attempt::Busy(_)), "its old owner was granted it: {refused:?}");
    on.free(theirs).await
}

pub(super) async fn the_release_of_a_claim_that_failed_leaves_the_hold(
    on: Arc<LockSubject>,
) -> Checked {
    let outer = on.take(LONG).await?;
    // Of the same owner, but never granted: as an inner acquisition that failed is cleaned up.
    let released = on.release(on.claim()).await?;
    ensure!(released == Released::NotHeld, "it was {released:?}");
    ensure!(on.is_busy().await?, "the outer hold was released");
    on.free(outer).await
}

pub(super) async fn all_holds_of_an_owner_have_one_fence(on: Arc<LockSubject>) -> Checked {
    let owner = Owner::new();
    let outer = on.take_for(on.claim(), owner, LONG).await?;
    let inner = on.take_for(on.claim(), owner, LONG).await?;
    let first = outer.grant.fence;
    let second = inner.grant.fence;
    ensure!(first == second, "{first:?}, then {second:?}");
    on.free(inner).await?;
    on.free(outer).await
}

/// Holds are values, and may end in any order.
pub(super) async fn an_outer_hold_is_released_before_an_inner_one(on: Arc<LockSubject>) -> Checked {
    let owner = Owner::new();
    let outer = on.take_for(on.claim(), owner, LONG).await?;
    let inner = on.take_for(outer.claim.clone(), outer.owner, LONG).await;
    drop(inner);
    let inner = on.take_for(on.claim(), owner, LONG).await?;
    on.free(outer).await?;
    ensure!(on.is_busy().await?, "the inner hold went with the outer one");
    on.free(inner).await?;
    ensure!(!on.is_busy().await?, "it is held after the last release");
    Ok(())
}

pub(super) async fn the_lease_lasts_as_long_as_the_longest_hold(on: Arc<LockSubject>) -> Checked {
    let owner = Owner::new();
    let outer = on.take_for(on.claim(), owner, LONG).await?;
    let inner = on.take_for(on.claim(), owner, SHORT).await?;
    on.release(inner.claim).await?;
    sleep(MEDIUM).await;
    ensure!(on.is_busy().await?, "a short inner hold cut the lease of the outer one");
    on.free(outer).await
}

pub(super) async fn the_owner_is_refused_too(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let again = Request::new(on.claim(), LONG).owned_by(hold.owner);
    let attempt = on.lock.acquire(again).await?;
    ensure!(matches!(attempt, Attempt::Busy(_)), "its owner was granted it again: {attempt:?}");
    on.free(hold).await?;
    ensure!(!on.is_busy().await?, "one release did not free it");
    Ok(())
}

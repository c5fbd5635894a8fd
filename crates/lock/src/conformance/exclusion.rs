//! At most one holds a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::subject::{LONG, LockSubject, MEDIUM, SHORT};
use crate::{Attempt, Claim, Released};
use bellwether_test::suite::{Checked, ensure};

pub(super) async fn a_key_is_locked_and_unlocked_twice_in_a_row(on: Arc<LockSubject>) -> Checked {
    for _ in 0..2 {
        let hold = on.take(LONG).await?;
        on.free(hold).await?;
    }
    Ok(())
}

/// Two tasks of one process are two, whatever connection they share.
pub(super) async fn a_second_try_is_busy_at_once(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let began = Instant::now();
    on.busy().await?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(2), "the answer to a try took {took:?}");
    on.free(hold).await
}

pub(super) async fn two_names_are_independent(on: Arc<LockSubject>) -> Checked {
    let one = on.take_by(Claim::new(on.key().with(1)), LONG).await?;
    let other = on.take_by(Claim::new(on.key().with(2)), LONG).await?;
    on.free(one).await?;
    on.free(other).await
}

pub(super) async fn hostile_names_are_kept_apart(on: Arc<LockSubject>) -> Checked {
    let long = "x".repeat(1_000);
    let longer = "x".repeat(1_001);
    let base = || on.key();
    let keys = [
        base(),
        base().with(""),
        base().with("").with(""),
        base().with("AbC"),
        base().with("abc"),
        base().with("abc "),
        base().with("a\\b"),
        base().with("a\\\\b"),
        base().with("a'b\"c;--"),
        base().with("a/b"),
        base().with("a\0b"),
        base().with("..").with("."),
        base().with("1_2").with("3"),
        base().with("1").with("2_3"),
        base().with(12),
        base().with("12"),
        base().with("{a}"),
        base().with("ä€𐍈"),
        base().with(long.as_str()),
        base().with(longer.as_str()),
    ];
    let mut holds = Vec::new();
    for key in keys {
        holds.push(on.take_by(Claim::new(key), LONG).await?);
    }
    for hold in holds {
        on.free(hold).await?;
    }
    Ok(())
}

pub(super) async fn one_of_many_concurrent_requests_is_granted(on: Arc<LockSubject>) -> Checked {
    let claims: Vec<_> = (0..32).map(|_| on.claim()).collect();
    let asked = claims.iter().map(|claim| on.attempt(claim, LONG));
    let attempts = try_join_all(asked).await?;
    let granted = attempts.iter().filter(|it| matches!(it, Attempt::Granted(_))).count();
    let mut freed = 0;
    for claim in claims {
        freed += usize::from(on.release(claim).await? == Released::Freed);
    }
    ensure!(granted == 1, "{granted} of 32 were granted the key");
    ensure!(freed == 1, "{freed} of 32 gave it back");
    Ok(())
}

pub(super) async fn the_same_claim_is_granted_again(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(MEDIUM).await?;
    for _ in 0..4 {
        sleep(MEDIUM / 3).await;
        let again = on.attempt(&hold.claim, MEDIUM).await?;
        ensure!(
            matches!(again, Attempt::Granted(_)),
            "a claim was blocked by its own grant: {again:?}"
        );
    }
    ensure!(on.is_busy().await?, "it lapsed although it was asked for again");
    on.free(hold).await?;
    ensure!(!on.is_busy().await?, "it is held as often as it was asked for");
    Ok(())
}

/// Eight tasks read, yield and write. Two holders at a time would lose a write.
pub(super) async fn an_unprotected_counter_is_exact(on: Arc<LockSubject>) -> Checked {
    let counter = AtomicU32::new(0);
    let inside = AtomicU32::new(0);
    let task = async || {
        for _ in 0..ROUNDS {
            let claim = on.claim();
            on.wait_by(&claim, SHORT).await?;
            let others = inside.fetch_add(1, Ordering::SeqCst);
            ensure!(others == 0, "{others} others held the key");
            let read = counter.load(Ordering::SeqCst);
            yield_now().await;
            counter.store(read + 1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            let released = on.release(claim).await?;
            ensure!(released == Released::Freed, "the release of a held key was {released:?}");
        }
        Ok(())
    };
    try_join_all((0..TASKS).map(|_| task())).await?;
    let count = counter.load(Ordering::SeqCst);
    ensure!(count == TASKS * ROUNDS, "{count} of {} rounds were counted", TASKS * ROUNDS);
    Ok(())
}

pub(super) async fn a_try_leaves_no_waiter(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    for _ in 0..4 {
        on.busy().await?;
    }
    on.free(hold).await?;
    // At once: no earlier try is still in a queue.
    let hold = on.take(LONG).await?;
    on.free(hold).await
}

const TASKS: u32 = 8;
const ROUNDS: u32 = 10;

//! First come, first served.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether::adapter::locked;
use futures_util::future::try_join_all;
use tokio::time::{sleep, timeout};

use super::subject::{LONG, LockSubject, SHORT};
use bellwether_test::suite::{Checked, ensure};

pub(super) async fn first_come_first_served(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let order = Mutex::new(Vec::new());
    let waiters = (0..5).map(|number| {
        let on = &on;
        let order = &order;
        async move {
            sleep(SPACING * number).await;
            let claim = on.claim();
            on.wait_by(&claim, Duration::from_secs(2)).await?;
            locked(order).push(number);
            on.release(claim).await
        }
    });
    let frees = async {
        sleep(SPACING * 6).await;
        on.free(hold).await
    };
    let (waited, freed) = tokio::join!(try_join_all(waiters), frees);
    freed?;
    waited?;
    let order = order.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(order == [0, 1, 2, 3, 4], "they were served as {order:?}");
    Ok(())
}

pub(super) async fn a_waiter_is_told_how_many_are_before_it(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let claims: Vec<_> = (0..3).map(|_| on.claim()).collect();
    for (before, claim) in (1..).zip(&claims) {
        if let Some(ahead) = on.queue_up(claim).await?.ahead {
            ensure!(ahead == before, "{ahead} are told to be before it, not {before}");
        }
    }
    for claim in claims {
        on.release(claim).await?;
    }
    on.free(hold).await
}

/// A try is busy while there are waiters, even while the key is being handed over.
pub(super) async fn a_try_overtakes_no_waiter(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    let waiting = on.claim();
    on.queue_up(&waiting).await?;
    on.free(hold).await?;
    on.busy().await?;
    let granted = timeout(Duration::from_secs(5), on.wait_by(&waiting, SHORT)).await;
    ensure!(granted.is_ok(), "the waiter was not granted it");
    on.release(waiting).await?;
    Ok(())
}

pub(super) async fn a_waiter_that_leaves_the_queue_delays_no_other(
    on: Arc<LockSubject>,
) -> Checked {
    let hold = on.take(LONG).await?;
    let [first, middle, last] = [on.claim(), on.claim(), on.claim()];
    for claim in [&first, &middle, &last] {
        on.queue_up(claim).await?;
    }
    on.release(middle).await?;
    on.queue_up(&last).await?;
    on.release(first).await?;
    on.free(hold).await?;
    let granted = timeout(Duration::from_secs(5), on.wait_by(&last, SHORT)).await;
    ensure!(granted.is_ok(), "the last waiter waits for those that have left");
    on.release(last).await?;
    Ok(())
}

pub(super) async fn a_try_takes_no_place_in_the_queue(on: Arc<LockSubject>) -> Checked {
    let hold = on.take(LONG).await?;
    on.busy().await?;
    let waiting = on.claim();
    let busy = on.queue_up(&waiting).await?;
    ensure!(busy.ahead.is_none_or(|ahead| ahead == 1), "{:?} are before the first", busy.ahead);
    on.release(waiting).await?;
    on.free(hold).await
}

/// Enough that requests arrive at the server in this order.
const SPACING: Duration = Duration::from_millis(60);

//! Checks of invalidations and expiries.

use super::subject::{LONG, StoreSubject};
use crate::StoreExt as _;
use crate::suite::{Checked, ensure};
use bellwether::Lifetimes;
use bellwether::store::{Renew, Settled};

pub(super) async fn an_invalidation_removes_the_entry(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(LONG).stale_while_revalidate(LONG)).await?;
    on.store.invalidate(on.key()).await?;
    on.ensure_text(None).await
}

pub(super) async fn an_invalidation_tells_whether_there_was_an_entry(on: StoreSubject) -> Checked {
    ensure!(!on.store.invalidate(on.key()).await?, "it told of an entry that was never there");
    ensure!(!on.store.expire(on.key()).await?, "expiring told of an entry that was never there");
    on.store_one("value", Lifetimes::fresh_for(LONG).stale_while_revalidate(LONG)).await?;
    ensure!(on.store.expire(on.key()).await?, "expiring did not tell of the entry");
    ensure!(on.store.invalidate(on.key()).await?, "it did not tell of the stale entry");
    ensure!(!on.store.invalidate(on.key()).await?, "it told of an entry twice");
    Ok(())
}

pub(super) async fn an_invalidation_ends_the_lease(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.store.invalidate(on.key()).await?;
    let renewed = on.store.renew(&lease, LONG).await?;
    ensure!(renewed == Renew::Lost, "it could still be renewed");
    on.lead(LONG).await.map(drop)
}

pub(super) async fn an_invalidation_refuses_loads_that_began_before_it(
    on: StoreSubject,
) -> Checked {
    let lease = on.lead(LONG).await?;
    on.store.invalidate(on.key()).await?;
    let commit = on.commit(lease, "old").await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    on.ensure_text(None).await
}

pub(super) async fn an_invalidation_refuses_lapsed_loads_too(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    on.store.invalidate(on.key()).await?;
    let theirs = on.lead(LONG).await?;
    let commit = on.commit(lapsed, "old").await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    on.ensure_text(None).await?;
    ensure!(on.commit(theirs, "new").await? == Settled::Done, "the next one was not stored");
    Ok(())
}

pub(super) async fn a_load_after_an_invalidation_is_stored(on: StoreSubject) -> Checked {
    on.store.invalidate(on.key()).await?;
    on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    on.ensure_text(Some("value")).await
}

pub(super) async fn expiring_keeps_the_entry_as_stale(on: StoreSubject) -> Checked {
    let first =
        on.store_one("value", Lifetimes::fresh_for(LONG).stale_while_revalidate(LONG)).await?;
    on.store.expire(on.key()).await?;
    let found = on.lookup().await?;
    ensure!(found.is_some_and(|entry| !entry.is_fresh()), "it is not there as stale");
    let lease = on.lead(LONG).await?;
    ensure!(lease.fence > first, "the next fence is not above the entry's");
    ensure!(on.commit(lease, "next").await? == Settled::Done, "it could not be replaced");
    on.ensure_text(Some("next")).await
}

pub(super) async fn what_is_kept_for_validation_is_found_and_not_given_out(
    on: StoreSubject,
) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(LONG).kept_for_validation(LONG)).await?;
    on.store.expire(on.key()).await?;
    let found = on.lookup().await?;
    ensure!(found.is_some(), "it is not there to be validated");
    let given = found.is_some_and(|it| it.serves_while_revalidating() || it.serves_if_error());
    ensure!(!given, "it would be given out");
    on.lead(LONG).await.map(drop)
}

pub(super) async fn expiring_removes_what_has_no_stale_window(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    on.store.expire(on.key()).await?;
    on.ensure_text(None).await
}

pub(super) async fn expiring_refuses_loads_that_began_before_it(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    on.store.expire(on.key()).await?;
    let commit = on.commit(lease, "old").await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    on.ensure_text(None).await
}

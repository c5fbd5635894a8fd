//! Checks of entries: what a lookup finds after a commit.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::subject::{CODEC, LONG, MEDIUM, SHORT, StoreSubject};
use crate::StoreExt as _;
use crate::suite::{Checked, Deviation, ensure};
use bellwether::Lifetimes;
use bellwether::store::{Accept, Acquire, Claim, Draft, Settled, Value};

pub(super) async fn nothing_is_found_where_nothing_was_stored(on: StoreSubject) -> Checked {
    on.ensure_text(None).await
}

pub(super) async fn what_was_committed_is_found(on: StoreSubject) -> Checked {
    let lease = on.lead(LONG).await?;
    let fence = lease.fence;
    let lifetimes = Lifetimes::fresh_for(LONG).stale_while_revalidate(SHORT);
    let value = Value::new(Bytes::from_static(b"\0value\xff"));
    let draft = Draft::new(value, CODEC, lifetimes).timed(SHORT, Duration::ZERO);
    ensure!(on.store.commit(lease, draft).await? == Settled::Done, "it was not stored");
    let Some(entry) = on.lookup().await? else {
        return Err(Deviation::new("it was not found"));
    };
    ensure!(entry.value().encoded() == &b"\0value\xff"[..], "its bytes have changed");
    ensure!(entry.codec() == CODEC, "its codec is {}", entry.codec());
    ensure!(entry.fence() == fence, "its fence is {}, not {fence}", entry.fence());
    ensure!(entry.lifetimes() == lifetimes, "its lifetimes are {:?}", entry.lifetimes());
    ensure!(entry.load_time() == SHORT, "its load time is {:?}", entry.load_time());
    ensure!(entry.is_fresh(), "it is not fresh");
    Ok(())
}

pub(super) async fn hostile_keys_do_not_collide(on: StoreSubject) -> Checked {
    let texts = ["", "}", "{x}", "{", "a:lease", "\0", "\r\n*1\r\n", "a", "a:", "ä"];
    for (position, text) in texts.iter().enumerate() {
        let claim = Claim::new(on.key().with(*text));
        let acquired = on.store.acquire(claim, LONG, Accept::Fresh).await?;
        let Acquire::Lead { lease, .. } = acquired else {
            return Err(Deviation::new(format!("{text:?} is taken for another key")));
        };
        let value = Value::new(Bytes::copy_from_slice(&[position as u8]));
        on.store.commit(lease, Draft::new(value, CODEC, Lifetimes::fresh_for(LONG))).await?;
    }
    for (position, text) in texts.iter().enumerate() {
        let entry = on.store.find(on.key().with(*text)).await?;
        let is_its_own = entry.is_some_and(|at| at.value().encoded()[..] == [position as u8]);
        ensure!(is_its_own, "{text:?} does not have its own value");
    }
    Ok(())
}

pub(super) async fn an_acquire_finds_what_was_stored(on: StoreSubject) -> Checked {
    let fence = on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    match on.acquire(&on.claim(), LONG).await? {
        Acquire::Found(entry) if entry.fence() == fence && entry.is_fresh() => Ok(()),
        other => Err(Deviation::new(format!("gave {other:?} instead of the entry"))),
    }
}

pub(super) async fn a_fresh_entry_can_be_declined(on: StoreSubject) -> Checked {
    let first = on.store_one("first", Lifetimes::fresh_for(LONG)).await?;
    let lease = on.lead_unless(LONG, Accept::Nothing).await?;
    ensure!(lease.fence > first, "the next fence is not above the entry's");
    on.ensure_text(Some("first")).await?;
    ensure!(on.commit(lease, "second").await? == Settled::Done, "it was not replaced");
    on.ensure_text(Some("second")).await
}

pub(super) async fn an_entry_can_be_declined_by_its_fence(on: StoreSubject) -> Checked {
    let than = on.store_one("first", Lifetimes::fresh_for(LONG)).await?;
    let lease = on.lead_unless(LONG, Accept::Other { than }).await?;
    ensure!(on.commit(lease, "second").await? == Settled::Done, "it was not replaced");
    match on.store.acquire(on.claim(), LONG, Accept::Other { than }).await? {
        Acquire::Found(entry) if entry.fence() != than => Ok(()),
        other => Err(Deviation::new(format!("gave {other:?} instead of the other entry"))),
    }
}

pub(super) async fn an_entry_without_a_life_is_not_kept(on: StoreSubject) -> Checked {
    let lifeless = Lifetimes::fresh_for(Duration::ZERO);
    on.store_one("value", lifeless).await?;
    on.ensure_text(None).await?;
    let lease = on.lead(LONG).await?;
    on.store.invalidate(on.key()).await?;
    let commit = on.commit_for(lease, "value", lifeless).await?;
    ensure!(commit == Settled::Superseded, "after an invalidation it was {commit:?}");
    Ok(())
}

pub(super) async fn an_entry_without_a_life_removes_what_was_there(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    let lease = on.lead_unless(LONG, Accept::Nothing).await?;
    let commit = on.commit_for(lease, "none", Lifetimes::fresh_for(Duration::ZERO)).await?;
    ensure!(commit == Settled::Done, "it was {commit:?}");
    on.ensure_text(None).await
}

pub(super) async fn a_waiter_is_given_what_is_there(on: StoreSubject) -> Checked {
    let fence = on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    let _lease = on.lead_unless(LONG, Accept::Nothing).await?;
    match on.store.acquire(on.claim(), LONG, Accept::Nothing).await? {
        Acquire::Busy { stale: Some(entry), .. } if entry.fence() == fence => Ok(()),
        other => Err(Deviation::new(format!("gave {other:?}, and the fresh entry not with it"))),
    }
}

pub(super) async fn an_entry_runs_out(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(MEDIUM)).await?;
    on.ensure_text(Some("value")).await?;
    sleep(MEDIUM * 3 / 2).await;
    on.ensure_text(None).await
}

pub(super) async fn an_entry_becomes_stale_and_then_runs_out(on: StoreSubject) -> Checked {
    on.store_one("value", Lifetimes::fresh_for(SHORT).stale_while_revalidate(MEDIUM * 2)).await?;
    sleep(SHORT * 3 / 2).await;
    let found = on.lookup().await?;
    ensure!(found.is_some_and(|entry| !entry.is_fresh()), "it is not there as stale");
    let Acquire::Lead { lease, stale: Some(_), .. } = on.acquire(&on.claim(), LONG).await? else {
        return Err(Deviation::new("the leader is not given the stale entry"));
    };
    let Acquire::Busy { stale: Some(_), .. } = on.acquire(&on.claim(), LONG).await? else {
        return Err(Deviation::new("a waiter is not given the stale entry"));
    };
    on.store.abandon(lease.claim).await?;
    sleep(MEDIUM * 2).await;
    on.ensure_text(None).await
}

pub(super) async fn what_was_put_outdates_loads_though_it_is_gone(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    let put = on.lead_unless(LONG, Accept::Nothing).await?;
    let draft = Draft::new(Value::new("newer".into()), CODEC, Lifetimes::fresh_for(SHORT));
    let stored = on.store.commit(put, draft.invalidating()).await?;
    ensure!(stored == Settled::Done, "the put was {stored:?}");
    sleep(2 * SHORT).await;
    let commit = on.commit(lapsed, "late").await?;
    ensure!(commit == Settled::Superseded, "the late commit was {commit:?}");
    Ok(())
}

pub(super) async fn a_lapsed_lease_stores_if_nothing_newer_came(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    let commit = on.commit(lapsed, "late").await?;
    ensure!(commit == Settled::Done, "it was {commit:?}");
    on.ensure_text(Some("late")).await
}

pub(super) async fn a_late_commit_does_not_end_the_lease_of_others(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    let theirs = on.lead(LONG).await?;
    let commit = on.commit(lapsed, "late").await?;
    ensure!(commit == Settled::Done, "the late commit was {commit:?}, though nothing is newer");
    ensure!(on.is_busy().await?, "it ended the lease of others");
    let commit = on.commit(theirs, "newer").await?;
    ensure!(commit == Settled::Done, "the commit of the holder was {commit:?}");
    on.ensure_text(Some("newer")).await
}

pub(super) async fn a_late_commit_does_not_replace_a_newer_entry(on: StoreSubject) -> Checked {
    let lapsed = on.lapsed().await?;
    on.store_one("newer", Lifetimes::fresh_for(LONG)).await?;
    let commit = on.commit(lapsed, "late").await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    on.ensure_text(Some("newer")).await
}

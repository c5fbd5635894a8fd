//! What an `OutageStore` does at each verb, by hand.

use bellwether::store::{
    Accept, Acquire, Claim, Draft, Lease, OutageStore, Peek, Renew, Settled, Store, StoreErrorKind,
    Value,
};
use bellwether::{Lifetimes, MemoryStore, StoreError};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{MINUTE, SECOND, commit, key, lease, put};
use futures_util::poll;
use tokio::time::sleep;

use super::{TTL, down, primary};
use crate::support::store::{Faulty, Operation, remote};

async fn found(store: &impl Store) -> Option<String> {
    let found = store.find(key(1)).await.expect("an answer")?;
    Some(String::from_utf8_lossy(found.value().encoded()).into_owned())
}

async fn leads(store: &impl Store) -> Lease {
    lease(store, 1, MINUTE).await
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_the_store_says_why_and_keeps_a_value_for_a_short_time() {
    let (_, store) = down();
    let lease = leads(&store).await;
    let why = lease.outage.as_ref().map(StoreError::kind);
    assert_eq!(why, Some(StoreErrorKind::Unreachable));
    assert_eq!(store.renew(&lease, MINUTE).await.unwrap(), Renew::Held);
    let draft = Draft::new(Value::new("1".into()), 1, Lifetimes::fresh_for(MINUTE));
    assert_eq!(store.commit(lease, draft).await.unwrap(), Settled::Done);
    let entry = store.find(key(1)).await.unwrap().unwrap();
    assert_eq!(entry.fresh_for(), Some(TTL));
    sleep(TTL).await;
    assert_eq!(found(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_the_primary_is_renewed_and_settled_there_only() {
    let (primary, store) = primary();
    let lease = leads(&store).await;
    assert!(lease.outage.is_none());
    primary.on_any().fail(StoreErrorKind::Unreachable);
    assert!(store.renew(&lease, MINUTE).await.is_err());
    let draft = Draft::new(Value::new("1".into()), 1, Lifetimes::fresh_for(MINUTE));
    assert!(store.commit(lease, draft).await.is_err());
    assert_eq!(found(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_without_the_store_does_not_ask_it() {
    let (primary, store) = down();
    let given_up = leads(&store).await;
    primary.heal();
    primary.on_any().hang();
    let mut abandoned = store.abandon(given_up.claim);
    assert!(poll!(&mut abandoned).is_ready());
    let (commits, asked) = (primary.calls(Operation::Commit), primary.calls(Operation::Abandon));
    assert_eq!((commits, asked), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_the_primary_may_have_granted_is_abandoned_there() {
    let (primary, store) = primary();
    let lease = leads(&store).await;
    store.abandon(lease.claim).await.unwrap();
    assert_eq!(primary.calls(Operation::Abandon), 1);
}

/// Loads a first value without the primary, and then has it back.
async fn with_a_local_entry() -> (Faulty, OutageStore<Faulty>) {
    let (primary, store) = down();
    let lease = leads(&store).await;
    commit(&store, lease, "local").await;
    primary.heal();
    (primary, store)
}

fn fail(primary: &Faulty) {
    primary.on_any().fail(StoreErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_the_primary_ends_the_local_one_for_good() {
    let (primary, store) = with_a_local_entry().await;
    put(primary.inner(), 1, "shared", 1).await;
    assert_eq!(found(&store).await.as_deref(), Some("shared"));
    fail(&primary);
    assert_eq!(found(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_the_primary_ends_the_local_entry_for_good() {
    let (primary, store) = with_a_local_entry().await;
    // Not as soon as the outage, when the primary is not asked.
    assert_eq!(found(&store).await, None);
    assert!(leads(&store).await.outage.is_none());
    fail(&primary);
    assert_eq!(found(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_finds_nothing_ends_no_local_entry() {
    let (primary, store) = with_a_local_entry().await;
    assert_eq!(found(&store).await, None, "its answer counts");
    fail(&primary);
    assert_eq!(found(&store).await.as_deref(), Some("local"));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_without_the_primary_ends_with_its_first_answer() {
    let (primary, store) = down();
    let begun = leads(&store).await;
    primary.heal();
    put(primary.inner(), 1, "newer", 1).await;
    assert_eq!(found(&store).await.as_deref(), Some("newer"));
    assert_eq!(commit(&store, begun, "older").await, Settled::Superseded);
    fail(&primary);
    assert_eq!(found(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_before_the_memory_was_freed_is_not_kept() {
    let (primary, store) = down();
    let begun = leads(&store).await;
    primary.heal();
    sleep(TTL * 3).await;
    assert_eq!(found(&store).await, None);
    put(primary.inner(), 1, "newer", 1).await;
    assert_eq!(found(&store).await.as_deref(), Some("newer"));
    assert_eq!(commit(&store, begun, "older").await, Settled::Superseded);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_requested_while_the_primary_comes_back_is_granted_by_one_of_them() {
    let (primary, store) = primary();
    let gate = primary.on(Operation::Acquire).nth(1).hold();
    primary.on(Operation::Acquire).nth(1).fail(StoreErrorKind::TimedOut);
    let late = tokio::spawn(store.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh));
    gate.reached().await;
    put(primary.inner(), 1, "shared", 1).await;
    assert_eq!(found(&store).await.as_deref(), Some("shared"));
    gate.open();
    // It loads what is no older than that entry.
    let Ok(Acquire::Lead { lease, .. }) = late.await.unwrap() else { panic!("no lease") };
    assert_eq!(commit(&store, lease, "later").await, Settled::Done);
    assert_eq!(found(&store).await.as_deref(), Some("shared"), "the primary's answer counts");
    fail(&primary);
    assert_eq!(found(&store).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_reports_the_changes_of_either_store() {
    let (primary, store) = primary();
    let mut watch = store.watch(&key(1));
    primary.inner().invalidate(key(1)).await.unwrap();
    assert!(watch.has_changed());
    watch.changed().await;
    fail(&primary);
    let lease = leads(&store).await;
    let claim = lease.claim.clone();
    assert!(!watch.has_changed());
    commit(&store, lease, "local").await;
    watch.changed().await;
    assert!(!watch.has_changed());
    store.abandon(claim).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_left_is_given_where_the_memory_has_none() {
    let primary = remote(&MemoryStore::new(10));
    fail(&primary);
    let kept = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE).stale_if_error(MINUTE);
    let copy = Draft::new(Value::new("1".into()), 1, kept);
    let copy = copy.into_entry(1, 0, Some(kept.life()), Vec::new());
    let store = OutageStore::with_copies(primary, TTL, move |_| copy.clone().unwatched(SECOND));
    let stale = store.find(key(1)).await.unwrap().expect("the copy");
    assert!(stale.serves_if_error() && !stale.serves_while_revalidating());
    assert_eq!(stale.stale_for(), Some(SECOND));
    let led = store.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await;
    let Ok(Acquire::Lead { stale: Some(_), .. }) = led else { panic!("{led:?}") };
    let busy = store.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await;
    let Ok(Acquire::Busy { stale: Some(_), .. }) = busy else { panic!("{busy:?}") };
    assert!(matches!(store.peek(&key(1)), Peek::Unknown), "it is stale");
}

#[tokio::test(start_paused = true)]
async fn what_says_where_answers_are_keeps_its_ttl_without_the_store() {
    let (_, store) = down();
    let lifetimes = Lifetimes::fresh_for(MINUTE).fresh_in_outages();
    let draft = Draft::new(Value::new("1".into()), 1, lifetimes);
    assert_eq!(store.commit(leads(&store).await, draft).await.unwrap(), Settled::Done);
    sleep(MINUTE - SECOND).await;
    assert_eq!(store.find(key(1)).await.unwrap().unwrap().fresh_for(), Some(SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_fresh_in_outages_needs_no_lease() {
    let primary = remote(&MemoryStore::new(10));
    fail(&primary);
    let lifetimes = Lifetimes::fresh_for(MINUTE).fresh_in_outages();
    let copy = Draft::new(Value::new("1".into()), 1, lifetimes);
    let copy = copy.into_entry(1, 0, Some(MINUTE), Vec::new());
    let store = OutageStore::with_copies(primary, TTL, move |_| Some(copy.clone()));
    for _ in 0..2 {
        let asked = store.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await;
        assert!(matches!(asked, Ok(Acquire::Found(_))), "{asked:?}");
    }
    let asked = store.acquire(Claim::new(key(1)), MINUTE, Accept::Nothing).await;
    assert!(matches!(asked, Ok(Acquire::Lead { .. })), "{asked:?}");
}

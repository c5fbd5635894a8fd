//! A store with leases of two systems.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, Commit, Draft, Lease, Renew, Store, Value, conformance,
};
use bellwether::{Lifetimes, MemoryStore, ReadThroughLayer, StoreErrorKind};
use bellwether_lock::{Attempt, Guarded, LocalLock, Lock, LockErrorKind, Request};
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{LEASE, MS, Operation, SECOND, Scripted, is_held, key, seize};

fn guarded() -> (MemoryStore, LocalLock, Guarded<MemoryStore, LocalLock>) {
    let store = MemoryStore::new(10_000);
    let lock = LocalLock::new();
    (store.clone(), lock.clone(), Guarded::new(store, lock))
}

async fn acquire(store: &impl Store) -> Acquire {
    store.acquire(Claim::new(key()), LEASE, Accept::Fresh).await.expect("an answer")
}

async fn lead(store: &impl Store) -> Lease {
    match acquire(store).await {
        Acquire::Lead { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

async fn commit(store: &impl Store, lease: Lease, text: &'static str) -> Commit {
    let value = Value::new(Bytes::from_static(text.as_bytes()));
    let draft = Draft::new(value, 1, Lifetimes::fresh_for(SECOND * 600));
    store.commit(lease, draft).await.expect("an answer")
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_of_a_store() {
    let (_, lock, store) = guarded();
    assert_eq!(conformance::run(store.clone()).await, []);
    // The lease that was left to lapse counts, too.
    sleep(SECOND * 61).await;
    assert_eq!((store.leases(), lock.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_with_a_session_lock_without_messages() {
    let (lock, _session) = Scripted::by_session();
    let store = Guarded::new(MemoryStore::new(10_000), lock.clone());
    assert_eq!(conformance::run(store).await, []);
    let silent = Guarded::new(MemoryStore::new(10_000), Scripted::without_messages());
    assert_eq!(conformance::run(silent).await, []);
}

/// A failover that lost an acknowledged lease.
#[tokio::test(start_paused = true)]
async fn no_process_leads_while_the_lock_is_held_although_the_store_has_forgotten_its_lease() {
    let (store, _, guarded) = guarded();
    let lease = lead(&guarded).await;
    store.abandon(lease.into_claim()).await.unwrap();
    assert!(matches!(acquire(&guarded).await, Acquire::Busy { .. }));
}

#[tokio::test(start_paused = true)]
async fn no_process_leads_while_the_store_knows_a_lease_although_the_lock_was_lost() {
    let (_, lock, guarded) = guarded();
    let lease = lead(&guarded).await;
    lock.release(lease.into_claim()).await.unwrap();
    assert!(matches!(acquire(&guarded).await, Acquire::Busy { .. }));
    assert!(lock.is_empty(), "a process that does not lead has released the lock");
}

#[tokio::test(start_paused = true)]
async fn a_late_writer_that_lost_both_is_refused_by_the_stored_fence() {
    let (store, lock, guarded) = guarded();
    let other = Guarded::new(store.clone(), lock);
    let late = lead(&guarded).await;
    sleep(LEASE * 2).await;
    let next = lead(&other).await;
    assert!(next.fence() > late.fence());
    assert_eq!(commit(&other, next, "new").await, Commit::Stored);
    assert_eq!(commit(&guarded, late, "old").await, Commit::Superseded);
    let entry = store.lookup(key()).await.unwrap().unwrap();
    assert_eq!(entry.value().encoded().as_ref(), b"new");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_lost_with_either_half_and_the_other_is_given_up() {
    let (store, lock, guarded) = guarded();
    let lease = lead(&guarded).await;
    lock.release(lease.claim().clone()).await.unwrap();
    assert_eq!(guarded.renew(&lease, lease.term()).await.unwrap(), Renew::Lost);
    let lease = lead(&guarded).await;
    store.abandon(lease.claim().clone()).await.unwrap();
    assert_eq!(guarded.renew(&lease, lease.term()).await.unwrap(), Renew::Lost);
    assert!(lock.is_empty());
    drop(lead(&guarded).await);
}

/// One guarantee is weaker than that of one store: an invalidation of another process takes effect
/// by the next renewal.
#[tokio::test(start_paused = true)]
async fn an_invalidation_by_another_process_ends_the_lock_with_the_next_renewal_and_refuses_at_once()
 {
    let (store, lock, guarded) = guarded();
    let other = Guarded::new(store, lock);
    let lease = lead(&guarded).await;
    other.invalidate(key()).await.unwrap();
    assert!(matches!(acquire(&other).await, Acquire::Busy { .. }));
    assert_eq!(guarded.renew(&lease, lease.term()).await.unwrap(), Renew::Lost);
    let next = lead(&other).await;
    assert_eq!(commit(&guarded, lease, "old").await, Commit::Superseded);
    assert_eq!(commit(&other, next, "new").await, Commit::Stored);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_finds_the_lock_taken_is_given_the_stored_entry() {
    let (store, lock, guarded) = guarded();
    let lease = lead(&guarded).await;
    assert_eq!(commit(&guarded, lease, "value").await, Commit::Stored);
    let request = Request::new(Claim::new(key()), SECOND * 60);
    let Attempt::Granted(_) = lock.acquire(request).await.unwrap() else { panic!("busy") };
    assert!(matches!(acquire(&guarded).await, Acquire::Found(_)));
    let nothing = store.acquire(Claim::new(key()), LEASE, Accept::Nothing);
    assert!(matches!(nothing.await.unwrap(), Acquire::Lead { stale: Some(_), .. }));
    let busy = guarded.acquire(Claim::new(key()), LEASE, Accept::Nothing).await.unwrap();
    assert!(matches!(busy, Acquire::Busy { stale: Some(_), .. }), "{busy:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_fails_is_an_error_and_leaves_no_lease() {
    let lock = Scripted::default();
    let store = MemoryStore::new(10);
    let guarded = Guarded::new(store.clone(), lock.clone());
    lock.fail(Operation::Acquire, LockErrorKind::Unreachable, 1);
    let claim = Claim::new(key());
    let error = guarded.acquire(claim, LEASE, Accept::Fresh).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    drop(lead(&store).await);
}

/// A lock by sessions would keep it as long as the process lives.
#[tokio::test(start_paused = true)]
async fn a_silent_leader_loses_a_session_lock_with_its_lease() {
    let (lock, _session) = Scripted::by_session();
    // What is underneath would not end it.
    let guarded = Guarded::new(MemoryStore::new(10), lock.clone());
    let lease = lead(&guarded).await;
    for _ in 0..5 {
        sleep(LEASE / 2).await;
        assert_eq!(guarded.renew(&lease, lease.term()).await.unwrap(), Renew::Held);
    }
    assert_eq!(lock.asked(Operation::Release), 0);
    sleep(LEASE + MS).await;
    assert_eq!((lock.asked(Operation::Release), guarded.leases()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_dropped_gives_up_the_lock() {
    let lock = Scripted::default();
    lock.delay(Operation::Release, MS * 50, Duration::ZERO);
    let guarded = Guarded::new(MemoryStore::new(10), lock.clone());
    let lease = lead(&guarded).await;
    assert!(timeout(MS * 10, commit(&guarded, lease, "value")).await.is_err());
    sleep(MS * 50).await;
    assert!(!is_held(&lock.lock, &key()).await);
}

#[tokio::test(start_paused = true)]
async fn its_watch_reports_changes_of_the_store_and_of_the_lock() {
    let (store, lock, guarded) = guarded();
    let mut watch = guarded.watch(&key());
    store.invalidate(key()).await.unwrap();
    timeout(SECOND, watch.changed()).await.unwrap();
    let claim = seize(&lock, &key(), SECOND).await;
    lock.release(claim).await.unwrap();
    timeout(SECOND, watch.changed()).await.unwrap();
    assert!(timeout(SECOND, watch.changed()).await.is_err());
}

/// The whole way: two processes over one store and one lock.
#[tokio::test(start_paused = true)]
async fn a_hundred_callers_in_two_processes_cause_one_load_and_leave_no_lock() {
    let (store, lock, _) = guarded();
    let loads = Arc::new(AtomicUsize::new(0));
    let process = || {
        let loads = Arc::clone(&loads);
        let store = Guarded::new(store.clone(), lock.clone());
        ReadThroughLayer::new(store, |_: &u64| key()).ttl(SECOND * 60).layer(service_fn(
            move |sku: u64| {
                loads.fetch_add(1, Ordering::SeqCst);
                async move {
                    sleep(SECOND).await;
                    Ok::<_, Infallible>(sku)
                }
            },
        ))
    };
    let fleet = [process(), process()];
    let calls = (0..100).map(|number| fleet[number % 2].clone().oneshot(42));
    let answers = join_all(calls).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == 42));
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    assert!(lock.is_empty());
}

//! `LocalLock` keeps the contract, and the conformance suite detects a lock that does not.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Claim, Renew, Watch};
use bellwether_lock::{
    Attempt, Busy, Fenced, Grant, Holder, LocalLock, Lock, LockFuture, Released, Request, TakeOver,
    conformance::Conformance,
};

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract() {
    let lock = LocalLock::new();
    assert_eq!(Conformance::of(lock).fenced().exclusive().take_over().run().await, []);
}

#[tokio::test]
async fn it_keeps_the_contract_by_a_clock_that_runs() {
    assert_eq!(Conformance::of(LocalLock::new()).run().await, []);
}

#[tokio::test]
async fn a_holder_paused_for_its_lease_knows_of_the_loss() {
    let term = Duration::from_millis(100);
    assert_eq!(Conformance::of(LocalLock::new()).run_standing_still(term).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_shared_lock_is_a_lock() {
    let shared = Arc::new(LocalLock::new());
    assert_eq!(Conformance::of(shared).fenced().take_over().run().await, []);
    let any: Arc<dyn Lock> = Arc::new(LocalLock::new());
    assert_eq!(Conformance::of(any).run().await, []);
}

#[tokio::test(start_paused = true)]
async fn it_has_no_queue_and_is_found_out() {
    let violations = Conformance::of(LocalLock::new()).queue().run().await;
    assert!(violations.iter().any(|it| it.check == "a_try_overtakes_no_waiter"), "{violations:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_leaves_nothing_when_its_lease_has_ended() {
    let lock = LocalLock::new();
    for item in 0..1_000 {
        let claim = Claim::new(Key::of("item").with(item));
        lock.acquire(Request::new(claim, Duration::from_secs(item % 7))).await.unwrap();
    }
    tokio::time::advance(Duration::from_secs(8)).await;
    assert_eq!(lock.len(), 0);
}

/// A promise that is not kept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Promise {
    AcquireExcludes,
    AcquireKnowsItsClaim,
    FencesGrow,
    GrantsHaveFences,
    ReleaseFrees,
    ReleaseIsOfItsClaim,
    ReleaseTellsNotHeld,
    RenewProlongs,
    RenewTellsLost,
    TakeOverIsOfItsHolder,
    TriesAreShort,
    WatchesItsKey,
}

/// A lock that breaks one.
#[derive(Clone, Debug)]
struct Broken {
    lock: LocalLock,
    promise: Promise,
}

impl Broken {
    fn breaks(&self, promise: Promise) -> bool {
        self.promise == promise
    }
}

impl Lock for Broken {
    fn watch(&self, key: &Key) -> Watch {
        let other = key.clone().with("other");
        self.lock.watch(if self.breaks(Promise::WatchesItsKey) { &other } else { key })
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let this = self.clone();
        Box::pin(async move {
            if this.breaks(Promise::AcquireExcludes) {
                return Ok(Attempt::Granted(Grant::by_lease()));
            }
            if this.breaks(Promise::TriesAreShort) {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            let renewed = this.lock.renew(&request.claim, request.lease).await?;
            if this.breaks(Promise::AcquireKnowsItsClaim) && renewed == Renew::Held {
                return Ok(Attempt::Busy(Busy::new()));
            }
            let attempt = this.lock.acquire(request).await?;
            Ok(match attempt {
                Attempt::Granted(_) if this.breaks(Promise::GrantsHaveFences) => {
                    Attempt::Granted(Grant::by_lease())
                }
                Attempt::Granted(grant) if this.breaks(Promise::FencesGrow) => {
                    Attempt::Granted(grant.fenced(7))
                }
                other => other,
            })
        })
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        if self.breaks(Promise::RenewProlongs) {
            return Box::pin(async { Ok(Renew::Held) });
        }
        let renewed = self.lock.renew(claim, lease);
        let lies = self.breaks(Promise::RenewTellsLost);
        Box::pin(async move { Ok(if lies { Renew::Held } else { renewed.await? }) })
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        let this = self.clone();
        Box::pin(async move {
            if this.breaks(Promise::ReleaseFrees) {
                return Ok(Released::Freed);
            }
            if this.breaks(Promise::ReleaseIsOfItsClaim) {
                let stranger = Claim::new(claim.key().clone());
                let request = Request::new(stranger.clone(), Duration::from_secs(1));
                if let Attempt::Busy(busy) = this.lock.acquire(request.clone()).await? {
                    this.lock.take_over(request, busy.holder.expect("a holder")).await?;
                }
                return this.lock.release(stranger).await;
            }
            let released = this.lock.release(claim).await?;
            let lies = this.breaks(Promise::ReleaseTellsNotHeld);
            Ok(if lies { Released::Freed } else { released })
        })
    }
}

impl Fenced for Broken {}

impl TakeOver for Broken {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        let this = self.clone();
        Box::pin(async move {
            let attempt = this.lock.take_over(request.clone(), from).await?;
            match attempt {
                Attempt::Busy(busy) if this.breaks(Promise::TakeOverIsOfItsHolder) => {
                    this.lock.take_over(request, busy.holder.expect("a holder")).await
                }
                other => Ok(other),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_breaks_a_promise_is_found_out() {
    let table = [
        (Promise::AcquireExcludes, "an_unprotected_counter_is_exact"),
        (Promise::AcquireExcludes, "one_of_many_concurrent_requests_is_granted"),
        (Promise::AcquireKnowsItsClaim, "the_same_claim_is_granted_again"),
        (Promise::FencesGrow, "fences_grow_over_releases"),
        (Promise::GrantsHaveFences, "every_grant_has_a_fence"),
        (Promise::ReleaseFrees, "a_key_is_locked_and_unlocked_twice_in_a_row"),
        (Promise::ReleaseIsOfItsClaim, "another_claim_cannot_release"),
        (Promise::ReleaseTellsNotHeld, "a_second_release_frees_nothing"),
        (Promise::RenewProlongs, "a_renewed_lock_does_not_lapse"),
        (Promise::RenewTellsLost, "a_lapsed_lease_is_not_renewed"),
        (Promise::TakeOverIsOfItsHolder, "one_of_many_take_overs_from_a_silent_holder_wins"),
        (Promise::TriesAreShort, "a_second_try_is_busy_at_once"),
        (Promise::WatchesItsKey, "a_release_after_the_busy_answer_is_reported"),
    ];
    for (promise, check) in table {
        let broken = Broken { lock: LocalLock::new(), promise };
        let violations = Conformance::of(broken).fenced().take_over().run().await;
        assert!(violations.iter().any(|found| found.check == check), "{promise:?}: {violations:?}");
    }
}

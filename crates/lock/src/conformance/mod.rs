//! The [contract](super) as checks that any lock can be put to.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use bellwether_lock::{LocalLock, conformance};
//!
//! let lock = LocalLock::new();
//! let mut violations = conformance::run(lock.clone()).await;
//! violations.extend(conformance::run_fenced(lock.clone()).await);
//! violations.extend(conformance::run_take_over(lock).await);
//! assert!(violations.is_empty(), "{violations:#?}");
//! # }
//! ```
//!
//! [`run`] is for every lock, and what a lock can do beyond that has checks of its own:
//! [`run_fenced`], [`run_reentrant`], [`run_exclusive`], [`run_take_over`] and [`run_queue`].
//! [`run_standing_still`] is for every lock, too, and blocks its thread.
//!
//! The checks use keys of their own, so they can run on a lock that is in use. Eight run at once,
//! and together they take a few seconds of the lock's time, since some things have to run out. What
//! is about the end of a lease does not apply to a lock by sessions, and is passed by it.

mod exclusion;
mod fencing;
mod lapsing;
mod queueing;
mod reentry;
mod release;
mod reuse;
mod standing_still;
mod subject;
mod taking_over;

use std::sync::Arc;
use std::time::Duration;

use self::subject::{LockSubject, SHORT};
use super::{Fenced, Lock, Reentrant, TakeOver};
use bellwether::conformance::{Check, Violation, checks, run_checks};

/// Puts a lock to the checks that are for every lock, and says which it did not pass.
pub async fn run(lock: impl Lock) -> Vec<Violation> {
    put_to(COMMON, Arc::new(lock), None).await
}

/// Puts a lock to those for locks with fences.
pub async fn run_fenced(lock: impl Fenced) -> Vec<Violation> {
    put_to(FENCED, Arc::new(lock), None).await
}

/// Puts a lock to those for locks that their owner may take again.
pub async fn run_reentrant(lock: impl Reentrant) -> Vec<Violation> {
    put_to(REENTRANT, Arc::new(lock), None).await
}

/// Puts a lock to those for locks that their owner may **not** take again: all others.
pub async fn run_exclusive(lock: impl Lock) -> Vec<Violation> {
    put_to(EXCLUSIVE, Arc::new(lock), None).await
}

/// Puts a lock to those for locks that can be taken from a holder that is silent.
pub async fn run_take_over(lock: impl TakeOver) -> Vec<Violation> {
    let lock = Arc::new(lock);
    put_to(TAKE_OVER, Arc::clone(&lock) as Arc<dyn Lock>, Some(lock)).await
}

/// Puts a lock to those for locks with a queue: first come, first served.
pub async fn run_queue(lock: impl Lock) -> Vec<Violation> {
    put_to(QUEUE, Arc::new(lock), None).await
}

/// Puts a lock to those about a process that stood still for longer than the lease or the session
/// lasts: its thread is blocked for so long, several times. The term is the time-out of the session,
/// or for a lock by leases any lease from 100 ms.
///
/// Call it in a runtime of one thread with a clock that is not paused: another thread would go on
/// renewing.
pub async fn run_standing_still(lock: impl Lock, term: Duration) -> Vec<Violation> {
    put_to_for(STANDING_STILL, Arc::new(lock), None, term, 1).await
}

/// The names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    let groups = [COMMON, FENCED, REENTRANT, EXCLUSIVE, TAKE_OVER, QUEUE, STANDING_STILL];
    groups.into_iter().flatten().map(|(check, _)| *check)
}

async fn put_to(
    checks: Checks,
    lock: Arc<dyn Lock>,
    take_over: Option<Arc<dyn TakeOver>>,
) -> Vec<Violation> {
    // Not all at once: a lock may need a connection for each key that is held or waited for.
    put_to_for(checks, lock, take_over, SHORT, 8).await
}

async fn put_to_for(
    checks: Checks,
    lock: Arc<dyn Lock>,
    take_over: Option<Arc<dyn TakeOver>>,
    term: Duration,
    at_once: usize,
) -> Vec<Violation> {
    let subject = |trial| {
        let (lock, take_over) = (Arc::clone(&lock), take_over.clone());
        Arc::new(LockSubject { lock, take_over, trial, term })
    };
    run_checks(checks, at_once, subject).await
}

type Checks = &'static [(&'static str, Check<Arc<LockSubject>>)];

const COMMON: Checks = checks![
    exclusion::a_key_is_locked_and_unlocked_twice_in_a_row,
    exclusion::a_second_try_is_busy_at_once,
    exclusion::two_names_are_independent,
    exclusion::hostile_names_are_kept_apart,
    exclusion::of_many_who_ask_at_once_one_is_granted,
    exclusion::the_same_claim_is_granted_again,
    exclusion::an_unprotected_counter_is_exact,
    exclusion::a_try_leaves_nobody_waiting,
    release::a_stranger_cannot_release,
    release::a_release_of_what_was_never_granted_is_safe,
    release::a_second_release_frees_nobody,
    release::a_repeated_release_never_frees_the_next_holder,
    release::whoever_knows_the_claim_can_release,
    release::a_dropped_question_can_be_released,
    release::a_dropped_wait_can_be_released,
    release::who_stops_waiting_is_in_nobodys_way,
    release::a_release_after_the_busy_answer_is_told,
    release::who_watches_hears_of_every_hand_over,
    reuse::what_was_dropped_is_free_for_the_next_attempt_of_this_process,
    reuse::what_ran_under_it_has_released_it_when_it_returns,
    lapsing::a_lease_lapses,
    lapsing::a_waiter_gets_it_right_at_the_end_of_the_lease,
    lapsing::a_renewed_lock_does_not_lapse,
    lapsing::a_lapsed_lease_is_not_renewed,
    lapsing::nothing_is_renewed_after_a_release,
    lapsing::a_stranger_renews_nothing,
    lapsing::a_renewal_does_not_prolong_the_lease_of_others,
    lapsing::what_remains_of_the_lease_is_told,
    lapsing::the_release_of_a_lapsed_lease_is_not_held,
];

const FENCED: Checks = checks![
    fencing::every_grant_has_a_fence,
    fencing::fences_grow_over_releases,
    fencing::fences_grow_over_lapsed_leases,
    fencing::a_repeated_question_has_the_same_fence,
    fencing::renewing_keeps_the_fence,
];

const REENTRANT: Checks = checks![
    reentry::an_owner_takes_it_again_and_releases_as_often,
    reentry::a_claim_is_counted_once,
    reentry::another_owner_is_refused_until_the_last_release,
    reentry::the_release_of_a_claim_that_failed_leaves_the_hold,
    reentry::all_holds_of_an_owner_have_one_fence,
    reentry::an_outer_hold_is_released_before_an_inner_one,
    reentry::the_lease_lasts_as_long_as_the_longest_hold,
];

const EXCLUSIVE: Checks = checks![reentry::the_owner_is_refused_too];

const TAKE_OVER: Checks = checks![
    taking_over::of_many_who_take_it_from_a_silent_holder_one_wins,
    taking_over::it_is_not_taken_from_another_than_was_seen,
    taking_over::it_is_not_taken_from_who_has_renewed_it,
    taking_over::who_lost_it_is_told,
    taking_over::what_is_free_is_taken,
];

const QUEUE: Checks = checks![
    queueing::first_come_first_served,
    queueing::a_waiter_is_told_how_many_are_before_it,
    queueing::a_try_goes_before_nobody,
    queueing::who_leaves_the_queue_holds_up_nobody,
    queueing::a_try_takes_no_place,
];

const STANDING_STILL: Checks = checks![
    standing_still::a_holder_that_stood_still_for_its_term_knows_it_when_it_looks,
    standing_still::work_that_stood_still_for_the_term_of_its_lock_fails,
];

//! The [contract](super::Lock#the-contract) as checks for any lock.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use bellwether_lock::{LocalLock, conformance::Conformance};
//!
//! let violations = Conformance::of(LocalLock::new()).fenced().take_over().run().await;
//! assert!(violations.is_empty(), "{violations:#?}");
//! # }
//! ```
//!
//! The checks use keys of their own, so they can run on a lock that is in use. Eight run at once.
//! Together they take a few seconds, because leases have to end. Checks of the end of a lease do
//! not apply to a lock by sessions.

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
use bellwether_test::suite::{Check, Violation, checks, run_checks};

/// The checks for a lock: those for every lock, and those for what it offers.
#[derive(Debug)]
#[must_use = "it does nothing until it is run"]
pub struct Conformance<L> {
    lock: Arc<L>,
    take_over: Option<Arc<dyn TakeOver>>,
    groups: Vec<Checks>,
}

impl<L: Lock> Conformance<L> {
    /// The checks for every lock.
    pub fn of(lock: L) -> Self {
        Self { lock: Arc::new(lock), take_over: None, groups: vec![COMMON] }
    }

    fn with(mut self, checks: Checks) -> Self {
        self.groups.push(checks);
        self
    }

    /// And those for locks with fences.
    pub fn fenced(self) -> Self
    where
        L: Fenced,
    {
        self.with(FENCED)
    }

    /// And those for locks that their owner may take again.
    pub fn reentrant(self) -> Self
    where
        L: Reentrant,
    {
        self.with(REENTRANT)
    }

    /// And those for locks that their owner may **not** take again: all others.
    pub fn exclusive(self) -> Self {
        self.with(EXCLUSIVE)
    }

    /// And those for locks that can be taken over from a silent holder.
    pub fn take_over(mut self) -> Self
    where
        L: TakeOver,
    {
        self.take_over = Some(Arc::clone(&self.lock) as Arc<dyn TakeOver>);
        self.with(TAKE_OVER)
    }

    /// And those for locks with a queue: first come, first served.
    pub fn queue(self) -> Self {
        self.with(QUEUE)
    }

    /// Runs the checks. Returns the violations.
    pub async fn run(self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for checks in &self.groups {
            // Not all at once: a lock may need a connection for each key that is held or waited for.
            violations.extend(self.put_to(checks, SHORT, 8).await);
        }
        violations
    }

    /// Runs the checks for a process that stands still for longer than its lease or session, and no
    /// others. They block the thread for the term, several times. The term is the session timeout, or
    /// any lease from 100 ms for a lock by leases.
    ///
    /// Call it in a runtime of one thread, because another thread would go on renewing; and with a
    /// clock that is not paused.
    pub async fn run_standing_still(self, term: Duration) -> Vec<Violation> {
        self.put_to(STANDING_STILL, term, 1).await
    }

    async fn put_to(&self, checks: Checks, term: Duration, at_once: usize) -> Vec<Violation> {
        let subject = |trial| {
            let lock = Arc::clone(&self.lock) as Arc<dyn Lock>;
            Arc::new(LockSubject { lock, take_over: self.take_over.clone(), trial, term })
        };
        run_checks(checks, at_once, subject).await
    }
}

type Checks = &'static [(&'static str, Check<Arc<LockSubject>>)];

const COMMON: Checks = checks![
    exclusion::a_key_is_locked_and_unlocked_twice_in_a_row,
    exclusion::a_second_try_is_busy_at_once,
    exclusion::two_names_are_independent,
    exclusion::hostile_names_are_kept_apart,
    exclusion::one_of_many_concurrent_requests_is_granted,
    exclusion::the_same_claim_is_granted_again,
    exclusion::an_unprotected_counter_is_exact,
    exclusion::a_try_leaves_no_waiter,
    release::another_claim_cannot_release,
    release::a_release_of_what_was_never_granted_is_safe,
    release::a_second_release_frees_nothing,
    release::a_repeated_release_never_frees_the_next_holder,
    release::another_task_with_the_claim_can_release,
    release::a_dropped_request_can_be_released,
    release::a_dropped_wait_can_be_released,
    release::a_waiter_that_leaves_blocks_no_other,
    release::a_release_after_the_busy_answer_is_reported,
    release::a_watch_reports_every_hand_over,
    reuse::what_was_dropped_is_free_for_the_next_attempt_of_this_process,
    reuse::what_ran_under_it_has_released_it_when_it_returns,
    lapsing::a_lease_lapses,
    lapsing::a_waiter_gets_it_right_at_the_end_of_the_lease,
    lapsing::a_renewed_lock_does_not_lapse,
    lapsing::a_lapsed_lease_is_not_renewed,
    lapsing::nothing_is_renewed_after_a_release,
    lapsing::another_claim_renews_nothing,
    lapsing::a_renewal_does_not_prolong_the_lease_of_others,
    lapsing::what_remains_of_the_lease_is_told,
    lapsing::the_release_of_a_lapsed_lease_is_not_held,
];

const FENCED: Checks = checks![
    fencing::every_grant_has_a_fence,
    fencing::fences_grow_over_releases,
    fencing::fences_grow_over_lapsed_leases,
    fencing::a_repeated_request_has_the_same_fence,
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
    taking_over::one_of_many_take_overs_from_a_silent_holder_wins,
    taking_over::a_take_over_from_another_holder_than_was_seen_is_refused,
    taking_over::a_take_over_from_a_holder_that_has_renewed_is_refused,
    taking_over::a_holder_that_was_taken_over_is_told,
    taking_over::a_take_over_takes_a_free_key,
];

const QUEUE: Checks = checks![
    queueing::first_come_first_served,
    queueing::a_waiter_is_told_how_many_are_before_it,
    queueing::a_try_overtakes_no_waiter,
    queueing::a_waiter_that_leaves_the_queue_delays_no_other,
    queueing::a_try_takes_no_place_in_the_queue,
];

const STANDING_STILL: Checks = checks![
    standing_still::a_holder_that_stood_still_for_its_term_knows_it_when_it_looks,
    standing_still::work_that_stood_still_for_the_term_of_its_lock_fails,
];

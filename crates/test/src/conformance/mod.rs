//! The [contract](bellwether::store) as checks for any store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use bellwether::MemoryStore;
//! use bellwether_test::conformance;
//!
//! let violations = conformance::run(MemoryStore::new(10_000)).await;
//! assert!(violations.is_empty(), "{violations:#?}");
//! # }
//! ```
//!
//! The checks use keys of their own, so they can run on a store that is in use. All checks run
//! concurrently. They take about a second of the store's time, because they wait for expiries.

mod entries;
mod failures;
mod invalidations;
mod leases;
mod subject;
mod tags;

use std::sync::Arc;

use self::subject::StoreSubject;
use crate::suite::{Check, Violation, checks, run_checks};
use bellwether::store::Store;

/// Runs all checks on a store, and returns those that failed.
pub async fn run(store: impl Store) -> Vec<Violation> {
    let store: Arc<dyn Store> = Arc::new(store);
    let subject = |trial| StoreSubject { store: Arc::clone(&store), trial };
    run_checks(CHECKS, CHECKS.len(), subject).await
}

/// The names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(check, _)| *check)
}

const CHECKS: &[(&str, Check<StoreSubject>)] = checks![
    entries::nothing_is_found_where_nothing_was_stored,
    entries::what_was_committed_is_found,
    entries::hostile_keys_do_not_collide,
    entries::an_acquire_finds_what_was_stored,
    entries::a_fresh_entry_can_be_declined,
    entries::an_entry_can_be_declined_by_its_fence,
    entries::an_entry_without_a_life_is_not_kept,
    entries::an_entry_without_a_life_removes_what_was_there,
    entries::a_waiter_is_given_what_is_there,
    entries::an_entry_runs_out,
    entries::an_entry_becomes_stale_and_then_runs_out,
    entries::what_was_put_outdates_loads_though_it_is_gone,
    entries::a_lapsed_lease_stores_if_nothing_newer_came,
    entries::a_late_commit_does_not_end_the_lease_of_others,
    entries::a_late_commit_does_not_replace_a_newer_entry,
    failures::a_failure_is_told_to_every_caller,
    failures::after_its_cooldown_one_caller_leads_as_a_probe,
    failures::no_caller_waits_for_a_probe_that_outlives_the_window,
    failures::a_lease_that_is_granted_after_the_window_is_waited_for,
    failures::a_failure_without_a_window_only_counts,
    failures::after_its_window_a_failure_counts_for_the_next,
    failures::a_failure_is_forgotten_after_twice_its_window,
    failures::only_the_holder_of_the_lease_can_fail,
    failures::a_load_from_before_an_invalidation_cannot_fail,
    failures::a_caller_that_accepts_nothing_is_not_told_of_failures,
    failures::a_failure_leaves_what_is_stale,
    failures::what_is_fresh_is_found_whatever_failed,
    failures::a_commit_forgets_failures,
    failures::an_invalidation_forgets_failures,
    failures::the_end_of_a_failure_is_reported,
    leases::a_lease_is_given_to_one_at_a_time,
    leases::of_many_concurrent_claims_one_leads,
    leases::the_same_claim_is_granted_again,
    leases::a_claim_that_asks_again_does_not_revive_a_lease,
    leases::a_dropped_request_can_be_abandoned,
    leases::an_abandoned_lease_is_free,
    leases::only_its_own_claim_abandons_a_lease,
    leases::a_lease_lapses,
    leases::a_renewed_lease_does_not_lapse,
    leases::a_renewed_lease_holds_for_the_term_of_its_renewal,
    leases::a_lapsed_lease_is_not_renewed,
    leases::renewing_does_not_prolong_the_lease_of_others,
    leases::a_commit_ends_its_lease,
    leases::fences_grow,
    leases::watchers_are_told,
    invalidations::an_invalidation_removes_the_entry,
    invalidations::an_invalidation_tells_whether_there_was_an_entry,
    invalidations::an_invalidation_ends_the_lease,
    invalidations::an_invalidation_refuses_loads_that_began_before_it,
    invalidations::an_invalidation_refuses_lapsed_loads_too,
    invalidations::a_load_after_an_invalidation_is_stored,
    invalidations::expiring_keeps_the_entry_as_stale,
    invalidations::what_is_kept_for_validation_is_found_and_not_given_out,
    invalidations::expiring_removes_what_has_no_stale_window,
    invalidations::expiring_refuses_loads_that_began_before_it,
    tags::an_entry_with_tags_is_found,
    tags::an_invalidated_tag_removes_its_entries,
    tags::tags_that_are_known_after_the_load_count_as_well,
    tags::an_invalidated_tag_refuses_loads_that_began_before_it,
    tags::an_invalidated_tag_refuses_loads_that_learn_of_it_later,
    tags::a_tag_that_is_new_during_a_load_refuses_nothing,
    tags::a_commit_that_a_tag_refuses_ends_its_lease,
    tags::an_entry_that_lacks_a_tag_of_the_request_is_not_found,
    tags::expiring_a_tag_keeps_its_entries_as_stale,
    tags::expiring_a_tag_removes_what_has_no_stale_window,
    tags::expiring_a_tag_refuses_loads_that_began_before_it,
    tags::an_expired_tag_leaves_its_entries_their_stale_window_only,
    tags::a_spread_expiry_reaches_an_entry_within_its_time,
    tags::a_tag_and_a_key_with_the_same_parts_are_apart,
];

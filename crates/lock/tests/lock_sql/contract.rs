//! The contract.

use bellwether_lock::conformance;

use crate::bench::{Bench, SESSION, promises};

promises![
    the_contract_is_kept,
    who_has_it_is_refused_it_too,
    a_holder_that_stood_still_for_its_session_knows_it,
];

async fn the_contract_is_kept(on: Bench) {
    let lock = on.lock();
    let mut violations = conformance::run(std::sync::Arc::clone(&lock)).await;
    violations.extend(conformance::run_fenced(lock).await);
    assert_eq!(violations, []);
}

/// Case 51: sessions are granted again what they have; tasks are not.
async fn who_has_it_is_refused_it_too(on: Bench) {
    assert_eq!(conformance::run_exclusive(on.lock()).await, []);
}

async fn a_holder_that_stood_still_for_its_session_knows_it(on: Bench) {
    assert_eq!(conformance::run_standing_still(on.lock(), SESSION).await, []);
}

//! The contract.

use bellwether_lock::conformance;

use crate::bench::{Bench, SESSION, promises};

promises![
    the_contract_is_kept,
    the_holder_is_refused_too,
    a_holder_paused_for_its_session_knows_of_the_loss,
];

async fn the_contract_is_kept(on: Bench) {
    let lock = on.lock();
    let mut violations = conformance::run(std::sync::Arc::clone(&lock)).await;
    violations.extend(conformance::run_fenced(lock).await);
    assert_eq!(violations, []);
}

/// Case 51: sessions are granted again what they have; tasks are not.
async fn the_holder_is_refused_too(on: Bench) {
    assert_eq!(conformance::run_exclusive(on.lock()).await, []);
}

async fn a_holder_paused_for_its_session_knows_of_the_loss(on: Bench) {
    assert_eq!(conformance::run_standing_still(on.lock(), SESSION).await, []);
}

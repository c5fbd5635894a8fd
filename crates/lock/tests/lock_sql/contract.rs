//! The contract.

use bellwether_lock::conformance::Conformance;

use crate::bench::{Bench, SESSION, promises};

promises![the_contract_is_kept, a_holder_paused_for_its_session_knows_of_the_loss,];

async fn the_contract_is_kept(on: Bench) {
    // Case 51: sessions are granted again what they have; tasks are not.
    assert_eq!(Conformance::of(on.lock()).fenced().exclusive().run().await, []);
}

async fn a_holder_paused_for_its_session_knows_of_the_loss(on: Bench) {
    assert_eq!(Conformance::of(on.lock()).run_standing_still(SESSION).await, []);
}

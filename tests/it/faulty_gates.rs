//! A gate of `FaultyStore` holds the calls that a test names, until the test opens it.

use bellwether::MemoryStore;
use bellwether_test::StoreExt as _;
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::caches::{JSON, key, put};

#[tokio::test(start_paused = true)]
async fn a_gate_holds_one_call_until_it_is_opened() {
    let store = FaultyStore::new(MemoryStore::new(100));
    put(&store, 1, "1", JSON).await;
    let gate = store.on(Operation::Lookup).nth(1).hold();
    let held = tokio::spawn(store.find(key(1)));
    gate.reached().await;
    assert!(store.find(key(1)).await.expect("an answer").is_some(), "the second call is not held");
    assert!(!held.is_finished());
    gate.open();
    assert!(held.await.expect("no panic").expect("an answer").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_gate_after_a_call_holds_its_result_only() {
    let store = FaultyStore::new(MemoryStore::new(100));
    put(&store, 1, "1", JSON).await;
    let gate = store.on(Operation::Invalidate).nth(1).do_it_and_hold();
    let held = tokio::spawn(store.invalidate(key(1)));
    gate.reached().await;
    assert!(store.find(key(1)).await.expect("an answer").is_none(), "it is done");
    assert!(!held.is_finished());
    store.heal();
    held.await.expect("no panic").expect("an answer");
}

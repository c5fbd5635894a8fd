//! The near tier of a cluster: copies by slots and nodes.

use std::sync::Arc;

use tokio::time::{Instant, advance};

use super::super::Near;
use super::{EVER, SECOND, confirm, connect, disconnect, entry, keep, key};
use bellwether_redis_client::{InSlot, ServerEvent, ServerObserver, SlotOwners};

/// A near tier for a cluster, in which node 1 owns the slots of these keys.
fn near_of_cluster(numbers: [u64; 2]) -> (Near, Arc<SlotOwners>) {
    let owners = Arc::new(SlotOwners::new(true));
    let near = Near::new(1024 * 1024, 30 * SECOND, EVER, Arc::clone(&owners));
    for node in [1, 2] {
        connect(&near, node, node.into(), Instant::now(), &|| false);
    }
    numbers.into_iter().for_each(|number| owners.set(slot(number), 1));
    (near, owners)
}

fn slot(number: u64) -> u16 {
    key(number).digest().slot()
}

#[test]
fn in_a_cluster_a_copy_needs_an_owner_that_reports_changes() {
    let (near, owners) = near_of_cluster([1, 2]);
    assert!(keep(&near, 1, SECOND) && near.find(&key(1)).is_some());
    assert!(!keep(&near, 3, SECOND), "its slot has no owner");
    owners.set(slot(3), 7);
    assert!(!keep(&near, 3, SECOND), "its owner is not connected");
}

#[test]
fn a_slot_that_changes_its_owner_ends_the_copies_of_its_keys_only() {
    let (near, owners) = near_of_cluster([1, 2]);
    assert!(keep(&near, 1, SECOND) && keep(&near, 2, SECOND));
    owners.set(slot(1), 2);
    assert!(near.find(&key(1)).is_none() && near.find(&key(2)).is_some());
    assert!(keep(&near, 1, SECOND) && near.find(&key(1)).is_some());
    owners.set(slot(1), 1);
    assert!(near.find(&key(1)).is_none());
}

#[test]
fn an_answer_to_a_redirected_request_is_not_copied() {
    let (near, owners) = near_of_cluster([1, 2]);
    let start = near.start_read(&key(1).digest()).expect("it is connected");
    owners.renew(slot(1));
    assert!(!near.keep(start, vec![], &key(1), &entry(1, 10, SECOND)));
}

#[test]
fn a_node_that_disconnects_ends_the_copies_of_its_slots_only() {
    let (near, owners) = near_of_cluster([1, 2]);
    owners.set(slot(2), 2);
    assert!(keep(&near, 1, SECOND) && keep(&near, 2, SECOND));
    disconnect(&near, 2, 2);
    assert!(near.find(&key(1)).is_some() && near.find(&key(2)).is_none());
    connect(&near, 2, 3, Instant::now(), &|| false);
    assert!(near.find(&key(2)).is_none(), "changes may have been missed");
    near.note(ServerEvent::AllChanged { node: 1 });
    assert!(near.find(&key(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_ends_the_copies_of_its_slots_only() {
    let owners = Arc::new(SlotOwners::new(true));
    let near = Near::new(1024 * 1024, 30 * SECOND, SECOND, Arc::clone(&owners));
    for (number, node) in [(1, 1), (2, 2)] {
        connect(&near, node, node.into(), Instant::now(), &|| false);
        owners.set(slot(number), node);
        assert!(keep(&near, number, 10 * SECOND));
    }
    advance(SECOND).await;
    confirm(&near, 1, 1, Instant::now());
    assert!(near.find(&key(1)).is_some() && near.find(&key(2)).is_none());
}

//! The memory that remains of locked keys. It is a program of its own because its allocator counts.

use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use bellwether::Key;
use bellwether_lock::{LocalLock, Locks};
use tokio::runtime::{Builder, Runtime};

/// Locks and releases keys, half of them by a drop, and counts the bytes that stay allocated.
fn lock_and_release(keys: u64) -> AllocationInfo {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let lock = LocalLock::new();
    let locks = Locks::new(lock.clone());
    // Tables and queues keep their capacity.
    run(&runtime, &locks, 0..1_000);
    let left = measure(|| run(&runtime, &locks, 1_000..1_000 + keys));
    assert_eq!((locks.len(), lock.len()), (0, 0));
    left
}

fn run(runtime: &Runtime, locks: &Locks<LocalLock>, items: std::ops::Range<u64>) {
    runtime.block_on(async {
        for item in items {
            let held = locks.lock(&Key::of("item").with(item)).await.expect("a lock");
            match item % 2 {
                0 => drop(held),
                _ => drop(held.release().await.expect("an answer")),
            }
            // A dropped guard is released by the time the next caller of its key asks.
            while !locks.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
}

fn assert_nothing_is_left(keys: u64) {
    let left = lock_and_release(keys);
    assert!(left.count_total > keys, "nothing was counted");
    // The blocks of queues come and go, whatever the number of keys.
    let each = left.bytes_current.unsigned_abs() as f64 / keys as f64;
    assert!(each < 0.25, "{each} bytes for each key: {left:?}");
    assert!(left.count_current.unsigned_abs() < 16, "{left:?}");
}

#[test]
fn twenty_thousand_keys_that_were_locked_leave_not_a_byte_each() {
    assert_nothing_is_left(20_000);
}

#[test]
#[ignore = "takes a minute, and says no more than a part of them"]
fn a_million_keys_that_were_locked_leave_not_a_byte_each() {
    assert_nothing_is_left(1_000_000);
}

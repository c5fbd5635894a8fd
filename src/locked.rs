//! How a lock is taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is whole after each step, also after one that has panicked: a poisoned lock is used all
/// the same.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

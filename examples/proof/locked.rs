//! How a mutex is locked here.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is whole after each step, also after one that has panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

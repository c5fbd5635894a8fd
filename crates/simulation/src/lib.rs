//! A simulated Redis that runs the scripts of bellwether.

mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::server::{ClientId, ModelServer, Mutations};

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

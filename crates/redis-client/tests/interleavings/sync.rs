//! In the place of `std::sync`.

pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use real_std::sync::{Arc, PoisonError};

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
}

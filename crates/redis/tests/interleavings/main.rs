//! The epochs of near copies, under every interleaving of threads and every order of memory that Rust permits: by
//! [loom](https://docs.rs/loom).
//!
//! The code under test is the file of the crate itself, with atomics and locks of loom.

/// In the place of the module `near`.
mod near {
    #[expect(dead_code, reason = "what is not interleaved here")]
    #[path = "../../../src/near/epochs.rs"]
    mod epochs;

    mod sync {
        use std::sync::PoisonError;

        pub(super) use loom::sync::Mutex;
        use loom::sync::MutexGuard;
        pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

        pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
            mutex.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    mod tests;
}

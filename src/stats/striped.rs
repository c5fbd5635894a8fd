//! Striped counters: each thread counts in memory of its own, and a reader adds up.
//!
//! A hit is the most frequent event and takes some 100 ns, of which an atomic addition would be a
//! twentieth, and more if threads contend for it. So each of the first threads of a process has a
//! stripe for itself, in which it needs no atomic addition: it loads, adds and stores. The others
//! share some, with atomic additions.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One counter per event, for what happens with every request. To count takes about a nanosecond, on any
/// number of threads.
///
/// Each of the first 32 threads counts in memory of its own, so up to 16 counters take 5 KiB.
pub struct Striped<const N: usize>(Box<[Stripe<N>]>);

/// The counters of a thread, apart from those of other threads: processors fetch lines of 64 bytes
/// in pairs.
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    /// Counts one event.
    #[inline]
    pub fn add(&self, event: usize) {
        let stripe = STRIPE.with(|stripe| *stripe);
        let counter = &self.0[stripe].0[event];
        if stripe < OWNED {
            // No other thread writes here.
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often an event has happened. Events of other threads at this moment may be missing.
    pub fn read(&self, event: usize) -> u64 {
        self.0.iter().map(|stripe| stripe.0[event].load(Ordering::Relaxed)).sum()
    }
}

impl<const N: usize> Default for Striped<N> {
    fn default() -> Self {
        let stripe = || Stripe([const { AtomicU64::new(0) }; N]);
        Self((0..OWNED + SHARED).map(|_| stripe()).collect())
    }
}

impl<const N: usize> fmt::Debug for Striped<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|event| self.read(event))).finish()
    }
}

/// How many stripes belong to one thread: the first threads that count.
const OWNED: usize = 32;

/// How many stripes the other threads share.
const SHARED: usize = 8;

thread_local! {
    /// The stripe of this thread. It has no destructor, so it is there until the thread is gone.
    static STRIPE: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let earlier = THREADS.fetch_add(1, Ordering::Relaxed);
        if earlier < OWNED { earlier } else { OWNED + earlier % SHARED }
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn more_threads_than_stripes_lose_no_count() {
        const THREADS: usize = 3 * OWNED;
        const TIMES: u64 = 10_000;
        let counters = Striped::<3>::default();
        let all_run = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    counters.add(1);
                    all_run.wait();
                    (1..TIMES).for_each(|_| counters.add(1));
                });
            }
        });
        assert_eq!([0, 1, 2].map(|event| counters.read(event)), [0, THREADS as u64 * TIMES, 0]);
    }

    #[test]
    fn threads_one_after_the_other_lose_no_count() {
        let counters = Striped::<1>::default();
        for _ in 0..200 {
            thread::scope(|scope| _ = scope.spawn(|| (0..10).for_each(|_| counters.add(0))));
        }
        assert_eq!(counters.read(0), 2_000);
    }

    #[test]
    fn a_destructor_of_a_thread_that_ends_is_counted() {
        static COUNTERS: std::sync::LazyLock<Striped<1>> =
            std::sync::LazyLock::new(Striped::default);
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                COUNTERS.add(0);
            }
        }
        thread_local!(static LATE: Late = const { Late });
        // In either order of the destructors.
        thread::spawn(|| LATE.with(|_| COUNTERS.add(0))).join().unwrap();
        thread::spawn(|| {
            COUNTERS.add(0);
            LATE.with(|_| {});
        })
        .join()
        .unwrap();
        assert_eq!(COUNTERS.read(0), 4);
    }
}

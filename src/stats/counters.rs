//! Counters: an event for each, and a plain struct that says how often each has happened.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One counter per event, for what happens less often than a hit.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([AtomicU64; N]);

impl<const N: usize> Counters<N> {
    pub(crate) fn add(&self, event: usize) {
        self.0[event].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, event: usize) -> u64 {
        self.0[event].load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

/// One counter per event, for what happens with every request. To count takes about a nanosecond, on any
/// number of threads.
///
/// A hit is the most frequent event and takes some 100 ns, of which an atomic addition would be a
/// twentieth, and more if threads contend for it. So each of the first 32 threads of a process has a
/// stripe for itself, in which it needs no atomic addition: it loads, adds and stores. The others
/// share some, with atomic additions. A reader adds up. Up to 16 counters take 5 KiB.
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

/// Defines a snapshot and the events of which it has the number, or the times: a field and a variant for
/// each.
macro_rules! counters {
    (
        $(#[$of_stats:meta])*
        pub struct $Stats:ident by $vis:vis $Event:ident of $Value:ty {
            $( $(#[$of_field:meta])* $field:ident: $Variant:ident, )+
        }
    ) => {
        $crate::stats::counters::by_event! {
            $(#[$of_stats])*
            pub struct $Stats by $Event of $Value { $( $(#[$of_field])* $field: $Variant, )+ }
        }

        #[doc = concat!("What [`", stringify!($Stats), "`] has.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::exhaustive_enums, reason = "a recorder names each of them")]
        $vis enum $Event {
            $( $(#[$of_field])* $Variant, )+
        }
    };
}

/// Defines a snapshot with a value for each event.
macro_rules! by_event {
    (
        $(#[$of_stats:meta])*
        pub struct $Stats:ident by $Event:ident of $Value:ty {
            $( $(#[$of_field:meta])* $field:ident: $Variant:ident, )+
        }
    ) => {
        $(#[$of_stats])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $Stats {
            $( $(#[$of_field])* pub $field: $Value, )+
        }

        impl $Stats {
            pub(crate) const COUNT: usize = [$( stringify!($field), )+].len();
            pub(crate) const FIELDS: [&'static str; Self::COUNT] = [$( stringify!($field), )+];

            /// How many events there were, of all kinds.
            pub fn total(&self) -> u64 {
                0 $( + $crate::stats::MetricValue::from(self.$field).count() )+
            }

            pub(crate) fn read(value: impl Fn(usize) -> $Value) -> Self {
                Self { $( $field: value($Event::$Variant as usize), )+ }
            }

            /// Each value with the name of its field.
            pub fn by_name(&self) -> impl Iterator<Item = (&'static str, $Value)> + use<> {
                Self::FIELDS.into_iter().zip([$( self.$field, )+])
            }
        }
    };
}

pub(crate) use {by_event, counters};

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

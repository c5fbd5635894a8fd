//! Counters: an event for each, and a plain struct that says how often each has happened.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter per event, for what happens less often than a hit.
#[derive(Debug)]
pub(crate) struct Counters<const N: usize>([AtomicU64; N]);

impl<const N: usize> Counters<N> {
    pub(crate) fn add(&self, event: usize) {
        self.0[event].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_many(&self, event: usize, times: u64) {
        self.0[event].fetch_add(times, Ordering::Relaxed);
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

//! The instruments of locks.

use bellwether_lock::LockStats;
use opentelemetry::metrics::Meter;

use crate::maker::{InstrumentMaker, labelled};
use crate::observed::Observed;
use crate::sampled::SampledHistogram;

pub(crate) fn of_locks(meter: &Meter) -> Observed<LockStats> {
    let wait_times =
        SampledHistogram::of_times(meter, "bellwether.lock.wait.duration", |stats: &LockStats| {
            vec![(None, stats.wait_times)]
        });
    let make = InstrumentMaker::new(meter, vec![wait_times]);
    make.counters("bellwether.lock.waits", "{attempt}", |stats| {
        let results = [
            ("acquired", stats.acquired),
            ("busy", stats.busy),
            ("timed_out", stats.timed_out),
            ("failed", stats.failed),
            ("left", stats.left),
        ];
        labelled("result", results.into_iter())
    });
    make.counters("bellwether.lock.renewals", "{renewal}", |stats| {
        let results = [("renewed", stats.renewed), ("failed", stats.renewals_failed)];
        labelled("result", results.into_iter())
    });
    make.counter("bellwether.lock.lost", "{hold}", |stats| Some(stats.lost));
    make.gauge("bellwether.lock.held", "{key}", |stats| Some(stats.held));
    make.into_sources()
}

//! The instruments of layers and caches.

use bellwether::stats::{CacheStats, HistogramStats};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::maker::{InstrumentMaker, labelled};
use crate::observed::Observed;
use crate::sampled::{SampledHistogram, parts};

/// Reads one figure of a snapshot.
type ReadCacheFigure = fn(&CacheStats) -> u64;

pub(crate) fn of_caches(meter: &Meter) -> Observed<CacheStats> {
    let make = InstrumentMaker::new(meter, histograms(meter));
    of_requests(&make);
    of_loads(&make);
    of_what_is_under_way(&make);
    make.into_sources()
}

fn of_requests(make: &InstrumentMaker<'_, CacheStats>) {
    make.counters("bellwether.requests", "{request}", |stats| {
        stats.requests.by_name().map(|(field, count)| {
            let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
            let labels = [("outcome", outcome), ("detail", detail)];
            (labels.map(|(label, value)| KeyValue::new(label, value)), count)
        })
    });
    make.counters("bellwether.refused", "{request}", |stats| {
        labelled("limit", stats.refused.by_name())
    });
    make.counters("bellwether.invalidations", "{invalidation}", |stats| {
        labelled("event", stats.invalidations.by_name())
    });
}

fn of_loads(make: &InstrumentMaker<'_, CacheStats>) {
    make.counters("bellwether.loads.started", "{load}", |stats| {
        labelled("why", stats.loads.started.by_name())
    });
    make.counters("bellwether.loads.ended", "{load}", |stats| {
        labelled("result", stats.loads.ended.by_name())
    });
    make.counters("bellwether.wakes", "{wake}", |stats| labelled("by", stats.wakes.by_name()));
    make.counters("bellwether.leases", "{lease}", |stats| {
        labelled("event", stats.leases.by_name())
    });
    make.counters("bellwether.commits", "{commit}", |stats| {
        labelled("result", stats.commits.by_name())
    });
    make.counters("bellwether.refreshes", "{refresh}", |stats| {
        labelled("result", stats.refreshes.by_name())
    });
}

fn of_what_is_under_way(make: &InstrumentMaker<'_, CacheStats>) {
    let gauges: [(_, _, ReadCacheFigure); 5] = [
        ("bellwether.loads.running", "{load}", |stats| stats.loads.running()),
        ("bellwether.loads.queued", "{load}", |stats| stats.current.queued_loads),
        ("bellwether.flights", "{flight}", |stats| stats.current.flights),
        ("bellwether.waiters", "{request}", |stats| stats.current.waiters),
        ("bellwether.failing_keys", "{key}", |stats| stats.current.failing_keys),
    ];
    for (name, unit, value) in gauges {
        make.gauge(name, unit, move |stats| Some(value(stats)));
    }
}

fn histograms(meter: &Meter) -> Vec<SampledHistogram<CacheStats>> {
    let of_times = SampledHistogram::of_times;
    vec![
        of_times(meter, "bellwether.load.duration", |stats: &CacheStats| {
            parts("result", stats.load_times.by_name())
        }),
        of_times(meter, "bellwether.wait.duration", |stats| {
            parts("place", stats.wait_times.by_name())
        }),
        SampledHistogram::new(
            meter,
            "bellwether.flight.callers",
            "{caller}",
            &HistogramStats::CALLERS,
            |stats| vec![(None, stats.flight_callers)],
        ),
        of_times(meter, "bellwether.notice.lag", |stats| vec![(None, stats.notice_lag)]),
    ]
}

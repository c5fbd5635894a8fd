//! The instruments of stores.

use bellwether::stats::MemoryStats;
#[cfg(feature = "redis")]
use bellwether_redis::NearStats;
#[cfg(feature = "redis")]
use bellwether_redis::{RedisNodeStats, RedisStats};
#[cfg(feature = "redis")]
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::maker::InstrumentMaker;
#[cfg(feature = "redis")]
use crate::maker::labelled;
use crate::observed::Observed;
#[cfg(feature = "redis")]
use crate::sampled::{SampledHistogram, parts};

/// Reads one figure of a snapshot.
#[cfg(feature = "redis")]
type ReadField<T> = fn(&T) -> u64;

pub(crate) fn of_memory_stores(meter: &Meter) -> Observed<MemoryStats> {
    let make = InstrumentMaker::new(meter, vec![]);
    make.gauge("bellwether.store.entries", "{entry}", |stats: &MemoryStats| Some(stats.entries));
    make.gauge("bellwether.store.bytes", "By", |stats| Some(stats.bytes));
    make.counter("bellwether.store.evictions", "{entry}", |stats| Some(stats.evictions));
    make.into_sources()
}

#[cfg(feature = "redis")]
pub(crate) fn of_redis_stores(meter: &Meter) -> Observed<RedisStats> {
    let operation_times = SampledHistogram::of_times(
        meter,
        "bellwether.store.operation.duration",
        |stats: &RedisStats| parts("operation", stats.operation_times.by_name()),
    );
    let make = InstrumentMaker::new(meter, vec![operation_times]);
    of_operations(&make);
    of_nodes(&make);
    of_replays(&make);
    of_near_tiers(&make);
    make.into_sources()
}

#[cfg(feature = "redis")]
fn of_operations(make: &InstrumentMaker<'_, RedisStats>) {
    make.counters("bellwether.store.operations", "{operation}", |stats| {
        labelled("operation", stats.operations.by_name())
    });
    make.counters("bellwether.store.errors", "{error}", |stats| {
        labelled("error", stats.errors.by_name())
    });
    make.gauge("bellwether.store.up", "{store}", |stats| Some(u64::from(!stats.is_down)));
    let counters: [(_, _, ReadField<RedisStats>); 4] = [
        ("bellwether.store.connects", "{connection}", |stats| stats.connects),
        ("bellwether.store.outages", "{outage}", |stats| stats.outages),
        ("bellwether.store.pushes", "{message}", |stats| stats.pushes),
        ("bellwether.store.unreadable", "{entry}", |stats| stats.unreadable),
    ];
    for (name, unit, value) in counters {
        make.counter(name, unit, move |stats| Some(value(stats)));
    }
    make.gauges("bellwether.store.wake_ups", "{way}", |stats| {
        labelled("by", stats.wake_ups.by_name().map(|(way, is_it)| (way, is_it.into())))
    });
}

#[cfg(feature = "redis")]
fn of_nodes(make: &InstrumentMaker<'_, RedisStats>) {
    make.gauges("bellwether.store.node.up", "{node}", |stats| {
        by_node(&stats.nodes, |node| u64::from(!node.is_down))
    });
    let counters: [(_, _, ReadField<RedisNodeStats>); 4] = [
        ("bellwether.store.node.requests", "{request}", |node| node.requests),
        ("bellwether.store.node.redirections", "{request}", |node| node.redirections),
        ("bellwether.store.node.connects", "{connection}", |node| node.connects),
        ("bellwether.store.node.outages", "{outage}", |node| node.outages),
    ];
    for (name, unit, value) in counters {
        make.counters(name, unit, move |stats| by_node(&stats.nodes, value));
    }
    make.counters("bellwether.store.node.errors", "{error}", |stats| {
        let errors = |node: &RedisNodeStats| {
            let address = KeyValue::new("node", node.address.clone());
            let labels = move |error| [address.clone(), KeyValue::new("error", error)];
            node.errors.by_name().map(move |(error, count)| (labels(error), count))
        };
        stats.nodes.iter().flat_map(errors).collect::<Vec<_>>()
    });
}

/// One figure of each server.
#[cfg(feature = "redis")]
fn by_node(
    nodes: &[RedisNodeStats],
    value: impl Fn(&RedisNodeStats) -> u64,
) -> Vec<([KeyValue; 1], u64)> {
    let one = |node: &RedisNodeStats| ([KeyValue::new("node", node.address.clone())], value(node));
    nodes.iter().map(one).collect()
}

#[cfg(feature = "redis")]
fn of_replays(make: &InstrumentMaker<'_, RedisStats>) {
    let counters: [(_, ReadField<RedisStats>); 4] = [
        ("bellwether.store.invalidations.kept", |stats| stats.replay.kept),
        ("bellwether.store.invalidations.replayed", |stats| stats.replay.replayed),
        ("bellwether.store.invalidations.dropped", |stats| stats.replay.dropped),
        ("bellwether.store.invalidations.reasserted", |stats| stats.replay.reasserted),
    ];
    for (name, value) in counters {
        make.counter(name, "{invalidation}", move |stats| Some(value(stats)));
    }
    make.gauge("bellwether.store.invalidations.pending", "{invalidation}", |stats| {
        Some(stats.replay.pending)
    });
}

#[cfg(feature = "redis")]
fn of_near_tiers(make: &InstrumentMaker<'_, RedisStats>) {
    let counters: [(_, _, ReadField<NearStats>); 3] = [
        ("bellwether.near.hits", "{lookup}", |near| near.hits),
        ("bellwether.near.evictions", "{entry}", |near| near.evictions),
        ("bellwether.near.disconnected", "s", |near| near.disconnected.as_secs()),
    ];
    for (name, unit, value) in counters {
        make.counter(name, unit, move |stats| stats.near.as_ref().map(value));
    }
    let gauges: [(_, _, ReadField<NearStats>); 2] = [
        ("bellwether.near.entries", "{entry}", |near| near.entries),
        ("bellwether.near.bytes", "By", |near| near.bytes),
    ];
    for (name, unit, value) in gauges {
        make.gauge(name, unit, move |stats| stats.near.as_ref().map(value));
    }
}

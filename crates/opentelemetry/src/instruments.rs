//! The instruments.

use std::fmt;

#[cfg(feature = "redis")]
use bellwether::stats::NearStats;
use bellwether::stats::{CacheStats, MemoryStats};
#[cfg(feature = "redis")]
use bellwether::{RedisNodeStats, RedisStats};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::observed::Observed;

/// Reads one figure of a snapshot.
type ReadField<T> = fn(&T) -> u64;

/// The instruments of caches and stores, which the SDK reads when it collects.
///
/// Make it once for a meter, and tell it what to observe, in any order and at any time. What it
/// observes, it observes until the meter provider is shut down, even if this value is dropped.
#[derive(Clone)]
pub struct Instruments {
    caches: Observed<CacheStats>,
    memory_stores: Observed<MemoryStats>,
    #[cfg(feature = "redis")]
    redis_stores: Observed<RedisStats>,
}

impl Instruments {
    /// Makes the instruments of a meter.
    pub fn new(meter: &Meter) -> Self {
        let instruments = Self {
            caches: Observed::default(),
            memory_stores: Observed::default(),
            #[cfg(feature = "redis")]
            redis_stores: Observed::default(),
        };
        instruments.make_for_requests(meter);
        instruments.make_for_loads(meter);
        instruments.make_for_what_is_under_way(meter);
        instruments.make_for_memory_stores(meter);
        #[cfg(feature = "redis")]
        {
            instruments.make_for_redis_stores(meter);
            instruments.make_for_nodes(meter);
            instruments.make_for_replays(meter);
            instruments.make_for_near_tiers(meter);
        }
        instruments
    }

    /// Observes a layer or cache under this name, for example
    /// `observe_cache("item", move || cache.stats())`.
    ///
    /// Give each cache a name of its own: two with one name would hide each other.
    pub fn observe_cache(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> CacheStats + Send + Sync + 'static,
    ) {
        self.caches.add(KeyValue::new("cache", name.into()), stats);
    }

    /// Observes a `MemoryStore` under this name.
    pub fn observe_memory_store(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> MemoryStats + Send + Sync + 'static,
    ) {
        self.memory_stores.add(KeyValue::new("store", name.into()), stats);
    }

    /// Observes a `RedisStore` under this name.
    #[cfg(feature = "redis")]
    pub fn observe_redis_store(
        &self,
        name: impl Into<String>,
        stats: impl Fn() -> RedisStats + Send + Sync + 'static,
    ) {
        self.redis_stores.add(KeyValue::new("store", name.into()), stats);
    }

    fn make_for_requests(&self, meter: &Meter) {
        let all = self.caches.clone();
        counter(meter, "bellwether.requests", "{request}", move |to| {
            all.each(to, |stats| {
                stats.requests.by_name().map(|(field, count)| {
                    let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
                    let labels = [("outcome", outcome), ("detail", detail)];
                    (labels.map(|(label, value)| KeyValue::new(label, value)), count)
                })
            });
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.refused", "{request}", move |to| {
            all.each(to, |stats| labelled("limit", stats.refused.by_name()));
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.invalidations", "{invalidation}", move |to| {
            all.each(to, |stats| labelled("event", stats.invalidations.by_name()));
        });
    }

    fn make_for_loads(&self, meter: &Meter) {
        let all = self.caches.clone();
        counter(meter, "bellwether.loads.started", "{load}", move |to| {
            all.each(to, |stats| labelled("why", stats.loads.started.by_name()));
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.loads.ended", "{load}", move |to| {
            all.each(to, |stats| labelled("result", stats.loads.ended.by_name()));
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.wakes", "{wake}", move |to| {
            all.each(to, |stats| labelled("by", stats.wakes.by_name()));
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.leases", "{lease}", move |to| {
            all.each(to, |stats| labelled("event", stats.leases.by_name()));
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.commits", "{commit}", move |to| {
            all.each(to, |stats| labelled("result", stats.commits.by_name()));
        });
        let all = self.caches.clone();
        counter(meter, "bellwether.refreshes", "{refresh}", move |to| {
            all.each(to, |stats| labelled("result", stats.refreshes.by_name()));
        });
    }

    fn make_for_what_is_under_way(&self, meter: &Meter) {
        let gauges: [(_, _, ReadField<CacheStats>); 5] = [
            ("bellwether.loads.running", "{load}", |stats| stats.loads.running()),
            ("bellwether.loads.queued", "{load}", |stats| stats.current.queued_loads),
            ("bellwether.flights", "{flight}", |stats| stats.current.flights),
            ("bellwether.waiters", "{request}", |stats| stats.current.waiters),
            ("bellwether.failing_keys", "{key}", |stats| stats.current.failing_keys),
        ];
        for (name, unit, value) in gauges {
            let all = self.caches.clone();
            gauge(meter, name, unit, move |to| all.one(to, |stats| Some(value(stats))));
        }
    }

    fn make_for_memory_stores(&self, meter: &Meter) {
        let all = self.memory_stores.clone();
        gauge(meter, "bellwether.store.entries", "{entry}", move |to| {
            all.one(to, |stats| Some(stats.entries));
        });
        let all = self.memory_stores.clone();
        gauge(meter, "bellwether.store.bytes", "By", move |to| {
            all.one(to, |stats| Some(stats.bytes));
        });
        let all = self.memory_stores.clone();
        counter(meter, "bellwether.store.evictions", "{entry}", move |to| {
            all.one(to, |stats| Some(stats.evictions));
        });
    }

    #[cfg(feature = "redis")]
    fn make_for_redis_stores(&self, meter: &Meter) {
        let all = self.redis_stores.clone();
        counter(meter, "bellwether.store.operations", "{operation}", move |to| {
            all.each(to, |stats| labelled("operation", stats.operations.by_name()));
        });
        let all = self.redis_stores.clone();
        counter(meter, "bellwether.store.errors", "{error}", move |to| {
            all.each(to, |stats| labelled("error", stats.errors.by_name()));
        });
        let all = self.redis_stores.clone();
        gauge(meter, "bellwether.store.up", "", move |to| {
            all.one(to, |stats| Some(u64::from(!stats.is_down)));
        });
        let counters: [(_, _, ReadField<RedisStats>); 4] = [
            ("bellwether.store.connects", "{connection}", |stats| stats.connects),
            ("bellwether.store.outages", "{outage}", |stats| stats.outages),
            ("bellwether.store.pushes", "{message}", |stats| stats.pushes),
            ("bellwether.store.unreadable", "{entry}", |stats| stats.unreadable),
        ];
        for (name, unit, value) in counters {
            let all = self.redis_stores.clone();
            counter(meter, name, unit, move |to| all.one(to, |stats| Some(value(stats))));
        }
        let all = self.redis_stores.clone();
        gauge(meter, "bellwether.store.wake_ups", "", move |to| {
            let ways = |stats: &RedisStats| stats.wake_ups.by_name();
            all.each(to, |stats| {
                labelled("by", ways(stats).map(|(way, is_it)| (way, is_it.into())))
            });
        });
    }

    #[cfg(feature = "redis")]
    fn make_for_nodes(&self, meter: &Meter) {
        let all = self.redis_stores.clone();
        gauge(meter, "bellwether.store.node.up", "", move |to| {
            all.each(to, |stats| each_node(stats, |node| u64::from(!node.is_down)));
        });
        let counters: [(_, _, ReadField<RedisNodeStats>); 4] = [
            ("bellwether.store.node.requests", "{request}", |node| node.requests),
            ("bellwether.store.node.redirections", "{request}", |node| node.redirections),
            ("bellwether.store.node.connects", "{connection}", |node| node.connects),
            ("bellwether.store.node.outages", "{outage}", |node| node.outages),
        ];
        for (name, unit, value) in counters {
            let all = self.redis_stores.clone();
            counter(meter, name, unit, move |to| all.each(to, |stats| each_node(stats, value)));
        }
        let all = self.redis_stores.clone();
        counter(meter, "bellwether.store.node.errors", "{error}", move |to| {
            all.each(to, |stats| {
                let errors = |node: &RedisNodeStats| {
                    let address = KeyValue::new("node", node.address.clone());
                    let labels = move |error| [address.clone(), KeyValue::new("error", error)];
                    node.errors.by_name().map(move |(error, count)| (labels(error), count))
                };
                stats.nodes.iter().flat_map(errors).collect::<Vec<_>>()
            });
        });
    }

    #[cfg(feature = "redis")]
    fn make_for_replays(&self, meter: &Meter) {
        let counters: [(_, ReadField<RedisStats>); 4] = [
            ("bellwether.store.invalidations.kept", |stats| stats.replay.kept),
            ("bellwether.store.invalidations.replayed", |stats| stats.replay.replayed),
            ("bellwether.store.invalidations.dropped", |stats| stats.replay.dropped),
            ("bellwether.store.invalidations.reasserted", |stats| stats.replay.reasserted),
        ];
        for (name, value) in counters {
            let all = self.redis_stores.clone();
            counter(meter, name, "{invalidation}", move |to| {
                all.one(to, |stats| Some(value(stats)));
            });
        }
        let all = self.redis_stores.clone();
        gauge(meter, "bellwether.store.invalidations.pending", "{invalidation}", move |to| {
            all.one(to, |stats| Some(stats.replay.pending));
        });
    }

    #[cfg(feature = "redis")]
    fn make_for_near_tiers(&self, meter: &Meter) {
        let counters: [(_, _, ReadField<NearStats>); 3] = [
            ("bellwether.near.hits", "{lookup}", |near| near.hits),
            ("bellwether.near.evictions", "{entry}", |near| near.evictions),
            ("bellwether.near.disconnected", "s", |near| near.disconnected.as_secs()),
        ];
        for (name, unit, value) in counters {
            let all = self.redis_stores.clone();
            counter(meter, name, unit, move |to| {
                all.one(to, |stats| stats.near.as_ref().map(value));
            });
        }
        let gauges: [(_, _, ReadField<NearStats>); 2] = [
            ("bellwether.near.entries", "{entry}", |near| near.entries),
            ("bellwether.near.bytes", "By", |near| near.bytes),
        ];
        for (name, unit, value) in gauges {
            let all = self.redis_stores.clone();
            gauge(meter, name, unit, move |to| {
                all.one(to, |stats| stats.near.as_ref().map(value));
            });
        }
    }
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").finish_non_exhaustive()
    }
}

/// Counters that differ in one attribute.
fn labelled(
    label: &'static str,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = ([KeyValue; 1], u64)> {
    counts.map(move |(value, count)| ([KeyValue::new(label, value)], count))
}

/// One figure of each server.
#[cfg(feature = "redis")]
fn each_node(
    stats: &RedisStats,
    value: impl Fn(&RedisNodeStats) -> u64,
) -> Vec<([KeyValue; 1], u64)> {
    let one = |node: &RedisNodeStats| ([KeyValue::new("node", node.address.clone())], value(node));
    stats.nodes.iter().map(one).collect()
}

/// Without a unit, Prometheus adds none to the name.
fn counter(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    observe: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
) {
    meter.u64_observable_counter(name).with_unit(unit).with_callback(observe).build();
}

fn gauge(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    observe: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
) {
    meter.u64_observable_gauge(name).with_unit(unit).with_callback(observe).build();
}

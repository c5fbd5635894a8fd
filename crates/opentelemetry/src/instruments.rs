//! The instruments.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use bellwether::stats::{MetricTable, StatsSource};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::observed::Observed;

/// The instruments of caches, stores and locks, which the SDK reads when it collects.
///
/// Make it once for a meter provider, and tell it what to observe, in any order and at any time.
/// What it observes, it observes until the meter provider is shut down, even if this value is
/// dropped.
#[derive(Clone)]
pub struct Instruments {
    meter: Meter,
    /// An `Observed<T>` for each type of statistics. Held to find or make one.
    observed: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>>,
}

impl Instruments {
    /// Makes the instruments of a meter.
    pub fn new(meter: &Meter) -> Self {
        Self { meter: meter.clone(), observed: Arc::default() }
    }

    /// Observes a cache, a store or a set of locks, under its name. Give it a clone.
    ///
    /// Give each cache a name of its own, and so each store and each set of locks: two with one name
    /// would hide each other.
    pub fn observe<S: StatsSource + Send + Sync + 'static>(&self, source: S) {
        let mut observed = locked(&self.observed);
        let of_type = observed
            .entry(TypeId::of::<S::Stats>())
            .or_insert_with(|| Box::new(Observed::<S::Stats>::new(&self.meter)));
        let of_type = of_type.downcast_ref::<Observed<S::Stats>>().cloned();
        drop(observed);
        if let Some(of_type) = of_type {
            let name = KeyValue::new(S::Stats::OWNER, source.name().to_owned());
            of_type.add(name, move || source.stats());
        }
    }
}

bellwether::debug_fields! { Instruments }

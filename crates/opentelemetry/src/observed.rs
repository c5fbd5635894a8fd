//! What is observed: the sources of snapshots, by name.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::AsyncInstrument;

use crate::sampled::{RecordedSamples, SampledHistogram};

/// Sources of snapshots of one kind, which grow while the SDK reads them.
pub(crate) struct Observed<T> {
    /// Held to add one source or to copy all, never while a snapshot is read.
    sources: Arc<Mutex<Vec<NamedSource<T>>>>,
    /// Whenever a snapshot is read, for whichever instrument, these get what is new in it. A view
    /// may drop any of the instruments.
    histograms: Arc<[SampledHistogram<T>]>,
}

/// A name, what gives the snapshots under it, and what the histograms have of them.
struct NamedSource<T> {
    name: KeyValue,
    read: Arc<dyn Fn() -> T + Send + Sync>,
    recorded: Arc<RecordedSamples>,
}

impl<T> Observed<T> {
    pub(crate) fn new(histograms: Vec<SampledHistogram<T>>) -> Self {
        Self { sources: Arc::default(), histograms: histograms.into() }
    }

    pub(crate) fn add(&self, name: KeyValue, read: impl Fn() -> T + Send + Sync + 'static) {
        let source = NamedSource { name, read: Arc::new(read), recorded: Arc::default() };
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    }

    /// Observes one value of each source.
    pub(crate) fn one(&self, to: &dyn AsyncInstrument<u64>, value: impl Fn(&T) -> Option<u64>) {
        for (name, stats) in self.read() {
            if let Some(value) = value(&stats) {
                to.observe(value, &[name]);
            }
        }
    }

    /// Observes several values of each source, which differ in these attributes.
    pub(crate) fn each<const N: usize, I>(
        &self,
        to: &dyn AsyncInstrument<u64>,
        values: impl Fn(&T) -> I,
    ) where
        I: IntoIterator<Item = ([KeyValue; N], u64)>,
    {
        for (name, stats) in self.read() {
            for (attributes, value) in values(&stats) {
                let attributes: Vec<_> = [name.clone()].into_iter().chain(attributes).collect();
                to.observe(value, &attributes);
            }
        }
    }

    fn read(&self) -> impl Iterator<Item = (KeyValue, T)> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.into_iter().map(|NamedSource { name, read, recorded }| {
            let stats = read();
            recorded.record(&self.histograms, &name, &stats);
            (name, stats)
        })
    }
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        Self { sources: Arc::clone(&self.sources), histograms: Arc::clone(&self.histograms) }
    }
}

impl<T> Clone for NamedSource<T> {
    fn clone(&self) -> Self {
        let (read, recorded) = (Arc::clone(&self.read), Arc::clone(&self.recorded));
        Self { name: self.name.clone(), read, recorded }
    }
}

//! What is observed: the sources of snapshots, by name.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::AsyncInstrument;

/// A name, and what gives the snapshots under it.
type NamedRead<T> = (KeyValue, Arc<dyn Fn() -> T + Send + Sync>);

/// Sources of snapshots of one kind, which grow while the SDK reads them.
pub(crate) struct Observed<T>(
    /// Held to add one source or to copy all, never while a snapshot is read.
    Arc<Mutex<Vec<NamedRead<T>>>>,
);

impl<T> Observed<T> {
    pub(crate) fn add(&self, name: KeyValue, read: impl Fn() -> T + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, Arc::new(read)));
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
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.into_iter().map(|(name, read)| (name, read()))
    }
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Observed<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

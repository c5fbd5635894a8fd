//! The options of a `ReadThroughLayer` about its name, and about keys in traces.

use std::sync::Arc;

use super::layer::ReadThroughLayer;
use crate::stats::Statistics;
use crate::trace::TraceKeys;

impl<K, C> ReadThroughLayer<K, C> {
    /// Names the layer in metrics and log messages. The layer begins new [statistics](Self::stats)
    /// with it, so set it before you make services and handles.
    ///
    /// Choose it as you would choose the name of a table: one per layer, from a small fixed set.
    ///
    /// Default: `unnamed`.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.statistics = Statistics::new(name, self.statistics.trace_keys());
        self.loads.show_in(&self.statistics);
        self
    }

    /// Sets how much of a key is in the [spans](crate::trace) and log messages of the layer. The layer
    /// begins new [statistics](Self::stats) with it, so set it before you make services and handles.
    ///
    /// Default: [`TraceKeys::Kind`]. Keys may be personal data, and traces are read by many people.
    #[must_use]
    pub fn trace_keys(mut self, keys: TraceKeys) -> Self {
        self.statistics = Statistics::new(Arc::clone(self.statistics.name()), keys);
        self.loads.show_in(&self.statistics);
        self
    }
}

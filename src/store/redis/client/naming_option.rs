//! The name of a store.

use std::sync::Arc;

use super::options::RedisOptions;

impl RedisOptions {
    /// Names the store in metrics and log messages.
    ///
    /// Default: its namespace.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The name of the store in log messages.
    pub(in super::super) fn display_name(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.namespace_name().into())
    }
}

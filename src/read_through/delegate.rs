//! The options of a `ReadThroughLayer`, for adapters that have one as a field.

/// Defines the load options of a [`ReadThroughLayer`](crate::ReadThroughLayer) on a type that has
/// one in its field `layer`. Call it inside an `impl` block; see the [module page](crate::adapter).
#[macro_export]
macro_rules! delegate_load_options {
    () => {
        /// As [`ReadThroughLayer::name`]($crate::ReadThroughLayer::name), with its default.
        #[must_use]
        pub fn name(mut self, name: impl Into<std::sync::Arc<str>>) -> Self {
            self.layer = self.layer.name(name);
            self
        }

        /// As [`ReadThroughLayer::trace_keys`]($crate::ReadThroughLayer::trace_keys), with its
        /// default.
        #[must_use]
        pub fn trace_keys(mut self, keys: $crate::trace::TraceKeys) -> Self {
            self.layer = self.layer.trace_keys(keys);
            self
        }

        /// As [`ReadThroughLayer::stats`]($crate::ReadThroughLayer::stats).
        pub fn stats(&self) -> $crate::stats::CacheStats {
            self.layer.stats()
        }

        /// As [`ReadThroughLayer::wait`]($crate::ReadThroughLayer::wait), with its default.
        #[must_use]
        pub fn wait(mut self, wait: $crate::Wait) -> Self {
            self.layer = self.layer.wait(wait);
            self
        }

        /// As [`ReadThroughLayer::lease`]($crate::ReadThroughLayer::lease), with its default.
        ///
        /// # Errors
        /// As there.
        pub fn lease(mut self, lease: std::time::Duration) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.lease(lease)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::load_timeout`]($crate::ReadThroughLayer::load_timeout), with its
        /// default.
        ///
        /// # Errors
        /// As there.
        pub fn load_timeout(
            mut self,
            limit: std::time::Duration,
        ) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.load_timeout(limit)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::slow_load`]($crate::ReadThroughLayer::slow_load), with its
        /// default.
        #[must_use]
        pub fn slow_load(mut self, after: std::time::Duration) -> Self {
            self.layer = self.layer.slow_load(after);
            self
        }

        /// As [`ReadThroughLayer::refresh_early`]($crate::ReadThroughLayer::refresh_early), with
        /// its default.
        ///
        /// # Errors
        /// As there.
        pub fn refresh_early(mut self, beta: f64) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.refresh_early(beta)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::jitter`]($crate::ReadThroughLayer::jitter), with its default.
        ///
        /// # Errors
        /// As there.
        pub fn jitter(mut self, share: f64) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.jitter(share)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::not_kept_for`]($crate::ReadThroughLayer::not_kept_for), with its
        /// default.
        #[must_use]
        pub fn not_kept_for(mut self, duration: std::time::Duration) -> Self {
            self.layer = self.layer.not_kept_for(duration);
            self
        }

        /// As [`ReadThroughLayer::failure_windows`]($crate::ReadThroughLayer::failure_windows),
        /// with its default.
        ///
        /// # Errors
        /// As there.
        pub fn failure_windows(
            mut self,
            first: std::time::Duration,
            longest: std::time::Duration,
        ) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.failure_windows(first, longest)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::failure_probes`]($crate::ReadThroughLayer::failure_probes), with
        /// its default.
        ///
        /// # Errors
        /// As there.
        pub fn failure_probes(
            mut self,
            first: std::time::Duration,
            longest: std::time::Duration,
        ) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.failure_probes(first, longest)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::when_store_fails`]($crate::ReadThroughLayer::when_store_fails),
        /// with its default.
        #[must_use]
        pub fn when_store_fails(mut self, when_store_fails: $crate::WhenStoreFails) -> Self {
            self.layer = self.layer.when_store_fails(when_store_fails);
            self
        }

        /// As [`ReadThroughLayer::when_abandoned`]($crate::ReadThroughLayer::when_abandoned), with
        /// its default.
        #[must_use]
        pub fn when_abandoned(mut self, when_abandoned: $crate::WhenAbandoned) -> Self {
            self.layer = self.layer.when_abandoned(when_abandoned);
            self
        }

        /// As [`ReadThroughLayer::max_entry_bytes`]($crate::ReadThroughLayer::max_entry_bytes),
        /// with its default.
        ///
        /// # Errors
        /// As there.
        pub fn max_entry_bytes(mut self, most: usize) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.max_entry_bytes(most)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::max_waiters`]($crate::ReadThroughLayer::max_waiters), with its
        /// default.
        ///
        /// # Errors
        /// As there.
        pub fn max_waiters(mut self, most: usize) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.max_waiters(most)?;
            Ok(self)
        }

        /// As [`ReadThroughLayer::max_flights`]($crate::ReadThroughLayer::max_flights), with its
        /// default.
        ///
        /// # Errors
        /// As there.
        pub fn max_flights(mut self, most: usize) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.max_flights(most)?;
            Ok(self)
        }

        /// As
        /// [`ReadThroughLayer::max_uncached_loads`]($crate::ReadThroughLayer::max_uncached_loads),
        /// with its default.
        ///
        /// # Errors
        /// As there.
        pub fn max_uncached_loads(mut self, most: usize) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.max_uncached_loads(most)?;
            Ok(self)
        }

        /// As
        /// [`ReadThroughLayer::max_abandoned_loads`]($crate::ReadThroughLayer::max_abandoned_loads),
        /// with its default.
        ///
        /// # Errors
        /// As there.
        pub fn max_abandoned_loads(mut self, most: usize) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.max_abandoned_loads(most)?;
            Ok(self)
        }
    };
}

//! The options of a `ReadThroughLayer`, for adapters that have one as a field.

/// Defines the load options of a [`ReadThroughLayer`](crate::ReadThroughLayer) on a type that has
/// one in its field `layer`. Call it inside an `impl` block; see the [module page](crate::adapter).
#[macro_export]
macro_rules! delegate_load_options {
    () => {
        $crate::delegate_load_options! { now }

        /// As [`ReadThroughLayer::stats`]($crate::ReadThroughLayer::stats).
        pub fn stats(&self) -> $crate::stats::CacheStats {
            self.layer.stats()
        }
    };
    ($when:ident) => {
        $crate::delegate_options! { $when
            name(name: impl Into<::std::sync::Arc<str>>);
            trace_keys(keys: $crate::trace::TraceKeys);
            wait(wait: $crate::Wait);
            slow_load(after: ::std::time::Duration);
            not_kept_for(duration: ::std::time::Duration);
            clearable();
            when_store_fails(when_store_fails: $crate::WhenStoreFails);
            when_abandoned(when_abandoned: $crate::WhenAbandoned);
            try lease(lease: ::std::time::Duration);
            try load_timeout(limit: ::std::time::Duration);
            try refresh_early(beta: f64);
            try jitter(share: f64);
            try failure_windows(first: ::std::time::Duration, longest: ::std::time::Duration);
            try failure_probes(first: ::std::time::Duration, longest: ::std::time::Duration);
            try max_entry_bytes(most: usize);
            try max_waiters(most: usize);
            try max_flights(most: usize);
            try max_uncached_loads(most: usize);
            try max_abandoned_loads(most: usize);
        }
    };
}

/// Defines options that do what those of the same name do on the field `layer`. `try` is for those that
/// can fail. With `later`, the field is a `Result`, and what is wrong is said by `build`.
#[doc(hidden)]
#[macro_export]
macro_rules! delegate_options {
    (later try $option:ident($($argument:ident: $type:ty),*); $($others:tt)*) => {
        #[doc = concat!(
            "As [`ReadThroughLayer::", stringify!($option), "`]($crate::ReadThroughLayer::",
            stringify!($option), "), with its default. [`build`](Self::build) has its errors."
        )]
        pub fn $option(mut self, $($argument: $type),*) -> Self {
            self.layer = self.layer.and_then(|layer| layer.$option($($argument),*));
            self
        }

        $crate::delegate_options! { later $($others)* }
    };
    (later $option:ident($($argument:ident: $type:ty),*); $($others:tt)*) => {
        #[doc = concat!(
            "As [`ReadThroughLayer::", stringify!($option), "`]($crate::ReadThroughLayer::",
            stringify!($option), "), with its default."
        )]
        pub fn $option(mut self, $($argument: $type),*) -> Self {
            self.layer = self.layer.map(|layer| layer.$option($($argument),*));
            self
        }

        $crate::delegate_options! { later $($others)* }
    };
    (now $option:ident($($argument:ident: $type:ty),*); $($others:tt)*) => {
        #[doc = concat!(
            "As [`ReadThroughLayer::", stringify!($option), "`]($crate::ReadThroughLayer::",
            stringify!($option), "), with its default."
        )]
        #[must_use]
        pub fn $option(mut self, $($argument: $type),*) -> Self {
            self.layer = self.layer.$option($($argument),*);
            self
        }

        $crate::delegate_options! { now $($others)* }
    };
    (now try $option:ident($($argument:ident: $type:ty),*); $($others:tt)*) => {
        #[doc = concat!(
            "As [`ReadThroughLayer::", stringify!($option), "`]($crate::ReadThroughLayer::",
            stringify!($option), "), with its default."
        )]
        ///
        /// # Errors
        /// As there.
        pub fn $option(mut self, $($argument: $type),*) -> Result<Self, $crate::ConfigError> {
            self.layer = self.layer.$option($($argument),*)?;
            Ok(self)
        }

        $crate::delegate_options! { now $($others)* }
    };
    ($when:ident) => {};
}

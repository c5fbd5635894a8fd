//! The options of a `ReadThroughLayer`, for adapters that have its builder as a field.

/// Defines the load options of a [`ReadThroughLayerBuilder`](crate::service::ReadThroughLayerBuilder) on a
/// type that has one in its field `layer`, and those that are named. Call it inside an `impl` block; see
/// the [module page](crate::adapter).
#[macro_export]
macro_rules! delegate_load_options {
    ($($more:tt)*) => {
        $crate::delegate_options! { layer: "bellwether::service::ReadThroughLayerBuilder";
            name(name: impl Into<::std::sync::Arc<str>>);
            enabled(enabled: bool);
            trace_keys(keys: $crate::trace::TraceKeys);
            wait(wait: $crate::Wait);
            slow_load(after: ::std::time::Duration);
            private_for(duration: ::std::time::Duration);
            clearable();
            when_store_fails(when_store_fails: $crate::WhenStoreFails);
            when_abandoned(when_abandoned: $crate::WhenAbandoned);
            lease(lease: ::std::time::Duration);
            load_timeout(limit: ::std::time::Duration);
            refresh_early(beta: f64);
            jitter(share: f64);
            failure_windows(first: ::std::time::Duration, longest: ::std::time::Duration);
            failure_probes(first: ::std::time::Duration, longest: ::std::time::Duration);
            max_entry_bytes(most: usize);
            max_waiters(most: usize);
            max_flights(most: usize);
            max_loads(most: impl Into<$crate::Loads>);
            max_abandoned_loads(most: usize);
            $($more)*
        }
    };
}

/// Defines options that do what those of the same name do on a field of this type.
#[doc(hidden)]
#[macro_export]
macro_rules! delegate_options {
    ($field:ident: $of:literal;
        $($(#[$attribute:meta])* $option:ident($($argument:ident: $type:ty),*);)*
    ) => {$(
        $(#[$attribute])*
        #[doc = concat!(
            "As [`", stringify!($option), "`](", $of, "::", stringify!($option), "), with its default."
        )]
        pub fn $option(mut self, $($argument: $type),*) -> Self {
            self.$field = self.$field.$option($($argument),*);
            self
        }
    )*};
}

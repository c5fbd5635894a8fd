//! The knobs of a `ReadThroughLayer` for what fails: loads, and the store.

use std::sync::Arc;
use std::time::Duration;

use super::core::AnyError;
use super::layer::{AN_HOUR, ReadThroughLayer};
use crate::config_error::{ConfigError, duration_within};
use crate::policy::{Doubling, WhenStoreFails};

impl<K, C> ReadThroughLayer<K, C> {
    /// Sets for how long a failure is shared in the whole fleet: `first` once it is confirmed, twice
    /// as long after each further failure in a row, and never longer than `longest`. Callers that
    /// ask meanwhile are given the failure at once, or a stale answer. A `first` of zero shares a
    /// failure with no later caller.
    ///
    /// A failure is confirmed by a second one in a row: a load may fail because of its own request,
    /// so the first failure is given only to the caller whose request it was. Callers that waited
    /// for that load share one more, made with the request of one of them.
    /// [`source_failures`](Self::source_failures) names errors that need no confirmation. A load
    /// that reaches [`load_timeout`](Self::load_timeout) is also an error for the callers that waited
    /// for all of it.
    ///
    /// Within the window the key is tried every [`failure_probes`](Self::failure_probes). The first
    /// load to succeed ends the window for the fleet.
    ///
    /// Default: 1 s up to 30 s. What fails is mostly overloaded.
    ///
    /// # Errors
    /// If `longest` is shorter than `first`, or longer than an hour.
    pub fn failure_windows(
        mut self,
        first: Duration,
        longest: Duration,
    ) -> Result<Self, ConfigError> {
        let longest = duration_within("longest failure window", longest, first, AN_HOUR)?;
        self.policy.failures.windows = Doubling { first, longest };
        Ok(self)
    }

    /// Sets how often a key that fails is tried within its failure window: one caller of the fleet
    /// is let through as a probe, `first` after the failure was confirmed, twice as long after each
    /// failed probe, and never longer than `longest` or the window. No other caller waits for a
    /// probe. A failing source sees at most one load per key and fleet in this time, plus the load
    /// that confirms the failure.
    ///
    /// Default: 100 ms up to 1 s, so that a source that is back is noticed within a second and a
    /// load. Set it to the [windows](Self::failure_windows) to have no probes.
    ///
    /// # Errors
    /// If `longest` is shorter than `first`, or longer than an hour.
    pub fn failure_probes(
        mut self,
        first: Duration,
        longest: Duration,
    ) -> Result<Self, ConfigError> {
        let longest = duration_within("longest pause between probes", longest, first, AN_HOUR)?;
        self.policy.failures.cooldowns = Doubling { first, longest };
        Ok(self)
    }

    /// Sets which errors of the loader are failures of the source whatever was asked for, as when it
    /// cannot be connected to. Such a failure is confirmed at once: every waiter shares it, and its
    /// [window](Self::failure_windows) begins.
    ///
    /// Default: none. An error may be the fault of one request, and the price of finding out is one
    /// more load.
    #[must_use]
    pub fn source_failures<E, F>(mut self, is_of_source: F) -> Self
    where
        E: 'static,
        F: Fn(&E) -> bool + Send + Sync + 'static,
    {
        let rule = move |error: AnyError<'_>| error.downcast_ref().is_some_and(&is_of_source);
        self.errors.is_of_source = Some(Arc::new(rule));
        self
    }

    /// Sets what other processes learn of a loader's error: up to 256 bytes of text, which every reader
    /// of the store can see. In this process, callers that share a failure get the error itself.
    ///
    /// Default: nothing but that there was one, since a message may hold anything.
    #[must_use]
    pub fn describe_failures<E, F>(mut self, describe: F) -> Self
    where
        E: 'static,
        F: Fn(&E) -> String + Send + Sync + 'static,
    {
        let describe = move |error: AnyError<'_>| error.downcast_ref().map(&describe);
        self.errors.describe = Some(Arc::new(describe));
        self
    }

    /// Sets what a request does when the store fails.
    ///
    /// Default: [`WhenStoreFails::Load`].
    #[must_use]
    pub fn when_store_fails(mut self, when_store_fails: WhenStoreFails) -> Self {
        self.policy.when_store_fails = when_store_fails;
        self
    }
}

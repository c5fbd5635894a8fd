//! The options of a `ReadThroughLayer` for failures of loads and of the store.

use std::sync::Arc;
use std::time::Duration;

use super::error_rules::AnyError;
use super::layer::{AN_HOUR, ReadThroughLayer};
use crate::config_error::{ConfigError, within};
use crate::error_class::ErrorClass;
use crate::policy::{Doubling, WhenStoreFails};

impl<K, C> ReadThroughLayer<K, C> {
    /// Sets the length of the cooldown, in which the whole fleet shares a failure: `first` once it
    /// is confirmed, twice as long after each further failure in a row, and never longer than
    /// `longest`. In the cooldown, callers get a stale answer or the failure, at once. A `first` of
    /// zero shares a failure with no later caller.
    ///
    /// A second failure in a row confirms the first. A load may fail because of its own request, so
    /// only the caller with that request gets the first failure. Its waiters share one more load,
    /// with the request of one of them. [`classify_error`](Self::classify_error) names errors that
    /// need no confirmation, and errors that are no failures. A load that reaches [`load_timeout`](Self::load_timeout) is also
    /// an error for the waiters that waited for all of it.
    ///
    /// In the cooldown, [probes](Self::failure_probes) try the key. The first load that succeeds
    /// ends it for the fleet.
    ///
    /// Default: 1 s up to 30 s. A failing source is usually overloaded, so retries back off.
    ///
    /// # Errors
    /// If `longest` is shorter than `first`, or longer than an hour.
    pub fn failure_windows(
        mut self,
        first: Duration,
        longest: Duration,
    ) -> Result<Self, ConfigError> {
        let longest = within("longest failure window", longest, first, AN_HOUR)?;
        self.policy.failures.windows = Doubling { first, longest };
        Ok(self)
    }

    /// Sets the pause before a probe: how long a failing key is not loaded before one caller of the
    /// fleet may probe it. The pause is `first` after the failure is confirmed, doubles after each
    /// failed probe, and is never longer than `longest` or the [cooldown](Self::failure_windows).
    /// No other caller waits for a probe. So in one pause the fleet loads a failing key at most
    /// once, besides the load that confirms the failure.
    ///
    /// Default: 100 ms up to 1 s, so the fleet notices that a source is back within a second and
    /// one load. To have no probes, set it to the same durations as the
    /// [cooldown](Self::failure_windows).
    ///
    /// # Errors
    /// If `longest` is shorter than `first`, or longer than an hour.
    pub fn failure_probes(
        mut self,
        first: Duration,
        longest: Duration,
    ) -> Result<Self, ConfigError> {
        let longest = within("longest pause between probes", longest, first, AN_HOUR)?;
        self.policy.failures.cooldowns = Doubling { first, longest };
        Ok(self)
    }

    /// Sets a function that classifies the loader's errors: whether an error is a failure of the
    /// source, says that there is no such thing, or is not to be remembered. See [`ErrorClass`].
    ///
    /// Default: every error is an [`ErrorClass::Failure`]. One request may have caused it, and it
    /// costs one more load to find out.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use std::time::Duration;
    ///
    /// use bellwether::{ErrorClass, Key, MemoryStore, ReadThroughLayer};
    ///
    /// let layer = ReadThroughLayer::new(MemoryStore::new(10_000), |sku: &u64| Key::of("item").with(*sku))
    ///     .ttl(Duration::from_secs(60))
    ///     .not_found_ttl(Duration::from_secs(5))
    ///     .classify_error(|error: &Error| match error.kind() {
    ///         ErrorKind::NotFound => ErrorClass::NotFound,
    ///         ErrorKind::ConnectionRefused => ErrorClass::SourceFailure,
    ///         _ => ErrorClass::Failure,
    ///     });
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn classify_error<E, F>(mut self, classify: F) -> Self
    where
        E: 'static,
        F: Fn(&E) -> ErrorClass + Send + Sync + 'static,
    {
        let classify = move |error: AnyError<'_>| error.downcast_ref().map(&classify);
        self.errors.classify = Some(Arc::new(classify));
        self
    }

    /// Sets what other processes learn of a loader's error: up to 256 bytes of text, which every
    /// reader of the store can see. Callers in this process that share a failure get the error
    /// itself.
    ///
    /// Default: only that there was an error, since a message may hold personal data.
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

//! Options of invalidations that fail, or that a failover may lose.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::within;

use super::RedisOptions;

impl RedisOptions {
    /// Sets how many failed invalidations are kept in this process and repeated until they succeed:
    /// one per key or tag, hard or soft. Zero keeps none: then the caller has to repeat an
    /// invalidation that fails.
    ///
    /// The error says [whether it is kept](bellwether::StoreError::is_kept). While it is, this process
    /// serves nothing of its key or tag: an operation that reads it repeats the invalidation first,
    /// or fails as that does. Commits of loads that began before do the same.
    ///
    /// One more than these is dropped, and its error says so. Then all that was stored before counts
    /// as absent in this process, and other processes are not told.
    ///
    /// With zero, nothing is re-asserted either, and after an error this process may serve what the
    /// invalidation should have removed.
    ///
    /// Default: 10,000. Each takes about 150 bytes while it is kept.
    ///
    /// # Errors
    /// If it is more than 1,000,000.
    pub fn kept_invalidations(mut self, most: usize) -> Result<Self, ConfigError> {
        self.keeping.most = within("kept invalidations of the store", most, 0, MOST)?;
        Ok(self)
    }

    /// Sets from how long before the loss of a server the invalidations by this process are
    /// re-asserted: repeated before their keys and tags are read from the server that is used next, and
    /// all of them by a task that starts with the next request to it, of whichever key.
    ///
    /// A failover loses what the promoted replica did not have, and a restart what was not written
    /// to the disk. So invalidations are remembered after they were acknowledged: as many as are
    /// [kept](Self::kept_invalidations), for ten minutes at most. They are re-asserted when a request
    /// gets no reply in time, when a connection breaks, when sentinels name another primary, and when a
    /// slot of a cluster gets another owner.
    ///
    /// To re-assert an invalidation costs a load of its key, and of each entry with its tag. To re-assert
    /// the expiry of an HTTP response with variants removes the variants, also those that were loaded
    /// since. That costs a load for each, and their stale windows are lost.
    ///
    /// Default: 10 s, many times what a replica usually lags behind. Zero re-asserts none.
    ///
    /// # Errors
    /// If it is more than ten minutes.
    pub fn reassert_window(mut self, window: Duration) -> Result<Self, ConfigError> {
        let longest = Duration::from_secs(600);
        let setting = "window of the store for invalidations to re-assert";
        self.keeping.window = within(setting, window, Duration::ZERO, longest)?;
        Ok(self)
    }
}

const MOST: usize = 1_000_000;

//! When to reconnect: the backoff between attempts, and new connections after a failover.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bb8_redis::bb8;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connect_error::ConnectError;
use super::dial::Driver;
use bellwether::adapter::LogThrottle;

/// The pauses between attempts to make one connection.
///
/// The pool makes one attempt at a time. After a failed attempt there is a pause, which doubles
/// from 50 ms up to a limit. The limit is longer for a mistake in the options or the credentials,
/// which usually lasts until a person corrects it. Jitter shortens it by up to a half, so that the processes of a fleet
/// do not reconnect in step. A request that needs the connection during a pause fails at once, with
/// the error of the last attempt.
#[derive(Clone, Debug)]
pub(super) struct ReconnectBackoff(Arc<BackoffState>);

#[derive(Debug)]
struct BackoffState {
    longest: Duration,
    /// The last attempt, if it failed. Never held across an `.await`.
    last: Mutex<Option<FailedAttempt>>,
    /// Notified when an attempt has failed and the pool can make another one.
    failed: watch::Sender<()>,
}

#[derive(Clone, Debug)]
struct FailedAttempt {
    error: ConnectError,
    in_a_row: u32,
    again_at: Instant,
}

impl ReconnectBackoff {
    /// A backoff with a limit to its pauses.
    pub(super) fn new(longest: Duration) -> Self {
        let (failed, _) = watch::channel(());
        Self(Arc::new(BackoffState { longest, last: Mutex::default(), failed }))
    }

    /// The limit to its pauses.
    pub(super) fn longest(&self) -> Duration {
        self.0.longest
    }

    /// Whether an attempt may begin now. If not, the error of the last one.
    pub(super) fn may_begin(&self, now: Instant) -> Result<(), ConnectError> {
        match &*self.last() {
            Some(failure) if now < failure.again_at => Err(failure.error.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn succeeded(&self) {
        *self.last() = None;
    }

    pub(super) fn failed(&self, error: &ConnectError, now: Instant, jitter: f64) {
        let mut last = self.last();
        let in_a_row = last.as_ref().map_or(0, |failure| failure.in_a_row).saturating_add(1);
        let limit = if error.is_mistake() { LONGEST_OF_MISTAKES } else { self.0.longest };
        let again_at = now + pause(in_a_row, limit.max(self.0.longest), jitter);
        *last = Some(FailedAttempt { error: error.clone(), in_a_row, again_at });
    }

    /// Begins to listen for the next failure.
    pub(super) fn next_failure(&self) -> NextFailure<'_> {
        NextFailure { backoff: self, failed: self.0.failed.subscribe() }
    }

    fn last(&self) -> MutexGuard<'_, Option<FailedAttempt>> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool reports a failed attempt when it is ready for the next one. So a later request does not
/// wait for the failed attempt.
impl bb8::ErrorSink<ConnectError> for ReconnectBackoff {
    fn sink(&self, error: ConnectError) {
        tracing::debug!(target: "bellwether::store", %error, "no connection to redis");
        self.0.failed.send_replace(());
    }

    fn boxed_clone(&self) -> Box<dyn bb8::ErrorSink<ConnectError>> {
        Box::new(self.clone())
    }
}

/// A wait for a failed attempt, for requests that need a connection.
#[derive(Debug)]
pub(super) struct NextFailure<'a> {
    backoff: &'a ReconnectBackoff,
    failed: watch::Receiver<()>,
}

impl NextFailure<'_> {
    /// Waits for the failure, and returns its error.
    pub(super) async fn wait(mut self) -> ConnectError {
        loop {
            // This cannot fail, because we hold the sender.
            _ = self.failed.changed().await;
            // None if another attempt has succeeded: then the pool has the connection.
            if let Some(failure) = self.backoff.last().clone() {
                return failure.error;
            }
        }
    }
}

fn pause(in_a_row: u32, longest: Duration, jitter: f64) -> Duration {
    let doublings = in_a_row.saturating_sub(1).min(16);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(longest);
    pause.mul_f64(0.5 + jitter / 2.0)
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The limit of the pauses for mistakes, so that one that is corrected is over within two seconds.
const LONGEST_OF_MISTAKES: Duration = Duration::from_secs(2);

/// Counts how often the server was found to be a replica. After a failover its address may lead to
/// another server, so all older connections are given up.
#[derive(Debug)]
pub(super) struct Failovers {
    count: AtomicU64,
    /// The open connections, and some that have ended. Held to add or take them, never across an
    /// `.await`.
    open: Mutex<Vec<Weak<Driver>>>,
    /// If the address still leads to a replica, a reconnect for each write would only add load.
    throttle: LogThrottle,
}

impl Default for Failovers {
    fn default() -> Self {
        let throttle = LogThrottle::once_per(Duration::from_secs(1));
        Self { count: AtomicU64::new(0), open: Mutex::default(), throttle }
    }
}

impl Failovers {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a connection that a [switch](Self::switch) ends.
    pub(super) fn watch(&self, connection: &Arc<Driver>) {
        let mut open = self.open();
        open.retain(|connection| connection.strong_count() > 0);
        open.push(Arc::downgrade(connection));
    }

    /// Another server is the primary now. All connections to the former one are ended, because it may
    /// still accept writes, which are lost.
    pub(super) fn switch(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let open = mem::take(&mut *self.open());
        open.iter().filter_map(Weak::upgrade).for_each(|connection| connection.end());
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<Driver>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self) {
        if self.throttle.admit().is_some() {
            self.count.fetch_add(1, Ordering::Relaxed);
            static LOG: LogThrottle = LogThrottle::once_per(Duration::from_secs(10));
            if let Some(held_back) = LOG.admit() {
                tracing::warn!(target: "bellwether::store", held_back, "redis has become a replica: connecting again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const LONGEST: Duration = Duration::from_millis(400);

    fn refused() -> ConnectError {
        io::Error::other("refused").into()
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_differ_between_processes() {
        let millis =
            |jitter| [1, 2, 3, 4, 5, u32::MAX].map(|n| pause(n, LONGEST, jitter).as_millis());
        assert_eq!(millis(1.0), [50, 100, 200, 400, 400, 400]);
        assert_eq!(millis(0.0), [25, 50, 100, 200, 200, 200]);
    }

    #[test]
    fn after_a_failure_there_is_no_attempt_before_the_pause_is_over() {
        let backoff = ReconnectBackoff::new(LONGEST);
        let now = Instant::now();
        assert!(backoff.may_begin(now).is_ok());
        backoff.failed(&refused(), now, 1.0);
        let why = backoff.may_begin(now + FIRST_PAUSE / 2).unwrap_err();
        assert!(why.to_string().contains("refused"), "{why}");
        assert!(backoff.may_begin(now + FIRST_PAUSE).is_ok());
    }

    #[test]
    fn a_mistake_is_tried_again_every_two_seconds_at_most() {
        let backoff = ReconnectBackoff::new(LONGEST);
        let now = Instant::now();
        let mistake = ConnectError::misconfigured("a wrong certificate");
        (0..9).for_each(|_| backoff.failed(&mistake, now, 1.0));
        assert!(backoff.may_begin(now + LONGEST_OF_MISTAKES * 9 / 10).is_err());
        assert!(backoff.may_begin(now + LONGEST_OF_MISTAKES).is_ok());
    }

    #[test]
    fn a_success_starts_the_pauses_again() {
        let backoff = ReconnectBackoff::new(LONGEST);
        let now = Instant::now();
        (0..9).for_each(|_| backoff.failed(&refused(), now, 1.0));
        backoff.succeeded();
        assert!(backoff.may_begin(now).is_ok());
        backoff.failed(&refused(), now, 1.0);
        assert!(backoff.may_begin(now + FIRST_PAUSE).is_ok());
    }

    #[test]
    fn many_requests_that_find_a_replica_cause_one_reconnect_a_second() {
        let failovers = Failovers::default();
        (0..1000).for_each(|_| failovers.note());
        assert_eq!(failovers.count(), 1);
    }
}

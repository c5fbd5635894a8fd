//! Health: whether requests are sent at all, and what is logged about outages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::breaker::{Admission, Breaker, BreakerRules, Transition};
use bellwether::adapter::LogThrottle;
use bellwether::{StoreError, StoreErrorKind};

/// The circuit breaker of all requests to a node, and its log messages.
#[derive(Debug)]
pub(super) struct Health {
    breaker: Breaker,
    /// The error of requests that are not sent. Never held across an `.await`.
    down: Mutex<StoreError>,
    outages: Outages,
    went_down: LogThrottle,
    came_back: LogThrottle,
}

/// The outages of all nodes of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages(Arc<OutageState>);

#[derive(Debug, Default)]
struct OutageState {
    count: AtomicU64,
    is_back: Arc<Notify>,
}

impl Outages {
    pub(super) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Notified when a node answers again after an outage. Wakes all tasks that wait, or the next one.
    pub(super) fn is_back(&self) -> Arc<Notify> {
        Arc::clone(&self.0.is_back)
    }
}

impl Health {
    pub(super) fn new(rules: BreakerRules, outages: Outages) -> Self {
        Self {
            breaker: Breaker::new(rules),
            down: Mutex::new(StoreError::new(StoreErrorKind::Down, DOWN)),
            outages,
            went_down: LogThrottle::once_per(LOG_EVERY),
            came_back: LogThrottle::once_per(LOG_EVERY),
        }
    }

    /// Admits a request, unless the server is taken to be down. A dropped admission counts as
    /// neither a success nor a failure.
    pub(super) fn admit(&self) -> Result<Admission<'_>, StoreError> {
        self.breaker.admit().ok_or_else(|| self.down())
    }

    /// Notes that the server has answered an admitted request. A refusal is a reply.
    pub(super) fn answered(&self, admission: Admission<'_>) {
        if admission.answered() == Some(Transition::Closed) {
            self.note_back();
        }
    }

    /// Notes that an admitted request has met an outage. Returns whether the server is taken to be
    /// down from now on.
    pub(super) fn failed(&self, admission: Admission<'_>, error: &StoreError) -> bool {
        let has_opened = admission.failed() == Some(Transition::Opened);
        if has_opened {
            self.note_down(error);
        }
        has_opened
    }

    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    fn down(&self) -> StoreError {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_down(&self, last: &StoreError) {
        self.outages.0.count.fetch_add(1, Ordering::Relaxed);
        let down = StoreError::new(StoreErrorKind::Down, format!("{DOWN}, the last one: {last}"))
            .with_source(last.clone());
        *self.down.lock().unwrap_or_else(PoisonError::into_inner) = down;
        if let Some(held_back) = self.went_down.admit() {
            tracing::warn!(target: "bellwether::store", held_back, %last, "redis is taken to be down");
        }
    }

    fn note_back(&self) {
        self.outages.0.is_back.notify_waiters();
        // For a task that is about to wait.
        self.outages.0.is_back.notify_one();
        if let Some(held_back) = self.came_back.admit() {
            tracing::info!(target: "bellwether::store", held_back, "redis answers again");
        }
    }
}

const DOWN: &str =
    "redis is taken to be down, and was not asked: too many operations in a row failed";

const LOG_EVERY: Duration = Duration::from_secs(10);

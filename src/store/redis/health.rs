//! Health: whether the server is asked at all, and what is said about it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::{StoreError, StoreErrorKind};
use crate::log_throttle::LogThrottle;
use crate::store::breaker::{Breaker, Rules, Turn};

/// Around every operation of a store.
#[derive(Debug)]
pub(super) struct Health {
    breaker: Breaker,
    /// What an operation comes to that is not tried. Never held across an `.await`.
    down: Mutex<StoreError>,
    /// Told when the server answers again.
    is_back: Arc<Notify>,
    went_down: LogThrottle,
    came_back: LogThrottle,
}

impl Health {
    pub(super) fn new(rules: Rules) -> Self {
        let down = Mutex::new(StoreError::new(StoreErrorKind::Down, DOWN));
        let [went_down, came_back] = [(); 2].map(|()| LogThrottle::once_per(LOG_EVERY));
        let is_back = Arc::default();
        Self { breaker: Breaker::new(rules), down, is_back, went_down, came_back }
    }

    /// Does it, unless the server is taken to be down.
    ///
    /// # Cancel safety
    /// What is dropped counts neither way.
    pub(super) async fn around<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(pass) = self.breaker.admit() else {
            return Err(self.down());
        };
        let answer = operation.await;
        match &answer {
            Err(error) if is_outage(error.kind()) => {
                if pass.failed() == Some(Turn::Opened) {
                    self.note_down(error);
                }
            }
            // To be refused is to be answered.
            _ => {
                if pass.answered() == Some(Turn::Closed) {
                    self.note_back();
                }
            }
        }
        answer
    }

    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    pub(super) fn outages(&self) -> u64 {
        self.breaker.opened()
    }

    /// What one task is told when the server answers again, after having been taken to be down.
    pub(super) fn is_back(&self) -> Arc<Notify> {
        Arc::clone(&self.is_back)
    }

    fn down(&self) -> StoreError {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_down(&self, last: &StoreError) {
        let down = StoreError::new(StoreErrorKind::Down, format!("{DOWN}, the last one: {last}"));
        *self.down.lock().unwrap_or_else(PoisonError::into_inner) = down;
        if let Some(held_back) = self.went_down.admit() {
            tracing::warn!(held_back, %last, "redis is taken to be down");
        }
    }

    fn note_back(&self) {
        self.is_back.notify_one();
        if let Some(held_back) = self.came_back.admit() {
            tracing::info!(held_back, "redis answers again");
        }
    }
}

/// Whether it means that the store is down or slow, and not that one operation is refused.
fn is_outage(kind: StoreErrorKind) -> bool {
    use StoreErrorKind::{NotReady, TimedOut, Unreachable};
    matches!(kind, NotReady | TimedOut | Unreachable)
}

const DOWN: &str =
    "redis is taken to be down, and was not asked: too many operations in a row failed";

const LOG_EVERY: Duration = Duration::from_secs(10);

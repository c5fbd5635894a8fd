//! Two services increment one counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bellwether::Key;
use bellwether_lock::{Lock, LockError, Locks};
use futures_util::future::{join, try_join};
use tokio::time::sleep;

/// The result of counting.
pub(crate) struct Outcome {
    pub(crate) counted: u32,
    /// How long an increment took, with its turn to be waited for.
    pub(crate) each: Duration,
    pub(crate) fences: Fences,
}

/// Whether the fencing tokens grew, in the order of the increments.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fences {
    /// There are none.
    None,
    Grew,
    Fell,
}

/// A counter without anything that keeps two writers apart, as a row of a database is that is read
/// and written by two statements.
#[derive(Default)]
struct Counter {
    value: AtomicU32,
    /// The fences of the writers, in the order of their writes.
    fences: std::sync::Mutex<Vec<Option<u64>>>,
}

impl Counter {
    async fn increment(&self, fence: Option<u64>) {
        let value = self.value.load(Ordering::SeqCst);
        sleep(THINKING).await;
        self.value.store(value + 1, Ordering::SeqCst);
        self.fences.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(fence);
    }

    fn outcome(&self, increments: u32, took: Duration) -> Outcome {
        let fences = self.fences.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known: Option<Vec<u64>> = fences.iter().copied().collect();
        let fences = match known {
            None => Fences::None,
            Some(fences) if fences.is_sorted_by(|one, next| one < next) => Fences::Grew,
            Some(_) => Fences::Fell,
        };
        Outcome {
            counted: self.value.load(Ordering::SeqCst),
            each: took / increments.max(1),
            fences,
        }
    }
}

/// The result without a lock.
pub(crate) async fn unprotected(rounds: u32) -> Outcome {
    let counter = Counter::default();
    let began = Instant::now();
    let service = async || {
        for _ in 0..rounds {
            counter.increment(None).await;
        }
    };
    join(service(), service()).await;
    counter.outcome(2 * rounds, began.elapsed())
}

/// The result when each increment is made under a lock.
pub(crate) async fn by(
    [one, other]: [Locks<Arc<dyn Lock>>; 2],
    rounds: u32,
) -> Result<Outcome, LockError> {
    let counter = Counter::default();
    let began = Instant::now();
    let key = Key::of("counter");
    let service = async |locks: Locks<Arc<dyn Lock>>| {
        for _ in 0..rounds {
            let held = locks.lock(&key).await?;
            counter.increment(held.status().fence()).await;
            held.release().await?;
        }
        Ok::<_, LockError>(())
    };
    try_join(service(one), service(other)).await?;
    Ok(counter.outcome(2 * rounds, began.elapsed()))
}

/// From the reading to the writing.
const THINKING: Duration = Duration::from_millis(1);

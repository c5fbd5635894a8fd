//! A storm: callers that ask for a key again and again, and how they fared.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::adapter::locked;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use tower::Service;

use crate::messages::{Answer, How};
use crate::worker::{Ask, Member};

/// The callers: how many, how often and for how long.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Storm {
    pub(crate) key: u64,
    pub(crate) callers: usize,
    pub(crate) millis: u64,
    /// How long a caller pauses between an answer and its next call.
    pub(crate) rest_millis: u64,
}

/// How the callers of a storm fared.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Fared {
    /// How long each call took, in microseconds.
    pub(crate) took: Vec<u64>,
    pub(crate) failed: u64,
    pub(crate) stale: u64,
    pub(crate) hits: u64,
    /// One of the errors.
    pub(crate) error: Option<String>,
}

impl Member {
    /// Lets callers ask until the time is over. A caller that is stuck fails the test, because
    /// nothing else ends it.
    pub(crate) async fn storm(&self, storm: Storm) -> Fared {
        let fared = Arc::new(Mutex::new(Fared::default()));
        let over = Instant::now() + Duration::from_millis(storm.millis);
        let callers = (0..storm.callers).map(|number| {
            let member = self.clone_service();
            let fared = Arc::clone(&fared);
            tokio::spawn(async move {
                let mut service = member;
                let rest = Duration::from_millis(storm.rest_millis);
                // So that they do not all ask at the same moments.
                sleep(rest.mul_f64(number as f64 / storm.callers as f64)).await;
                while Instant::now() < over {
                    let began = Instant::now();
                    let call = pin!(service.call(Ask::of(storm.key)).with_status());
                    let answer = timeout(STUCK, call).await.expect("no caller is stuck");
                    let took = began.elapsed();
                    locked(&fared).count(&Answer::of(answer), took);
                    sleep(rest).await;
                }
            })
        });
        let ended = join_all(callers.collect::<Vec<_>>()).await;
        ended.into_iter().for_each(|ended| ended.expect("no panic"));
        std::mem::take(&mut *locked(&fared))
    }
}

impl Fared {
    fn count(&mut self, answer: &Answer, took: Duration) {
        self.took.push(took.as_micros() as u64);
        match (&answer.version, answer.how) {
            (Err(error), _) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.clone());
            }
            (_, How::Stale) => self.stale += 1,
            (_, How::Hit) => self.hits += 1,
            _ => {}
        }
    }

    /// All of them together.
    pub(crate) fn all(fared: impl IntoIterator<Item = Self>) -> Self {
        fared.into_iter().fold(Self::default(), |mut all, one| {
            all.took.extend(one.took);
            all.failed += one.failed;
            all.stale += one.stale;
            all.hits += one.hits;
            all.error = all.error.or(one.error);
            all
        })
    }

    /// How long a call took that was slower than so many of a thousand.
    pub(crate) fn slower_than(&self, of_thousand: usize) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (took.len() * of_thousand / 1000).min(took.len().saturating_sub(1));
        Duration::from_micros(took.get(at).copied().unwrap_or_default())
    }

    pub(crate) fn calls(&self) -> usize {
        self.took.len()
    }

    pub(crate) fn summary(&self) -> String {
        let [p50, p99, most] = [500, 990, 1000].map(|of| self.slower_than(of));
        let Self { failed, stale, hits, error, .. } = self;
        let calls = self.calls();
        format!(
            "{calls} calls, {failed} failed, {stale} stale, {hits} hits, took p50 {p50:?}, \
             p99 {p99:?}, at most {most:?} ({error:?})"
        )
    }
}

/// Longer than any call may take.
const STUCK: Duration = Duration::from_secs(60);

//! `Gradient`: a bound that follows the times of loads.

use std::mem;

use tokio::time::Instant;

/// Finds how many loads fill a source, as the gradient of Netflix's `concurrency-limits` and the adaptive
/// concurrency of Envoy do. After each round of as many loads as the bound,
///
/// ```text
///  bound = bound x (time without a queue / time of this round) + root of the bound
/// ```
///
/// So the source has a queue of about the root of the bound. The time without a queue is that of a round with
/// half the bound, as BBR drains a path of the network to measure it. Means are compared, since loads of
/// different keys take different times.
#[derive(Debug)]
pub(super) struct Gradient {
    bound: usize,
    most: usize,
    /// The mean time of a load without a queue, in seconds. Infinite until it is known.
    unqueued: f64,
    /// The round: loads that have begun since then count.
    began: Instant,
    count: usize,
    seconds: f64,
    /// Whether as many loads were under way in this round as may be.
    was_full: bool,
    /// How many rounds have passed since a load time without a queue was measured.
    rounds: u32,
    /// The bound after this round, if it measures that.
    after_probe: Option<usize>,
}

impl Gradient {
    pub(super) fn new(most: usize) -> Self {
        Self {
            bound: FIRST.min(most),
            most,
            unqueued: f64::INFINITY,
            began: Instant::now(),
            count: 0,
            seconds: 0.0,
            was_full: false,
            rounds: 0,
            after_probe: None,
        }
    }

    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// As many loads are under way as may be.
    pub(super) fn note_full(&mut self) {
        self.was_full = true;
    }

    /// A load that began then has ended.
    pub(super) fn note(&mut self, began: Instant, now: Instant) {
        if began < self.began {
            return;
        }
        self.count += 1;
        self.seconds += (now - began).as_secs_f64();
        if self.count >= self.bound.max(LEAST_LOADS) {
            let mean = self.seconds.max(f64::MIN_POSITIVE) / self.count as f64;
            self.bound = self.next(mean).clamp(1, self.most);
            (self.began, self.count, self.seconds) = (now, 0, 0.0);
        }
    }

    /// The bound after a round in which loads took so many seconds.
    fn next(&mut self, mean: f64) -> usize {
        let was_full = mem::take(&mut self.was_full);
        self.rounds += 1;
        if let Some(bound) = self.after_probe.take() {
            (self.unqueued, self.rounds) = (mean, 0);
            return bound;
        }
        self.unqueued = self.unqueued.min(mean);
        let (half, gradient) = (self.bound / 2, self.unqueued / mean);
        // Either the queue is long, or the source itself has become slower. Half the bound will tell.
        if gradient < 0.5 {
            self.after_probe = Some(half);
            return half;
        }
        if was_full && self.rounds >= PROBE_EVERY {
            self.after_probe = Some(self.bound);
            return half;
        }
        let bound = self.bound as f64;
        let next = (bound * gradient + bound.sqrt()) as usize;
        if was_full { next } else { next.min(self.bound) }
    }
}

/// The bound of the first round. It doubles within three rounds.
const FIRST: usize = 4;

/// The least number of loads of a round, so that one slow load does not count for much.
const LEAST_LOADS: usize = 8;

/// After so many rounds, one measures the time without a queue. It costs half the rate of a round at most.
const PROBE_EVERY: u32 = 16;

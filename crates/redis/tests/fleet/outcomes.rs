//! How requests ended: as their callers were told, as a process counts it, and as it publishes it.

use std::ops::AddAssign;

use bellwether::stats::{CacheStats, CurrentStats, RequestStats};
use bellwether_testkit::exposition::sum_of;
use serde::{Deserialize, Serialize};

use crate::messages::{Answer, How};

/// How many requests ended in which way.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Outcomes {
    pub(crate) hits: u64,
    pub(crate) stale: u64,
    pub(crate) led: u64,
    pub(crate) collapsed: u64,
    pub(crate) bypassed: u64,
    pub(crate) failed: u64,
    /// Their callers left.
    pub(crate) left: u64,
}

impl Outcomes {
    /// How these callers were answered.
    pub(crate) fn of(answers: &[Answer]) -> Self {
        let mut told = Self::default();
        answers.iter().for_each(|answer| told.note(answer.how));
        told
    }

    /// A caller was answered.
    pub(crate) fn note(&mut self, how: How) {
        *match how {
            How::Hit => &mut self.hits,
            How::Stale => &mut self.stale,
            How::Led { .. } => &mut self.led,
            How::CollapsedElsewhere | How::CollapsedHere => &mut self.collapsed,
            How::Bypassed => &mut self.bypassed,
            How::Failed => &mut self.failed,
        } += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        let Self { hits, stale, led, collapsed, bypassed, failed, left } = self;
        hits + stale + led + collapsed + bypassed + failed + left
    }

    /// Whether there are as many of each, or more.
    pub(crate) fn includes(&self, fewer: &Self) -> bool {
        let all = |it: &Self| {
            let Self { hits, stale, led, collapsed, bypassed, failed, left } = *it;
            [hits, stale, led, collapsed, bypassed, failed, left]
        };
        all(self).into_iter().zip(all(fewer)).all(|(more, fewer)| more >= fewer)
    }

    fn counted(requests: &RequestStats) -> Self {
        Self {
            hits: requests.hits(),
            stale: requests.stale(),
            led: requests.led(),
            collapsed: requests.collapsed(),
            bypassed: requests.bypassed(),
            failed: requests.failed(),
            left: requests.left,
        }
    }

    fn published(text: &str) -> Self {
        let of = |outcome: &str| {
            let outcome = format!("outcome=\"{outcome}\"");
            sum_of(text, "bellwether_requests_total", &outcome) as u64
        };
        Self {
            hits: of("hit"),
            stale: of("stale"),
            led: of("led"),
            collapsed: of("collapsed"),
            bypassed: of("bypassed"),
            failed: of("failed"),
            left: of("left"),
        }
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.stale += other.stale;
        self.led += other.led;
        self.collapsed += other.collapsed;
        self.bypassed += other.bypassed;
        self.failed += other.failed;
        self.left += other.left;
    }
}

/// The statistics of a process at one moment, and the metrics that it publishes of them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Scrape {
    pub(crate) requests: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) loads_started: u64,
    pub(crate) loads_ended: u64,
    pub(crate) flights: u64,
    pub(crate) waiters: u64,
    pub(crate) queued_loads: u64,
    text: String,
}

impl Scrape {
    pub(crate) fn of(stats: &CacheStats, text: String) -> Self {
        let CurrentStats { flights, waiters, queued_loads, .. } = stats.current;
        Self {
            requests: stats.requests.total(),
            outcomes: Outcomes::counted(&stats.requests),
            loads_started: stats.loads.total(),
            loads_ended: stats.load_times.total(),
            flights,
            waiters,
            queued_loads,
            text,
        }
    }

    /// Asserts that no request is in no group or in two, and that the text says the same.
    pub(crate) fn is_published(&self) {
        assert_eq!(self.requests, self.outcomes.total());
        assert_eq!(self.outcomes, Outcomes::published(&self.text));
        self.publishes("requests_total", self.requests);
        self.publishes("loads_started_total", self.loads_started);
        self.publishes("load_duration_seconds_count", self.loads_ended);
        self.publishes("loads_running", self.loads_started - self.loads_ended);
        self.publishes("flights", self.flights);
        self.publishes("waiters", self.waiters);
        self.publishes("loads_queued", self.queued_loads);
    }

    /// The same, of a process in which nothing ends at this moment: its times have all that its
    /// counters have.
    pub(crate) fn is_settled(&self) {
        self.is_published();
        self.publishes("wait_duration_seconds_count", self.outcomes.collapsed);
    }

    fn publishes(&self, metric: &str, value: u64) {
        let published = sum_of(&self.text, &format!("bellwether_{metric}"), "");
        assert_eq!(published, value as f64, "{metric} of {}", self.text);
    }
}

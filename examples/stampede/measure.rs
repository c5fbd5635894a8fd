//! The figures of each way, from the answers of all callers.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::database::Counts;
use crate::messages::{Answer, Load, Report};
use crate::ways::Way;

/// One burst of one way.
pub(crate) struct Burst {
    pub(crate) way: Way,
    pub(crate) round: u32,
    pub(crate) start: u64,
    pub(crate) answers: Vec<Answer>,
    pub(crate) loads: Vec<Load>,
    /// The Redis commands that clients sent, or `None` without a Redis.
    pub(crate) commands: Option<u64>,
}

/// The figures of one way. A figure that does not apply is `null`.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) queries_per_key_mean: f64,
    pub(crate) queries_per_key_max: u64,
    pub(crate) behind_load_ms: Option<Quantiles>,
    pub(crate) latency_ms: Option<Quantiles>,
    pub(crate) redis_commands_per_burst: Option<f64>,
    pub(crate) errors: u64,
    pub(crate) answers: u64,
    /// The message of the first error of a caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Burst {
    pub(crate) fn new(
        way: Way,
        round: u32,
        start: u64,
        reports: Vec<Report>,
        commands: Option<u64>,
    ) -> Self {
        let mut burst =
            Self { way, round, start, answers: Vec::new(), loads: Vec::new(), commands };
        for report in reports {
            burst.answers.extend(report.answers);
            burst.loads.extend(report.loads);
        }
        burst
    }

    /// How long after the end of its key's first load each waiter has its answer, in ms.
    ///
    /// A waiter is a caller with a correct answer that another caller's load gave it.
    pub(crate) fn behind_load(&self) -> Vec<f64> {
        let ended = self.first_load_ends();
        let waiters = self.answers.iter().filter(|answer| !answer.loaded && answer.fault.is_none());
        waiters
            .filter_map(|answer| Some(ms(answer.at.saturating_sub(*ended.get(&answer.sku)?))))
            .collect()
    }

    fn first_load_ends(&self) -> HashMap<u32, u64> {
        let mut ends = HashMap::new();
        for load in &self.loads {
            let first = ends.entry(load.ask.sku).or_insert(load.ended);
            *first = load.ended.min(*first);
        }
        ends
    }

    fn keys(&self) -> HashSet<u32> {
        self.answers.iter().map(|answer| answer.sku).collect()
    }
}

impl Summary {
    pub(crate) fn of(way: Way, bursts: &[Burst], queries: &Counts) -> Self {
        let bursts: Vec<&Burst> = bursts.iter().filter(|burst| burst.way == way).collect();
        let answers = || bursts.iter().flat_map(|burst| &burst.answers);
        let faults = || answers().filter_map(|answer| answer.fault.as_ref());
        let good = answers().filter(|answer| answer.fault.is_none());
        let per_key = queries_per_key(&bursts, queries);
        let commands: Option<Vec<u64>> = bursts.iter().map(|burst| burst.commands).collect();
        Self {
            queries_per_key_mean: rounded(mean(&per_key).unwrap_or(0.0)),
            queries_per_key_max: per_key.iter().copied().max().unwrap_or(0),
            behind_load_ms: Quantiles::of(
                bursts.iter().flat_map(|burst| burst.behind_load()).collect(),
            ),
            latency_ms: Quantiles::of(answers().map(|answer| ms(answer.latency_us)).collect()),
            redis_commands_per_burst: commands.and_then(|commands| mean(&commands)).map(rounded),
            errors: faults().count() as u64,
            answers: good.count() as u64,
            first_error: faults().next().cloned(),
        }
    }
}

/// By the database's count, and 0 for a key that callers asked for but no caller loaded.
fn queries_per_key(bursts: &[&Burst], queries: &Counts) -> Vec<u64> {
    let asked = bursts
        .iter()
        .flat_map(|burst| burst.keys().into_iter().map(|sku| (burst.way, burst.round, sku)));
    asked.map(|key| queries.get(&key).copied().unwrap_or(0)).collect()
}

impl Quantiles {
    /// `None` if there are no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| at_share(&values, share).map(rounded);
        Some(Self { p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

/// The least of the sorted values that at least that share of them does not exceed. `None` if there
/// are none.
pub(crate) fn at_share(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
    sorted.get(rank).copied()
}

fn mean(values: &[u64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<u64>() as f64 / values.len() as f64)
}

pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Ask;

    fn answer(sku: u32, at: u64, loaded: bool) -> Answer {
        Answer { sku, at, latency_us: 0, loaded, fault: None }
    }

    fn load(sku: u32, ended: u64) -> Load {
        Load { ask: Ask { sku, round: 0, caller: 0 }, started: 0, ended }
    }

    #[test]
    fn quantiles_are_measured_values() {
        let values = (1..=200).rev().map(f64::from).collect();
        assert_eq!(Quantiles::of(values), Some(Quantiles { p50: 100.0, p99: 198.0, max: 200.0 }));
        assert_eq!(Quantiles::of(vec![7.0]), Some(Quantiles { p50: 7.0, p99: 7.0, max: 7.0 }));
        assert_eq!(Quantiles::of(Vec::new()), None);
    }

    #[test]
    fn waiters_are_measured_from_the_first_load_of_their_key() {
        let answers =
            vec![answer(1, 9_000, true), answer(1, 7_000, false), answer(2, 8_500, false)];
        let loads = vec![load(1, 6_000), load(1, 5_000), load(2, 8_000)];
        let report = Report { answers, loads };
        let burst = Burst::new(Way::Bellwether, 0, 0, vec![report], None);
        assert_eq!(burst.behind_load(), [2.0, 0.5]);
    }
}

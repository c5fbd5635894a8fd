//! Bursts: all workers miss a new key at the same moment, and the source counts the loads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::clock::now;
use crate::faults::FaultLog;
use crate::hub::{BurstReport, Hub};
use crate::kinds::{Kind, RowKey};
use crate::locked::locked;
use crate::messages::{Order, Promise, Suspect};
use crate::row::Versions;

/// Callers in each worker.
const CALLERS: usize = 12;
const PAUSE: Duration = Duration::from_millis(60);
/// How long before its moment a burst is announced, in microseconds.
const AHEAD: u64 = 15_000;
/// How long a burst may take under faults.
const PATIENCE: Duration = Duration::from_secs(20);
/// If a process does not run for so long, in microseconds, its requests to Redis may time out.
const STALLED: u64 = 200_000;

/// Plays bursts one after the other, until it is dropped.
pub(crate) async fn run(hub: Arc<Hub>, log: Arc<Mutex<FaultLog>>, workers: usize) {
    let mut round = 0;
    loop {
        sleep(PAUSE).await;
        round += 1;
        play(&hub, &log, workers, round).await;
    }
}

async fn play(hub: &Hub, log: &Mutex<FaultLog>, workers: usize, round: u64) {
    let at = now() + AHEAD;
    let stalled = hub.stalled();
    let key = RowKey { kind: Kind::Burst, number: round };
    hub.take_bursts();
    hub.order(&Order::Burst { round, at, callers: CALLERS });
    let until = Instant::now() + PATIENCE;
    let mut reports: Vec<BurstReport> = Vec::new();
    while reports.len() < workers && Instant::now() < until {
        sleep(Duration::from_millis(2)).await;
        reports.extend(hub.take_bursts().into_iter().filter(|report| report.round == round));
    }
    let loads = hub.take_loads(key.id());
    let is_calm = locked(log).is_calm(at, now());
    let is_complete = reports.len() == workers;
    let ran = reports.iter().all(|report| report.stalled < STALLED)
        && hub.stalled().saturating_sub(stalled) < STALLED;
    if !(is_calm && is_complete && ran) {
        hub.measure("loads per key, faults", loads);
        return;
    }
    // The machine was too busy for Redis to answer in time, which is a fault of its own.
    if reports.iter().any(|report| report.bypassed > 0) {
        hub.measure("loads per key, Redis too slow", loads);
        return;
    }
    hub.measure("loads per key, no fault", loads);
    let failed = reports.iter().find(|report| report.errors > 0);
    if loads != 1 || failed.is_some() {
        let detail = format!("{loads} loads, reports: {reports:?}");
        let reader = failed.map_or(0, |report| 2 * report.worker as usize);
        hub.suspect(suspect(key, at, reader, detail));
    }
}

fn suspect(key: RowKey, began: u64, member: usize, detail: String) -> Suspect {
    Suspect {
        promise: Promise::OneLoad,
        key: key.id(),
        tier: "burst".to_owned(),
        status: String::new(),
        member,
        began,
        ended: now(),
        got: Versions::default(),
        load: (0, 0),
        loader: 0,
        broken: Vec::new(),
        is_undecided: false,
        detail,
    }
}

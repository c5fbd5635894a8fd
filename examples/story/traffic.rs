//! The requests, and what is counted of them.

use std::time::Duration;

use bellwether::{BoxError, CacheStatus};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::fleet::Process;

/// Each process gets a request at each tick.
const TICK: Duration = Duration::from_millis(20);

/// Two and a half minutes.
const TICKS: u32 = 7_500;

/// When the price changes. The second time, the load that follows the first one is under way.
const CHANGES: [u32; 2] = [1_500, 1_510];

/// When the store is lost, and found again.
const OUTAGE: [u32; 2] = [3_500, 4_500];

/// What happens beside the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Changes,
    Nothing,
    Outage,
}

impl Event {
    async fn happen(self, tick: u32, processes: &[Process]) -> Result<(), BoxError> {
        if self == Self::Changes && CHANGES.contains(&tick) {
            processes[0].raise_price().await?;
        }
        if self == Self::Outage && tick == OUTAGE[0] {
            processes.iter().for_each(Process::lose_store);
        }
        if self == Self::Outage && tick == OUTAGE[1] {
            processes.iter().for_each(Process::find_store);
        }
        Ok(())
    }
}

/// What came of the requests of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) queries: usize,
    /// Answers that took time: a query, or the wait for one.
    pub(crate) waited: usize,
    /// Answers from a stale window.
    pub(crate) stale: usize,
    /// Answers with a price that had changed before they were asked for.
    pub(crate) wrong: usize,
    pub(crate) failed: usize,
}

impl Counts {
    fn add(&mut self, answer: &Answer) {
        self.waited += usize::from(!answer.took.is_zero());
        self.stale += usize::from(answer.is_stale);
        self.wrong += usize::from(answer.is_wrong);
        self.failed += usize::from(answer.is_error);
    }
}

/// What came of one request.
struct Answer {
    took: Duration,
    is_stale: bool,
    is_wrong: bool,
    is_error: bool,
}

async fn request(process: Process) -> Answer {
    let (began, current) = (Instant::now(), process.database().price());
    let (price, status) = process.price().await;
    Answer {
        took: began.elapsed(),
        is_stale: matches!(status, Some(CacheStatus::Stale { .. })),
        is_wrong: price.as_ref().is_ok_and(|price| *price < current),
        is_error: price.is_err(),
    }
}

/// Asks all processes at each tick, for as long as a step lasts.
pub(crate) async fn run(processes: &[Process], event: Event) -> Result<Counts, BoxError> {
    let mut requests = JoinSet::new();
    let began = Instant::now();
    for tick in 0..TICKS {
        sleep_until(began + TICK * tick).await;
        event.happen(tick, processes).await?;
        for process in processes {
            requests.spawn(request(process.clone()));
        }
    }
    let mut counts = Counts::default();
    for answer in requests.join_all().await {
        counts.add(&answer);
    }
    // All processes share one database.
    counts.queries = processes[0].database().queries();
    Ok(counts)
}

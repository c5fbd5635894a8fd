//! What the main process is to its workers: the source, and where their reports come together.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::clock::Stalls;
use crate::late::Late;
use crate::locked::locked;
use crate::messages::{Ask, Order, Report, Suspect};
use crate::source::Rows;
use crate::tally::Tally;

/// How many suspects are kept; more are counted.
const MOST_SUSPECTS: usize = 20_000;

/// The answer of a worker's callers in a burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BurstReport {
    pub(crate) worker: u32,
    pub(crate) round: u64,
    pub(crate) errors: u64,
    /// How many of them made a load without the cache, because Redis did not answer in time.
    pub(crate) bypassed: u64,
    pub(crate) stalled: u64,
}

/// What the workers of a turn have in common.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Whether the source fails.
    pub(crate) is_failing: AtomicBool,
    rng: Mutex<StdRng>,
    stalls: Arc<Stalls>,
}

#[derive(Debug, Default)]
struct State {
    /// By number. An entry is replaced when a worker is started again.
    workers: HashMap<u32, mpsc::UnboundedSender<Order>>,
    rows: Rows,
    tally: Tally,
    late: Late,
    suspects: Vec<Suspect>,
    ended: usize,
    bursts: Vec<BurstReport>,
}

impl Hub {
    /// Listens for workers.
    pub(crate) fn listen(socket: &Path, seed: u64) -> io::Result<Arc<Self>> {
        let listener = UnixListener::bind(socket)?;
        let hub = Arc::new(Self {
            state: Mutex::default(),
            is_failing: AtomicBool::new(false),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            stalls: Stalls::watch(),
        });
        let weak = Arc::downgrade(&hub);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Some(hub) = weak.upgrade() else { return };
                tokio::spawn(hub.serve(stream));
            }
        });
        Ok(hub)
    }

    /// Sends an order to all workers.
    pub(crate) fn order(&self, order: &Order) {
        for worker in locked(&self.state).workers.values() {
            let _ = worker.send(order.clone());
        }
    }

    pub(crate) fn stalled(&self) -> u64 {
        self.stalls.total()
    }

    pub(crate) fn ready(&self) -> usize {
        locked(&self.state).workers.len()
    }

    /// How many workers have ended their work.
    pub(crate) fn ended(&self) -> usize {
        locked(&self.state).ended
    }

    pub(crate) fn forget(&self, worker: u32) {
        locked(&self.state).workers.remove(&worker);
    }

    pub(crate) fn take_bursts(&self) -> Vec<BurstReport> {
        std::mem::take(&mut locked(&self.state).bursts)
    }

    pub(crate) fn take_loads(&self, key: u64) -> u64 {
        locked(&self.state).rows.take_loads(key)
    }

    pub(crate) fn count(&self, what: &str) {
        locked(&self.state).tally.count(what, 1);
    }

    pub(crate) fn measure(&self, what: &str, value: u64) {
        locked(&self.state).tally.measure(what, value);
    }

    /// The counts so far, and how many reads are suspected.
    pub(crate) fn so_far(&self) -> (Tally, usize) {
        let state = locked(&self.state);
        let mut tally = state.tally.clone();
        tally.add(&state.rows.tally);
        (tally, state.suspects.len())
    }

    /// The last old answer after each invalidation.
    pub(crate) fn take_late(&self) -> Late {
        std::mem::take(&mut locked(&self.state).late)
    }

    /// What is suspected, each with the history of its row.
    pub(crate) fn suspects(&self) -> Vec<(Suspect, Vec<crate::source::Happened>)> {
        let mut state = locked(&self.state);
        let suspects = std::mem::take(&mut state.suspects);
        let with_history = suspects.into_iter().map(|suspect| {
            let history = state.rows.history(suspect.key);
            (suspect, history)
        });
        with_history.collect()
    }

    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let (from, to) = stream.into_split();
        let (orders, ordered) = mpsc::unbounded_channel();
        tokio::spawn(deliver(ordered, to));
        let mut lines = BufReader::new(from).lines();
        let mut number = 0;
        while let Ok(Some(line)) = lines.next_line().await {
            // What a killed worker could not end is no report.
            let Ok(report) = serde_json::from_str(&line) else { return };
            match report {
                Report::Ready { worker } => {
                    number = worker;
                    locked(&self.state).workers.insert(worker, orders.clone());
                }
                Report::Ask { id, ask } => self.answer(number, id, ask, &orders),
                Report::Tally(tally) => locked(&self.state).tally.add(&tally),
                Report::Late(noted) => locked(&self.state).late.add(noted),
                Report::Suspect(suspect) => self.suspect(*suspect),
                Report::Burst { round, errors, bypassed, stalled } => {
                    let worker = number;
                    let report = BurstReport { worker, round, errors, bypassed, stalled };
                    locked(&self.state).bursts.push(report);
                }
                Report::Ended => locked(&self.state).ended += 1,
            }
        }
    }

    pub(crate) fn suspect(&self, suspect: Suspect) {
        let mut state = locked(&self.state);
        match state.suspects.len() {
            MOST_SUSPECTS => state.tally.count("suspects without a record", 1),
            _ => state.suspects.push(suspect),
        }
    }

    fn answer(
        self: &Arc<Self>,
        worker: u32,
        id: u64,
        ask: Ask,
        orders: &mpsc::UnboundedSender<Order>,
    ) {
        let rows = match ask {
            Ask::Change { keys } => Some(locked(&self.state).rows.change(worker, &keys)),
            Ask::ChangeGroup { group } => Some(locked(&self.state).rows.change_group(group)),
            Ask::Load { keys } => {
                tokio::spawn(Arc::clone(self).load(worker, id, keys, orders.clone()));
                return;
            }
        };
        let _ = orders.send(Order::Answer { id, rows });
    }

    /// Reads rows at some moment of a time.
    async fn load(
        self: Arc<Self>,
        worker: u32,
        id: u64,
        keys: Vec<u64>,
        orders: mpsc::UnboundedSender<Order>,
    ) {
        let [before, after] = {
            let mut rng = locked(&self.rng);
            [load_time(&mut rng), load_time(&mut rng)]
        };
        locked(&self.state).rows.load_begins(worker, &keys);
        sleep(before).await;
        let rows = if self.is_failing.load(Ordering::Relaxed) {
            None
        } else {
            Some(locked(&self.state).rows.read(worker, &keys))
        };
        sleep(after).await;
        let _ = orders.send(Order::Answer { id, rows });
    }
}

/// Mostly short, now and then longer than a lease is granted for.
fn load_time(rng: &mut StdRng) -> Duration {
    Duration::from_micros(match rng.random_range(0..10_000) {
        0..5_000 => 0,
        5_000..9_000 => rng.random_range(0..3_000),
        9_000..9_900 => rng.random_range(3_000..15_000),
        9_900..9_995 => rng.random_range(15_000..150_000),
        _ => rng.random_range(500_000..2_200_000),
    })
}

async fn deliver(mut orders: mpsc::UnboundedReceiver<Order>, mut to: OwnedWriteHalf) {
    while let Some(order) = orders.recv().await {
        let mut lines = line(&order);
        while let Ok(more) = orders.try_recv() {
            lines += &line(&more);
        }
        if to.write_all(lines.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn line(order: &Order) -> String {
    serde_json::to_string(order).expect("it is JSON") + "\n"
}

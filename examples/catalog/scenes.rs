//! The scenes that the page plays.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::Fault;
use crate::changes;
use crate::demo::{Demo, Switch};
use crate::traffic::PRODUCTS;
use crate::way::{TTL, Way};

/// Callers of a burst, in all processes.
const CALLERS: usize = 1_000;
/// Products that no visitor asks for by itself.
const COLD: std::ops::Range<u32> = 1_000..100_000;
/// The time between two looks at a price.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// For how long there is no old price if there is none any more.
const QUIET: Duration = Duration::from_millis(500);
/// How long it may take until all processes read a price, or use a store again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long something is down: a second longer than an answer is fresh.
const OUTAGE: Duration = Duration::from_secs(TTL.as_secs() + 1);

/// A burst: of each way the results of all processes.
#[derive(Serialize)]
pub(crate) struct Bursts {
    sku: u32,
    unprotected: Vec<Value>,
    moka: Vec<Value>,
    protected: Vec<Value>,
}

/// A price that was changed, and what was answered after that.
#[derive(Serialize)]
pub(crate) struct Change {
    sku: u32,
    old_cents: i64,
    new_cents: i64,
    unprotected: OldAnswers,
    moka: OldAnswers,
    protected: OldAnswers,
}

/// Answers with the old price to requests that were made after the change.
#[derive(Default, Serialize)]
struct OldAnswers {
    answers: u64,
    processes: HashSet<usize>,
    /// How long after the change the last one was given.
    last_seconds: f64,
}

/// What visitors met while something was down.
#[derive(Serialize)]
pub(crate) struct Outage {
    seconds: u64,
    unprotected: WayCounts,
    moka: WayCounts,
    protected: WayCounts,
}

/// Of one way, in all processes.
#[derive(Clone, Copy, Serialize)]
struct WayCounts {
    answers: u64,
    errors: u64,
    queries: u64,
}

impl Demo {
    /// A thousand callers of one product that is not cached: one way after the other, so that they do
    /// not disturb each other.
    pub(crate) async fn burst(&self) -> Result<Bursts, Fault> {
        let _stage = self.stage.lock().await;
        let sku = rand::random_range(COLD);
        let burst = async |way: Way| {
            let processes = self.fleet.len();
            let bursts = (0..processes).map(|worker| {
                let callers = CALLERS / processes + usize::from(worker < CALLERS % processes);
                let way = way.name();
                let path = format!("/burst?way={way}&sku={sku}&callers={callers}");
                async move { self.fleet.post(worker, &path, Value::Null).await }
            });
            try_join_all(bursts).await
        };
        let unprotected = burst(Way::Unprotected).await?;
        let moka = burst(Way::Moka).await?;
        Ok(Bursts { sku, unprotected, moka, protected: burst(Way::Protected).await? })
    }

    /// Changes a price while all processes load it: they have the old price, which is on its way. Then
    /// looks which of them answer it, until none does.
    pub(crate) async fn race(self: &Arc<Self>) -> Result<Change, Fault> {
        let _stage = self.stage.lock().await;
        let sku = rand::random_range(COLD);
        let old_cents = self.price(0, Way::Unprotected, sku).await?;
        let new_cents = old_cents + 100;
        self.fleet.post_all(&format!("/hold/{sku}")).await?;
        let demo = Arc::clone(self);
        let loads = tokio::spawn(async move { demo.prices(sku).await });
        let is_read = timeout(PATIENCE, self.until_read(sku)).await;
        let new = json!({ "price_cents": new_cents });
        self.fleet.post(0, &format!("/api/product/{sku}"), new).await?;
        // A message to all processes, which a good program with a cache in each sends, too.
        self.fleet.post_all(&format!("/forget/{sku}")).await?;
        let changed = Instant::now();
        self.fleet.post_all("/hold/0").await?;
        loads.await?;
        is_read.map_err(|_| "a process does not read the price")??;
        Ok(self.seen_since(changed, sku, old_cents, new_cents).await)
    }

    /// Changes a price by SQL, after all caches have read it, and looks as [`race`](Self::race) does.
    pub(crate) async fn change_by_sql(&self) -> Result<Change, Fault> {
        let _stage = self.stage.lock().await;
        let database = self.recorded.as_ref().map_err(|missing| *missing)?;
        let sku = rand::random_range(COLD);
        let old_cents = self.price(0, Way::Unprotected, sku).await?;
        let new_cents = old_cents + 100;
        self.prices(sku).await;
        changes::set_price(database, sku, new_cents).await?;
        Ok(self.seen_since(Instant::now(), sku, old_cents, new_cents).await)
    }

    /// WayCounts what visitors meet while something is down. All that they ask for was cached before.
    pub(crate) async fn outage(&self, of: Switch) -> Result<Outage, Fault> {
        let _stage = self.stage.lock().await;
        for sku in 1..=PRODUCTS {
            self.prices(sku).await;
        }
        let before = self.counts().await?;
        self.set(of, true).await?;
        sleep(OUTAGE).await;
        let after = self.counts().await;
        self.set(of, false).await?;
        let after = after?;
        timeout(PATIENCE, self.until_used()).await.map_err(|_| "the store is not used again")??;
        let more = |way: Way| {
            let (before, after) = (before[way as usize], after[way as usize]);
            WayCounts {
                answers: after.answers - before.answers,
                errors: after.errors - before.errors,
                queries: after.queries - before.queries,
            }
        };
        let [unprotected, moka, protected] = Way::ALL.map(more);
        Ok(Outage { seconds: OUTAGE.as_secs(), unprotected, moka, protected })
    }

    /// The counts of each way since the start.
    async fn counts(&self) -> Result<[WayCounts; 3], Fault> {
        let processes = self.fleet.get_all("/stats").await?;
        Ok(Way::ALL.map(|way| {
            let sum = |figure| {
                let figures = processes.iter().map(|process| &process[way.name()][figure]);
                figures.filter_map(Value::as_u64).sum()
            };
            WayCounts { answers: sum("answers"), errors: sum("errors"), queries: sum("queries") }
        }))
    }

    /// Waits until no process goes past the store for a while.
    async fn until_used(&self) -> Result<(), Fault> {
        let mut before = None;
        loop {
            let processes = self.fleet.get_all("/stats").await?;
            let past = processes.iter().map(|process| process["outcomes"]["bypass"].as_u64());
            let past: Option<u64> = past.sum();
            if before.replace(past) == Some(past) {
                return Ok(());
            }
            sleep(2 * QUIET).await;
        }
    }

    /// Waits until each process has read a product for moka, and one for bellwether.
    async fn until_read(&self, sku: u32) -> Result<(), Fault> {
        loop {
            let queries = self.fleet.get_all(&format!("/queries/{sku}")).await?;
            let has = |queries: &Value, way: Way| queries[way as usize] != 0;
            if queries.iter().all(|queries| has(queries, Way::Moka))
                && queries.iter().any(|queries| has(queries, Way::Protected))
            {
                return Ok(());
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// What all processes answer in all ways after a change, until none has given the old price for a while.
    async fn seen_since(
        &self,
        changed: Instant,
        sku: u32,
        old_cents: i64,
        new_cents: i64,
    ) -> Change {
        let look = async |(way, worker): (Way, usize)| {
            let (mut answers, mut last) = (0_u64, Duration::ZERO);
            while changed.elapsed() < (last + QUIET).min(3 * TTL) {
                if self.price(worker, way, sku).await.ok() == Some(old_cents) {
                    (answers, last) = (answers + 1, changed.elapsed());
                }
                sleep(LOOK_INTERVAL).await;
            }
            (way, worker, answers, last)
        };
        let looks = join_all(self.asked().into_iter().map(look)).await;
        let of = |way| {
            let mut old = OldAnswers::default();
            for (_, worker, answers, last) in looks.iter().filter(|look| look.0 == way) {
                old.answers += answers;
                old.processes.extend((*answers > 0).then_some(*worker));
                old.last_seconds = old.last_seconds.max(last.as_secs_f64());
            }
            old
        };
        let [unprotected, moka, protected] = Way::ALL.map(of);
        Change { sku, old_cents, new_cents, unprotected, moka, protected }
    }

    /// Each way of each process.
    fn asked(&self) -> Vec<(Way, usize)> {
        let workers = 0..self.fleet.len();
        Way::ALL.iter().flat_map(|way| workers.clone().map(|worker| (*way, worker))).collect()
    }

    /// Has each process read a price in each way.
    async fn prices(&self, sku: u32) {
        let price = |(way, worker)| self.price(worker, way, sku);
        join_all(self.asked().into_iter().map(price)).await;
    }

    async fn price(&self, worker: usize, way: Way, sku: u32) -> Result<i64, Fault> {
        let path = format!("/api/product/{sku}?way={}", way.name());
        let price = self.fleet.get(worker, &path).await?["price_cents"].as_i64();
        price.ok_or_else(|| "an answer without a price".into())
    }
}

//! What the buttons of the page do.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::Fault;
use crate::fleet::Fleet;
use crate::redis_server::RedisServer;
use crate::way::{TTL, Way};

/// Callers of a burst, in all processes.
const CALLERS: usize = 1_000;
/// Products that no visitor asks for by itself.
const COLD: std::ops::Range<u32> = 1_000..100_000;
/// The time between two looks at a price.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long it may take until all processes read a price.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processes, and what is done to them.
pub(crate) struct Demo {
    pub(crate) fleet: Fleet,
    store: &'static str,
    /// Held during a burst and a race, whose figures would mix otherwise.
    stage: Mutex<()>,
    /// Held while something is switched.
    switches: Mutex<Switches>,
}

struct Switches {
    slow: bool,
    broken: bool,
    /// Nothing if the store is not ours.
    redis: Option<Redis>,
}

enum Redis {
    Runs(RedisServer),
    Stopped(std::net::SocketAddr),
}

/// What can be switched on and off.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    Slow,
    Broken,
    Stopped,
}

/// The figures of all processes, and the state of what they use.
#[derive(Serialize)]
pub(crate) struct Figures<'a> {
    urls: Vec<&'a str>,
    processes: Vec<Value>,
    store: &'static str,
    slow: bool,
    broken: bool,
    /// Nothing if the store cannot be stopped.
    stopped: Option<bool>,
}

/// A burst: of each way the results of all processes.
#[derive(Serialize)]
pub(crate) struct Bursts {
    sku: u32,
    unprotected: Vec<Value>,
    moka: Vec<Value>,
    protected: Vec<Value>,
}

/// A price that was changed while it was on its way to all processes.
#[derive(Serialize)]
pub(crate) struct Race {
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

impl Demo {
    pub(crate) fn new(fleet: Fleet, store: &'static str, redis: Option<RedisServer>) -> Self {
        let redis = redis.map(Redis::Runs);
        let switches = Mutex::new(Switches { slow: false, broken: false, redis });
        Self { fleet, store, stage: Mutex::new(()), switches }
    }

    pub(crate) async fn figures(&self) -> Result<Figures<'_>, Fault> {
        let processes = self.fleet.get_all("/stats").await?;
        let switches = self.switches.lock().await;
        let stopped = switches.redis.as_ref().map(|redis| matches!(redis, Redis::Stopped(_)));
        let Switches { slow, broken, .. } = *switches;
        Ok(Figures { urls: self.fleet.urls(), processes, store: self.store, slow, broken, stopped })
    }

    pub(crate) async fn set(&self, switch: Switch, is_on: bool) -> Result<(), Fault> {
        let mut switches = self.switches.lock().await;
        match switch {
            Switch::Slow => switches.slow = is_on,
            Switch::Broken => switches.broken = is_on,
            Switch::Stopped => {
                let redis = switches.redis.take().ok_or("this store cannot be stopped")?;
                switches.redis = Some(redis.stopped(is_on).await?);
            }
        }
        let Switches { slow, broken, .. } = *switches;
        self.fleet.post_all(&format!("/weather?slow={slow}&broken={broken}")).await?;
        Ok(())
    }

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
    pub(crate) async fn race(self: &Arc<Self>) -> Result<Race, Fault> {
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
        let [mut unprotected, mut moka, mut protected] = <[OldAnswers; 3]>::default();
        while changed.elapsed() < 3 * TTL {
            let answers = self.prices(sku).await;
            let is_old = |(_, _, price): &&(Way, usize, Option<i64>)| *price == Some(old_cents);
            let mut old = answers.iter().filter(is_old).peekable();
            if old.peek().is_none() {
                break;
            }
            for (way, worker, _) in old {
                let of = match way {
                    Way::Unprotected => &mut unprotected,
                    Way::Moka => &mut moka,
                    Way::Protected => &mut protected,
                };
                of.answers += 1;
                of.processes.insert(*worker);
                of.last_seconds = changed.elapsed().as_secs_f64();
            }
            sleep(LOOK_INTERVAL).await;
        }
        Ok(Race { sku, old_cents, new_cents, unprotected, moka, protected })
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

    /// The price as each process answers it in each way at this moment.
    async fn prices(&self, sku: u32) -> Vec<(Way, usize, Option<i64>)> {
        let asked = Way::ALL.iter().flat_map(|way| (0..self.fleet.len()).map(|it| (*way, it)));
        let price = async |(way, worker)| (way, worker, self.price(worker, way, sku).await.ok());
        join_all(asked.map(price)).await
    }

    async fn price(&self, worker: usize, way: Way, sku: u32) -> Result<i64, Fault> {
        let path = format!("/api/product/{sku}?way={}", way.name());
        let price = self.fleet.get(worker, &path).await?["price_cents"].as_i64();
        price.ok_or_else(|| "an answer without a price".into())
    }
}

impl Redis {
    async fn stopped(self, is_to_be: bool) -> Result<Self, Fault> {
        Ok(match (self, is_to_be) {
            (Self::Runs(server), true) => Self::Stopped(server.stop().await?),
            (Self::Stopped(address), false) => Self::Runs(RedisServer::start_at(address).await?),
            (as_it_is, _) => as_it_is,
        })
    }
}

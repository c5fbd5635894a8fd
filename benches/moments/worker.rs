//! A worker of a fleet: asks for all keys at once, and reports what that took.
//!
//! It gets its setup as an argument. Then it prints a line for each step, and reads a line before the next one.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bellwether::adapter::locked;
use bellwether::{BoxError, Cache, Error};
use bellwether_redis::{RedisOptions, RedisStore};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

/// The program starts itself with `--worker setup`.
pub(crate) const FLAG: &str = "--worker";

/// No answer takes as long.
const STUCK: Duration = Duration::from_secs(100);

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keys: usize,
    pub(crate) load: Duration,
    pub(crate) batch: bool,
    pub(crate) chain: usize,
    /// Of each value.
    pub(crate) kib: usize,
}

/// What a worker has seen.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    /// How often it has loaded each key.
    pub(crate) loads: Vec<u32>,
    /// Calls of the loader: one for each load, or for each batch.
    pub(crate) calls: u32,
    /// By their kind: the callers', and the store's.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) store_errors: BTreeMap<String, u64>,
    /// Why it has loaded, and what became of its leases.
    pub(crate) reasons: BTreeMap<String, u64>,
    /// Each key that it has loaded, and when, in milliseconds from the start.
    pub(crate) times: Vec<(u64, f64)>,
    pub(crate) outages: u64,
    pub(crate) connects: u64,
    /// From the start to its last answer, in milliseconds.
    pub(crate) took: f64,
}

/// What the loaders count.
struct Source {
    loads: Vec<AtomicU32>,
    calls: AtomicU32,
    /// Held to add to it.
    times: Mutex<Vec<(u64, Instant)>>,
    takes: Duration,
    keys: u64,
    kib: usize,
}

impl Source {
    async fn load(&self, keys: &[u64]) -> Vec<Result<String, BoxError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        for key in keys {
            self.loads[*key as usize].fetch_add(1, Ordering::Relaxed);
        }
        let now = Instant::now();
        locked(&self.times).extend(keys.iter().map(|key| (*key, now)));
        sleep(self.takes).await;
        keys.iter().map(|key| Ok(value_of(*key, self.kib))).collect()
    }
}

pub(crate) fn work(setup: &str) {
    let setup: Setup = serde_json::from_str(setup).expect("a setup");
    let runtime = Runtime::new().expect("a runtime");
    let (store, cache) = runtime.block_on(open(&setup)).expect("a store");
    let all = setup.keys * (setup.chain + 1);
    let source = Arc::new(Source {
        loads: (0..all).map(|_| AtomicU32::new(0)).collect(),
        calls: AtomicU32::new(0),
        times: Mutex::default(),
        takes: setup.load,
        keys: setup.keys as u64,
        kib: setup.kib,
    });
    // The first step: it is ready. The line that comes back is when to begin.
    let start = step("ready").trim().parse::<u64>().expect("a time in milliseconds");
    let start = SystemTime::UNIX_EPOCH + Duration::from_millis(start);
    let left = start.duration_since(SystemTime::now()).unwrap_or_default();
    let began = Instant::now() + left;
    let answers = runtime.block_on(async {
        sleep(left).await;
        ask(&setup, &cache, &source).await
    });
    let mut report = Report { took: began.elapsed().as_secs_f64() * 1e3, ..Report::default() };
    // Others still load, and may have loads repeated here.
    step("done");
    for answer in answers {
        if let Err(kind) = answer {
            *report.errors.entry(kind).or_default() += 1;
        }
    }
    let stats = store.stats();
    let errors = stats.errors.by_name().filter(|(_, count)| *count > 0);
    report.store_errors = errors.map(|(kind, count)| (kind.to_owned(), count)).collect();
    let stats_of_cache = cache.stats();
    let loads = stats_of_cache.loads.by_name();
    let reasons =
        loads.chain(stats_of_cache.leases.by_name()).chain(stats_of_cache.commits.by_name());
    let reasons = reasons.filter(|(_, count)| *count > 0);
    report.reasons = reasons.map(|(reason, count)| (reason.to_owned(), count)).collect();
    report.loads = source.loads.iter().map(|loads| loads.load(Ordering::Relaxed)).collect();
    let since = |time: &Instant| time.saturating_duration_since(began).as_secs_f64() * 1e3;
    report.times = locked(&source.times).iter().map(|(key, time)| (*key, since(time))).collect();
    report.calls = source.calls.load(Ordering::Relaxed);
    (report.outages, report.connects) = (stats.outages, stats.connects);
    step(&serde_json::to_string(&report).expect("it is JSON"));
    // What the store would repeat at its end is of no interest.
    runtime.shutdown_background();
}

/// Prints a line, and waits for one.
fn step(line: &str) -> String {
    println!("{line}");
    io::stdout().flush().expect("the fleet reads");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).expect("the fleet writes");
    answer
}

async fn open(setup: &Setup) -> Result<(RedisStore, Cache<u64, String>), BoxError> {
    let store = match setup.timeout {
        None => RedisStore::connect(&setup.url, &setup.namespace).await?,
        Some(timeout) => {
            RedisOptions::new(&setup.url, &setup.namespace)?.timeout(timeout).connect().await?
        }
    };
    let cache = Cache::builder("item", store.clone()).ttl(Duration::from_secs(60)).build()?;
    Ok((store, cache))
}

/// Asks for all keys; an error is its kind.
async fn ask(
    setup: &Setup,
    cache: &Cache<u64, String>,
    source: &Arc<Source>,
) -> Vec<Result<(), String>> {
    let keys = 0..setup.keys as u64;
    if setup.batch {
        let source = Arc::clone(source);
        let load = async move |keys: Vec<u64>| Ok::<_, BoxError>(source.load(&keys).await);
        let answers = timeout(STUCK, cache.get_or_load_many(keys.clone(), load)).await;
        let Ok(answers) = answers else {
            return keys.map(|_| Err("stuck".to_owned())).collect();
        };
        return keys.zip(answers).map(|(key, answer)| check(key, setup.kib, answer)).collect();
    }
    let callers = keys.map(|key| {
        let kib = setup.kib;
        let asked = get(cache.clone(), Arc::clone(source), key, setup.chain);
        tokio::spawn(async move {
            let answer = timeout(STUCK, asked).await;
            answer.map_or_else(|_| Err("stuck".to_owned()), |answer| check(key, kib, answer))
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut answers = Vec::with_capacity(callers.len());
    for caller in callers {
        answers.push(caller.await.unwrap_or_else(|_| Err("panic".to_owned())));
    }
    answers
}

/// Gets a value. Its load gets the next one of its chain first.
fn get(
    cache: Cache<u64, String>,
    source: Arc<Source>,
    key: u64,
    deeper: usize,
) -> BoxFuture<'static, Result<String, Error<BoxError>>> {
    let within = cache.clone();
    let load = async move || {
        if deeper > 0 {
            let next = key + source.keys;
            get(within, Arc::clone(&source), next, deeper - 1).await?;
        }
        source.load(&[key]).await.remove(0)
    };
    async move { cache.get_or_load(key, load).await }.boxed()
}

fn value_of(key: u64, kib: usize) -> String {
    format!("the value of {key}{:width$}", "", width = kib * 1024)
}

fn check(key: u64, kib: usize, answer: Result<String, Error<BoxError>>) -> Result<(), String> {
    match answer {
        Ok(value) if value == value_of(key, kib) => Ok(()),
        Ok(_) => Err("a wrong value".to_owned()),
        Err(Error::Cache(error)) => Err(format!("{:?}", error.kind())),
        Err(_) => Err("Load".to_owned()),
    }
}

//! Requests while a Redis is away: how many queries reach the source, beside a cache that has none.
//!
//! All caches get the same requests, at the moments of an open loop: nine in ten are for the hot keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep as block_for;
use std::time::{Duration, Instant};

use bellwether::adapter::locked;
use bellwether::{BoxError, Cache};
use bellwether_redis::{RedisOptions, RedisStore};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::fault::Fault;
use crate::options::{Options, OutageOptions};

/// The phases, and how long they last. What the caches do in the first one is not compared.
const PHASES: [(&str, Duration); 4] = [
    ("warm-up", Duration::from_secs(3)),
    ("healthy", Duration::from_secs(5)),
    ("fault", Duration::from_secs(10)),
    ("return", Duration::from_secs(5)),
];

const HOT: u64 = 200;
const COLD: u64 = 10_000;

/// The near tier, if one is wanted.
const NEAR: usize = 64 << 20;

/// How long moka keeps what it has loaded, in its second column.
const SHORT: Duration = Duration::from_secs(1);

/// The most times moka's queries.
const MOST: f64 = 1.2;

/// No answer takes as long.
const STUCK: Duration = Duration::from_secs(60);

/// A cache over a source: what a request for a key gives.
type Ask = Box<dyn Fn(u64, Source) -> BoxFuture<'static, Result<String, String>> + Send>;

/// Whether our queries are at most those of moka, and all requests were answered.
pub(crate) fn run(options: &Options, outage: &OutageOptions) -> bool {
    let mut is_passed = true;
    for kind in &outage.kinds {
        let runtime = Runtime::new().expect("a runtime");
        let mut fault = runtime.block_on(Fault::prepare(kind));
        let short = outage.ttl.min(SHORT);
        let store = runtime.block_on(connect(&fault.url(), options, outage)).expect("a store");
        let contenders = [
            Contender::new("bellwether", ours(&store, outage)),
            Contender::new("moka, same ttl", moka(outage.ttl)),
            Contender::new("moka, ttl 1 s", moka(short)),
        ];
        let [ours, _, short] = contenders.each_ref().map(|contender| Arc::clone(&contender.tally));
        let phase = Arc::new(AtomicUsize::new(0));
        let source = SourceRules {
            takes: outage.load,
            fails: outage.source_down,
            phase: Arc::clone(&phase),
        };
        let traffic = runtime.spawn(traffic(contenders.into(), outage.rate, source));
        for (number, (name, lasts)) in PHASES.iter().enumerate() {
            phase.store(number, Ordering::Relaxed);
            let began = Instant::now();
            match *name {
                "fault" => fault.begin(),
                "return" => fault.end(),
                _ => {}
            }
            block_for(lasts.saturating_sub(began.elapsed()));
        }
        phase.store(PHASES.len(), Ordering::Relaxed);
        let tallies = runtime.block_on(traffic).expect("no panic");
        println!(
            "{kind}: {}/s, ttl {:?}, near {}, load {:?}, source down {}; outages {}",
            outage.rate,
            outage.ttl,
            outage.near,
            outage.load,
            outage.source_down,
            store.stats().outages
        );
        tallies.iter().for_each(|(name, tally)| tally.print(name));
        is_passed &= compare(&ours, &short, outage.source_down);
        runtime.shutdown_background();
    }
    println!("{}", if is_passed { "PASS" } else { "FAIL" });
    is_passed
}

async fn connect(
    url: &str,
    options: &Options,
    outage: &OutageOptions,
) -> Result<RedisStore, BoxError> {
    let mut redis = RedisOptions::new(url, "outage")?;
    if let Some(timeout) = options.timeout {
        redis = redis.timeout(timeout);
    }
    if outage.near {
        redis = redis.near(NEAR);
    }
    Ok(redis.connect().await?)
}

/// Prints our queries as times those of moka. Returns whether they are few enough, without errors.
fn compare(ours: &Tally, moka: &Tally, is_source_down: bool) -> bool {
    let mut is_passed = true;
    for (number, (phase, _)) in PHASES.iter().enumerate().skip(1) {
        let [ours, moka] = [ours, moka].map(|tally| tally.phases()[number].clone());
        let ratio = ours.queries as f64 / moka.queries.max(1) as f64;
        let failed = if is_source_down { ours.hot_errors } else { ours.errors };
        let is_kept = (is_source_down || ratio <= MOST) && failed == 0;
        let verdict = if is_kept { "kept" } else { "MISSED" };
        println!(
            "  {phase:<8} {ratio:>6.2} x the queries of moka with a ttl of 1 s, {failed} errors: {verdict}"
        );
        is_passed &= is_kept;
    }
    is_passed
}

fn ours(store: &RedisStore, outage: &OutageOptions) -> Ask {
    let mut builder = Cache::builder("item", store.clone()).ttl(outage.ttl);
    if outage.source_down {
        builder = builder.stale_if_error(Duration::from_secs(60 * 60));
    }
    let cache: Cache<u64, String> = builder.build().expect("a cache");
    Box::new(move |key, source| {
        let answer = cache.get_or_load(key, async move || source.load(key).await);
        async move { answer.await.map_err(|error| error.to_string()) }.boxed()
    })
}

fn moka(ttl: Duration) -> Ask {
    let cache = moka::future::Cache::builder().max_capacity(100_000).time_to_live(ttl).build();
    Box::new(move |key, source| {
        let cache = cache.clone();
        let load = async move { source.load(key).await };
        async move { cache.try_get_with(key, load).await.map_err(|error| error.to_string()) }
            .boxed()
    })
}

/// How loads behave.
#[derive(Clone)]
struct SourceRules {
    takes: Duration,
    /// Whether it fails while Redis is away.
    fails: bool,
    phase: Arc<AtomicUsize>,
}

/// What loads of one contender ask.
struct Source {
    rules: SourceRules,
    tally: Arc<Tally>,
}

impl Source {
    async fn load(self, key: u64) -> Result<String, Down> {
        let phase = self.rules.phase.load(Ordering::Relaxed);
        self.tally.count(phase, |counts| counts.queries += 1);
        sleep(self.rules.takes).await;
        let is_down =
            self.rules.fails && PHASES.get(phase).is_some_and(|(name, _)| *name == "fault");
        if is_down { Err(Down) } else { Ok(format!("the value of {key}")) }
    }
}

/// The error of a source that is down.
#[derive(Clone, Copy, Debug)]
struct Down;

impl std::fmt::Display for Down {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the source is down")
    }
}

impl std::error::Error for Down {}

/// A cache that gets the requests.
struct Contender {
    name: &'static str,
    ask: Ask,
    tally: Arc<Tally>,
}

impl Contender {
    fn new(name: &'static str, ask: Ask) -> Self {
        Self { name, ask, tally: Arc::default() }
    }
}

/// What happened in one phase.
#[derive(Clone, Default)]
struct Counts {
    queries: u64,
    errors: u64,
    /// Those of hot keys.
    hot_errors: u64,
    /// How long each request took.
    took: Vec<Duration>,
    error: Option<String>,
}

/// What happened in each phase. Held to count.
#[derive(Default)]
struct Tally(Mutex<Vec<Counts>>);

impl Tally {
    fn phases(&self) -> MutexGuard<'_, Vec<Counts>> {
        let mut phases = locked(&self.0);
        phases.resize(PHASES.len() + 1, Counts::default());
        phases
    }

    fn count(&self, phase: usize, count: impl FnOnce(&mut Counts)) {
        count(&mut self.phases()[phase]);
    }

    fn print(&self, name: &str) {
        for ((phase, lasts), counts) in PHASES.iter().zip(self.phases().iter_mut()) {
            counts.took.sort_unstable();
            let at = |share: f64| counts.took[((counts.took.len() - 1) as f64 * share) as usize];
            println!(
                "  {name:<15} {phase:<8} {:>7} requests {:>7} queries {:>7.0}/s {:>6} errors  p50 {:>8.1?} p99 {:>8.1?} slowest {:>8.1?}  {}",
                counts.took.len(),
                counts.queries,
                counts.queries as f64 / lasts.as_secs_f64(),
                counts.errors,
                at(0.5),
                at(0.99),
                at(1.0),
                counts.error.as_deref().unwrap_or_default(),
            );
        }
    }
}

/// Sends the requests, until the phases are over and all are answered.
async fn traffic(
    contenders: Vec<Contender>,
    rate: u32,
    source: SourceRules,
) -> Vec<(&'static str, Arc<Tally>)> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let began = Instant::now();
    let mut sent = 0_u64;
    let mut requests: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let phase = source.phase.load(Ordering::Relaxed);
        if phase == PHASES.len() {
            break;
        }
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while sent < due {
            sent += 1;
            // Marsaglia's xorshift.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let is_hot = !random.is_multiple_of(10);
            let place = random / 16;
            let key = if is_hot { place % HOT } else { HOT + place % COLD };
            for contender in &contenders {
                let tally = Arc::clone(&contender.tally);
                let rules = source.clone();
                let answer = (contender.ask)(key, Source { rules, tally: Arc::clone(&tally) });
                requests.push(tokio::spawn(request(answer, tally, phase, is_hot)));
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
    for request in requests {
        request.await.expect("no panic");
    }
    contenders.into_iter().map(|contender| (contender.name, contender.tally)).collect()
}

async fn request(
    answer: BoxFuture<'static, Result<String, String>>,
    tally: Arc<Tally>,
    phase: usize,
    is_hot: bool,
) {
    let began = Instant::now();
    let answer = timeout(STUCK, answer).await.unwrap_or_else(|_| Err("stuck".to_owned()));
    let took = began.elapsed();
    tally.count(phase, |counts| {
        counts.took.push(took);
        if let Err(error) = answer {
            counts.errors += 1;
            counts.hot_errors += u64::from(is_hot);
            counts.error.get_or_insert(error);
        }
    });
}

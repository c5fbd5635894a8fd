//! Large values over a slow link, and a caller of small ones beside them.
//!
//! All values are stored already, so each read is a hit, unless the store gives up. A bare `GET` on a
//! connection of its own, beside the same large values, shows what the link itself costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bellwether::{BoxError, Cache};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::options::{LinkOptions, Options};

/// How long each part of a run lasts.
const LASTS: Duration = Duration::from_secs(5);

/// The pause between two reads of the small value.
const PAUSE: Duration = Duration::from_millis(5);

/// The key of the small value. The large ones are those below it.
const SMALL: u64 = u64::MAX;

/// The most times its latency alone, or that of a bare `GET` beside the same values if that is longer.
const MOST: f64 = 2.0;

/// What a bare `GET` reads.
const BARE: &str = "bare";

type Values = Cache<u64, String>;

/// Whether all reads were hits, and the small value was hardly later than alone.
pub(crate) fn run(options: &Options, link: &LinkOptions) -> bool {
    let mut is_passed = true;
    let server = RedisServer::start();
    for (mbit, kib) in
        link.mbit.iter().flat_map(|mbit| link.kib.iter().map(move |kib| (*mbit, *kib)))
    {
        for callers in &link.callers {
            server.command(&["FLUSHALL"]);
            server.command(&["SET", BARE, "small"]);
            let runtime = Runtime::new().expect("a runtime");
            let run = one_run(&server, options, mbit, kib, *callers);
            is_passed &= runtime.block_on(run).expect("a store");
            runtime.shutdown_background();
        }
    }
    println!("{}", if is_passed { "PASS" } else { "FAIL" });
    is_passed
}

/// Stores the values, by a link without a limit.
async fn fill(server: &RedisServer, kib: usize, callers: u64) -> Result<(), BoxError> {
    let direct = RedisOptions::new(&server.url(), "link")?.timeout(Duration::from_secs(20));
    let cache: Values =
        Cache::builder("item", direct.connect().await?).ttl(Duration::from_secs(600)).build()?;
    // Bytes that do not look alike, without any that JSON escapes.
    let value: String = (0..kib * 1024).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    for key in 0..callers {
        cache.put(key, value.clone()).await?;
    }
    cache.put(SMALL, "small".to_owned()).await?;
    Ok(())
}

async fn one_run(
    server: &RedisServer,
    options: &Options,
    mbit: f64,
    kib: usize,
    callers: u64,
) -> Result<bool, BoxError> {
    fill(server, kib, callers).await?;
    let url = throttled(server.port(), mbit * 1e6 / 8.0).await?;
    let mut redis = RedisOptions::new(&url, "link")?;
    if let Some(timeout) = options.timeout {
        redis = redis.timeout(timeout);
    }
    let store = redis.connect().await?;
    let cache: Values =
        Cache::builder("item", store.clone()).ttl(Duration::from_secs(600)).build()?;
    learn_sizes(&cache, callers).await;
    let alone = small(&cache, LASTS).await;
    let over = Arc::new(AtomicBool::new(false));
    let loads = Arc::new(AtomicU64::new(0));
    let mut large = JoinSet::new();
    for key in 0..callers {
        large.spawn(read(cache.clone(), key, Arc::clone(&over), Arc::clone(&loads)));
    }
    let client = redis::Client::open(url.as_str())?;
    let connection = client.get_multiplexed_async_connection().await?;
    let (beside, bare) = tokio::join!(small(&cache, LASTS), bare(connection, LASTS));
    let bare = bare?;
    over.store(true, Ordering::Relaxed);
    let reads: u64 = large.join_all().await.into_iter().sum();
    let (outages, errors) = (store.stats().outages, store.stats().errors);
    let errors: Vec<_> = errors.by_name().filter(|(_, count)| *count > 0).collect();
    let ratio = beside.at(0.99) / alone.at(0.99);
    let to_bare = beside.at(0.99) / bare.at(0.99);
    let hits = reads.saturating_sub(loads.load(Ordering::Relaxed));
    let is_passed =
        hits == reads && beside.loads == 0 && ratio.min(to_bare) <= MOST && outages == 0;
    println!(
        "{mbit:>6} Mbit/s {kib:>6} KiB {callers:>4} callers: {hits} of {reads} hits; small {} of {} hits, p50 {:.2} ms alone and {:.2} beside, p99 {:.2} and {:.2} ({ratio:.1} x), bare GET {:.2} and {:.2} ({to_bare:.1} x); outages {outages} {errors:?}{}",
        beside.took.len() as u64 - beside.loads,
        beside.took.len(),
        alone.at(0.5),
        beside.at(0.5),
        alone.at(0.99),
        beside.at(0.99),
        bare.at(0.5),
        bare.at(0.99),
        if is_passed { "" } else { "  FAIL" },
    );
    Ok(is_passed)
}

/// A process learns how large an entry is by its first read.
async fn learn_sizes(cache: &Values, callers: u64) {
    for key in 0..callers {
        read(cache.clone(), key, Arc::new(AtomicBool::new(true)), Arc::default()).await;
    }
}

/// Reads a large value until all is over, once at least. Returns how often.
async fn read(cache: Values, key: u64, over: Arc<AtomicBool>, loads: Arc<AtomicU64>) -> u64 {
    let mut reads = 0;
    loop {
        reads += 1;
        let loads = Arc::clone(&loads);
        let load = async move || {
            loads.fetch_add(1, Ordering::Relaxed);
            sleep(PAUSE).await;
            Ok::<_, BoxError>(String::from("loaded"))
        };
        let _ = cache.get_or_load(key, load).await;
        if over.load(Ordering::Relaxed) {
            return reads;
        }
    }
}

/// How the small value fared.
struct Small {
    /// In milliseconds, sorted.
    took: Vec<f64>,
    loads: u64,
}

impl Small {
    fn at(&self, share: f64) -> f64 {
        self.took[((self.took.len() - 1) as f64 * share).round() as usize]
    }
}

async fn small(cache: &Values, lasts: Duration) -> Small {
    let loads = Arc::new(AtomicU64::new(0));
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < lasts {
        let asked = Instant::now();
        let counted = Arc::clone(&loads);
        let load = async move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BoxError>("small".to_owned())
        };
        let _ = cache.get_or_load(SMALL, load).await;
        took.push(asked.elapsed().as_secs_f64() * 1e3);
        sleep(PAUSE).await;
    }
    took.sort_by(f64::total_cmp);
    Small { took, loads: loads.load(Ordering::Relaxed) }
}

/// Reads a small value without a cache.
async fn bare(
    mut connection: redis::aio::MultiplexedConnection,
    lasts: Duration,
) -> redis::RedisResult<Small> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < lasts {
        let asked = Instant::now();
        let _: String = redis::cmd("GET").arg(BARE).query_async(&mut connection).await?;
        took.push(asked.elapsed().as_secs_f64() * 1e3);
        sleep(PAUSE).await;
    }
    took.sort_by(f64::total_cmp);
    Ok(Small { took, loads: 0 })
}

/// A proxy before a server, as slow as a link: all connections share so many bytes per second, in
/// each direction.
async fn throttled(port: u16, rate: f64) -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let [forth, back] =
        [(); 2].map(|()| Arc::new(Bucket { rate, free_at: Mutex::new(Instant::now()) }));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { break };
            let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server, Arc::clone(&forth)));
            tokio::spawn(carry(from_server, to_client, Arc::clone(&back)));
        }
    });
    Ok(format!("redis://{address}"))
}

/// One direction of a link.
struct Bucket {
    rate: f64,
    /// When it has sent all that it was given. Held to add to that.
    free_at: Mutex<Instant>,
}

impl Bucket {
    /// Waits until so many bytes are through.
    async fn pass(&self, bytes: usize) {
        let mut free_at = self.free_at.lock().await;
        let begins = (*free_at).max(Instant::now());
        *free_at = begins + Duration::from_secs_f64(bytes as f64 / self.rate);
        let through = *free_at;
        drop(free_at);
        // A timer counts in milliseconds: what is nearer is not waited for.
        if through > Instant::now() + Duration::from_micros(500) {
            sleep_until(through.into()).await;
        }
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bucket: Arc<Bucket>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        bucket.pass(length).await;
        if to.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

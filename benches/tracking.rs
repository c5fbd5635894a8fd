//! Near copies in a catalogue that is larger than the tracking table of the server: the share of
//! calls that they answer, without tags and with one of a thousand.
//!
//! The server drops rows of a full table at random, and reports each as a change. The limit compares
//! the last ten seconds with the best ten: a full table must not end what has not changed.

use std::convert::Infallible;
use std::env;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether::{Key, ReadThroughLayer, Tag};
use bellwether_redis::RedisStore;
use bellwether_testkit::servers::RedisServer;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::{Layer, Service, service_fn};

use crate::cpu::{cpu_time, cpu_time_of};
use crate::paired::Effort;
use crate::tag_members::options;

pub(crate) fn run(effort: Effort) {
    let rounds = if effort.is_smoke() { 1 } else { said("seconds").unwrap_or(50).div_ceil(10) };
    let round = Duration::from_secs(if effort.is_smoke() { 1 } else { 10 });
    let rows = said("rows").unwrap_or(60_000);
    let tags = said("tags").map_or_else(|| vec![0, 1_000], |tags| vec![tags]);
    for tags in tags {
        let server = RedisServer::start_with(&["--tracking-table-max-keys", &rows.to_string()]);
        let runtime = Runtime::new().expect("a runtime");
        let shares = runtime.block_on(shares(&server, tags, rounds, round));
        let last = shares.last().copied().unwrap_or_default();
        let best = shares.iter().copied().fold(f64::EPSILON, f64::max);
        println!(
            "tracking  {rows} rows, {tags} tags: {:.0} % of the best share at last",
            100. * last / best
        );
    }
}

/// What an argument such as `--rows=60000` says.
fn said(what: &str) -> Option<u64> {
    let said = env::args().find_map(|arg| {
        Some(arg.strip_prefix("--")?.strip_prefix(what)?.strip_prefix('=')?.to_owned())
    })?;
    Some(said.parse().unwrap_or_else(|_| panic!("--{what}={said}: that is no number")))
}

/// The shares of calls that near copies answered, round by round.
async fn shares(server: &RedisServer, tags: u64, rounds: u64, round: Duration) -> Vec<f64> {
    let store = options(server, "near-tags").near(64 * 1024 * 1024).connect().await;
    let store = store.expect("a store");
    let callers: JoinSet<()> = (1..=CALLERS).map(|seed| call(store.clone(), tags, seed)).collect();
    let mut shares = Vec::new();
    let mut before = Counts::of(&store, server);
    for at in 1..=rounds {
        sleep(round).await;
        let now = Counts::of(&store, server);
        let [calls, hits] = [now.calls - before.calls, now.hits - before.hits];
        let share = hits as f64 / calls.max(1) as f64;
        println!(
            "tracking  {tags} tags, {:3} s: {calls:7} calls, {hits:7} near hits, {:2.0} %, {:7} pushes, \
             {:7} rows, CPU {:.1} s and {:.1} s of the server",
            round.as_secs() * at,
            100. * share,
            now.pushes - before.pushes,
            server.info("stats", "tracking_total_keys").unwrap_or_default(),
            (now.cpu - before.cpu).as_secs_f64(),
            (now.cpu_of_server - before.cpu_of_server).as_secs_f64(),
        );
        shares.push(share);
        before = now;
    }
    drop(callers);
    shares
}

struct Counts {
    calls: u64,
    hits: u64,
    pushes: u64,
    cpu: Duration,
    cpu_of_server: Duration,
}

impl Counts {
    fn of(store: &RedisStore, server: &RedisServer) -> Self {
        let stats = store.stats();
        let hits = stats.near.map_or(0, |near| near.hits);
        let (cpu, cpu_of_server) = (cpu_time(), cpu_time_of(&[server.pid()]));
        let calls = CALLS.load(Ordering::Relaxed);
        Self { calls, hits, pushes: stats.pushes, cpu, cpu_of_server }
    }
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Calls without a pause. Each power of ten of the keys is called equally often.
async fn call(store: RedisStore, tags: u64, seed: u64) {
    let layer = ReadThroughLayer::builder(store, |sku: &u64| Key::of("item").with(*sku));
    let layer = layer.ttl(Duration::from_secs(120));
    let tag = move |sku: &u64| (tags > 0).then(|| Tag::of("shelf").with(sku % tags.max(1)));
    let text = |sku: u64| ready(Ok::<_, Infallible>(format!("{sku:0100}")));
    let mut catalog = layer.tags(tag).build().expect("options").layer(service_fn(text));
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    loop {
        // Xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let sku = (KEYS.ln() * (random >> 11) as f64 / (1_u64 << 53) as f64).exp() as u64;
        catalog.call(sku).await.expect("an answer");
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

const KEYS: f64 = 10_000_000.;
const CALLERS: u64 = 16;

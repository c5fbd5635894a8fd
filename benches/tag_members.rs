//! The invalidation of a tag with few and with many entries (`--members=` says how many), in memory
//! and in Redis; and what the server says about it: whether a script was slow, so that others had to
//! wait.

use std::convert::Infallible;
use std::env;
use std::future::ready;
use std::iter::once;
use std::time::Duration;

use bellwether::service::{Handle, ReadThrough};
use bellwether::store::{Store, Tags};
use bellwether::{Key, MemoryStore, ReadThroughLayer, Tag};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, service_fn};

use crate::figures::{Spread, Wanted, line};
use crate::paired::{Effort, Race};

pub(crate) fn run(runtime: &Runtime, effort: Effort) {
    let members = if effort.is_smoke() { 100 } else { members().unwrap_or(MEMBERS) };
    let alone = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = MemoryStore::new(2 * members as usize);
    let filled = load(&alone, &store, MANY, members);
    race("memory", &alone, (load(&alone, &store, FEW, 1), filled), members, effort);
    let server = RedisServer::start();
    let store = runtime.block_on(options(&server, NAMESPACE).connect()).expect("a store");
    let few = load(runtime, &store, FEW, 1);
    let filled = runtime.block_on(fill(&server, &store, members));
    race("redis", runtime, (few, filled.clone()), members, effort);
    seen_by_server(&server, runtime, &filled, members, effort);
}

/// What `--members=` says.
fn members() -> Option<u64> {
    let said = env::args().find_map(|arg| Some(arg.strip_prefix("--members=")?.to_owned()))?;
    Some(said.parse().unwrap_or_else(|_| panic!("--members={said}: that is no number")))
}

type Tagged = ReadThrough<Echo, fn(&Member) -> Key>;
type Echo = tower::util::BoxCloneService<Member, u64, Infallible>;

/// A request: the tag of an entry, and its number.
#[derive(Clone, Copy, Debug)]
struct Member(&'static str, u64);

fn service(store: &(impl Store + Clone)) -> Tagged {
    let key: fn(&Member) -> Key = |Member(tag, number)| Key::of(tag).with(*number);
    ReadThroughLayer::builder(store.clone(), key)
        .ttl(LIFE)
        .tags(|Member(tag, _): &Member| [Tag::of(tag)])
        .build()
        .unwrap()
        .layer(Echo::new(service_fn(|Member(_, number)| ready(Ok(number)))))
}

/// Loads the entries of a tag.
fn load(
    runtime: &Runtime,
    store: &(impl Store + Clone),
    tag: &'static str,
    entries: u64,
) -> Handle {
    let service = service(store);
    let numbers: Vec<_> = (0..entries).collect();
    for some in numbers.chunks(256) {
        let calls = some.iter().map(|number| service.clone().call(Member(tag, *number)));
        runtime.block_on(join_all(calls));
    }
    service.handle()
}

/// Stores the entries of a tag in Redis: one by a load, and the others as copies of it, by pipelines.
async fn fill(server: &RedisServer, store: &RedisStore, entries: u64) -> Handle {
    let mut service = service(store);
    service.call(Member(MANY, 0)).await.expect("an answer");
    let client = redis::Client::open(server.url()).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let read = redis::cmd("GET").arg(name_of(0)).query_async(&mut connection).await;
    let sealed: Vec<u8> = read.expect("an entry");
    let numbers: Vec<_> = (1..entries).collect();
    for some in numbers.chunks(10_000) {
        copy(&mut connection, &sealed, some).await;
    }
    for number in [1, entries / 2, entries - 1] {
        let found = store
            .lookup(Key::of(MANY).with(number).digested(), Tags::none())
            .await
            .expect("an answer");
        assert!(found.is_some(), "a copy is no entry: has the envelope changed?");
    }
    service.handle()
}

/// Stores copies of an entry under the keys of other numbers.
async fn copy(connection: &mut MultiplexedConnection, sealed: &[u8], numbers: &[u64]) {
    let mut pipeline = redis::pipe();
    let life = LIFE.as_millis() as u64;
    for number in numbers {
        let mut copy = sealed.to_vec();
        copy[DIGEST].copy_from_slice(Key::of(MANY).with(*number).digest().as_bytes());
        let sum = {
            let mut sum = crc32fast::Hasher::new();
            sum.update(&copy[..SUM.start]);
            sum.update(&copy[TAGS..]);
            sum.finalize()
        };
        copy[SUM].copy_from_slice(&sum.to_be_bytes());
        pipeline.cmd("SET").arg(name_of(*number)).arg(copy).arg("PX").arg(life).ignore();
    }
    pipeline.query_async::<()>(connection).await.expect("stored");
}

fn name_of(number: u64) -> String {
    format!("bw:{NAMESPACE}:{{{}}}", Key::of(MANY).with(number).digest())
}

fn race(
    place: &str,
    runtime: &Runtime,
    (few, many): (Handle, Handle),
    members: u64,
    effort: Effort,
) {
    let few_tag = Tag::of(FEW);
    let many_tag = Tag::of(MANY);
    let mut race = Race::new("tags", format!("an invalidation, {place}"));
    let few = race.enter_async("of 1 entry", runtime, || few.invalidate_tag(&few_tag));
    let many = race
        .enter_async(format!("of {members} entries"), runtime, || many.invalidate_tag(&many_tag));
    let outcome = race.run(effort);
    outcome.print(&[few, many]);
    outcome.print_times(many, few, Wanted::AtMost(1.1));
}

/// Invalidates the tag again and again, and prints how long the server was busy with it each time.
fn seen_by_server(
    server: &RedisServer,
    runtime: &Runtime,
    handle: &Handle,
    members: u64,
    effort: Effort,
) {
    let times = if effort.is_smoke() { 1 } else { 10_000 };
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
    server.command(&["SLOWLOG", "RESET"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    let tag = Tag::of(MANY);
    runtime.block_on(async {
        for _ in 0..times {
            handle.invalidate_tag(&tag).await.expect("invalidated");
        }
    });
    let Reply::Integer(slow) = server.command(&["SLOWLOG", "LEN"]) else {
        panic!("no number of slow commands");
    };
    let case = format!("{times} invalidations, redis");
    let print = |name: &str, figure: &str| line("tags", &case, name, figure, effort.is_smoke());
    for (name, percentile) in [("median", "p50"), ("99 %", "p99"), ("99.9 %", "p99.9")] {
        let Some(busy) = percentile_of_scripts(server, percentile) else { continue };
        let verdict = Wanted::AtMost(1000.0).verdict(Spread::of(once(busy)));
        let name = format!("of {members} entries, the server is busy, {name}");
        print(&name, &format!("{busy:>10.0} us{verdict}"));
    }
    print("commands in its slow log, of 1 ms or more", &format!("{slow:>10}"));
}

/// A percentile of the times of scripts, in microseconds, if the server measures them.
fn percentile_of_scripts(server: &RedisServer, percentile: &str) -> Option<f64> {
    let times = server.info("latencystats", "latency_percentiles_usec_evalsha")?;
    let mut times = times.split(',').filter_map(|time| time.split_once('='));
    times.find(|(name, _)| *name == percentile)?.1.parse().ok()
}

const NAMESPACE: &str = "members";
const FEW: &str = "few";
const MANY: &str = "many";

/// Entries of a tag with many.
const MEMBERS: u64 = 100_000;

const LIFE: Duration = Duration::from_secs(7200);

/// Where an entry has the digest of its key, its checksum, and its tags, from which on that sums again.
const DIGEST: std::ops::Range<usize> = 8..28;
const SUM: std::ops::Range<usize> = 84..88;
const TAGS: usize = 96;

pub(crate) fn options(server: &RedisServer, namespace: &str) -> RedisOptions {
    // Wide, so that a busy machine does not decide what is measured.
    RedisOptions::new(&server.url(), namespace)
        .map(|options| options.timeout(Duration::from_secs(5)))
        .expect("options that make sense")
}

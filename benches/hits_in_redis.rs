//! A hit in Redis, by many callers at once, against a bare `GET` and against a pool by the book.
//!
//! *Bare* is a `GET` of the JSON over one multiplexed connection of redis-rs, which gives bytes;
//! beside it is the same with the JSON decoded, as a caller that needs the product does.
//! `bb8-redis` is its pool as it comes: a connection for each request, checked by a `PING`. The
//! bare one runs twice: the deviation of its ratio to itself from 1 is the error of the other
//! ratios. `RedisStore::lookup` is our lookup without the layer: the lookup batch, timeout, digest
//! and envelope.

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::time::Duration;

use bb8_redis::RedisConnectionManager;
use bb8_redis::bb8::Pool;
use bellwether::store::{Store, Tags};
use bellwether::{Key, ReadThroughLayer};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde::{Serialize, de::DeserializeOwned};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::figures::{Number, Wanted};
use crate::paired::{Effort, Race, timed};
use crate::product::{Product, Shelf, json};

pub(crate) fn run(effort: Effort) {
    let effort = effort.in_long_turns();
    let server = RedisServer::start();
    let runtime = Runtime::new().expect("a runtime");
    let flat = |sku| Product::of_json_len(sku, JSON_LEN);
    for callers in [1, 16, 64, 256] {
        for (keys, what) in [(callers, "own keys"), (1, "one key")] {
            let stage = Stage { server: &server, runtime: &runtime, callers, keys };
            stage.race(what, flat, true, effort);
            if callers == 1 {
                break;
            }
        }
    }
    let stage = Stage { server: &server, runtime: &runtime, callers: JUDGED, keys: JUDGED };
    // Of which decoding alone takes about as long as the bare GET.
    stage.race("own keys, nested", |sku| Shelf::of_json_len(sku, JSON_LEN), false, effort);
}

/// Callers, and the keys that they ask for.
struct Stage<'a> {
    server: &'a RedisServer,
    runtime: &'a Runtime,
    callers: usize,
    keys: usize,
}

/// Runs one caller's operation on its key, as often as the turn says.
type Caller = Box<dyn Fn(u64, usize) -> BoxFuture<'static, ()>>;

/// The bounds of an answer that is stored.
trait Answer: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Answer for T {}

impl Stage<'_> {
    fn race<R: Answer>(&self, what: &str, answer: fn(u64) -> R, is_light: bool, effort: Effort) {
        let connection = self.runtime.block_on(connection(self.server));
        let store = self.runtime.block_on(store(self.server));
        let pool = self.runtime.block_on(pool(self.server));
        self.fill(&connection, answer);
        let s = if self.callers == 1 { "" } else { "s" };
        let mut race = Race::new("redis", format!("{} caller{s}, {what}", self.callers));
        let bare = self.enter(&mut race, "bare GET", get(connection.clone(), |_| ()));
        let again = self.enter(&mut race, "bare GET again", get(connection.clone(), |_| ()));
        let decoded = self.enter(&mut race, "GET + decode", get(connection, decode::<R>));
        let looked = self.enter(&mut race, "RedisStore::lookup", look(store.clone()));
        let ours = self.enter(&mut race, "bellwether", call(store, answer));
        let pooled = self.enter(&mut race, "bb8-redis", get_from_pool(pool));
        let outcome = race.run(effort);
        outcome.print(&[bare, decoded, looked, ours, pooled]);
        let is_judged = self.callers == JUDGED && is_light;
        let wanted = |least| if is_judged { Wanted::AtLeast(least) } else { Wanted::Nothing };
        outcome.print_rate(again, bare, Wanted::Nothing);
        outcome.print_rate(decoded, bare, Wanted::Nothing);
        outcome.print_rate(looked, bare, Wanted::Nothing);
        outcome.print_rate(ours, bare, wanted(0.9));
        outcome.print_rate(ours, decoded, Wanted::Nothing);
        outcome.print_rate(ours, pooled, wanted(3.0));
        [decoded, looked, ours].iter().for_each(|one| outcome.print_more_cpu(*one, bare));
    }

    fn enter<'r>(&'r self, race: &mut Race<'r>, name: &str, caller: Caller) -> Number {
        race.enter(name, self.callers, move |times| {
            let skus = (0..self.callers).map(|number| (number % self.keys) as u64);
            let all: Vec<_> = skus.map(|sku| caller(sku, times)).collect();
            timed(|| {
                self.runtime.block_on(async {
                    all.into_iter().collect::<JoinSet<()>>().join_all().await;
                });
            })
        })
    }

    fn fill<R: Answer>(&self, connection: &MultiplexedConnection, answer: fn(u64) -> R) {
        self.server.command(&["FLUSHALL"]);
        for sku in 0..self.keys as u64 {
            let mut connection = connection.clone();
            let bytes = json(&answer(sku));
            let set = async { connection.set::<_, _, ()>(name(sku), bytes).await };
            self.runtime.block_on(set).expect("an answer");
        }
    }
}

pub(crate) async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a server")
}

async fn pool(server: &RedisServer) -> Pool<RedisConnectionManager> {
    let manager = RedisConnectionManager::new(server.url()).expect("an address");
    Pool::builder().build(manager).await.expect("a server")
}

async fn store(server: &RedisServer) -> RedisStore {
    // Wide, so that a busy machine does not decide what is measured.
    let options = RedisOptions::new(&server.url(), "test").expect("an address");
    let options = options.timeout(Duration::from_secs(5));
    options.connect().await.expect("a server")
}

fn get<T>(connection: MultiplexedConnection, then: fn(&[u8]) -> T) -> Caller
where
    T: 'static,
{
    Box::new(move |sku, times| {
        let mut connection = connection.clone();
        let name = name(sku);
        let ask = async move {
            for _ in 0..times {
                let bytes: Vec<u8> = connection.get(&name).await.expect("an answer");
                assert_eq!(bytes.len(), JSON_LEN);
                black_box(then(&bytes));
            }
        };
        ask.boxed()
    })
}

fn get_from_pool(pool: Pool<RedisConnectionManager>) -> Caller {
    Box::new(move |sku, times| {
        let pool = pool.clone();
        let name = name(sku);
        let ask = async move {
            for _ in 0..times {
                let mut connection = pool.get().await.expect("a connection");
                let bytes: Vec<u8> = connection.get(&name).await.expect("an answer");
                black_box(bytes);
            }
        };
        ask.boxed()
    })
}

fn look(store: RedisStore) -> Caller {
    Box::new(move |sku, times| {
        let store = store.clone();
        let ask = async move {
            for _ in 0..times {
                black_box(store.lookup(key(&sku), Tags::none()).await.expect("an answer"));
            }
        };
        ask.boxed()
    })
}

/// The whole layer.
fn call<R: Answer>(store: RedisStore, answer: fn(u64) -> R) -> Caller {
    let load = service_fn(move |sku| ready(Ok::<_, Infallible>(answer(sku))));
    let layer =
        ReadThroughLayer::builder(store, key).ttl(Duration::from_secs(3600)).build().unwrap();
    let catalog = layer.layer(load);
    Box::new(move |sku, times| {
        let mut catalog = catalog.clone();
        let ask = async move {
            for _ in 0..times {
                black_box(catalog.call(sku).await.expect("an answer"));
            }
        };
        ask.boxed()
    })
}

fn decode<R: DeserializeOwned>(bytes: &[u8]) -> R {
    serde_json::from_slice(bytes).expect("what was written")
}

fn key(sku: &u64) -> Key {
    Key::of("item").with(*sku)
}

/// The names of the other entries, as long as ours are.
fn name(sku: u64) -> String {
    format!("by:test:{{{}}}", key(&sku).digest())
}

const JSON_LEN: usize = 1024;

/// How many callers the limits are for.
const JUDGED: usize = 64;

//! A burst in a cluster of three nodes and their replicas, against the same burst on one server: how
//! long after the end of the load 99 of 100 callers have its answer.
//!
//! Four stores with connections of their own stand for four processes. Each has 250 callers of one new
//! key, and one of the four loads it. The one server runs twice: the deviation of its ratio to itself
//! from 1 is the error of the other ratio.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Key, ReadThroughLayer};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::{RedisCluster, RedisServer};
use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};
use crate::product::Product;

pub(crate) fn run(effort: Effort) {
    let effort = effort.in_long_turns();
    let server = RedisServer::start();
    let cluster = RedisCluster::start();
    let runtime = Runtime::new().expect("a runtime");
    let case = format!("{PROCESSES} x {CALLERS} callers, p99 behind the load");
    let mut race = Race::new("cluster-bursts", case);
    let mut enter = |name: &str, url: &str| {
        let mut fleet = runtime.block_on(Fleet::on(url));
        let runtime = &runtime;
        race.enter(name, 1, move |times| fleet.take(runtime, times))
    };
    let one = enter("one server", &server.url());
    let again = enter("one server again", &server.url());
    let three = enter("three nodes", &cluster.url());
    let outcome = race.run(effort);
    outcome.print(&[one, three]);
    outcome.print_times(again, one, Wanted::Nothing);
    outcome.print_times(three, one, Wanted::AtMost(1.3));
}

/// Layers over stores that share a server or a cluster.
struct Fleet {
    layers: Vec<Box<dyn Fn(u64) -> BoxFuture<'static, ()>>>,
    /// When each load of a burst has ended.
    loads: Arc<Mutex<Vec<Instant>>>,
    next: u64,
}

impl Fleet {
    async fn on(url: &str) -> Self {
        let loads = Arc::<Mutex<Vec<Instant>>>::default();
        let namespace = format!("bursts{:x}", Arc::as_ptr(&loads).addr());
        let layer = async |_| {
            // Wide, so that a busy machine does not decide what is measured.
            let options = RedisOptions::new(url, &namespace).expect("an address");
            let options = options.timeout(Duration::from_secs(5));
            let store = options.connect().await;
            protected(store.expect("a store"), Arc::clone(&loads))
        };
        let layers = join_all((0..PROCESSES).map(layer)).await;
        Self { layers, loads, next: 0 }
    }

    /// Runs bursts. They last as long as their last callers have waited behind the loads.
    fn take(&mut self, runtime: &Runtime, times: usize) -> Took {
        let mut behind = Duration::ZERO;
        let took = timed(|| behind = (0..times).map(|_| self.burst(runtime)).sum());
        took.lasting(behind)
    }

    fn burst(&mut self, runtime: &Runtime) -> Duration {
        self.next += 1;
        let sku = self.next;
        self.loads.lock().expect("no load has panicked").clear();
        let calls = self.layers.iter().flat_map(|ask| (0..CALLERS).map(move |_| ask(sku)));
        let answered = |call: BoxFuture<'static, ()>| async move {
            call.await;
            Instant::now()
        };
        let callers = calls.map(answered).collect::<Vec<_>>();
        let mut answers = runtime
            .block_on(async { callers.into_iter().collect::<JoinSet<Instant>>().join_all().await });
        let loads = self.loads.lock().expect("no load has panicked");
        let [ended] = loads[..] else { panic!("{} loads of one key", loads.len()) };
        answers.sort();
        answers[answers.len() * 99 / 100].saturating_duration_since(ended)
    }
}

/// What asks a layer of its own over a store.
fn protected(
    store: bellwether_redis::RedisStore,
    loads: Arc<Mutex<Vec<Instant>>>,
) -> Box<dyn Fn(u64) -> BoxFuture<'static, ()>> {
    let load = move |sku| {
        let loads = Arc::clone(&loads);
        async move {
            sleep(LOAD).await;
            loads.lock().expect("no load has panicked").push(Instant::now());
            Ok::<_, Infallible>(Product::of_json_len(sku, JSON_LEN))
        }
    };
    let layer = ReadThroughLayer::builder(store, |sku: &u64| Key::of("item").with(*sku));
    let catalog =
        layer.ttl(Duration::from_secs(60)).build().expect("options").layer(service_fn(load));
    Box::new(move |sku| {
        let answer = catalog.clone().call(sku);
        Box::pin(async move {
            answer.await.expect("an answer");
        })
    })
}

const PROCESSES: usize = 4;
const CALLERS: usize = 250;

/// Long enough that all callers wait when it ends.
const LOAD: Duration = Duration::from_millis(30);

const JSON_LEN: usize = 1024;

//! A service whose Redis is away goes on without an error.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bellwether::adapter::locked;
use bellwether::service::ReadThrough;
use bellwether::{CacheStatus, Key, ReadThroughLayer};
use bellwether_redis::RedisStore;
use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service};

use super::{SLACK, Site, TIMEOUT};
use crate::catalog::key;

/// How long a load takes.
const LOAD: Duration = Duration::from_millis(5);

const CALLERS: u64 = 50;
const KEYS: u64 = 5;

/// Counts its loads, and how many of a key there are at once.
#[derive(Clone, Default)]
struct Loader(Arc<Mutex<HashMap<u64, Loads>>>);

#[derive(Clone, Copy, Default)]
struct Loads {
    now: u64,
    most: u64,
}

impl Loader {
    /// The most loads of any key that there were at once.
    fn most_at_once(&self) -> u64 {
        locked(&self.0).values().map(|loads| loads.most).max().unwrap_or_default()
    }
}

impl Service<u64> for Loader {
    type Response = u64;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<u64, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, sku: u64) -> Self::Future {
        let loader = self.clone();
        Box::pin(async move {
            {
                let mut table = locked(&loader.0);
                let loads = table.entry(sku).or_default();
                loads.now += 1;
                loads.most = loads.most.max(loads.now);
            }
            sleep(LOAD).await;
            locked(&loader.0).entry(sku).or_default().now -= 1;
            Ok(sku)
        })
    }
}

struct Shop {
    service: ReadThrough<Loader, fn(&u64) -> Key>,
    store: RedisStore,
    loader: Loader,
}

impl Shop {
    fn over(store: RedisStore) -> Self {
        let loader = Loader::default();
        let key_of: fn(&u64) -> Key = |sku| key(*sku);
        let layer = ReadThroughLayer::builder(store.clone(), key_of)
            .ttl(Duration::from_secs(600))
            .build()
            .unwrap();
        Self { service: layer.layer(loader.clone()), store, loader }
    }

    /// One call: how long it took, and whether it was a hit. It may not fail.
    async fn ask(&self, sku: u64) -> (Duration, bool) {
        let began = Instant::now();
        let (answer, status) = self.service.clone().call(sku).with_status().await;
        assert_eq!(answer.expect("an answer"), sku);
        (began.elapsed(), matches!(status, CacheStatus::Hit { .. }))
    }

    /// Callers that ask again and again for this long. Returns the time of each call.
    async fn trade(&self, period: Duration) -> Vec<Duration> {
        let over = Instant::now() + period;
        let callers = (0..CALLERS).map(async |caller| {
            let mut took = Vec::new();
            while Instant::now() < over {
                took.push(self.ask(caller % KEYS).await.0);
                sleep(Duration::from_millis(10)).await;
            }
            took
        });
        join_all(callers).await.concat()
    }

    /// How long it takes until there are hits again.
    async fn recovers(&self) -> Duration {
        let began = Instant::now();
        let recovered = timeout(Duration::from_secs(30), async {
            while !self.ask(0).await.1 {
                sleep(Duration::from_millis(10)).await;
            }
        });
        recovered.await.expect("hits again");
        began.elapsed()
    }
}

/// The service goes on while its Redis is away, and uses it again afterwards.
async fn goes_on(what: &str, shop: &Shop, away: Duration, back: impl AsyncFnOnce()) {
    let (first, _) = shop.ask(0).await;
    assert!(first < TIMEOUT + LOAD + SLACK, "the first call took {first:?}");
    // Some calls are under way when the outage is detected.
    shop.trade(Duration::from_millis(600)).await;
    let mut took = shop.trade(away).await;
    took.sort_unstable();
    let [p50, p99] = [50, 99].map(|percent| took[took.len() * percent / 100]);
    let at_once = shop.loader.most_at_once();
    assert_eq!(at_once, 1, "{at_once} loads of a key at once");
    back().await;
    let recovered = shop.recovers().await;
    println!(
        "{what}: first {first:?}; then {} calls of {LOAD:?}: p50 {p50:?}, p99 {p99:?}; \
         hits again after {recovered:?}",
        took.len()
    );
    assert!(p99 < LOAD + TIMEOUT, "calls wait for a Redis that is known to be down: {p99:?}");
    assert!(recovered < Duration::from_secs(2) + SLACK, "hits again after {recovered:?}");
    assert!(!shop.store.is_down());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_redis_from_the_start_goes_on() {
    let site = Site::start().await;
    site.proxy.refuse();
    let shop = Shop::over(site.options().connect_lazily().expect("options"));
    goes_on("absent", &shop, Duration::from_secs(2), async || site.proxy.heal()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_redis_is_killed_goes_on() {
    let mut site = Site::start().await;
    let shop = Shop::over(site.options().connect().await.expect("a store"));
    shop.trade(Duration::from_millis(200)).await;
    site.server.kill();
    goes_on("killed", &shop, Duration::from_secs(4), async || site.server.restart()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_redis_answers_a_byte_a_second_goes_on() {
    let site = Site::start().await;
    let shop = Shop::over(site.options().connect().await.expect("a store"));
    shop.trade(Duration::from_millis(200)).await;
    site.proxy.trickle(1);
    goes_on("a byte a second", &shop, Duration::from_secs(2), async || site.proxy.heal()).await;
}

/// In a runtime of their own, so that the tasks of the proxy are not counted.
#[test]
fn a_thousand_callers_in_ten_seconds_of_silence_leave_no_task_behind() {
    let [theirs, ours] = [(); 2].map(|()| Runtime::new().expect("a runtime"));
    let site = theirs.block_on(Site::start());
    let tasks = || ours.metrics().num_alive_tasks();
    let shop = ours.block_on(async {
        let shop = Shop::over(site.options().connect().await.expect("a store"));
        shop.ask(0).await;
        shop
    });
    let before = tasks();
    site.proxy.blackhole();
    ours.block_on(a_thousand_callers(&shop));
    let ended = Instant::now() + Duration::from_secs(5);
    while shop.service.in_flight() > 0 || tasks() > before {
        let left = (shop.service.in_flight(), tasks());
        assert!(Instant::now() < ended, "{left:?} flights and tasks, of {before} tasks before");
        thread::sleep(Duration::from_millis(10));
    }
}

/// For ten seconds: all of them in the first one, and some of them again later.
async fn a_thousand_callers(shop: &Shop) {
    let over = Instant::now() + Duration::from_secs(10);
    let callers = (0..1_000).map(async |caller: u64| {
        while Instant::now() < over {
            shop.ask(caller % 100).await;
            sleep(Duration::from_secs(1 + caller % 7)).await;
        }
    });
    join_all(callers).await;
}

//! Faults between processes: pushes that do not arrive, and a store that stands still.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bellwether::metrics::publish;
use bellwether::stats::CacheStats;
use bellwether::{Cache, Wait};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::recorder::Snapshot;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{Alert, has_fired, until_fired};
use bellwether_testkit::exposition::Exposition;

pub(super) const ALERTS: &[Alert] = &[
    ("BellwetherWaitersPoll", "no-rights"),
    ("BellwetherWaitersPoll", "lost"),
    ("BellwetherAnswersLate", "no-rights"),
    ("BellwetherAnswersLate", "lost"),
    ("BellwetherLeasesLost", "stalled"),
];

/// How long most loads take: waiters that are told of nothing poll several times.
const LOAD: Duration = Duration::from_millis(700);

/// How long those of a slow source take: waiters that are told of everything poll, too.
const LONG_LOAD: Duration = Duration::from_secs(2);

/// A server stands still for longer.
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// The machine does not.
const LONG_LEASE: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(3_600);

/// A cache in two processes.
#[derive(Clone)]
struct Pair {
    name: &'static str,
    leader: Cache<usize, u64>,
    waiter: Cache<usize, u64>,
}

impl Pair {
    async fn connect(name: &'static str, url: &str, lease: Duration) -> Self {
        let [leader, waiter] = [store(url).await, store(url).await].map(|store| {
            let cache = Cache::builder(name, store).ttl(HOUR).lease(lease);
            cache.wait(Wait::at_most(HOUR)).build().expect("options")
        });
        Self { name, leader, waiter }
    }

    /// Both processes ask for a key: one loads it, and the other one waits. On a busy machine a wait may
    /// fail, which is no matter: it is repeated until the alerts fire.
    async fn share_a_load(&self, key: usize, takes: Duration) {
        let (begins, has_begun) = oneshot::channel();
        let leader = self.leader.get_or_load(key, async move || {
            let _ = begins.send(());
            sleep(takes).await;
            Ok::<_, io::Error>(1)
        });
        let waiter = async {
            let _ = has_begun.await;
            self.waiter.get_or_load(key, async || Ok::<_, io::Error>(1)).await
        };
        let _ = tokio::join!(leader, waiter);
    }

    /// A process loads, and the server stands still for longer than its lease.
    async fn outlast_a_lease(&self, key: usize, server: &RedisServer) {
        let (begins, has_begun) = oneshot::channel();
        let load = self.leader.get_or_load(key, async move || {
            let _ = begins.send(());
            sleep(2 * SHORT_LEASE).await;
            Ok::<_, io::Error>(1)
        });
        let stall = async {
            let _ = has_begun.await;
            server.stop();
            sleep(SHORT_LEASE + SHORT_LEASE / 2).await;
            server.resume();
        };
        let _ = tokio::join!(load, stall);
    }
}

async fn store(url: &str) -> RedisStore {
    let options = RedisOptions::new(url, "test").expect("a URL");
    let options = options.timeout(Duration::from_secs(20));
    options.connect().await.expect("a store")
}

#[tokio::test]
async fn the_alerts_fire_when_pushes_are_lost_and_not_when_loads_take_long() {
    let redis = RedisServer::start();
    let stalling = RedisServer::start();
    let without_rights = redis.url_of_user(&["~*", "&*", "+@all", "-client", "-subscribe"]);
    let proxy = FaultProxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, redis.port()))).await;
    let lossy = [
        Pair::connect("no-rights", &without_rights, LONG_LEASE).await,
        Pair::connect("lost", &proxy.url(), LONG_LEASE).await,
    ];
    let slow = Pair::connect("slow", &redis.url(), LONG_LEASE).await;
    let stalled = Pair::connect("stalled", &stalling.url(), SHORT_LEASE).await;
    proxy.lose_pushes();
    let published = [&lossy[..], &[slow.clone(), stalled.clone()]].concat();
    let programs = [Exposition::new(), Exposition::new()];
    let stats = [|pair: &Pair| pair.leader.stats(), |pair: &Pair| pair.waiter.stats()];
    let metrics = async || {
        let publish = |stats: fn(&Pair) -> CacheStats| {
            published.iter().for_each(|pair| publish(&Snapshot(pair.name, stats(pair))));
        };
        programs
            .iter()
            .zip(stats)
            .map(|(program, stats)| program.render(|| publish(stats)))
            .collect()
    };
    let fired = until_fired(metrics, ALERTS, async |look| {
        let shared = join_all(lossy.iter().map(|pair| pair.share_a_load(look, LOAD)));
        let long = join_all((0..4).map(|key| slow.share_a_load(4 * look + key, LONG_LOAD)));
        tokio::join!(shared, long, stalled.outlast_a_lease(look, &stalling));
    })
    .await;
    let wakes = slow.waiter.stats().wakes;
    assert!(wakes.pause > 0, "its waiters poll: {wakes:?}");
    assert!(!has_fired(&fired, &("BellwetherWaitersPoll", "slow")), "{wakes:?} {fired:?}");
}

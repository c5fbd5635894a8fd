//! A Redis that is absent, paused or never answers: requests fail soon, then at once, with few log
//! messages, and work again when it is back.

mod attempts;
mod copies;
mod deadlines;
mod leases;
mod logs;
mod memory;
mod recovery;
mod service;

use std::net::{Ipv4Addr, SocketAddr};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use bellwether::store::{Accept, Acquire, Claim, Store, StoreErrorKind};
use bellwether::{Key, StoreError};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;
use futures_util::poll;
use tokio::time::sleep;

use crate::catalog::key;

/// The default of `RedisOptions::timeout`.
const TIMEOUT: Duration = Duration::from_millis(250);

/// What a busy machine may take on top of it.
const SLACK: Duration = Duration::from_secs(2);

struct Site {
    server: RedisServer,
    proxy: FaultProxy,
}

impl Site {
    async fn start() -> Self {
        let server = RedisServer::start();
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        Self { proxy: FaultProxy::start(upstream).await, server }
    }

    /// Of a store that gives the errors of the server.
    fn options(&self) -> RedisOptions {
        let options = RedisOptions::new(&self.proxy.url(), "test").expect("an address");
        options.outage_ttl(Duration::ZERO)
    }

    /// The remaining lease of a key, in milliseconds; negative if there is none.
    fn lease_left(&self, key: &Key) -> i64 {
        let name = format!("bw:test:{{{}}}:lease", key.digest());
        match self.server.command(&["PTTL", &name]) {
            Reply::Integer(left) => left,
            other => panic!("no life: {other:?}"),
        }
    }

    /// A store whose next probe is far away.
    fn without_probes(&self) -> RedisStore {
        let options = self.options().probe_every(Duration::from_secs(60));
        options.connect_lazily().expect("options")
    }
}

async fn look(store: &RedisStore) -> Result<(), StoreError> {
    store.find(key(1)).await.map(drop)
}

async fn lease(store: &RedisStore) -> Result<(), StoreError> {
    let claim = Claim::new(key(1));
    match store.acquire(claim.clone(), Duration::from_secs(10), Accept::Fresh).await? {
        Acquire::Lead { .. } => store.abandon(claim).await,
        _ => Ok(()),
    }
}

fn kind(result: Result<(), StoreError>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind())
}

/// Five operations fail in time, by no answer or no connection; and all others at once.
async fn goes_down(store: &RedisStore) {
    for _ in 0..5 {
        assert!(!store.is_down());
        let began = Instant::now();
        let kind = kind(look(store).await).expect("it cannot work");
        assert!(began.elapsed() < TIMEOUT + SLACK, "it took {:?}", began.elapsed());
        let kinds = [StoreErrorKind::TimedOut, StoreErrorKind::Unreachable];
        assert!(kinds.contains(&kind), "{kind:?}");
    }
    assert!(store.is_down());
    let connects = store.stats().connects;
    for _ in 0..1000 {
        // Ready at the first poll, so it has not waited for the network.
        assert!(says_down(poll!(store.find(key(1)))), "a lookup was tried");
        assert!(says_down(poll!(store.invalidate(key(1)))), "an invalidation was tried");
    }
    assert_eq!(store.stats().connects, connects);
    assert_eq!(store.stats().outages, 1);
}

fn says_down<T>(polled: Poll<Result<T, StoreError>>) -> bool {
    matches!(polled, Poll::Ready(Err(error)) if error.kind() == StoreErrorKind::Down)
}

#[tokio::test]
async fn a_redis_that_refuses_is_soon_taken_to_be_down() {
    let site = Site::start().await;
    site.proxy.refuse();
    goes_down(&site.without_probes()).await;
}

#[tokio::test]
async fn a_redis_that_stops_answering_soon_counts_as_down() {
    let site = Site::start().await;
    let store = site.without_probes();
    look(&store).await.expect("an answer");
    site.proxy.blackhole();
    goes_down(&store).await;
}

#[tokio::test]
async fn a_redis_that_is_slow_is_soon_taken_to_be_down() {
    let site = Site::start().await;
    let store = site.without_probes();
    look(&store).await.expect("an answer");
    site.proxy.delay(Duration::ZERO, 2 * TIMEOUT);
    goes_down(&store).await;
}

#[tokio::test]
async fn an_error_says_why_there_is_no_connection() {
    let site = Site::start().await;
    site.proxy.refuse();
    let store = site.without_probes();
    let error = look(&store).await.expect_err("nothing listens");
    assert!(error.to_string().contains("refused"), "{error}");
    for _ in 0..5 {
        let _ = look(&store).await;
    }
    let error = look(&store).await.expect_err("it is down");
    assert_eq!(error.kind(), StoreErrorKind::Down);
    assert!(error.to_string().contains("refused"), "the last reason is missing: {error}");
}

#[tokio::test]
async fn a_redis_that_is_busy_is_taken_to_be_down_until_it_is_not() {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.command(&["CONFIG", "SET", "lua-time-limit", "1"]);
    let mut busy = site.server.connect();
    let endless = thread::spawn(move || busy.command(&["EVAL", "while true do end", "0"]));
    let is_busy = || site.server.try_command(&["PING"]).is_err_and(|said| said.contains("BUSY"));
    within(Duration::from_secs(10), is_busy).await;
    for _ in 0..5 {
        assert_eq!(kind(look(&store).await), Some(StoreErrorKind::NotReady));
    }
    assert_eq!(kind(look(&store).await), Some(StoreErrorKind::Down));
    site.server.command(&["SCRIPT", "KILL"]);
    works_again(&store, Instant::now()).await;
    assert!(endless.join().expect("a thread").is_err(), "it was killed");
}

#[tokio::test]
async fn a_redis_that_refuses_writes_is_not_down() {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..20 {
        assert_eq!(kind(lease(&store).await), Some(StoreErrorKind::Refused));
    }
    assert!(!store.is_down());
    look(&store).await.expect("an answer");
}

/// Calls as usual until all kinds of them are answered.
async fn works_again(store: &RedisStore, since: Instant) {
    while look(store).await.is_err() || lease(store).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(since.elapsed() < Duration::from_secs(1), "it took {:?}", since.elapsed());
    assert!(!store.is_down());
}

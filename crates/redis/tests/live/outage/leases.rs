//! A reply that is lost leaves no lease that other callers wait for.

use std::convert::Infallible;
use std::future::pending;
use std::time::{Duration, Instant};

use bellwether::service::KeyRequest;
use bellwether::store::{Accept, Acquire, Claim, Draft, Lease, Settled, Store};
use bellwether::{Key, Lifetimes, ReadThroughLayer, StoreError, Tag};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::Replacement;
use bellwether_testkit::wait::within;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::poll;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, service_fn};

use super::{Site, TIMEOUT, look};
use crate::catalog::key;

/// A lease that no test waits for.
const MINUTE: Duration = Duration::from_secs(60);

/// How long a test waits for an event that has no delay.
const SOON: Duration = Duration::from_secs(10);

impl Site {
    /// How often clients and scripts have called a command.
    fn calls(&self, command: &str) -> u64 {
        let calls = self.server.info("commandstats", &format!("cmdstat_{command}"));
        let calls = calls.as_deref().and_then(|it| it.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// A store whose server knows the scripts.
    async fn store(&self) -> RedisStore {
        let store = self.options().connect().await.expect("a store");
        store.abandon(lead(&store, key(1000)).await.claim).await.expect("an answer");
        store
    }
}

async fn acquire(store: &RedisStore, claim: &Claim) -> Result<Acquire, StoreError> {
    store.acquire(claim.clone(), MINUTE, Accept::Fresh).await
}

async fn lead(store: &RedisStore, key: Key) -> Lease {
    match acquire(store, &Claim::new(key)).await {
        Ok(Acquire::Lead { lease, .. }) => lease,
        other => panic!("{other:?} instead of a lease"),
    }
}

fn draft() -> Draft {
    let value = bellwether::store::Value::new(Bytes::from_static(b"value"));
    Draft::new(value, 0, Lifetimes::fresh_for(MINUTE))
}

/// The first answer to another claim of this process, once it has a connection again.
async fn asks_again(store: &RedisStore, key: Key) -> Acquire {
    let began = Instant::now();
    loop {
        match acquire(store, &Claim::new(key.clone())).await {
            Ok(acquired) => return acquired,
            Err(error) => assert!(began.elapsed() < SOON, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_claim_that_arrives_too_late_grants_nothing() {
    let site = Site::start().await;
    let store = site.store().await;
    site.proxy.blackhole();
    acquire(&store, &Claim::new(key(1))).await.expect_err("it is not delivered");
    // Until its sender has stopped waiting in any case.
    sleep(TIMEOUT).await;
    let [scripts, grants] = ["evalsha", "set"].map(|command| site.calls(command));
    // What was held back is delivered: the claim comes late, and is given up by another script.
    site.proxy.pass();
    within(SOON, || site.calls("evalsha") >= scripts + 2 || site.calls("set") > grants).await;
    assert_eq!(site.calls("set"), grants, "a claim that no caller waits for was granted a lease");
}

#[tokio::test]
async fn a_claim_is_asked_for_again_if_it_is_refused_because_the_servers_clock_was_set() {
    let site = Site::start().await;
    let store = site.store().await;
    let hour = 3_600_000_000_u64;
    let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_micros() as u64;
    let late = format!("*2\r\n:5\r\n:{}\r\n", now + hour);
    let replaced = site.proxy.replace(Replacement::of("EVALSHA", late).times(1));
    let lease = lead(&store, key(1)).await;
    assert_eq!(replaced.count(), 1);
    assert_eq!(store.commit(lease, draft()).await.expect("an answer"), Settled::Done);
    // The estimate is an hour ahead by now, and the server is believed again.
    store.abandon(lead(&store, key(2)).await.claim).await.expect("an answer");
}

#[tokio::test]
async fn a_lease_whose_grant_was_lost_is_given_up_as_soon_as_the_server_answers() {
    let site = Site::start().await;
    let store = site.store().await;
    site.proxy.silence();
    acquire(&store, &Claim::new(key(1))).await.expect_err("nothing comes back");
    within(SOON, || site.lease_left(&key(1)) > 0).await;
    site.proxy.cut();
    site.proxy.pass();
    // No caller asks this store for anything.
    within(SOON, || site.lease_left(&key(1)) < 0).await;
}

#[tokio::test]
async fn a_lease_whose_commit_was_lost_is_given_up_as_soon_as_the_server_answers() {
    let site = Site::start().await;
    let store = site.store().await;
    let lease = lead(&store, key(1)).await;
    site.proxy.blackhole();
    store.commit(lease, draft()).await.expect_err("it is not delivered");
    site.proxy.cut();
    assert!(site.lease_left(&key(1)) > 0, "it is given up too early");
    site.proxy.pass();
    within(SOON, || site.lease_left(&key(1)) < 0).await;
}

#[tokio::test]
async fn a_lease_that_was_abandoned_while_the_server_was_down_is_given_up_when_it_is_back() {
    let site = Site::start().await;
    let store = site.store().await;
    let lease = lead(&store, key(1)).await;
    site.proxy.refuse();
    site.proxy.cut();
    while !store.is_down() {
        let _ = look(&store).await;
    }
    store.abandon(lease.claim).await.expect_err("the server is down");
    assert!(site.lease_left(&key(1)) > 0, "it is given up too early");
    site.proxy.pass();
    within(SOON, || site.lease_left(&key(1)) < 0).await;
    // What gives leases up is a probe, too.
    within(SOON, || !store.is_down()).await;
}

/// The pauses between the attempts of that invalidation grow to a second.
#[tokio::test]
async fn a_lease_that_a_dropped_call_has_taken_is_given_up_before_a_kept_invalidation_is_repeated()
{
    let site = Site::start().await;
    let store = site.store().await;
    let refusals = || {
        let refused = site.server.info("errorstats", "errorstat_NOPERM");
        let refused = refused.map(|it| it.trim_start_matches("count=").parse::<u64>());
        refused.map_or(0, |it| it.expect("a number"))
    };
    site.server.command(&["ACL", "SETUSER", "default", "resetkeys", "~bw:test:{*"]);
    store.invalidate_tag(Tag::of("refused")).await.expect_err("no right to names of tags");
    within(SOON, || refusals() >= 6).await;
    let claim = Claim::new(key(1));
    let mut acquiring = Box::pin(acquire(&store, &claim));
    while site.lease_left(&key(1)) < 0 {
        assert!(poll!(&mut acquiring).is_pending(), "its lease is seen before its reply");
        yield_now().await;
    }
    let before = refusals();
    drop(acquiring);
    within(SOON, || site.lease_left(&key(1)) < 0).await;
    assert_eq!(refusals(), before, "it was repeated meanwhile");
}

#[tokio::test]
async fn another_claim_of_a_process_leads_soon_after_one_that_was_granted_without_hearing_of_it() {
    let site = Site::start().await;
    let store = site.store().await;
    site.proxy.silence();
    acquire(&store, &Claim::new(key(1))).await.expect_err("nothing comes back");
    within(SOON, || site.lease_left(&key(1)) > 0).await;
    site.proxy.cut();
    site.proxy.pass();
    let began = Instant::now();
    while !matches!(asks_again(&store, key(1)).await, Acquire::Lead { .. }) {
        assert!(began.elapsed() < SOON, "the lease of the lost claim is not given up");
    }
}

#[tokio::test]
async fn a_lease_that_is_held_is_taken_over_by_no_other_claim_of_its_process() {
    let site = Site::start().await;
    let store = site.store().await;
    let held = lead(&store, key(1)).await;
    site.proxy.silence();
    acquire(&store, &Claim::new(key(1))).await.expect_err("nothing comes back");
    site.proxy.cut();
    site.proxy.pass();
    let acquired = asks_again(&store, key(1)).await;
    assert!(matches!(acquired, Acquire::Busy { .. }), "{acquired:?} beside a holder");
    assert_eq!(store.commit(held, draft()).await.expect("an answer"), Settled::Done);
}

/// A load that never ends, under a lease of a minute.
fn endless(store: RedisStore) -> impl Future<Output = ()> {
    let ask = |sku: &u64| KeyRequest::of(key(*sku)).force_refresh();
    let layer = ReadThroughLayer::builder(store, ask).lease(MINUTE).build().expect("a lease");
    let load = service_fn(|_: u64| pending::<Result<u64, Infallible>>());
    let mut service = layer.layer(load);
    async move { drop(service.call(1).await) }
}

#[tokio::test]
async fn a_lease_of_a_minute_is_taken_for_three_seconds_and_renewed_to_a_minute() {
    let site = Site::start().await;
    let call = tokio::spawn(endless(site.store().await));
    within(SOON, || site.lease_left(&key(1)) > 0).await;
    let first = site.lease_left(&key(1));
    assert!(first <= 3000, "it is taken for {first} ms");
    within(SOON, || site.lease_left(&key(1)) > 50_000).await;
    call.abort();
}

#[tokio::test]
async fn a_grant_whose_reply_was_lost_blocks_its_key_for_three_seconds_at_most() {
    let site = Site::start().await;
    let store = site.store().await;
    // It can give nothing up: no reply ever comes, and the process ends.
    site.proxy.silence();
    let call = tokio::spawn(endless(store));
    within(SOON, || site.lease_left(&key(1)) > 0).await;
    let left = site.lease_left(&key(1));
    assert!(left <= 3000, "other processes wait for {left} ms");
    call.abort();
}

/// A process whose loads take 10 ms, under a lease of a minute.
struct Process {
    store: RedisStore,
}

impl Process {
    /// Twenty callers that ask for ten keys for this long. Returns the time of the slowest call.
    async fn trades(&self, period: Duration) -> Duration {
        let layer = ReadThroughLayer::builder(self.store.clone(), |sku: &u64| key(*sku));
        let layer = layer.ttl(Duration::from_millis(20)).lease(MINUTE).build().expect("a lease");
        let service = layer.layer(service_fn(|sku: u64| async move {
            sleep(Duration::from_millis(10)).await;
            Ok::<_, Infallible>(sku)
        }));
        let over = Instant::now() + period;
        let callers = (0..20).map(|caller| {
            let mut service = service.clone();
            async move {
                let mut slowest = Duration::ZERO;
                while Instant::now() < over {
                    let began = Instant::now();
                    service.call(caller % 10).await.expect("no error");
                    slowest = slowest.max(began.elapsed());
                    sleep(Duration::from_millis(5)).await;
                }
                slowest
            }
        });
        join_all(callers).await.into_iter().max().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_after_an_outage_no_caller_waits_for_a_lease_that_no_flight_holds() {
    let site = Site::start().await;
    let processes = [Process { store: site.store().await }, Process { store: site.store().await }];
    let trade =
        async |period| join_all(processes.iter().map(|process| process.trades(period))).await;
    trade(Duration::from_millis(300)).await;
    for _ in 0..3 {
        // Some keys are being loaded, and their leases cannot be given up.
        site.proxy.blackhole();
        trade(Duration::from_millis(700)).await;
        site.proxy.cut();
        site.proxy.pass();
        trade(Duration::from_secs(1)).await;
        let slowest = timeout(SOON, trade(Duration::from_secs(1))).await.expect("answers");
        let slowest = slowest.into_iter().max().expect("processes");
        assert!(slowest < Duration::from_millis(500), "a call took {slowest:?}");
    }
}

//! Redis behind Sentinel: the primary is found, and followed when it is another one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bellwether::store::StoreErrorKind;
use bellwether::{BypassReason, CacheStatus};
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::faults::{FaultProxy, Replacement};
use bellwether_testkit::servers::{RedisServer, SERVICE, SentinelFleet, free_port, url_of};
use bellwether_testkit::wait::{PATIENCE, until};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::catalog::{Catalog, key, options_at};
use crate::near::{copied, looked, near, put};

/// How many scripts a server has run.
fn scripts_run(server: &RedisServer) -> u64 {
    let Some(stats) = server.info("commandstats", "cmdstat_evalsha") else { return 0 };
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.and_then(|calls| calls.parse().ok()).expect("a number")
}

#[tokio::test]
async fn redis_store_keeps_the_contract_behind_sentinels() {
    let fleet = SentinelFleet::start().await;
    let store = options_at(&fleet.url()).connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn a_planned_failover_fails_no_request_and_the_old_primary_gets_no_more_writes() {
    const KEYS: u64 = 200;
    let fleet = SentinelFleet::start().await;
    let catalog = Catalog::over(options_at(&fleet.url()).connect().await.expect("a store"));
    for sku in 0..KEYS {
        catalog.ask(sku).await;
    }
    until("the replica has all", || fleet.replica.info("keyspace", "db0").is_some()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..8_u64 {
        let (catalog, is_over) = (catalog.clone(), Arc::clone(&is_over));
        callers.spawn(async move {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                let old = (caller * 31 + asked) % KEYS;
                let (_, status) = catalog.ask_with_status(old).await;
                assert!(matches!(status, CacheStatus::Hit { .. }), "key {old}: {status:?}");
                let fresh = KEYS + caller * 1_000_000 + asked;
                let (_, status) = catalog.ask_with_status(fresh).await;
                assert_ne!(status, CacheStatus::Bypass(BypassReason::StoreFailed), "key {fresh}");
                asked += 1;
                sleep(Duration::from_millis(2)).await;
            }
            asked
        });
    }
    let connects = catalog.store.stats().connects;
    fleet.fail_over();
    until("it is connected to again", || catalog.store.stats().connects > connects).await;
    // The old primary lives on, and still accepts writes.
    sleep(Duration::from_millis(100)).await;
    let before = scripts_run(&fleet.primary);
    let moved = scripts_run(&fleet.replica);
    until("the new primary is in use", || scripts_run(&fleet.replica) > moved + 100).await;
    assert_eq!(scripts_run(&fleet.primary), before, "scripts are run on the old primary");
    is_over.store(true, Ordering::Relaxed);
    let asked: u64 = callers.join_all().await.into_iter().sum();
    assert_eq!(catalog.loads() as u64, KEYS + asked, "each key was loaded once");
}

#[tokio::test]
async fn a_primary_that_was_killed_is_replaced_soon_after_the_sentinels_name_another_one() {
    let mut fleet = SentinelFleet::start().await;
    let options = options_at(&fleet.url()).timeout(Duration::from_millis(500));
    let catalog = Catalog::over(options.connect().await.expect("a store"));
    catalog.ask(1).await;
    fleet.primary.kill();
    fleet.replica_is_named().await;
    let began = Instant::now();
    let mut sku = 100;
    while catalog.ask_with_status(sku).await.1 != (CacheStatus::Led { stored: true }) {
        assert!(began.elapsed() < PATIENCE, "it is not in use");
        sku += 1;
    }
    // A busy machine needs longer than the second that this takes elsewhere.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // It comes back as a primary, and is not used as one.
    fleet.primary.restart();
    for sku in 200..300 {
        catalog.ask(sku).await;
    }
    assert_eq!(scripts_run(&fleet.primary), 0);
}

#[tokio::test]
async fn a_near_cache_serves_nothing_of_the_old_primary_after_a_failover() {
    let fleet = SentinelFleet::start().await;
    let store = near(options_at(&fleet.url())).connect().await.expect("a store");
    put(&store, 1, 7).await;
    assert_eq!(looked(&store, 1).await, Some(7));
    assert_eq!(copied(&store, 1), Some(7));
    fleet.fail_over();
    fleet.replica_is_named().await;
    let other = options_at(&fleet.url()).resp2().connect().await.expect("another process");
    put(&other, 1, 8).await;
    // It is told by the sentinels, or by the new primary.
    until("the old copy is gone", || copied(&store, 1) != Some(7)).await;
    // The first lookup opens the connection, and only the next one is copied.
    assert_eq!(looked(&store, 1).await, Some(8));
    assert_eq!(looked(&store, 1).await, Some(8));
    assert_eq!(copied(&store, 1), Some(8));
    other.invalidate(key(1)).await.expect("invalidated");
    until("the new primary reports changes", || copied(&store, 1).is_none()).await;
}

#[tokio::test]
async fn sentinels_that_hang_or_are_not_there_are_done_without() {
    let fleet = SentinelFleet::start().await;
    let [first, second, third] = [0, 1, 2].map(|number: usize| fleet.sentinels[number].port());
    fleet.sentinels[0].stop();
    let options = options_at(&url_of(&[first, second, third]));
    options.connect().await.expect("two of three answer");
    let options = options_at(&url_of(&[free_port(), first, third]));
    options.connect().await.expect("one of three answers");
    fleet.sentinels[0].resume();
}

#[tokio::test]
async fn a_sentinel_that_names_another_server_is_overruled() {
    let fleet = SentinelFleet::start().await;
    let stranger = RedisServer::start();
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, fleet.sentinels[0].port()));
    let liar = FaultProxy::start(upstream).await;
    let port = stranger.port().to_string();
    let lie = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
    liar.replace(Replacement::of("SENTINEL GET-MASTER-ADDR-BY-NAME", lie));
    let ports = [liar.address().port(), fleet.sentinels[1].port(), fleet.sentinels[2].port()];
    let catalog = Catalog::over(options_at(&url_of(&ports)).connect().await.expect("a store"));
    catalog.ask(1).await;
    assert_eq!(scripts_run(&stranger), 0);
    assert!(scripts_run(&fleet.primary) > 0);
}

#[tokio::test]
async fn a_sentinel_that_has_slept_through_a_failover_is_overruled() {
    let fleet = SentinelFleet::start().await;
    fleet.sentinels[2].stop();
    fleet.fail_over();
    fleet.replica_is_named().await;
    fleet.sentinels[2].resume();
    for _ in 0..5 {
        let store = options_at(&fleet.url()).connect().await.expect("a store");
        let before = scripts_run(&fleet.primary);
        put(&store, 1, 7).await;
        assert_eq!(scripts_run(&fleet.primary), before);
    }
}

#[tokio::test]
async fn what_the_sentinels_do_not_know_or_allow_is_named() {
    let fleet = SentinelFleet::start().await;
    let misfit = async |url: &str| {
        let error = options_at(url).connect().await.expect_err(url);
        (error.kind(), error.to_string())
    };
    let unknown = fleet.url().replace(SERVICE, "theirs");
    let (kind, said) = misfit(&unknown).await;
    assert_eq!(kind, StoreErrorKind::Misconfigured, "{said}");
    assert!(said.contains("no service `theirs`"), "{said}");
    let nowhere = url_of(&[free_port(), free_port()]);
    let (kind, said) = misfit(&nowhere).await;
    assert_eq!(kind, StoreErrorKind::Unreachable, "{said}");
    assert!(said.contains("no sentinel of 127.0.0.1:"), "{said}");
    fleet.primary.command(&["ACL", "SETUSER", "bw", "on", ">secret", "~*", "+@all", "-role"]);
    let forbidden = fleet.url().replace("://", "://bw:secret@");
    let (kind, said) = misfit(&forbidden).await;
    assert_eq!(kind, StoreErrorKind::Misconfigured, "{said}");
    assert!(said.contains("'role'"), "{said}");
}

#[tokio::test]
async fn sentinels_have_credentials_of_their_own() {
    let fleet = SentinelFleet::start().await;
    let rights = [
        "resetchannels",
        "+sentinel|get-master-addr-by-name",
        "+sentinel|master",
        "+subscribe",
        "&+switch-master",
    ];
    for sentinel in &fleet.sentinels {
        let user = ["ACL", "SETUSER", "watcher", "reset", "on", ">hunter2"];
        sentinel.command(&user.into_iter().chain(rights).collect::<Vec<_>>());
        sentinel.command(&["ACL", "SETUSER", "weak", "reset", "on", ">hunter2", "+subscribe"]);
    }
    let (kind, said) = {
        let weak = format!("{}?sentinel_user=weak&sentinel_password=hunter2", fleet.url());
        let error = options_at(&weak).connect().await.expect_err("it may not ask");
        (error.kind(), error.to_string())
    };
    assert_eq!(kind, StoreErrorKind::Misconfigured, "{said}");
    assert!(said.contains("NOPERM"), "{said}");
    let wrong = format!("{}?sentinel_user=watcher&sentinel_password=wrong", fleet.url());
    let error = options_at(&wrong).connect().await.expect_err("the password is wrong");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    let right = format!("{}?sentinel_user=watcher&sentinel_password=hunter2", fleet.url());
    let store = options_at(&right).connect().await.expect("a store");
    assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
    fleet.fail_over();
    fleet.replica_is_named().await;
    put(&store, 1, 7).await;
}

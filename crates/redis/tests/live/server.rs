//! What servers do: refuse, forget, run out of memory, go away and come back.

use std::thread;
use std::time::{Duration, Instant};

use bellwether::store::{Accept, Acquire, Claim, Draft, Settled, Store, StoreErrorKind, Value};
use bellwether::{BypassReason, CacheStatus, Lifetimes};
use bellwether_redis::RedisOptions;
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::servers::{RedisServer, Reply, free_port};
use bellwether_testkit::wait::within;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::catalog::{Catalog, key, name, options};

const MINUTE: Duration = Duration::from_secs(60);

/// The rights that the documentation of `RedisStore` asks for, but for [`TRACKING`] and [`MESSAGES`].
pub(crate) const RIGHTS: [&str; 12] = [
    "~bw:*",
    "+mget",
    "+get",
    "+setrange",
    "+set",
    "+del",
    "+pttl",
    "+pexpire",
    "+time",
    "+evalsha",
    "+eval",
    "+ping",
];

/// The one that a store can do without, if it has no near tier.
const TRACKING: &str = "+client|tracking";

/// Without these, waiters poll.
const MESSAGES: [&str; 3] = ["&bw:*", "+subscribe", "+publish"];

pub(crate) fn all_rights() -> Vec<&'static str> {
    RIGHTS.into_iter().chain([TRACKING]).chain(MESSAGES).collect()
}

fn user(server: &RedisServer, rights: &[&str]) -> RedisOptions {
    let options = RedisOptions::new(&server.url_of_user(rights), "test").expect("options");
    options.timeout(Duration::from_secs(5))
}

#[tokio::test]
async fn a_user_with_the_documented_rights_can_do_everything() {
    let server = RedisServer::start();
    let store = user(&server, &all_rights()).connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn every_documented_right_that_is_missing_is_named_on_connecting() {
    let server = RedisServer::start();
    for missing in RIGHTS {
        let rights: Vec<_> = all_rights().into_iter().filter(|right| *right != missing).collect();
        let error = user(&server, &rights).connect().await.expect_err(missing);
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(missing.trim_start_matches('+')), "{missing}: {error}");
    }
}

#[tokio::test]
async fn a_right_that_a_near_cache_needs_is_named_on_connecting() {
    let server = RedisServer::start();
    user(&server, &RIGHTS).connect().await.expect("a store without a near cache");
    let near = user(&server, &RIGHTS).near(1 << 20);
    let error = near.connect().await.expect_err(TRACKING);
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("client|tracking"), "{error}");
    user(&server, &all_rights()).near(1 << 20).connect().await.expect("all rights");
}

#[tokio::test]
async fn a_command_that_is_renamed_is_named_on_connecting() {
    for command in ["GET", "SET", "DEL", "PTTL", "PEXPIRE", "TIME", "SETRANGE"] {
        let server = RedisServer::start_with(&["--rename-command", command, ""]);
        let (kind, said) = misfit(&server).await;
        assert_eq!(kind, StoreErrorKind::Misconfigured, "{command}: {said}");
        assert!(said.contains(&command.to_lowercase()) && said.contains("renamed"), "{said}");
    }
}

#[tokio::test]
async fn a_server_without_the_command_for_tracking_is_used_without_copies() {
    let server = RedisServer::start_with(&["--rename-command", "CLIENT", ""]);
    let store = options(&server).near(1 << 20).connect().await.expect("a store");
    assert!(!store.is_tracking());
}

#[tokio::test]
async fn connecting_leaves_nothing_behind() {
    let server = RedisServer::start();
    let _store = user(&server, &all_rights()).connect().await.expect("a store");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(0));
}

async fn misfit(server: &RedisServer) -> (StoreErrorKind, String) {
    let error = options(server).connect().await.expect_err("it does not fit");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn a_node_of_a_cluster_is_named_on_connecting() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let (kind, said) = misfit(&server).await;
    // Without slots, it may first say that.
    let kinds = [StoreErrorKind::Misconfigured, StoreErrorKind::NotReady];
    assert!(kinds.contains(&kind), "{said}");
    assert!(said.contains("a node of a cluster"), "{said}");
    let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
    let add: Vec<_> =
        ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(|slot| &**slot)).collect();
    server.command(&add);
    let has_all_slots = || server.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok");
    within(Duration::from_secs(10), has_all_slots).await;
    let (kind, said) = misfit(&server).await;
    assert_eq!(kind, StoreErrorKind::Misconfigured, "{said}");
    assert!(said.contains("a node of a cluster"), "{said}");
}

#[tokio::test]
async fn a_replica_is_named_on_connecting() {
    let server = RedisServer::start();
    server.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let (kind, said) = misfit(&server).await;
    assert_eq!(kind, StoreErrorKind::Refused, "{said}");
    assert!(said.contains("a replica"), "{said}");
}

#[tokio::test]
async fn a_missing_password_is_named_on_connecting() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let (kind, said) = misfit(&server).await;
    assert_eq!(kind, StoreErrorKind::Misconfigured, "{said}");
    assert!(said.contains("give a user and a password"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_still_loading_says_so_on_connecting() {
    let server = RedisServer::start();
    let mut plain = server.connect();
    // It delays each key that it loads, and serves requests after every 2 MiB.
    for number in 0..500 {
        plain.command(&["SET", &format!("other:{number}"), &"x".repeat(256 * 1024)]).expect("set");
    }
    server.command(&["CONFIG", "SET", "rdbcompression", "no"]);
    server.command(&["CONFIG", "SET", "key-load-delay", "20000"]);
    thread::spawn(move || plain.command(&["DEBUG", "RELOAD"]));
    let is_loading = || server.try_command(&["PING"]).is_err_and(|said| said.contains("LOADING"));
    within(Duration::from_secs(10), is_loading).await;
    let (kind, said) = misfit(&server).await;
    assert_eq!(kind, StoreErrorKind::NotReady, "{said}");
    assert!(said.contains("loading"), "{said}");
}

#[tokio::test]
async fn a_full_server_can_be_connected_to() {
    let server = RedisServer::start_with(&["--maxmemory", "1"]);
    let store = options(&server).connect().await.expect("it may have memory later");
    assert!(store.find(key(1)).await.expect("an answer").is_none());
}

#[tokio::test]
async fn a_server_that_refuses_messages_is_worked_with_by_pauses() {
    let server = RedisServer::start();
    let store = user(&server, &RIGHTS).connect().await.expect("a store");
    assert!(!store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn a_store_made_before_its_server_works_once_it_is_there() {
    let mut server = RedisServer::start();
    server.kill();
    let catalog = Catalog::over(options(&server).timeout(TIGHT).connect_lazily().expect("options"));
    let (_, status) = catalog.ask_with_status(1).await;
    assert_eq!(status, CacheStatus::Bypass(BypassReason::StoreFailed));
    server.restart();
    assert_eq!(stored_again(&catalog).await, CacheStatus::Led { stored: true });
}

/// Short, because tests wait for it to run out.
const TIGHT: Duration = Duration::from_millis(250);

/// Asks for new items until one is stored; a few may meet the connection that has broken.
async fn stored_again(catalog: &Catalog) -> CacheStatus {
    let began = Instant::now();
    for sku in 100.. {
        let (_, status) = catalog.ask_with_status(sku).await;
        let is_late = began.elapsed() > Duration::from_secs(10);
        if status == (CacheStatus::Led { stored: true }) || is_late {
            return status;
        }
        sleep(Duration::from_millis(10)).await;
    }
    CacheStatus::Failed
}

#[tokio::test]
async fn a_server_that_forgets_its_scripts_is_sent_them_again() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    for sku in 1..=3 {
        server.command(&["SCRIPT", "FLUSH"]);
        let (_, status) = catalog.ask_with_status(sku).await;
        assert_eq!(status, CacheStatus::Led { stored: true });
    }
}

/// All of them are sent before the first reply. Without a limit each one asks twice.
#[tokio::test]
async fn requests_that_wait_for_room_are_sent_when_the_server_knows_the_script() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    join_all((1..=1_000).map(|sku| catalog.ask_with_status(sku))).await;
    let calls = server.info("commandstats", "cmdstat_evalsha").expect("it was called");
    let unknown = calls.split("failed_calls=").nth(1).and_then(|count| count.parse::<u32>().ok());
    assert!(unknown.is_some_and(|unknown| unknown < 200), "{calls}");
}

#[tokio::test]
async fn a_full_server_keeps_nothing_and_no_lease() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    let claim = Claim::new(key(1));
    let acquired = catalog.store.acquire(claim, MINUTE, Accept::Fresh).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("the key was free") };
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let draft = Draft::new(Value::new("value".into()), 1, Lifetimes::fresh_for(MINUTE));
    let error = catalog.store.commit(lease, draft).await.expect_err("it is full");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("OOM"), "{error}");
    let lease = format!("{}:lease", name(1));
    assert_eq!(server.command(&["EXISTS", &lease]), Reply::Integer(0));
    assert_eq!(catalog.ask(2).await, "item 2, load 0");
}

#[tokio::test]
async fn nothing_is_tracked_without_a_near_cache() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    for sku in (0..20).cycle().take(200) {
        catalog.ask(sku).await;
    }
    assert_eq!(catalog.loads(), 20);
    assert_eq!(server.info("stats", "tracking_total_keys").as_deref(), Some("0"));
    assert_eq!(server.info("clients", "tracking_clients").as_deref(), Some("0"));
}

/// As where a replica is promoted whose clock is behind.
#[tokio::test]
async fn a_lease_from_a_later_time_than_the_clock_shows_stores_nothing_once_it_has_lapsed() {
    let mut server = RedisServer::start_with_clock(3600, &["--appendonly", "yes"]);
    let catalog = Catalog::on(&server).await;
    let acquired = catalog.store.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("the key was free") };
    server.set_clock(0);
    server.restart();
    let catalog = Catalog::on(&server).await;
    catalog.store.invalidate(key(1)).await.expect("invalidated");
    let draft = Draft::new(Value::new("value".into()), 1, Lifetimes::fresh_for(MINUTE));
    let committed = catalog.store.commit(lease, draft).await.expect("an answer");
    assert_eq!(committed, Settled::Superseded);
}

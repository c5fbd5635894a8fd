//! What servers do: refuse, forget, run out of memory, go away and come back.

use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Value, Windows, conformance};
use bellwether::{Bypass, CacheStatus, RedisOptions, RedisStore, Store, StoreErrorKind};

use crate::catalog::{Catalog, key, name, options};
use crate::support::redis_server::{RedisServer, Reply, free_port};

const MINUTE: Duration = Duration::from_secs(60);

/// The rights that the documentation of `RedisStore` asks for.
const RIGHTS: &[&str] = &[
    "~bw:*",
    "+mget",
    "+set",
    "+del",
    "+pttl",
    "+pexpire",
    "+time",
    "+evalsha",
    "+eval",
    "+hello",
    "+client|tracking",
    "+ping",
];

fn user(server: &RedisServer, rights: &[&str]) -> RedisOptions {
    let mut command = vec!["ACL", "SETUSER", "bw", "reset", "on", ">secret"];
    command.extend(rights);
    server.command(&command);
    let url = format!("redis://bw:secret@127.0.0.1:{}", server.port());
    RedisOptions::new(&url).expect("options").timeout(Duration::from_secs(5)).expect("a timeout")
}

#[tokio::test]
async fn a_user_with_the_documented_rights_can_do_everything() {
    let server = RedisServer::start();
    let store = user(&server, RIGHTS).connect().await.expect("a store");
    assert!(store.hears());
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn every_documented_right_is_needed() {
    let server = RedisServer::start();
    let needed = ["~bw:*", "+mget", "+set", "+del", "+pttl", "+pexpire", "+time"];
    for missing in needed.into_iter().chain(["+evalsha", "+client|tracking"]) {
        let rights: Vec<_> = RIGHTS.iter().copied().filter(|right| *right != missing).collect();
        let store = user(&server, &rights).connect().await.expect("a store");
        let works = conformance::run(store.clone()).await.is_empty() && store.hears();
        assert!(!works, "{missing} was not missed");
    }
}

#[tokio::test]
async fn a_server_that_refuses_tracking_is_worked_with_by_pauses() {
    let server = RedisServer::start();
    let rights: Vec<_> = RIGHTS.iter().copied().filter(|right| !right.contains("track")).collect();
    let store = user(&server, &rights).connect().await.expect("a store");
    assert!(!store.hears());
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn a_wrong_password_is_said_without_repeating_it() {
    let server = RedisServer::start();
    user(&server, RIGHTS);
    let url = format!("redis://bw:hunter2@127.0.0.1:{}", server.port());
    let options = RedisOptions::new(&url).expect("options");
    let lazily = options.clone().connect_lazily();
    let error = options.connect().await.expect_err("refused");
    assert!(error.to_string().contains("redis"), "{error}");
    let said = format!("{error} {error:?} {lazily:?}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_within_the_timeout() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let error = RedisStore::connect(&url).await.expect_err("nobody listens");
    assert!(
        matches!(error.kind(), StoreErrorKind::Unreachable | StoreErrorKind::TimedOut),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_malformed_address_is_a_misconfiguration() {
    for url in
        ["", "localhost", "http://localhost", "redis://", "redis://:pw@:99999/", "redis://h/x"]
    {
        let error = RedisStore::connect(url).await.expect_err("no address");
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{url:?}: {error}");
    }
}

#[tokio::test]
async fn a_store_made_before_its_server_works_once_it_is_there() {
    let mut server = RedisServer::start();
    server.kill();
    let catalog =
        Catalog::over(options(&server).timeout(TIGHT).expect("a timeout").connect_lazily());
    let (_, status) = catalog.ask_with_status(1).await;
    assert_eq!(status, CacheStatus::Bypass(Bypass::StoreFailed));
    server.restart();
    assert_eq!(stored_again(&catalog).await, CacheStatus::Led { stored: true });
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    catalog.ask(1).await;
    server.kill();
    server.restart();
    assert_eq!(stored_again(&catalog).await, CacheStatus::Led { stored: true });
    assert!(catalog.store.hears());
}

/// Short, since it is waited for in vain.
const TIGHT: Duration = Duration::from_millis(250);

/// Asks for new items until one is stored; a few may meet the connection that has broken.
async fn stored_again(catalog: &Catalog) -> CacheStatus {
    for sku in 100..200 {
        let (_, status) = catalog.ask_with_status(sku).await;
        if status == (CacheStatus::Led { stored: true }) {
            return status;
        }
    }
    CacheStatus::Failed
}

#[tokio::test]
async fn a_server_that_forgets_its_scripts_is_told_them_again() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    for sku in 1..=3 {
        server.command(&["SCRIPT", "FLUSH"]);
        let (_, status) = catalog.ask_with_status(sku).await;
        assert_eq!(status, CacheStatus::Led { stored: true });
    }
}

#[tokio::test]
async fn a_full_server_keeps_nothing_and_no_lease() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    let claim = Claim::new(key(1));
    let acquired = catalog.store.acquire(claim, MINUTE, Accept::Fresh).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("the key was free") };
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let draft = Draft::new(Value::new("value".into()), 1, Windows::fresh_for(MINUTE));
    let error = catalog.store.commit(lease, draft).await.expect_err("it is full");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("OOM"), "{error}");
    let lease = format!("{}:lease", name(1));
    assert_eq!(server.command(&["EXISTS", &lease]), Reply::Integer(0));
    assert_eq!(catalog.ask(2).await, "item 2, load 0");
}

#[tokio::test]
async fn plain_hits_are_not_tracked() {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    for sku in 0..20 {
        catalog.ask(sku).await;
    }
    let tracked = server.info("stats", "tracking_total_keys");
    for sku in (0..20).cycle().take(200) {
        catalog.ask(sku).await;
    }
    assert_eq!(catalog.loads(), 20);
    assert_eq!(server.info("stats", "tracking_total_keys"), tracked);
}

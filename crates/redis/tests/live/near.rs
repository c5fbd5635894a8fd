//! The near tier: copies in the process, kept valid by push messages of the server.

use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Entry, Peek, Settled, Store, Value};
use bellwether::{CacheStatus, Lifetimes};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::{RedisServer, Reply};
use tokio::runtime::{Builder, Handle};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::catalog::{Catalog, key, name, options};

const MINUTE: Duration = Duration::from_secs(60);
const BYTES: usize = 16 * 1024 * 1024;

pub(crate) fn near(options: RedisOptions) -> RedisOptions {
    options.near(BYTES)
}

async fn near_store(server: &RedisServer) -> RedisStore {
    near(options(server)).connect().await.expect("a store")
}

pub(crate) async fn other_process(server: &RedisServer) -> RedisStore {
    options(server).resp2().connect().await.expect("a store")
}

/// Stores a number, whatever is there.
pub(crate) async fn put(store: &RedisStore, sku: u64, number: u64) {
    let acquired = store.acquire(Claim::new(key(sku)), MINUTE, Accept::Nothing).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("no lease of {sku}") };
    let windows = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE);
    let draft = Draft::new(Value::new(number.to_string().into()), 1, windows);
    assert_eq!(store.commit(lease, draft).await.expect("an answer"), Settled::Done);
}

fn number(entry: &Entry) -> u64 {
    std::str::from_utf8(entry.value().encoded()).ok().and_then(|text| text.parse().ok()).unwrap()
}

pub(crate) async fn looked(store: &RedisStore, sku: u64) -> Option<u64> {
    store.find(key(sku)).await.expect("an answer").as_ref().map(number)
}

pub(crate) fn copied(store: &RedisStore, sku: u64) -> Option<u64> {
    match store.peek(&key(sku)) {
        Peek::Found(entry) => Some(number(&entry)),
        Peek::Unknown => None,
        other => panic!("only the server can know, not {other:?}"),
    }
}

/// A store that has a copy.
async fn with_copy(server: &RedisServer, sku: u64) -> (RedisStore, RedisStore) {
    let (store, other) = (near_store(server).await, other_process(server).await);
    put(&other, sku, 7).await;
    assert_eq!(looked(&store, sku).await, Some(7));
    assert_eq!(copied(&store, sku), Some(7));
    (store, other)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = timeout(Duration::from_secs(20), async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    patience.await.unwrap_or_else(|_| panic!("{what} did not happen"));
}

/// How many commands clients have sent, without those of tests and heartbeats.
fn commands(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text();
    let calls = stats.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        (!["ping", "info"].contains(&command)).then_some(calls)
    });
    calls.sum()
}

/// The connections that track changes.
fn tracking(server: &RedisServer) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]).text();
    let field = |client: &str, name: &str| {
        let mut fields = client.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.to_owned())
    };
    let tracks = |client: &&str| field(client, "flags").is_some_and(|flags| flags.contains('t'));
    clients.lines().filter(tracks).filter_map(|client| field(client, "id")).collect()
}

fn kill_tracking(server: &RedisServer) {
    for id in tracking(server) {
        // It may have gone by itself.
        let _ = server.try_command(&["CLIENT", "KILL", "ID", &id]);
    }
}

#[tokio::test]
async fn a_near_hit_sends_no_command() {
    let server = RedisServer::start();
    let catalog = Catalog::over(near_store(&server).await);
    assert_eq!(catalog.ask(1).await, "item 1, load 0");
    assert_eq!(catalog.ask(1).await, "item 1, load 0");
    let before = commands(&server);
    for _ in 0..1000 {
        let (answer, status) = catalog.ask_with_status(1).await;
        assert_eq!(answer, "item 1, load 0");
        let CacheStatus::Hit { fresh_for: Some(left) } = status else { panic!("{status:?}") };
        assert!(left <= MINUTE);
    }
    assert_eq!(commands(&server), before);
}

#[tokio::test]
async fn a_change_by_another_process_ends_the_copy() {
    let server = RedisServer::start();
    let (store, other) = with_copy(&server, 0).await;
    for (sku, change) in ["invalidate", "expire", "commit"].into_iter().enumerate() {
        let sku = sku as u64;
        put(&other, sku, 7).await;
        looked(&store, sku).await;
        match change {
            "invalidate" => other.invalidate(key(sku)).await.map(drop).expect("invalidated"),
            "expire" => other.expire(key(sku)).await.map(drop).expect("expired"),
            _ => put(&other, sku, 8).await,
        }
        until(&format!("the end of the copy, {change}"), || copied(&store, sku).is_none()).await;
    }
    assert_eq!(looked(&store, 2).await, Some(8));
    assert_eq!(copied(&store, 2), Some(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_by_this_process_ends_the_copy_before_it_returns() {
    let server = RedisServer::start();
    let (store, other) = with_copy(&server, 1).await;
    for round in 0..500 {
        put(&other, 1, round).await;
        let looking = tokio::spawn({
            let store = store.clone();
            async move { looked(&store, 1).await }
        });
        looked(&store, 1).await;
        store.invalidate(key(1)).await.expect("invalidated");
        assert_eq!(copied(&store, 1), None);
        looking.await.expect("a lookup");
        assert_eq!(copied(&store, 1), None);
    }
}

#[tokio::test]
async fn an_expired_entry_is_copied_as_stale() {
    let server = RedisServer::start();
    let (store, other) = with_copy(&server, 1).await;
    other.expire(key(1)).await.expect("expired");
    // An answer is not copied if the message comes while it is asked for.
    until("the message", || copied(&store, 1).is_none()).await;
    looked(&store, 1).await;
    let Peek::Found(entry) = store.peek(&key(1)) else { panic!("no copy") };
    assert!(!entry.is_fresh());
}

#[tokio::test]
async fn the_end_of_the_tracking_connection_ends_all_copies() {
    let server = RedisServer::start();
    let (store, _) = with_copy(&server, 1).await;
    kill_tracking(&server);
    until("the end of the copy", || copied(&store, 1).is_none()).await;
    // The first lookup finds a new connection; the next one is tracked over it.
    looked(&store, 1).await;
    looked(&store, 1).await;
    assert_eq!(copied(&store, 1), Some(7));
}

#[tokio::test]
async fn a_flushed_server_ends_all_copies() {
    let server = RedisServer::start();
    let (store, _) = with_copy(&server, 1).await;
    server.command(&["FLUSHALL"]);
    until("the end of the copy", || copied(&store, 1).is_none()).await;
    assert_eq!(looked(&store, 1).await, None);
}

/// No server reports it.
#[tokio::test]
async fn copies_of_a_database_that_is_swapped_end_with_near_ttl() {
    let server = RedisServer::start();
    let options = near(options(&server)).near_ttl(Duration::from_millis(500));
    let store = options.connect().await.expect("a store");
    put(&store, 1, 7).await;
    assert_eq!((looked(&store, 1).await, copied(&store, 1)), (Some(7), Some(7)));
    server.command(&["SWAPDB", "0", "1"]);
    until("the end of the copy", || copied(&store, 1).is_none()).await;
    assert_eq!(looked(&store, 1).await, None);
}

#[test]
fn copies_end_with_the_runtime_of_their_connection() {
    let server = RedisServer::start();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (store, _) = runtime.block_on(with_copy(&server, 1));
    drop(runtime);
    assert_eq!(copied(&store, 1), None);
}

#[tokio::test]
async fn without_push_messages_nothing_is_copied() {
    let server = RedisServer::start();
    let store = near(options(&server)).resp2().connect().await.expect("a store");
    put(&store, 1, 7).await;
    assert_eq!(looked(&store, 1).await, Some(7));
    assert_eq!(copied(&store, 1), None);
}

#[tokio::test]
async fn a_server_that_accepts_tracking_but_cannot_push_is_not_relied_on() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let store = near_store(&server).await;
    put(&store, 1, 7).await;
    assert_eq!(looked(&store, 1).await, Some(7));
    assert_eq!((store.is_tracking(), copied(&store, 1)), (false, None));
}

#[tokio::test]
async fn a_push_that_overtakes_the_answer_keeps_it_from_being_copied() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(([127, 0, 0, 1], server.port()).into()).await;
    let options = RedisOptions::new(&proxy.url(), "live");
    let options = options.map(|options| options.timeout(MINUTE)).expect("options");
    let store = near(options).connect().await.expect("a store");
    let other = other_process(&server).await;
    proxy.delay(Duration::ZERO, Duration::from_millis(5));
    for round in 0..50 {
        put(&other, round, 1).await;
        let before = commands(&server);
        let looking = tokio::spawn({
            let store = store.clone();
            async move { looked(&store, round).await }
        });
        yield_now().await;
        until("the request", || commands(&server) > before).await;
        // The answer is on its way, and the push comes with it.
        proxy.blackhole();
        server.command(&["DEL", &name(round)]);
        sleep(Duration::from_millis(6)).await;
        proxy.pass();
        assert_eq!(looking.await.expect("a lookup"), Some(1), "it was asked for before");
        until("the end of the copy", || copied(&store, round).is_none()).await;
    }
}

#[tokio::test]
async fn redis_store_with_a_near_tier_keeps_the_contract() {
    let server = RedisServer::start();
    assert_eq!(conformance::run(near_store(&server).await).await, []);
}

#[tokio::test]
async fn what_is_near_is_tracked_and_nothing_else_is_asked_for_it() {
    let server = RedisServer::start();
    let tracked = || -> u64 {
        let tracked = server.info("stats", "tracking_total_keys").expect("a figure");
        tracked.parse().expect("a number")
    };
    let (store, other) = (near_store(&server).await, other_process(&server).await);
    put(&other, 1, 7).await;
    let before = tracked();
    assert_eq!(looked(&store, 1).await, Some(7));
    assert_eq!(tracking(&server).len(), 1);
    assert_eq!(tracked(), before + 1, "{store:?}");
    assert_eq!(server.command(&["EXISTS", &name(1)]), Reply::Integer(1));
}

#[tokio::test]
async fn the_task_that_guards_copies_ends_with_them() {
    let server = RedisServer::start();
    let options = near(options(&server)).near_ttl(Duration::from_millis(1));
    let (store, other) = (options.connect().await.expect("a store"), other_process(&server).await);
    put(&other, 1, 7).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    assert_eq!(looked(&store, 1).await, Some(7));
    assert_eq!(tasks(), before + 1);
    until("the end of the task", || tasks() == before).await;
}

#[test]
fn a_near_tier_out_of_its_range_is_refused_by_name() {
    let options = RedisOptions::new("redis://localhost", "test").expect("options");
    let error = options.clone().near(1).connect_lazily().expect_err("too small").to_string();
    assert!(error.contains("near tier") && error.contains("65536"), "{error}");
    let error =
        options.near_ttl(Duration::ZERO).connect_lazily().expect_err("too short").to_string();
    assert!(error.contains("near tier"), "{error}");
}

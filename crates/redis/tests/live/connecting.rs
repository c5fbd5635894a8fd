//! Connecting to servers that are slow, or never answer.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bellwether::store::{Accept, Claim, Store as _, StoreErrorKind};
use bellwether::{StoreError, Tag};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::{FaultProxy, Replacement};
use bellwether_testkit::servers::{RedisServer, SERVICE};
use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::catalog::key;

/// Longer than a command may take, and shorter than connecting may.
const SLOW: Duration = Duration::from_secs(1);

/// For connecting on a busy machine, with a second for each of some connections.
const PATIENCE: Duration = Duration::from_secs(30);

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A proxy that answers nothing over a new connection for a second.
async fn slow(server: &RedisServer) -> FaultProxy {
    let proxy = FaultProxy::start(local(server.port())).await;
    proxy.begin_after(SLOW);
    proxy
}

/// The options of a program, whose commands may take 250 ms.
fn options(url: &str) -> RedisOptions {
    let options = RedisOptions::new(url, "connecting").expect("an address");
    let options = options.outage_ttl(Duration::ZERO);
    options.connect_timeout(PATIENCE)
}

async fn works(store: &RedisStore) {
    store.find(key(1)).await.expect("an answer");
}

#[tokio::test]
async fn a_server_that_answers_the_login_after_a_second_is_connected_to() {
    let server = RedisServer::start();
    let proxy = slow(&server).await;
    for options in [options(&proxy.url()), options(&proxy.url()).resp2()] {
        works(&options.connect().await.expect("a store")).await;
    }
}

#[tokio::test]
async fn the_checks_of_connect_may_take_longer_than_a_command() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(local(server.port())).await;
    proxy.delay(Duration::ZERO, Duration::from_millis(300));
    for options in [options(&proxy.url()), options(&proxy.url()).resp2()] {
        options.connect().await.expect("a store");
    }
}

/// A server that cannot save: where its file should be, there is a directory.
fn unable_to_save() -> RedisServer {
    let server = RedisServer::start_with(&["--save", "3600 1"]);
    std::fs::create_dir_all(server.dir().join("dump.rdb/full")).expect("a directory");
    server.command(&["BGSAVE"]);
    let status = || server.info("persistence", "rdb_last_bgsave_status");
    while status().as_deref() != Some("err") {
        std::thread::yield_now();
    }
    assert!(server.try_command(&["PING"]).is_err_and(|said| said.contains("MISCONF")));
    server
}

#[tokio::test]
async fn a_server_that_cannot_save_is_connected_to() {
    let server = unable_to_save();
    for options in [options(&server.url()), options(&server.url()).resp2()] {
        works(&options.connect().await.expect("a store")).await;
    }
}

#[tokio::test]
async fn over_resp2_no_connection_names_its_library() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(local(server.port())).await;
    let named = proxy.replace(Replacement::of("SETINFO", "+OK\r\n"));
    works(&options(&proxy.url()).resp2().connect().await.expect("a store")).await;
    assert_eq!(named.count(), 0);
}

/// What connecting to a server says that takes no more clients.
async fn refused_at(url: &str) -> String {
    let (resp3, resp2) = (options(url).connect().await, options(url).resp2().connect().await);
    let said = [resp3, resp2].map(|refused| refused.expect_err("a refusal").to_string());
    let lazy = options(url).connect_lazily().expect("options");
    let found = lazy.find(key(1)).await.expect_err("a refusal").to_string();
    [&said[..], &[found]].concat().join("\n")
}

#[tokio::test]
async fn a_server_with_too_many_clients_says_so() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "maxclients", "2"]);
    let _clients = [server.connect(), server.connect()];
    for url in [
        server.url(),
        format!("{}/1", server.url()),
        format!("redis://:pw@{}", local(server.port())),
    ] {
        for _ in 0..10 {
            let said = refused_at(&url).await;
            let lines = said.lines().filter(|line| line.contains("raise its `maxclients`"));
            assert_eq!(lines.count(), 3, "{url}: {said}");
        }
    }
}

/// A server in protected mode, as clients from elsewhere see it.
#[tokio::test]
async fn a_server_in_protected_mode_says_so() {
    let listener = tokio::net::TcpListener::bind(local(0)).await.expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let server = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let text =
                "-DENIED Redis is running in protected mode because protected mode is enabled\r\n";
            _ = client.write_all(text.as_bytes()).await;
        }
    });
    let said = refused_at(&url).await;
    let lines = said.lines().filter(|line| line.contains("DENIED") && line.contains("requirepass"));
    assert_eq!(lines.count(), 3, "{said}");
    server.abort();
}

/// Each login is accepted: by `HELLO` for requests, and by `AUTH` for the subscription.
#[tokio::test]
async fn an_unneeded_password_costs_no_messages() {
    let server = RedisServer::start();
    let url = format!("redis://:unneeded@{}", local(server.port()));
    for options in [options(&url), options(&url).resp2()] {
        let store = options.connect().await.expect("a store");
        works(&store).await;
        assert!(store.stats().is_subscribed);
    }
}

/// Nothing can be waited for without a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it does not wait")
}

#[test]
fn outside_of_a_runtime_operations_are_errors_that_say_so() {
    let server = RedisServer::start();
    let says = |error: Option<StoreError>| {
        let said = error.expect("an error").to_string();
        assert!(said.contains("no Tokio runtime"), "{said}");
    };
    says(block_on(options(&server.url()).connect()).err());
    for options in [options(&server.url()), options(&server.url()).near(1 << 20)] {
        let store = options.connect_lazily().expect("options");
        says(block_on(store.find(key(1))).err());
        says(block_on(store.invalidate(key(1))).err());
        says(block_on(store.expire_tag(Tag::of("all"), SLOW)).err());
        let claim = Claim::new(key(2));
        says(block_on(store.acquire(claim.clone(), SLOW, Accept::Fresh)).err());
        says(block_on(store.abandon(claim)).err());
        drop(store.watch(&key(1)));
        assert_eq!(block_on(store.drain(SLOW)), 2);
    }
}

/// Takes connections and never answers.
fn silent_server() -> (TcpListener, u16) {
    let listener = TcpListener::bind(local(0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// What connecting says after this time.
async fn says(options: RedisOptions, after: Duration) -> String {
    let began = Instant::now();
    let connected = options.connect_timeout(after).connect().await;
    let error = connected.expect_err("it does not answer");
    assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error}");
    assert!(began.elapsed() >= after && began.elapsed() < after + PATIENCE);
    error.to_string()
}

#[tokio::test]
async fn an_error_of_connecting_says_what_was_missing_and_when_it_was_given_up() {
    let (_listener, port) = silent_server();
    let (address, limit) = (format!("127.0.0.1:{port}"), Duration::from_millis(700));
    let secret = format!("redis://user:hunter2@{address}");
    let said = says(options(&secret), limit).await;
    assert!(said.contains(&format!("{address}: no answer to the login (`HELLO`) within 700ms")));
    assert!(!said.contains("hunter2"), "{said}");
    let said = says(options(&format!("rediss://{address}")), limit).await;
    assert!(said.contains(&format!("{address}: no TLS handshake within 700ms")), "{said}");
    let said = says(options(&format!("redis-cluster://{address}")), limit).await;
    assert!(said.contains(&format!("{address}: no answer to the login")), "{said}");
    let said = says(options(&format!("redis+sentinel://{address}/{SERVICE}")), limit).await;
    assert!(said.contains("sentinel") && said.contains("within 700ms"), "{said}");
}

#[tokio::test]
async fn an_error_of_the_checks_says_how_long_they_were_waited_for() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(local(server.port())).await;
    proxy.delay(Duration::ZERO, Duration::from_millis(400));
    let said = says(options(&proxy.url()), Duration::from_millis(1900)).await;
    assert!(said.contains("within 1.9s"), "{said}");
}

#[tokio::test]
async fn callers_wait_for_a_command_and_the_slow_connection_is_used_in_the_end() {
    let server = RedisServer::start();
    let proxy = slow(&server).await;
    let store = options(&proxy.url()).connect_lazily().expect("options");
    let (began, mut gave_up) = (Instant::now(), 0);
    loop {
        let asked = Instant::now();
        let found = store.find(key(1)).await;
        gave_up += usize::from(found.is_err());
        assert!(asked.elapsed() < 2 * SLOW, "a caller waited {:?}", asked.elapsed());
        if found.is_ok() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it is never connected: {found:?}");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() >= SLOW && gave_up > 0);
}

//! A pool of the application, with the configuration of a store.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bb8_redis::bb8::{ManageConnection, Pool, RunError};
use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{AsyncCommands, RedisError, cmd};
use bellwether_redis::{RedisClientOptions, RedisCredentials, RedisOptions, RedisPoolManager};
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::{RedisServer, SentinelFleet};
use bellwether_testkit::wait::{PATIENCE, until};
use tokio::time::sleep;

fn options(url: &str) -> RedisClientOptions {
    RedisClientOptions::new(url, "pool").expect("an address")
}

/// Four connections, which are open.
async fn pool(options: RedisClientOptions, is_checked: bool) -> Pool<RedisPoolManager> {
    let manager = RedisPoolManager::new(options).expect("options");
    let builder = Pool::builder().max_size(4).min_idle(4).test_on_check_out(is_checked);
    builder.build(manager).await.expect("a pool")
}

/// As a program has it that was written for `bb8-redis`.
async fn count<M>(pool: &Pool<M>) -> Result<u64, RunError<RedisError>>
where
    M: ManageConnection<Error = RedisError>,
    M::Connection: std::ops::DerefMut<Target = MultiplexedConnection>,
{
    let mut connection = pool.get().await?;
    Ok(connection.incr("count", 1).await?)
}

async fn answered(pool: &Pool<RedisPoolManager>, commands: usize) -> usize {
    let mut answered = 0;
    for _ in 0..commands {
        answered += usize::from(count(pool).await.is_ok());
    }
    answered
}

/// Waits until the manager knows of each idle connection that it has ended.
async fn all_broken(pool: &Pool<RedisPoolManager>, manager: &RedisPoolManager) {
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(pool.get().await.expect("a connection that nothing checks"));
    }
    until("each connection has ended", || taken.iter_mut().all(|it| manager.has_broken(it))).await;
}

#[tokio::test]
async fn a_pool_answers_again_after_a_restart_of_the_server() {
    let mut server = RedisServer::start();
    let pool = pool(options(&server.url()), true).await;
    assert_eq!(answered(&pool, 10).await, 10);
    server.restart();
    let after = answered(&pool, 200).await;
    assert!(after >= 190, "{after} of 200");
}

#[tokio::test]
async fn an_ended_connection_is_known_to_be_broken_without_a_command() {
    let mut server = RedisServer::start();
    let options = options(&server.url());
    let manager = RedisPoolManager::new(options.clone()).expect("options");
    let pool = pool(options, false).await;
    let mut open = pool.get().await.expect("a connection");
    assert!(!manager.has_broken(&mut open));
    drop(open);
    let sent = || server.info("stats", "total_commands_processed").expect("a number");
    let before = sent();
    for _ in 0..100 {
        let mut open = pool.get().await.expect("a connection");
        manager.is_valid(&mut open).await.expect("it is");
    }
    let before: u64 = before.parse().expect("a number");
    assert_eq!(sent().parse::<u64>(), Ok(before + 1), "of which `INFO` is one");
    server.kill();
    all_broken(&pool, &manager).await;
    server.restart();
    assert_eq!(answered(&pool, 20).await, 20);
}

#[tokio::test]
async fn a_connection_that_was_reset_is_replaced() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await;
    let options = options(&proxy.url());
    let manager = RedisPoolManager::new(options.clone()).expect("options");
    let pool = pool(options, false).await;
    proxy.cut();
    all_broken(&pool, &manager).await;
    assert_eq!(answered(&pool, 20).await, 20);
}

#[tokio::test]
async fn a_command_without_a_reply_ends_at_the_timeout_of_the_store() {
    let server = RedisServer::start();
    let pool = pool(options(&server.url()).timeout(Duration::from_millis(50)), true).await;
    server.stop();
    let error = count(&pool).await.expect_err("no answer");
    assert!(matches!(error, RunError::User(error) if error.is_timeout()));
    server.resume();
}

#[tokio::test]
async fn a_pool_has_the_credentials_of_the_store() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "requirepass", "secret"]);
    let options =
        options(&server.url()).credentials(async || Ok(RedisCredentials::password("secret")));
    let store = RedisOptions::from(options.clone()).connect().await.expect("a store");
    assert_eq!(count(&pool(options, true).await).await.expect("an answer"), 1);
    assert!(!store.is_down());
}

#[tokio::test]
async fn a_pool_follows_the_primary_that_sentinels_name() {
    let fleet = SentinelFleet::start().await;
    let pool = pool(options(&fleet.url()), true).await;
    assert_eq!(count(&pool).await.expect("an answer"), 1);
    fleet.fail_over();
    let new = fleet.replica.port().to_string();
    let deadline = Instant::now() + PATIENCE;
    while port(&pool).await.ok().as_ref() != Some(&new) {
        assert!(Instant::now() < deadline, "the pool still uses another one");
        sleep(Duration::from_millis(20)).await;
    }
    count(&pool).await.expect("a primary");
}

/// That of the server to which a pool leads.
async fn port(pool: &Pool<RedisPoolManager>) -> Result<String, RunError<RedisError>> {
    let mut connection = pool.get().await?;
    let port: (String, String) =
        cmd("CONFIG").arg("GET").arg("port").query_async(&mut *connection).await?;
    Ok(port.1)
}

#[test]
fn the_address_of_a_cluster_is_refused_by_an_error_that_names_it() {
    let error = RedisPoolManager::new(options("redis-cluster://a,b")).expect_err("a cluster");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

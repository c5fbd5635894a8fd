//! All locks are made in one way: by an address, or with options.

use std::error::Error;

use bellwether::{ConfigError, RedisOptions};
use bellwether_lock::{
    FairLock, FairLockOptions, LockError, LockErrorKind, MySqlLock, MySqlOptions, MySqlRowLock,
    PostgresLock, PostgresOptions, RedisLock, Redlock, ReentrantLock, ZooKeeperLock,
    ZooKeeperOptions,
};
use bellwether_testkit::error_chain::find_in_chain;

fn is_unreachable<L>(connected: Result<L, LockError>) {
    let kind = connected.err().map(|error| error.kind());
    assert_eq!(kind, Some(LockErrorKind::Unreachable));
}

fn is_misconfigured<L>(connected: Result<L, LockError>) {
    let error = connected.err().expect("no address");
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(find_in_chain::<ConfigError>(&error).is_some(), "{error:?}");
}

#[tokio::test]
async fn an_address_will_do_and_so_will_options() -> Result<(), Box<dyn Error>> {
    let redis = "redis://127.0.0.1:1";
    is_unreachable(RedisLock::connect(redis).await);
    is_unreachable(RedisLock::connect(RedisOptions::new(redis)?).await);
    is_unreachable(ReentrantLock::connect(&redis.to_owned()).await);
    is_unreachable(ReentrantLock::connect(RedisOptions::new(redis)?).await);
    is_unreachable(FairLock::connect(redis).await);
    is_unreachable(FairLock::connect(RedisOptions::new(redis)?).await);
    is_unreachable(FairLockOptions::new(redis)?.connect().await);
    let nodes = [1, 2, 3].map(|port| format!("redis://127.0.0.1:{port}"));
    is_unreachable(Redlock::connect(&nodes).await);
    let mysql = "mysql://shop@127.0.0.1:1/shop";
    is_unreachable(MySqlLock::connect(mysql).await);
    is_unreachable(MySqlRowLock::connect(MySqlOptions::new(mysql)?).await);
    is_unreachable(MySqlOptions::new(mysql)?.connect().await);
    let postgres = "postgresql://shop@127.0.0.1:1/shop";
    is_unreachable(PostgresLock::connect(postgres).await);
    is_unreachable(PostgresOptions::new(postgres)?.connect().await);
    is_unreachable(ZooKeeperLock::connect("127.0.0.1:1").await);
    is_unreachable(ZooKeeperOptions::new("127.0.0.1:1")?.connect().await);
    Ok(())
}

#[tokio::test]
async fn an_invalid_address_is_the_cause_of_the_error() {
    is_misconfigured(RedisLock::connect("http://localhost").await);
    is_misconfigured(ReentrantLock::connect("http://localhost").await);
    is_misconfigured(FairLock::connect("http://localhost").await);
    is_misconfigured(Redlock::connect(["http://localhost"; 3]).await);
    is_misconfigured(MySqlLock::connect("http://localhost").await);
    is_misconfigured(MySqlRowLock::connect("mysql://localhost").await);
    is_misconfigured(PostgresLock::connect("http://localhost").await);
    is_misconfigured(ZooKeeperLock::connect("http://localhost").await);
}

//! All locks are made in one way: with options, which have an address and a namespace.

use std::error::Error;

use bellwether::ConfigError;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    FairLock, FairLockOptions, LockError, LockErrorKind, MySqlOptions, MySqlRowLock, PostgresLock,
    PostgresOptions, RedisLock, Redlock, ReentrantLock, ZooKeeperLock, ZooKeeperOptions,
};

fn is_unreachable<L>(connected: Result<L, LockError>) {
    let kind = connected.err().map(|error| error.kind());
    assert_eq!(kind, Some(LockErrorKind::Unreachable));
}

#[tokio::test]
async fn options_connect_to_each_lock() -> Result<(), Box<dyn Error>> {
    let redis = || RedisClientOptions::new("redis://127.0.0.1:1", "test");
    is_unreachable(RedisLock::connect(redis()?).await);
    is_unreachable(ReentrantLock::connect(redis()?).await);
    is_unreachable(FairLock::connect(redis()?).await);
    is_unreachable(FairLock::connect(FairLockOptions::from(redis()?)).await);
    let nodes = [1, 2, 3].map(|port| format!("redis://127.0.0.1:{port}"));
    let nodes: Result<Vec<_>, _> =
        nodes.iter().map(|node| RedisClientOptions::new(node, "test")).collect();
    is_unreachable(Redlock::connect(nodes?).await);
    let mysql = || MySqlOptions::new("mysql://shop@127.0.0.1:1/shop", "test");
    is_unreachable(MySqlRowLock::connect(mysql()?).await);
    let postgres = || PostgresOptions::new("postgresql://shop@127.0.0.1:1/shop", "test");
    is_unreachable(PostgresLock::connect(postgres()?).await);
    let zookeeper = || ZooKeeperOptions::new("127.0.0.1:1", "test");
    is_unreachable(ZooKeeperLock::connect(zookeeper()?).await);
    Ok(())
}

#[test]
fn an_invalid_address_or_namespace_makes_no_options() {
    fn is_refused<O>(new: impl Fn(&str, &str) -> Result<O, ConfigError>, address: &str) {
        assert!(matches!(new("http://localhost", "test"), Err(ConfigError::Url { .. })));
        for namespace in ["", "a b", "a:b", "{a}"] {
            let refused = new(address, namespace);
            assert!(matches!(refused, Err(ConfigError::Namespace { .. })), "{namespace:?}");
        }
        assert!(new(address, "test").is_ok());
    }
    is_refused(RedisClientOptions::new, "redis://localhost");
    is_refused(FairLockOptions::new, "redis://localhost");
    is_refused(MySqlOptions::new, "mysql://localhost/shop");
    is_refused(PostgresOptions::new, "postgresql://localhost");
    is_refused(ZooKeeperOptions::new, "localhost");
}

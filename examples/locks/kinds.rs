//! The kinds of locks, and how a service comes by one.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    FairLock, LocalLock, Lock, LockWait, Locks, MySqlOptions, MySqlRowLock, PostgresLock,
    PostgresOptions, RedisLock, Redlock, ReentrantLock, ZooKeeperLock, ZooKeeperOptions,
};
use clap::ValueEnum;

use crate::servers::{MYSQL, POSTGRES, REDIS, REDLOCK, Servers, ZOOKEEPER};

/// What all locks of this example share in the servers.
const NAMESPACE: &str = "locks";

/// A kind of lock.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// Within one process
    Local,
    /// One Redis server
    Redis,
    /// One Redis server, for owners that take it again
    Reentrant,
    /// One Redis server, first come, first served
    Fair,
    /// A majority of five Redis servers
    Redlock,
    /// Sessions of ZooKeeper
    Zookeeper,
    /// Rows of MariaDB
    MysqlRow,
    /// Advisory locks of PostgreSQL
    Postgres,
}

impl Kind {
    pub(crate) fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Redis => "redis",
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Redlock => "redlock",
            Self::Zookeeper => "zookeeper",
            Self::MysqlRow => "mysql row",
            Self::Postgres => "postgres",
        }
    }

    /// The flag that names its server, if it has one.
    pub(crate) fn flag(self) -> Option<&'static str> {
        match self {
            Self::Local => None,
            Self::Redis | Self::Reentrant | Self::Fair => Some(REDIS),
            Self::Redlock => Some(REDLOCK),
            Self::Zookeeper => Some(ZOOKEEPER),
            Self::MysqlRow => Some(MYSQL),
            Self::Postgres => Some(POSTGRES),
        }
    }

    /// The locks of two services. They share nothing but the server, or for the kind that has none
    /// the process.
    pub(crate) async fn two_services(
        self,
        servers: &Servers,
    ) -> Result<[Locks<Arc<dyn Lock>>; 2], Box<dyn Error>> {
        let wait = LockWait::at_most(Duration::from_secs(30));
        let one = self.connect(servers).await?;
        let other = match self {
            Self::Local => Arc::clone(&one),
            _ => self.connect(servers).await?,
        };
        Ok([one, other].map(|lock| Locks::new(lock).wait(wait)))
    }

    async fn connect(self, servers: &Servers) -> Result<Arc<dyn Lock>, Box<dyn Error>> {
        let redis = |url: &str| RedisClientOptions::new(url, NAMESPACE);
        let mysql = |url: &str| MySqlOptions::new(url, NAMESPACE);
        Ok(match self {
            Self::Local => Arc::new(LocalLock::new()),
            Self::Redis => Arc::new(RedisLock::connect(redis(&servers.redis()?)?).await?),
            Self::Reentrant => Arc::new(ReentrantLock::connect(redis(&servers.redis()?)?).await?),
            Self::Fair => Arc::new(FairLock::connect(redis(&servers.redis()?)?).await?),
            Self::Redlock => {
                let nodes: Result<Vec<_>, _> =
                    servers.redlock()?.iter().map(|url| redis(url)).collect();
                Arc::new(Redlock::connect(nodes?).await?)
            }
            Self::Zookeeper => {
                let options = ZooKeeperOptions::new(&servers.zookeeper()?, NAMESPACE)?;
                Arc::new(ZooKeeperLock::connect(options).await?)
            }
            Self::MysqlRow => Arc::new(MySqlRowLock::connect(mysql(&servers.mysql()?)?).await?),
            Self::Postgres => {
                let options = PostgresOptions::new(&servers.postgres()?, NAMESPACE)?;
                Arc::new(PostgresLock::connect(options).await?)
            }
        })
    }
}

//! The kinds of locks, and how a service comes by one.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bellwether_lock::{
    FairLock, LocalLock, Lock, LockWait, Locks, MySqlLock, MySqlRowLock, PostgresLock, RedisLock,
    Redlock, ReentrantLock, ZooKeeperLock,
};
use clap::ValueEnum;

use crate::servers::{MYSQL, POSTGRES, REDIS, REDLOCK, Servers, ZOOKEEPER};

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
    /// Named locks of MariaDB
    Mysql,
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
            Self::Mysql => "mysql",
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
            Self::Mysql | Self::MysqlRow => Some(MYSQL),
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
        Ok(match self {
            Self::Local => Arc::new(LocalLock::new()),
            Self::Redis => Arc::new(RedisLock::connect(&servers.redis()?).await?),
            Self::Reentrant => Arc::new(ReentrantLock::connect(&servers.redis()?).await?),
            Self::Fair => Arc::new(FairLock::connect(&servers.redis()?).await?),
            Self::Redlock => Arc::new(Redlock::connect(&servers.redlock()?).await?),
            Self::Zookeeper => Arc::new(ZooKeeperLock::connect(&servers.zookeeper()?).await?),
            Self::Mysql => Arc::new(MySqlLock::connect(&servers.mysql()?).await?),
            Self::MysqlRow => Arc::new(MySqlRowLock::connect(&servers.mysql()?).await?),
            Self::Postgres => Arc::new(PostgresLock::connect(&servers.postgres()?).await?),
        })
    }
}

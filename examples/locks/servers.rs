//! The servers: those that are named, or else some that are started for the time of the run.

use std::cell::OnceCell;

use bellwether_testkit::servers::{
    MariaDbServer, MissingServer, PostgresServer, RedisServer, ZooKeeperServer,
};
use clap::Args;

use crate::shown::shown;

/// Where servers are that run already.
#[derive(Args)]
pub(crate) struct Addresses {
    /// A Redis, as `redis://HOST:PORT`
    #[arg(long)]
    redis: Option<String>,
    /// The Redis servers of a Redlock, three or more
    #[arg(long, num_args = 3..)]
    redlock: Vec<String>,
    /// ZooKeeper servers, as `HOST:PORT,HOST:PORT`
    #[arg(long)]
    zookeeper: Option<String>,
    /// A MariaDB, as `mysql://USER:PASSWORD@HOST:PORT/DATABASE`
    #[arg(long)]
    mysql: Option<String>,
    /// A PostgreSQL, as `postgres://USER:PASSWORD@HOST:PORT/DATABASE`
    #[arg(long)]
    postgres: Option<String>,
}

impl Addresses {
    /// The addresses that a flag names, without users and passwords.
    pub(crate) fn shown(&self, flag: &str) -> Option<String> {
        let named: Vec<&String> = match flag {
            REDIS => self.redis.iter().collect(),
            REDLOCK => self.redlock.iter().collect(),
            ZOOKEEPER => self.zookeeper.iter().collect(),
            MYSQL => self.mysql.iter().collect(),
            POSTGRES => self.postgres.iter().collect(),
            _ => Vec::new(),
        };
        let shown: Vec<_> = named.into_iter().map(|url| shown(url)).collect();
        (!shown.is_empty()).then(|| shown.join(" "))
    }
}

/// All servers. One that is started is gone when this is dropped.
pub(crate) struct Servers {
    pub(crate) addresses: Addresses,
    redis: OnceCell<RedisServer>,
    redlock: OnceCell<Vec<RedisServer>>,
    zookeeper: OnceCell<ZooKeeperServer>,
    mysql: OnceCell<MariaDbServer>,
    postgres: OnceCell<PostgresServer>,
}

impl Servers {
    pub(crate) fn new(addresses: Addresses) -> Self {
        Self {
            addresses,
            redis: OnceCell::new(),
            redlock: OnceCell::new(),
            zookeeper: OnceCell::new(),
            mysql: OnceCell::new(),
            postgres: OnceCell::new(),
        }
    }

    pub(crate) fn redis(&self) -> Result<String, MissingServer> {
        if let Some(named) = &self.addresses.redis {
            return Ok(named.clone());
        }
        RedisServer::installed()?;
        Ok(self.redis.get_or_init(|| started("a Redis", REDIS, RedisServer::start)).url())
    }

    pub(crate) fn redlock(&self) -> Result<Vec<String>, MissingServer> {
        if !self.addresses.redlock.is_empty() {
            return Ok(self.addresses.redlock.clone());
        }
        RedisServer::installed()?;
        let start = || (0..5).map(|_| RedisServer::start()).collect();
        let five = self.redlock.get_or_init(|| started("five Redis servers", REDLOCK, start));
        Ok(five.iter().map(RedisServer::url).collect())
    }

    pub(crate) fn zookeeper(&self) -> Result<String, MissingServer> {
        if let Some(named) = &self.addresses.zookeeper {
            return Ok(named.clone());
        }
        ZooKeeperServer::installed()?;
        let start = || started("a ZooKeeper", ZOOKEEPER, ZooKeeperServer::start);
        Ok(self.zookeeper.get_or_init(start).hosts())
    }

    pub(crate) fn mysql(&self) -> Result<String, MissingServer> {
        if let Some(named) = &self.addresses.mysql {
            return Ok(named.clone());
        }
        MariaDbServer::installed()?;
        Ok(self.mysql.get_or_init(|| started("a MariaDB", MYSQL, MariaDbServer::start)).url())
    }

    pub(crate) fn postgres(&self) -> Result<String, MissingServer> {
        if let Some(named) = &self.addresses.postgres {
            return Ok(named.clone());
        }
        PostgresServer::installed()?;
        let start = || started("a PostgreSQL", POSTGRES, PostgresServer::start);
        Ok(self.postgres.get_or_init(start).url())
    }
}

/// Starts a server, and says so: that may take seconds.
fn started<T>(what: &str, flag: &str, start: impl FnOnce() -> T) -> T {
    eprintln!("locks: starting {what}; {flag} names one that runs already");
    start()
}

pub(crate) const REDIS: &str = "--redis";
pub(crate) const REDLOCK: &str = "--redlock";
pub(crate) const ZOOKEEPER: &str = "--zookeeper";
pub(crate) const MYSQL: &str = "--mysql";
pub(crate) const POSTGRES: &str = "--postgres";

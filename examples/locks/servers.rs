//! The servers: those that are named, or else some that are started for the time of the run.

use std::cell::OnceCell;

use bellwether_testkit::servers::{MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};
use clap::Args;

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

/// All servers. One that is started is gone when this is dropped.
pub(crate) struct Servers {
    addresses: Addresses,
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

    pub(crate) fn redis(&self) -> String {
        let start = || self.redis.get_or_init(RedisServer::start).url();
        self.addresses.redis.clone().unwrap_or_else(start)
    }

    pub(crate) fn redlock(&self) -> Vec<String> {
        if !self.addresses.redlock.is_empty() {
            return self.addresses.redlock.clone();
        }
        let start = || (0..5).map(|_| RedisServer::start()).collect();
        self.redlock.get_or_init(start).iter().map(RedisServer::url).collect()
    }

    pub(crate) fn zookeeper(&self) -> String {
        let start = || self.zookeeper.get_or_init(ZooKeeperServer::start).hosts();
        self.addresses.zookeeper.clone().unwrap_or_else(start)
    }

    pub(crate) fn mysql(&self) -> String {
        let start = || self.mysql.get_or_init(MariaDbServer::start).url();
        self.addresses.mysql.clone().unwrap_or_else(start)
    }

    pub(crate) fn postgres(&self) -> String {
        let start = || self.postgres.get_or_init(PostgresServer::start).url();
        self.addresses.postgres.clone().unwrap_or_else(start)
    }
}

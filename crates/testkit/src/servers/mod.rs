//! Real servers, each started for one test, on a free port and in a directory of its own.
//!
//! A server is gone, with its directory, when its value is dropped or when the test process is
//! killed. A machine that lacks a server fails the test, and the failure says what to install.

mod certificates;
mod database;
mod guarded;
mod mariadb;
mod missing;
mod pgbouncer;
mod postgres;
mod prometheus;
mod redis;
mod redis_cluster;
mod redis_tls;
mod resp2;
mod sentinel_fleet;
mod tls_front;
mod wrong_clock;
mod zookeeper;

pub use self::certificates::{Authority, Identity, Validity};
pub use self::database::{DatabaseKind, DatabaseServer};
pub use self::guarded::free_port;
pub use self::mariadb::{MariaDb, MariaDbServer};
pub use self::missing::MissingServer;
pub use self::pgbouncer::PgBouncer;
pub use self::postgres::{Postgres, PostgresServer};
pub use self::prometheus::{PrometheusServer, promtool, promtool_says};
pub use self::redis::RedisServer;
pub use self::redis_cluster::{RedisCluster, free_cluster_port};
pub use self::redis_tls::chosen_server_lacks_tls;
pub use self::resp2::{Connection, Reply, request};
pub use self::sentinel_fleet::{SERVICE, SentinelFleet, url_of};
pub use self::tls_front::TlsFront;
pub use self::zookeeper::{TICK, ZooKeeperServer};

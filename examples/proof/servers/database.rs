//! The database that records changes, and the faults that it can have.

use std::mem;

use bellwether_sql::Migrations;
use bellwether_testkit::servers::PostgresServer;
use rand::Rng;
use sqlx::Postgres;

use super::{Injector, pause};
use crate::faults::Loss;
use crate::kinds::{CHANGING, GROUPS, Kind, ROWS};

/// Tables of rows and of groups whose triggers record their changes, for writers of SQL alone.
fn tables_of(kind: Kind) -> String {
    let name = kind.name();
    let table = |table: &str, count: u64, target: &str| {
        format!(
            "CREATE TABLE {table} (number bigint PRIMARY KEY, version bigint);
             INSERT INTO {table} SELECT number FROM generate_series(0, {count} - 1) AS number;
             SELECT bellwether_watch('{table}', '{target}', '{name}', 'number');"
        )
    };
    table(name, ROWS, "key") + &table(&format!("{name}_groups"), GROUPS, "tag")
}

/// A PostgreSQL with the table of changes, and its replica. A commit waits until both have it.
pub(crate) struct Database {
    server: PostgresServer,
    replica: PostgresServer,
}

impl Database {
    /// None if this machine has no PostgreSQL: then all changes are told to the cache.
    pub(crate) fn start() -> Option<Self> {
        PostgresServer::installed().ok()?;
        let options = ["-c", "synchronous_standby_names=*", "-c", "wal_keep_size=64MB"];
        let server = PostgresServer::start_with(&options);
        let replica = server.start_replica();
        let tables: String = CHANGING.into_iter().map(tables_of).collect();
        let migrations = Migrations::<Postgres>::SQL;
        server.command(&format!("SET synchronous_commit = on; {migrations}; {tables}"));
        Some(Self { server, replica })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn disturb(&mut self, injector: &mut Injector<'_>) {
        let Self { server, replica } = self;
        match injector.rng.random_range(0..4) {
            0 => injector.inject("database killed, restarted", Loss::Nothing, None, |rng| {
                server.kill();
                pause(rng, 1, 1_000);
                server.restart();
            }),
            1 => injector.inject("database killed, replica promoted", Loss::Nothing, None, |rng| {
                server.kill();
                pause(rng, 1, 1_000);
                replica.take_over(server);
                mem::swap(server, replica);
                *replica = server.start_replica();
            }),
            2 => injector.inject("database stopped", Loss::Nothing, None, |rng| {
                server.stop();
                pause(rng, 20, 1_500);
                server.resume();
            }),
            _ => injector.inject("connections killed by the database", Loss::Nothing, None, |_| {
                server.command(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
                );
            }),
        }
    }
}

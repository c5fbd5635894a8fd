//! The database that records changes, and the faults that it can have.

use bellwether_sql::Migrations;
use bellwether_testkit::servers::PostgresServer;
use rand::Rng;
use sqlx::Postgres;

use super::{Injector, pause};
use crate::faults::Loss;

/// A PostgreSQL with the table of changes.
pub(crate) struct Database(PostgresServer);

impl Database {
    /// None if this machine has no PostgreSQL: then all changes are told to the cache.
    pub(crate) fn start() -> Option<Self> {
        PostgresServer::installed().ok()?;
        let server = PostgresServer::start();
        server.command(&format!("SET synchronous_commit = on; {}", Migrations::<Postgres>::SQL));
        Some(Self(server))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn disturb(&mut self, injector: &mut Injector<'_>) {
        match injector.rng.random_range(0..3) {
            0 => injector.inject("database killed, restarted", Loss::Nothing, None, |rng| {
                self.0.kill();
                pause(rng, 1, 1_000);
                self.0.restart();
            }),
            1 => injector.inject("database stopped", Loss::Nothing, None, |rng| {
                self.0.stop();
                pause(rng, 20, 1_500);
                self.0.resume();
            }),
            _ => injector.inject("connections killed by the database", Loss::Nothing, None, |_| {
                self.0.command(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
                );
            }),
        }
    }
}

//! The command line, checked.

use std::net::SocketAddr;
use std::time::Duration;

use bellwether_redis::RedisOptions;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};

use crate::tables;

/// A shop in three processes, and a page that shows what bellwether does for its database.
#[derive(Parser)]
#[command(name = "catalog")]
pub(crate) struct Args {
    /// Where bellwether stores answers: `memory` (one process), or the URL of a Redis
    /// (redis-cluster://host,host for a cluster; default: a Redis of its own, if there is one)
    #[arg(long, value_name = "memory|redis://...")]
    pub(crate) store: Option<String>,

    /// The database: `sqlite` (a file beside this program), or the URL of a PostgreSQL
    /// (default: a PostgreSQL of its own, if there is one)
    #[arg(long, value_name = "sqlite|postgres://...")]
    pub(crate) database: Option<String>,

    /// Where to serve the page; its processes listen at the ports behind it, port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// How long a query takes, in ms
    #[arg(long, value_name = "D", default_value_t = 20)]
    #[arg(value_parser = value_parser!(u64).range(0..=5_000))]
    pub(crate) load_ms: u64,

    /// Run as one of the processes, until stdin ends
    #[arg(long, hide = true, requires_all = ["store", "database"])]
    worker: bool,
}

impl Args {
    /// Ends the process, with exit code 2, if the command line makes no sense.
    pub(crate) fn from_command_line() -> Self {
        // URLs are checked here and not by clap, whose messages repeat the whole value: it may hold
        // a password.
        Self::parse().checked().unwrap_or_else(|message| {
            Self::command().error(ErrorKind::ValueValidation, message).exit()
        })
    }

    pub(crate) fn is_worker(&self) -> bool {
        self.worker
    }

    /// Whether the database has triggers that record what changes.
    pub(crate) fn records_changes(&self) -> bool {
        self.database.as_deref().is_some_and(|url| url.starts_with("postgres"))
    }

    pub(crate) fn load_time(&self) -> Duration {
        Duration::from_millis(self.load_ms)
    }

    fn checked(self) -> Result<Self, String> {
        let is_known = |url: &str| {
            ["sqlite:", "postgres:", "postgresql:"].iter().any(|kind| url.starts_with(kind))
        };
        if let Some(url) = self.database.as_deref().filter(|url| *url != "sqlite" && !is_known(url))
        {
            let shown = tables::shown(url);
            return Err(format!(
                "--database {shown}: neither `sqlite` nor like postgres://host/db"
            ));
        }
        if let Some(url) = self.store.as_deref().filter(|store| *store != "memory") {
            RedisOptions::new(url, "shop").map(drop).map_err(|fault| {
                let shown = tables::shown(url);
                format!(
                    "--store {shown}: neither `memory` nor like redis://127.0.0.1:6379: {fault}"
                )
            })?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Args, String> {
        Args::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?.checked()
    }

    #[test]
    fn a_complaint_names_the_flag_and_its_value_and_the_reason() {
        for (flag, value, reason) in [
            ("--store", "127.0.0.1:6379", "neither `memory` nor like redis://"),
            ("--database", "mysql://127.0.0.1", "neither `sqlite` nor like postgres://"),
            ("--listen", "nowhere", "invalid socket address"),
            ("--load-ms", "6000", "is not in 0..=5000"),
        ] {
            let complaint = args(&format!("catalog {flag} {value}")).err().unwrap();
            for part in [flag, value, reason] {
                assert!(complaint.contains(part), "{part} is missing: {complaint}");
            }
        }
    }

    #[test]
    fn a_password_is_not_repeated_in_a_complaint() {
        let complaint = args("catalog --store redos://me:secret@cache.example").err().unwrap();
        assert!(!complaint.contains("secret"), "{complaint}");
        for url in ["redis://me:secret@cache.example", "redis-cluster://me:secret@a:1,b:2"] {
            assert!(args(&format!("catalog --store {url}")).is_ok(), "{url}");
        }
    }
}

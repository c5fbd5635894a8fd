//! The command line, checked.

use std::time::Duration;

use bellwether_redis::RedisOptions;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};

use crate::tables;

/// Serves a product catalog, and a page that shows what bellwether does for it.
#[derive(Parser)]
#[command(name = "catalog")]
pub(crate) struct Args {
    /// Where answers are stored: `memory`, or the URL of a Redis, which several of these may share
    /// (redis-cluster://host,host for a cluster)
    #[arg(long, value_name = "memory|redis://...", default_value = "memory")]
    pub(crate) store: String,

    /// Database of the catalog: sqlite:, postgres: or mysql: (default: an SQLite file beside the
    /// program, created once)
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,

    /// Where to serve the page and JSON; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,

    /// Where to serve gRPC; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub(crate) grpc_listen: String,

    /// Latency added to every query, in ms
    #[arg(long, value_name = "D", default_value_t = 20)]
    #[arg(value_parser = value_parser!(u64).range(0..=5_000))]
    load_ms: u64,

    /// Starts a Prometheus that collects the metrics and checks the alert rules, if there is one
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "127.0.0.1:9090")]
    pub(crate) observe: Option<String>,

    /// Sends traces and metrics by OTLP (gRPC) to a collector of OpenTelemetry
    #[arg(long, value_name = "http://HOST:4317")]
    pub(crate) otlp: Option<String>,

    /// Prints the way of each request from outside: through the server, the cache and the database
    #[arg(long)]
    pub(crate) trace: bool,
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

    pub(crate) fn load_time(&self) -> Duration {
        Duration::from_millis(self.load_ms)
    }

    fn checked(self) -> Result<Self, String> {
        if self.store != "memory" {
            RedisOptions::new(&self.store, "shop").map_err(|fault| {
                let shown = tables::shown(&self.store);
                format!(
                    "--store {shown}: neither `memory` nor like redis://127.0.0.1:6379: {fault}"
                )
            })?;
        }
        if let Some(url) = self.otlp.as_deref().filter(|url| !url.starts_with("http://")) {
            let shown = tables::shown(url);
            return Err(format!("--otlp {shown}: does not start with http://"));
        }
        self.database_url.as_deref().map_or(Ok(()), tables::check_url)?;
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
            ("--database-url", "oracle://db/shop", "does not start with sqlite:"),
            ("--load-ms", "6000", "is not in 0..=5000"),
            ("--otlp", "localhost:4317", "does not start with http://"),
        ] {
            let complaint = args(&format!("catalog {flag} {value}")).err().unwrap();
            for part in [flag, value, reason] {
                assert!(complaint.contains(part), "{part} is missing: {complaint}");
            }
        }
    }

    #[test]
    fn observing_needs_no_address() {
        let observe = |line| args(line).ok().unwrap().observe;
        assert_eq!(observe("catalog"), None);
        assert_eq!(observe("catalog --observe").as_deref(), Some("127.0.0.1:9090"));
        assert_eq!(observe("catalog --observe=127.0.0.1:1").as_deref(), Some("127.0.0.1:1"));
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

//! The command line, checked.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};

use crate::catalog::PRODUCTS;
use crate::server;
use crate::tables;
use crate::ways::Way;

/// Answers that are kept until the report is written; more would be a test of this program's
/// memory.
const MOST_ANSWERS: u64 = 5_000_000;

/// Runs the same cache stampede unprotected, with a polling lock, and with bellwether.
#[derive(Parser)]
#[command(name = "stampede")]
pub(crate) struct Args {
    /// Where entries live: `memory`, or the URL of a Redis that nobody else uses meanwhile
    #[arg(long, value_name = "memory|redis://...", default_value = "memory")]
    store: String,

    /// Processes that burst together (default: 1 in memory, 4 with Redis)
    #[arg(long, value_name = "P", value_parser = value_parser!(u32).range(1..=256))]
    processes: Option<u32>,

    /// Callers in each process (default: 1000 in one process, 250 in several)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    callers: Option<u32>,

    /// Latency added to every query, in ms
    #[arg(long, value_name = "D", default_value_t = 50)]
    #[arg(value_parser = value_parser!(u64).range(0..=60_000))]
    load_ms: u64,

    /// Bursts of each way; each has cold keys of its own
    #[arg(long, value_name = "R", default_value_t = 20)]
    #[arg(value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Keys the callers of a burst draw from, by a Zipf law
    #[arg(long, value_name = "K", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    keys: u32,

    /// Exponent of that law; 0 makes all keys equally popular
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = exponent)]
    zipf: f64,

    /// Database of the catalog: sqlite:, or postgres: and mysql: with the features of these names
    /// (default: an SQLite file beside the program, created once)
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,

    /// Write a self-contained report with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write a plot of the latencies
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object, and nothing else, to stdout
    #[arg(long)]
    json: bool,

    /// Be one of the processes: take orders from stdin
    #[arg(long, hide = true)]
    worker: bool,
}

/// What to run, all of it possible.
pub(crate) struct Settings {
    pub(crate) store: Store,
    pub(crate) processes: u32,
    pub(crate) callers: u32,
    pub(crate) load_ms: u64,
    pub(crate) rounds: u32,
    pub(crate) keys: u32,
    pub(crate) zipf: f64,
    pub(crate) database_url: Option<String>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) json: bool,
}

pub(crate) enum Store {
    Memory,
    Redis {
        url: String,
        /// The URL without user, password and database: fit for a report.
        shown: String,
    },
}

impl Args {
    /// Ends the process, with exit code 2, if the command line makes no sense.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }

    pub(crate) fn is_worker(&self) -> bool {
        self.worker
    }

    /// Ends the process, with exit code 2, if what is asked for is not possible.
    pub(crate) fn into_settings(self) -> Settings {
        // URLs are checked here and not by clap, whose messages repeat the value: it may hold a
        // password.
        self.check().unwrap_or_else(|message| {
            Self::command().error(ErrorKind::ValueValidation, message).exit()
        })
    }

    fn check(self) -> Result<Settings, String> {
        let store = Store::parse(&self.store)?;
        let processes = self.processes.unwrap_or_else(|| store.usual_processes());
        let settings = Settings {
            store,
            processes,
            callers: self.callers.unwrap_or(if processes == 1 { 1000 } else { 250 }),
            load_ms: self.load_ms,
            rounds: self.rounds,
            keys: self.keys,
            zipf: self.zipf,
            database_url: self.database_url,
            html: self.html,
            svg: self.svg,
            json: self.json,
        };
        settings.check_sizes()?;
        settings.database_url.as_deref().map_or(Ok(()), check_driver)?;
        settings.database_url.as_deref().map_or(Ok(()), tables::check_url)?;
        settings.html.as_deref().map_or(Ok(()), |file| check_place("--html", file))?;
        settings.svg.as_deref().map_or(Ok(()), |file| check_place("--svg", file))?;
        Ok(settings)
    }
}

/// Complains about a database that this program was built without.
fn check_driver(url: &str) -> Result<(), String> {
    let drivers = [
        ("mysql:", "mysql", cfg!(feature = "mysql")),
        ("mariadb:", "mysql", cfg!(feature = "mysql")),
        ("postgres:", "postgres", cfg!(feature = "postgres")),
        ("postgresql:", "postgres", cfg!(feature = "postgres")),
    ];
    match drivers.iter().find(|(scheme, ..)| url.starts_with(scheme)) {
        Some((scheme, feature, false)) => Err(format!(
            "--database-url: this program was built without {scheme} databases: \
             cargo run --release --features {feature} --example stampede"
        )),
        _ => Ok(()),
    }
}

impl Settings {
    pub(crate) fn ways(&self) -> &'static [Way] {
        match self.store {
            Store::Memory => &[Way::Unprotected, Way::Bellwether],
            Store::Redis { .. } => &[Way::Unprotected, Way::Polling, Way::Bellwether],
        }
    }

    pub(crate) fn redis_url(&self) -> Option<&str> {
        match &self.store {
            Store::Memory => None,
            Store::Redis { url, .. } => Some(url),
        }
    }

    fn check_sizes(&self) -> Result<(), String> {
        let keys = u64::from(self.rounds) * u64::from(self.keys);
        if keys > u64::from(PRODUCTS) {
            return Err(format!(
                "--rounds times --keys is {keys}, but the catalog has only {PRODUCTS} products"
            ));
        }
        let answers = u64::from(self.rounds) * u64::from(self.processes) * u64::from(self.callers);
        if answers > MOST_ANSWERS {
            return Err(format!(
                "--rounds times --processes times --callers is {answers}: above {MOST_ANSWERS}"
            ));
        }
        Ok(())
    }
}

impl Store {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let address = server::address(text)
            .map_err(|fault| format!("--store is neither `memory` nor a Redis URL: {fault}"))?;
        Ok(Self::Redis { url: text.to_owned(), shown: format!("redis://{address}") })
    }

    fn usual_processes(&self) -> u32 {
        match self {
            Self::Memory => 1,
            Self::Redis { .. } => 4,
        }
    }

    pub(crate) fn shown(&self) -> &str {
        match self {
            Self::Memory => "memory",
            Self::Redis { shown, .. } => shown,
        }
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=10.0)
        .contains(&exponent)
        .then_some(exponent)
        .ok_or_else(|| "not between 0 and 10".to_owned())
}

/// A report that cannot be written should be known before the run, not after it.
fn check_place(option: &str, file: &Path) -> Result<(), String> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if file.is_dir() || folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(format!(
            "{option} cannot be written to `{}`: that is a folder, or in none",
            file.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Result<Settings, String> {
        let args = Args::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        args.check()
    }

    #[test]
    fn a_password_is_neither_shown_nor_repeated_in_a_complaint() {
        let good = settings("stampede --store redis://me:secret@cache.example:6380/3").unwrap();
        assert_eq!(good.store.shown(), "redis://cache.example:6380");
        let bad = settings("stampede --store redos://me:secret@cache.example").err().unwrap();
        assert!(!bad.contains("secret"), "{bad}");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for line in [
            "--callers 0",
            "--processes 0",
            "--keys 100001",
            "--rounds 2 --keys 60000",
            "--zipf -1",
            "--zipf NaN",
        ] {
            assert!(settings(&format!("stampede {line}")).is_err(), "{line}");
        }
    }
}

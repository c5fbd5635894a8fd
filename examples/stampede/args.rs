//! The command line, checked.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};

use crate::catalog::PRODUCTS;
use crate::shown::shown;
use crate::ways::Way;
use crate::{Fault, database, server};

/// This program keeps all answers until it writes the report. More of them would test its memory.
const MOST_ANSWERS: u64 = 5_000_000;

/// Runs the same cache stampede unprotected, with a polling lock, and with bellwether.
#[derive(Parser)]
#[command(name = "stampede")]
pub(crate) struct Args {
    /// Where entries live: `memory`, or the URL of a Redis that no other program uses
    /// (redis-cluster://host,host for a cluster)
    #[arg(long, value_name = "memory|redis://...", default_value = "memory")]
    store: String,

    /// Processes of a burst (default: 1 in memory, 4 with Redis)
    #[arg(long, value_name = "P", value_parser = value_parser!(u32).range(1..=256))]
    processes: Option<u32>,

    /// Callers of each process (default: 1000 in one process, 250 in several)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    callers: Option<u32>,

    /// Latency added to each query, in ms
    #[arg(long, value_name = "D", default_value_t = 50)]
    #[arg(value_parser = value_parser!(u64).range(0..=60_000))]
    load_ms: u64,

    /// Connections of all processes to the database; each query holds one
    #[arg(long, value_name = "C", default_value_t = 20)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000))]
    connections: u32,

    /// Rounds: each runs one burst per way, on keys that are not cached yet
    #[arg(long, value_name = "R", default_value_t = 3)]
    #[arg(value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Keys that the callers of a burst choose from, by Zipf's law
    #[arg(long, value_name = "K", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=100_000))]
    keys: u32,

    /// Exponent of Zipf's law; 0 makes all keys equally popular
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = exponent)]
    zipf: f64,

    /// Database of the catalog: a sqlite: URL, or with the feature of that name a postgres: or
    /// mysql: URL (default: an SQLite file beside the program, which the first run creates)
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,

    /// Write a self-contained report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write a plot of the latencies to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,

    /// Run as one of the processes, with orders from stdin
    #[arg(long, hide = true)]
    worker: bool,
}

/// What to run, after all checks.
pub(crate) struct Settings {
    pub(crate) store: Store,
    pub(crate) processes: u32,
    pub(crate) callers: u32,
    pub(crate) load_ms: u64,
    pub(crate) connections: u32,
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
        /// The URL without user, password and database, for the report.
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

    /// Ends the process, with exit code 2, if it cannot run these settings.
    pub(crate) fn into_settings(self) -> Settings {
        // The messages of clap repeat the value. A URL may hold a password, so clap does not check
        // URLs.
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
            connections: self.connections,
            rounds: self.rounds,
            keys: self.keys,
            zipf: self.zipf,
            database_url: self.database_url,
            html: self.html,
            svg: self.svg,
            json: self.json,
        };
        settings.check_sizes()?;
        settings.database_url.as_deref().map_or(Ok(()), database::check_url)?;
        settings.html.as_deref().map_or(Ok(()), |file| check_place("--html", file))?;
        settings.svg.as_deref().map_or(Ok(()), |file| check_place("--svg", file))?;
        Ok(settings)
    }
}

impl Settings {
    pub(crate) fn ways(&self) -> &'static [Way] {
        match self.store {
            Store::Memory => &[Way::Unprotected, Way::Bellwether],
            Store::Redis { .. } => &Way::ALL,
        }
    }

    pub(crate) fn redis_url(&self) -> Option<&str> {
        match &self.store {
            Store::Memory => None,
            Store::Redis { url, .. } => Some(url),
        }
    }

    /// Names the flag and the address of a store that cannot be used.
    pub(crate) fn not_reached(&self, fault: &Fault) -> Fault {
        format!("--store {}: {fault}", self.store.shown()).into()
    }

    fn check_sizes(&self) -> Result<(), String> {
        let keys = u64::from(self.rounds) * u64::from(self.keys);
        if keys > u64::from(PRODUCTS) {
            return Err(format!(
                "--rounds times --keys is {keys}, but the catalog has {PRODUCTS} products"
            ));
        }
        let answers = u64::from(self.rounds) * u64::from(self.processes) * u64::from(self.callers);
        if answers > MOST_ANSWERS {
            return Err(format!(
                "--rounds times --processes times --callers is {answers}, above {MOST_ANSWERS}"
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
        let address = server::shown(text).map_err(|fault| {
            format!("--store {}: neither `memory` nor a Redis URL: {fault}", shown(text))
        })?;
        Ok(Self::Redis { url: text.to_owned(), shown: address })
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

/// Finds out before the run, and not after it, whether a file can be written.
fn check_place(option: &str, file: &Path) -> Result<(), String> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if file.is_dir() || folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(format!(
            "{option} cannot write `{}`: it is a folder, or its folder does not exist",
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
        let good = settings("stampede --store redis-cluster://me:secret@a:1,b/0").unwrap();
        assert_eq!(good.store.shown(), "redis-cluster://a:1,b:6379");
        let bad = settings("stampede --store redos://me:secret@cache.example").err().unwrap();
        assert!(!bad.contains("secret"), "{bad}");
    }

    #[test]
    fn a_complaint_names_the_flag_and_the_value_and_the_reason() {
        for (flag, value, reason) in [
            ("--store", "127.0.0.1:6379", "nor a Redis URL: store url: it must be redis://"),
            ("--database-url", "oracle://db/shop", "does not start with sqlite:"),
            ("--database-url", "sqlite::memory:", "cannot be shared"),
            ("--html", "/no/such/folder/report.html", "its folder does not exist"),
            ("--rounds", "0", "1..=10000"),
        ] {
            let complaint = settings(&format!("stampede {flag} {value}")).err().unwrap();
            for part in [flag, value, reason] {
                assert!(complaint.contains(part), "{part} is missing: {complaint}");
            }
        }
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

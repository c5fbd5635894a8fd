//! What all sessions have counted, in a directory: it adds up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::judge::{Judged, Violation};
use crate::messages::Promise;
use crate::tally::{TIERS, Tally, Tier};

/// One run of the program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Session {
    /// The commit that it ran at.
    pub(crate) commit: String,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// The servers of its turns, and how many seconds each kind ran.
    pub(crate) seconds: BTreeMap<String, u64>,
    pub(crate) redis: String,
    pub(crate) reads: u64,
    pub(crate) violations: u64,
    pub(crate) faults: u64,
}

/// What is known of all sessions.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct State {
    pub(crate) sessions: Vec<Session>,
    pub(crate) tally: Tally,
    pub(crate) faults: BTreeMap<String, u64>,
}

/// The result for one promise: this many of so many.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) checked: u64,
    pub(crate) violated: u64,
}

impl Verdict {
    /// With 95 % confidence, the share of violations is not larger than this, if there was none: the rule of
    /// three.
    pub(crate) fn bound(self) -> Option<f64> {
        (self.violated == 0 && self.checked > 0).then(|| 3.0 / self.checked as f64)
    }
}

impl State {
    /// Reads what is there, or begins.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        match fs::read_to_string(totals(dir)) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file as a whole, so that a session that is killed leaves the last one.
    pub(crate) fn save(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join("totals.json.new");
        fs::write(&new, serde_json::to_string(self)?)?;
        fs::rename(new, totals(dir))
    }

    /// Adds what came of a turn to the session that runs.
    pub(crate) fn add(&mut self, judged: &Judged, servers: &str, seconds: u64) {
        self.tally.add(&judged.tally);
        for (kind, times) in &judged.faults {
            *self.faults.entry(kind.clone()).or_default() += times;
        }
        if let Some(session) = self.sessions.last_mut() {
            *session.seconds.entry(servers.to_owned()).or_default() += seconds;
            session.reads += judged.tally.all_reads();
            session.violations += judged.violations.len() as u64;
            session.faults += judged.faults.values().sum::<u64>();
        }
    }

    pub(crate) fn verdict(&self, promise: Promise) -> Verdict {
        let of = |tiers: &[Tier]| tiers.iter().map(|tier| self.tally.reads_of(*tier).bound).sum();
        let checked = match promise {
            Promise::Invalidation => {
                let others =
                    TIERS.into_iter().filter(|tier| !NEAR.contains(tier) && *tier != Tier::Stale);
                of(&others.collect::<Vec<_>>())
            }
            Promise::NearCopy => of(&NEAR),
            Promise::Stale => of(&[Tier::Stale]),
            Promise::Value => self.tally.all_reads(),
            Promise::Wait => self.tally.of("waits"),
            Promise::OneLoad => {
                self.tally.times.get("loads per key, no fault").map_or(0, |loads| loads.len())
            }
        };
        Verdict { checked, violated: self.tally.of(&format!("violated: {promise:?}")) }
    }
}

const NEAR: [Tier; 2] = [Tier::Near, Tier::NearLookup];

fn totals(dir: &Path) -> PathBuf {
    dir.join("totals.json")
}

/// Appends violations to `violations.jsonl`, behind those that were found before.
pub(crate) fn record(dir: &Path, found: &[Violation]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(dir.join("violations.jsonl"))?;
    for violation in found {
        let line = serde_json::to_string(violation)? + "\n";
        file.write_all(line.as_bytes())?;
    }
    Ok(())
}

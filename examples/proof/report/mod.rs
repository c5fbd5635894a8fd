//! The report: tables and plots, as one HTML file, and the same figures as JSON.

mod plots;
mod tables;

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::judge::PROMISES;
use crate::state::State;

const STYLE: &str = include_str!("style.css");

/// One promise, and what came of it.
#[derive(Serialize)]
struct Row {
    promise: String,
    text: &'static str,
    checked: u64,
    violated: u64,
    /// By the rule of three, if there was no violation.
    share_at_most: Option<f64>,
}

#[derive(Serialize)]
struct Figures<'a> {
    promises: Vec<Row>,
    #[serde(flatten)]
    state: &'a State,
}

/// Writes both files.
pub(crate) fn write(dir: &Path, state: &State) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("report.html"), html(state))?;
    let promises = rows(state);
    let json = serde_json::to_string(&Figures { promises, state })?;
    fs::write(dir.join("report.json"), json + "\n")
}

fn rows(state: &State) -> Vec<Row> {
    let row = |(promise, text)| {
        let verdict = state.verdict(promise);
        Row {
            promise: format!("{promise:?}"),
            text,
            checked: verdict.checked,
            violated: verdict.violated,
            share_at_most: verdict.bound(),
        }
    };
    PROMISES.into_iter().map(row).collect()
}

fn html(state: &State) -> String {
    let rows = rows(state);
    let mut page = String::new();
    let violated: u64 = rows.iter().map(|row| row.violated).sum();
    let lead = format!(
        "{} reads in {} processes at a time, on servers that were killed, stopped, cut off, flushed and failed \
         over {} times. {}",
        tables::grouped(state.tally.all_reads()),
        state.sessions.iter().map(|session| session.workers).max().unwrap_or(0),
        tables::grouped(state.faults.values().sum()),
        match violated {
            0 => "No promise was broken.".to_owned(),
            broken => format!("{broken} violations were found."),
        }
    );
    let sections = [
        ("Promises", PROMISES_TEXT, tables::promises(&rows)),
        ("Reads by how they were answered", TIERS_TEXT, tables::tiers(state)),
        ("When the last old answer was given", LATE_TEXT, tables::late(state)),
        ("How outdated answers were", STALENESS_TEXT, plots::staleness(state)),
        ("Loads for a key that all miss together", LOADS_TEXT, plots::loads(state)),
        ("How long after the end of a load its waiters were answered", LAG_TEXT, plots::lag(state)),
        ("Times", TIMES_TEXT, tables::times(state)),
        ("Faults injected", FAULTS_TEXT, plots::faults(state)),
        ("Reads that a documented exception allows", EXCEPTIONS_TEXT, tables::exceptions(state)),
        ("Changes of the source", CHANGES_TEXT, tables::changes(state)),
        ("Errors instead of answers", ERRORS_TEXT, tables::errors(state)),
        ("Sessions", SESSIONS_TEXT, tables::sessions(state)),
    ];
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>bellwether: what was proven</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>What bellwether promises, checked from outside</h1>\n<p class=\"lead\">{}</p>\n",
        escaped(&lead)
    );
    for (title, text, body) in sections {
        let _ = write!(
            page,
            "<section>\n<h2>{}</h2>\n<p>{}</p>\n<div class=\"wide\">{body}</div>\n</section>\n",
            escaped(title),
            escaped(text)
        );
    }
    page + "</main>\n</body>\n</html>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const PROMISES_TEXT: &str = "n counts the reads that a promise bound: those of rows that had been invalidated \
    before. If none of n is a violation, the share of violations is at most 3/n, with 95 % confidence.";
const TIERS_TEXT: &str = "\"Bound\" are reads of rows that had been invalidated before they began, \"just then\" \
    those that began within 10 ms after the invalidation had returned.";
const LATE_TEXT: &str = "From the return of an invalidation, or from the commit of a change that PostgreSQL records, to \
    the beginning of the last read, in any process, that got an older answer. An invalidation counts where its row was \
    read within 10 ms, or answered by an older value later. Expiries, which allow stale answers, are not among them.";
const STALENESS_TEXT: &str = "For answers that were outdated when their read began: the time since the first \
    invalidation or expiry of them had returned. Near copies may be served for 1.25 s after an invalidation by \
    another process, stale answers until their window of 2 or 5 s ends. All other reads may not be outdated at all.";
const LOADS_TEXT: &str = "In each burst, all processes ask for one new key at the same moment. The source counts \
    the loads. Without a fault, one is promised. With faults, a load may be lost or run twice; a machine that is \
    too busy for Redis to answer within 250 ms counts as a fault.";
const LAG_TEXT: &str = "From the end of the load in its process to the answer of a caller that waited for it, in \
    the same process or in another one. All processes of the run share the machine's processors.";
const TIMES_TEXT: &str = "\"After its deadline\" counts how much later than its deadline a caller was answered, \
    also because the machine was busy. Near copies take no time and are not in these figures.";
const FAULTS_TEXT: &str = "How often each was injected, and healed some time later.";
const EXCEPTIONS_TEXT: &str = "Different outdated answers that the guides except: Redis forgot an invalidation by a \
    flush or an empty restart during a load, or a failover lost it, until it was re-asserted.";
const CHANGES_TEXT: &str = "\"Kept\" are invalidations that failed because Redis did not answer, and that the \
    process repeats. Until then it serves nothing older itself, which is checked, too.";
const ERRORS_TEXT: &str =
    "Callers with short deadlines and callers during faults may get an error.";
const SESSIONS_TEXT: &str = "Each run of the program, with the commit that it ran at. The seed repeats the same \
    operations and faults; their timing still depends on the machine.";

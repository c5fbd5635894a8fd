//! The page: one HTML file that loads no other.

use super::svg::escaped;
use super::{Summaries, plots, table};
use crate::args::{Settings, Store};
use crate::coordinator::Outcome;
use crate::database;
use crate::ways::Way;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = concat!(include_str!("marks.css"), include_str!("style.css"));
const NO_REDIS: &str = "<p>This run uses no Redis: each process keeps entries in its memory.</p>";

pub(super) fn html(settings: &Settings, outcome: &Outcome, summaries: &Summaries) -> String {
    // The first rounds warm up.
    let round = settings.rounds / 2;
    let slots = [
        ("style", STYLE.to_owned()),
        ("headline", escaped(&table::headline(settings))),
        ("lead", lead(settings, summaries)),
        ("table", table::html(summaries)),
        ("notes", list(table::notes(settings))),
        ("errors", errors(summaries)),
        (
            "queries",
            plots::bars("queries per key", summaries, |figures| Some(figures.queries_per_key_mean)),
        ),
        ("commands", commands(summaries)),
        ("legend", legend(summaries)),
        ("behind", behind(settings, outcome, summaries)),
        ("round", (round + 1).to_string()),
        ("timeline", plots::timeline(&outcome.bursts, round)),
        ("facts", facts(settings, outcome)),
        ("command", escaped(&command(settings))),
    ];
    slots.into_iter().fold(PAGE.to_owned(), |page, (slot, content)| {
        page.replace(&format!("{{{{{slot}}}}}"), &content)
    })
}

/// The result in two or three sentences.
fn lead(settings: &Settings, summaries: &Summaries) -> String {
    let figures = |way| summaries.iter().find(|(of, _)| *of == way).map(|(_, figures)| figures);
    let queries = |way| {
        figures(way).map_or_else(String::new, |figures| table::short(figures.queries_per_key_mean))
    };
    let asked = format!(
        "{} ask for {} at once, and nothing is cached. Unprotected, they cost {} queries per key, \
         with bellwether {}",
        table::plural(settings.processes * settings.callers, "caller", "callers"),
        table::plural(settings.keys, "product", "products"),
        queries(Way::Unprotected),
        queries(Way::Bellwether),
    );
    match figures(Way::Bellwether).and_then(|figures| figures.behind_load_ms) {
        Some(behind) => format!(
            "{asked}. Half of the waiters have their answer within {:.1} ms of the load.",
            behind.p50
        ),
        None => format!("{asked}."),
    }
}

fn errors(summaries: &Summaries) -> String {
    list(table::first_errors(summaries).map(|error| escaped(&error)))
}

fn behind(settings: &Settings, outcome: &Outcome, summaries: &Summaries) -> String {
    if summaries.iter().all(|(_, figures)| figures.behind_load_ms.is_none()) {
        return "<p>No caller waited for the load of another.</p>".to_owned();
    }
    plots::behind(&outcome.bursts, settings.ways())
}

fn commands(summaries: &Summaries) -> String {
    if summaries.iter().all(|(_, figures)| figures.redis_commands_per_burst.is_none()) {
        return NO_REDIS.to_owned();
    }
    plots::bars("Redis commands per burst", summaries, |figures| figures.redis_commands_per_burst)
}

/// For the ways that have waiters.
fn legend(summaries: &Summaries) -> String {
    let ways = summaries.iter().filter(|(_, figures)| figures.behind_load_ms.is_some());
    ways.map(|(way, _)| format!("<span class=\"{0}\"><i></i>{0}</span>", way.name())).collect()
}

fn facts(settings: &Settings, outcome: &Outcome) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let store = match (&settings.store, &outcome.redis_version) {
        (Store::Redis { shown, .. }, Some(version)) => format!("Redis {version} at {shown}"),
        _ => settings.store.shown().to_owned(),
    };
    let facts = [
        ("processes", settings.processes.to_string()),
        ("callers in each", settings.callers.to_string()),
        ("rounds", settings.rounds.to_string()),
        ("keys a round", format!("{}, Zipf exponent {}", settings.keys, settings.zipf)),
        ("added latency of a query", format!("{} ms", settings.load_ms)),
        ("connections to the database", settings.connections.to_string()),
        ("store", store),
        ("database", database::kind(settings.database_url.as_deref()).to_owned()),
        (
            "machine",
            format!("{cores} cores, {} on {}", std::env::consts::OS, std::env::consts::ARCH),
        ),
        ("bellwether", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    facts
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escaped(value)))
        .collect()
}

/// The command that repeats the run, without passwords.
fn command(settings: &Settings) -> String {
    let Settings { processes, callers, load_ms, connections, rounds, keys, zipf, .. } = settings;
    let database = settings
        .database_url
        .as_deref()
        .map(|url| format!(" --database-url {}:...", database::kind(Some(url))));
    format!(
        "cargo run --release --example stampede -- --store {} --processes {processes} \
         --callers {callers} --load-ms {load_ms} --connections {connections} --rounds {rounds} --keys {keys} --zipf {zipf}{} \
         --html report.html",
        settings.store.shown(),
        database.unwrap_or_default(),
    )
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().map(|item| format!("<li>{item}</li>")).collect()
}

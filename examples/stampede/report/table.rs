//! The figures as a table, in text and in HTML.

use super::Summaries;
use crate::args::Settings;
use crate::database;
use crate::measure::{Quantiles, Summary};
use crate::ways::Way;

/// The groups of columns, each with its columns.
const HEADER: [(&str, &[&str]); 6] = [
    ("queries per key", &["mean", "max"]),
    ("behind the load, ms", &["p50", "p99", "max"]),
    ("latency, ms", &["p50", "p99", "max"]),
    ("Redis commands", &["per burst"]),
    ("answers", &["correct"]),
    ("errors", &["all"]),
];
const NAME: usize = 12;
const CELL: usize = 9;

const NOTES: [&str; 2] = [
    "Queries per key: counted in the database, where each query of any process leaves a row.",
    "Behind the load: time from the end of a key's first load to the answers of the other callers.",
];
const NOTE_ON_REDIS: &str = "Redis commands: counted by the server (INFO commandstats), without \
                             the commands that scripts run there. Those of `unprotected` and `moka` are \
                             heartbeats of near copies: two per second for each process and node.";

pub(super) fn text(settings: &Settings, summaries: &Summaries) -> String {
    let mut lines = vec![headline(settings), String::new(), group_line(), column_line()];
    for (way, summary) in summaries {
        lines.push(line(way.name(), cells(summary).iter().map(String::as_str)));
    }
    lines.push(String::new());
    lines.extend(notes(settings));
    lines.extend(first_errors(summaries));
    lines.join("\n")
}

/// What the columns mean.
pub(super) fn notes(settings: &Settings) -> impl Iterator<Item = String> {
    let on_redis = settings.redis_url().map(|_| NOTE_ON_REDIS);
    NOTES.into_iter().chain(on_redis).map(str::to_owned)
}

pub(super) fn first_errors(summaries: &Summaries) -> impl Iterator<Item = String> {
    let error = |(way, summary): &(Way, Summary)| {
        summary.first_error.as_ref().map(|error| format!("First error of {}: {error}", way.name()))
    };
    summaries.iter().filter_map(error)
}

/// What was run, in a line.
pub(super) fn headline(settings: &Settings) -> String {
    let Settings { processes, callers, keys, rounds, load_ms, connections, .. } = settings;
    format!(
        "{} x {}, {} per round, {}, load {load_ms} ms, {connections} connections, store {}, database {}",
        plural(*processes, "process", "processes"),
        plural(*callers, "caller", "callers"),
        plural(*keys, "key", "keys"),
        plural(*rounds, "round", "rounds"),
        settings.store.shown(),
        database::kind(settings.database_url.as_deref()),
    )
}

pub(super) fn plural(count: u32, one: &str, many: &str) -> String {
    format!("{} {}", short(f64::from(count)), if count == 1 { one } else { many })
}

fn group_line() -> String {
    let group = |(group, columns): &(&str, &[&str])| {
        format!("{group:>width$}", width = columns.len() * width(group, columns))
    };
    format!("{:NAME$}{}", "", HEADER.iter().map(group).collect::<String>())
}

fn column_line() -> String {
    line("", HEADER.iter().flat_map(|(_, columns)| columns.iter().copied()))
}

fn line<'a>(name: &str, cells: impl Iterator<Item = &'a str>) -> String {
    let widths =
        HEADER.iter().flat_map(|(group, columns)| columns.iter().map(|_| width(group, columns)));
    format!(
        "{name:NAME$}{}",
        cells.zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect::<String>()
    )
}

/// The width of one column: the name of its group has room above the columns.
fn width(group: &str, columns: &[&str]) -> usize {
    CELL.max((group.len() + 3) / columns.len())
}

pub(super) fn html(summaries: &Summaries) -> String {
    let group = |(group, columns): &(&str, &[&str])| {
        format!("<th class=\"first\" colspan=\"{}\">{group}</th>", columns.len())
    };
    let groups: String = HEADER.iter().map(group).collect();
    let columns = html_cells("th", HEADER.iter().flat_map(|(_, columns)| columns.iter().copied()));
    let rows: String =
        summaries.iter().map(|(way, summary)| html_row(way.name(), summary)).collect();
    format!(
        "<table><thead><tr><td></td>{groups}</tr><tr><td></td>{columns}</tr></thead>\
         <tbody>{rows}</tbody></table>"
    )
}

fn html_row(name: &str, summary: &Summary) -> String {
    let cells = html_cells("td", cells(summary).iter().map(String::as_str));
    format!("<tr><th class=\"{name}\"><i></i>{name}</th>{cells}</tr>")
}

/// The first cell of each group has a class of its own.
fn html_cells<'a>(tag: &str, cells: impl Iterator<Item = &'a str>) -> String {
    let places = HEADER.iter().flat_map(|(_, columns)| {
        (0..columns.len()).map(|place| if place == 0 { "first" } else { "" })
    });
    places
        .zip(cells)
        .map(|(class, cell)| format!("<{tag} class=\"{class}\">{cell}</{tag}>"))
        .collect()
}

fn cells(summary: &Summary) -> Vec<String> {
    let mut cells =
        vec![short(summary.queries_per_key_mean), short(summary.queries_per_key_max as f64)];
    cells.extend(quantile_cells(summary.behind_load_ms));
    cells.extend(quantile_cells(summary.latency_ms));
    cells.push(summary.redis_commands_per_burst.map_or_else(nothing, short));
    cells.extend([summary.answers, summary.errors].map(|count| short(count as f64)));
    cells
}

fn quantile_cells(quantiles: Option<Quantiles>) -> [String; 3] {
    quantiles.map_or_else(
        || [nothing(), nothing(), nothing()],
        |of| [of.p50, of.p99, of.max].map(|ms| format!("{ms:.1}")),
    )
}

fn nothing() -> String {
    "-".to_owned()
}

/// With two decimal places unless it is whole, and with commas between thousands.
pub(super) fn short(number: f64) -> String {
    let text = if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.2}") };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digit = |(place, digit)| {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            format!(",{digit}")
        } else {
            format!("{digit}")
        }
    };
    whole.chars().enumerate().map(digit).collect::<String>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_to_read() {
        assert_eq!(
            [1.0, 999.5, 1_000.0, 1_234_567.125].map(short),
            ["1", "999.50", "1,000", "1,234,567.12"]
        );
    }
}

//! The tables of the report.

use std::fmt::Write;

use super::{Row, escaped};
use crate::late::{MEASURED, PLACES, measured};
use crate::state::State;
use crate::tally::{Hist, TIERS};

/// A table of texts: those of the first column name their rows.
pub(super) fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = "<table>\n<thead><tr>".to_owned();
    for (column, head) in heads.iter().enumerate() {
        let class = if column == 0 { " class=\"text\"" } else { "" };
        let _ = write!(table, "<th{class}>{}</th>", escaped(head));
    }
    table += "</tr></thead>\n<tbody>\n";
    for row in rows {
        table += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let tag = if column == 0 { "th" } else { "td" };
            let _ = write!(table, "<{tag}>{cell}</{tag}>");
        }
        table += "</tr>\n";
    }
    table + "</tbody>\n</table>\n"
}

pub(super) fn promises(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let class = if row.violated == 0 { "good" } else { "bad" };
        let bound = row.share_at_most.map_or_else(|| "&ndash;".to_owned(), scientific);
        let verdict = format!("<span class=\"{class}\">{}</span>", grouped(row.violated));
        vec![escaped(row.text), verdict, grouped(row.checked), bound]
    });
    table(&["", "violations", "of n", "3/n"], rows)
}

pub(super) fn tiers(state: &State) -> String {
    let rows = TIERS.into_iter().map(|tier| {
        let reads = state.tally.reads_of(tier);
        let numbers = [reads.all, reads.bound, reads.just_then].map(grouped);
        [vec![tier.name().to_owned()], numbers.to_vec()].concat()
    });
    table(&["answered by", "reads", "bound", "just then"], rows)
}

/// The last old answer after each invalidation.
pub(super) fn late(state: &State) -> String {
    let kinds = [true, false].into_iter().flat_map(|is_calm| PLACES.map(|place| (place, is_calm)));
    let rows = kinds.filter_map(|(place, is_calm)| {
        let name = measured(place, is_calm);
        let times = state.tally.times.get(&name)?;
        let name = name.trim_start_matches(MEASURED).to_owned();
        let at = [times.at(0.5), times.at(0.9), times.at(0.99), times.at(0.999), times.max()];
        let counts = [times.len(), times.len() - times.up_to(0)].map(grouped);
        Some([vec![name], counts.to_vec(), at.map(time).to_vec()].concat())
    });
    let heads =
        ["", "invalidations", "an old answer after", "p50", "p90", "p99", "p99.9", "longest"];
    table(&heads, rows)
}

pub(super) fn times(state: &State) -> String {
    let rows = state.tally.times.iter();
    let rows = rows.filter(|(name, _)| !name.starts_with("loads") && !name.starts_with(MEASURED));
    let rows = rows.map(|(name, times)| [vec![escaped(name)], quantiles(times)].concat());
    table(&["", "n", "p50", "p99", "p99.9", "longest"], rows)
}

fn quantiles(times: &Hist) -> Vec<String> {
    let at = [times.at(0.5), times.at(0.99), times.at(0.999), times.max()];
    [vec![grouped(times.len())], at.map(time).to_vec()].concat()
}

pub(super) fn exceptions(state: &State) -> String {
    let undecided = ["undecided", "suspects without a record"];
    let others = undecided.map(|name| (name, state.tally.of(name)));
    let others = others.into_iter().filter(|(_, count)| *count > 0);
    counts("exception", state.tally.below("excepted: ").chain(others))
}

pub(super) fn errors(state: &State) -> String {
    counts("error", state.tally.below("error, "))
}

pub(super) fn changes(state: &State) -> String {
    let first = |name: &str| {
        let calls =
            ["invalidate", "change", "expire", "put", "callers that left", "turns", "tasks"];
        calls.iter().any(|call| name.starts_with(call))
    };
    counts("call", state.tally.below("").filter(|(name, _)| first(name)))
}

fn counts<'a>(what: &str, counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut rows: Vec<_> =
        counts.map(|(name, count)| vec![escaped(name), grouped(count)]).collect();
    if rows.is_empty() {
        rows.push(vec!["none".to_owned(), "0".to_owned()]);
    }
    table(&[what, "times"], rows)
}

pub(super) fn sessions(state: &State) -> String {
    let rows = state.sessions.iter().map(|session| {
        let of =
            |(servers, seconds): (&String, &u64)| format!("{servers} {} min", seconds.div_ceil(60));
        let servers: Vec<_> = session.seconds.iter().map(of).collect();
        vec![
            format!("<code>{}</code>", escaped(&session.commit)),
            session.seed.to_string(),
            escaped(&servers.join(", ")),
            escaped(&session.redis),
            session.workers.to_string(),
            grouped(session.reads),
            grouped(session.faults),
            grouped(session.violations),
        ]
    });
    table(&["commit", "seed", "servers", "Redis", "workers", "reads", "faults", "violations"], rows)
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in microseconds, with its unit.
pub(super) fn time(micros: u64) -> String {
    let micros = micros as f64;
    match micros {
        ..1e3 => format!("{micros:.0} us"),
        ..1e4 => format!("{:.2} ms", micros / 1e3),
        ..1e6 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// A small share.
fn scientific(share: f64) -> String {
    let exponent = share.log10().floor() as i32;
    format!("{:.1} &times; 10<sup>{exponent}</sup>", share / 10f64.powi(exponent))
}

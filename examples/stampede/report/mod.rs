//! The report: a table or JSON on stdout, and on request a page and a plot.

mod latency_plot;
mod page;
mod plots;
mod svg;
mod table;
#[cfg(test)]
mod xml;

use std::io::{self, Write};
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::Fault;
use crate::args::Settings;
use crate::coordinator::Outcome;
use crate::measure::Summary;
use crate::ways::Way;

/// The figures of each way, in the order of the report.
type Summaries = Vec<(Way, Summary)>;

pub(crate) fn give(settings: &Settings, outcome: &Outcome) -> Result<(), Fault> {
    let summaries: Summaries = settings
        .ways()
        .iter()
        .map(|&way| (way, Summary::of(way, &outcome.bursts, &outcome.queries)))
        .collect();
    let told = if settings.json {
        serde_json::to_string(&Ways(&summaries))?
    } else {
        table::text(settings, &summaries)
    };
    writeln!(io::stdout(), "{told}")?;
    if let Some(file) = &settings.html {
        write_file("report", file, &page::html(settings, outcome, &summaries))?;
    }
    if let Some(file) = &settings.svg {
        write_file("plot", file, &latency_plot::svg(settings, outcome, &summaries))?;
    }
    Ok(())
}

fn write_file(kind: &str, file: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(file, text)
        .map_err(|fault| format!("cannot write `{}`: {fault}", file.display()))?;
    eprintln!("{kind} written to {}", file.display());
    Ok(())
}

struct Ways<'a>(&'a Summaries);

impl Serialize for Ways<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(way, summary)| (way.name(), summary)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_ways_in_order_and_null_for_what_does_not_apply() {
        let summary = Summary::of(Way::Unprotected, &[], &Default::default());
        let json = serde_json::to_string(&Ways(&vec![(Way::Unprotected, summary)])).unwrap();
        let figures = r#""queries_per_key_mean":0.0,"queries_per_key_max":0"#;
        let times = r#""behind_load_ms":null,"latency_ms":null"#;
        let rest = r#""redis_commands_per_burst":null,"errors":0,"answers":0"#;
        assert_eq!(json, format!(r#"{{"unprotected":{{{figures},{times},{rest}}}}}"#));
    }
}

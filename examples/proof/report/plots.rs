//! The plots of the report, as SVG.

use std::fmt::Write;

use super::escaped;
use super::tables::{grouped, table, time};
use crate::state::State;
use crate::tally::Hist;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 34.0;
const CLASSES: [&str; 4] = ["a", "b", "c", "d"];

/// How many points a curve has at most.
const POINTS: usize = 240;

/// For how long a near copy may be outdated, in microseconds.
const NEAR_BOUND: u64 = 1_250_000;

pub(super) fn staleness(state: &State) -> String {
    let names = [
        ("staleness: near copy", "near copies"),
        ("staleness: hit beside near copies", "hits beside near copies"),
        ("staleness: stale answer", "stale answers, after an expiry of their row"),
        ("staleness: stale answer, tags", "stale answers, after an expiry of their tag"),
    ];
    curves(state, &names, Some((NEAR_BOUND, "1.25 s")), "outdated for at most this time")
}

pub(super) fn lag(state: &State) -> String {
    let names = [
        ("lag: same process, no fault", "same process, no fault"),
        ("lag: another process, no fault", "another process, no fault"),
        ("lag: same process, faults", "same process, faults"),
        ("lag: another process, faults", "another process, faults"),
    ];
    curves(state, &names, None, "answered within this time after the load")
}

/// Which share of what was measured took at most which time.
fn curves(state: &State, names: &[(&str, &str)], limit: Option<(u64, &str)>, axis: &str) -> String {
    let measured: Vec<_> = names
        .iter()
        .filter_map(|(name, shown)| Some((state.tally.times.get(*name)?, *shown)))
        .collect();
    let longest = measured.iter().map(|(times, _)| times.max()).max().unwrap_or(0);
    let longest = longest.max(limit.map_or(0, |(at, _)| at)).max(10_000);
    let axes = TimeAxes { last: (longest as f64).log10().ceil() };
    let mut svg = begin(HEIGHT, axis);
    axes.draw(&mut svg);
    if let Some((at, shown)) = limit {
        let at = axes.x(at as f64);
        line(&mut svg, "limit", (at, TOP), (at, BOTTOM));
        text(&mut svg, "tick end", (at - 4.0, TOP + 12.0), shown);
    }
    for ((times, _), class) in measured.iter().zip(CLASSES) {
        let path = axes.path(times);
        let _ = writeln!(svg, "<path class=\"curve {class}\" d=\"{path}\"/>");
    }
    svg + "</svg>\n" + &legend(&measured)
}

fn legend(measured: &[(&Hist, &str)]) -> String {
    let mut legend = "<div class=\"legend\">".to_owned();
    for ((times, shown), class) in measured.iter().zip(CLASSES) {
        let _ = write!(
            legend,
            "<span><i class=\"{class}\"></i>{} (n = {}, p99 {}, longest {})</span>",
            escaped(shown),
            grouped(times.len()),
            time(times.at(0.99)),
            time(times.max())
        );
    }
    legend + "</div>\n"
}

/// The axes of a plot of shares over times: those from 10 microseconds on, by their logarithms.
struct TimeAxes {
    /// The power of ten at which they end.
    last: f64,
}

impl TimeAxes {
    const FIRST: f64 = 1.0;

    fn x(&self, micros: f64) -> f64 {
        let share = (micros.max(10.0).log10() - Self::FIRST) / (self.last - Self::FIRST);
        LEFT + share * (RIGHT - LEFT)
    }

    fn y(share: f64) -> f64 {
        BOTTOM - share * (BOTTOM - TOP)
    }

    fn draw(&self, svg: &mut String) {
        for exponent in Self::FIRST as i32..=self.last as i32 {
            let at = self.x(10f64.powi(exponent));
            line(svg, "grid", (at, TOP), (at, BOTTOM));
            let shown = time(10u64.pow(exponent.unsigned_abs()));
            text(svg, "tick middle", (at, BOTTOM + 16.0), &shown);
        }
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let at = Self::y(share);
            line(svg, "grid", (LEFT, at), (RIGHT, at));
            text(svg, "tick end", (LEFT - 8.0, at + 4.0), &format!("{:.0} %", 100.0 * share));
        }
    }

    /// Which share took at most which time.
    fn path(&self, times: &Hist) -> String {
        let mut path = String::new();
        for point in 0..=POINTS {
            let exponent = (self.last - Self::FIRST) * point as f64 / POINTS as f64;
            let micros = 10f64.powf(Self::FIRST + exponent);
            let share = times.up_to(micros as u64) as f64 / times.len().max(1) as f64;
            let command = if point == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(micros), Self::y(share));
        }
        path
    }
}

/// How many keys were loaded how often.
pub(super) fn loads(state: &State) -> String {
    let of = |name: &str| state.tally.times.get(name).cloned().unwrap_or_default();
    let calm = of("loads per key, no fault");
    let mut faulty = of("loads per key, faults");
    faulty.add(&of("loads per key, Redis too slow"));
    let count = |hist: &Hist, loads: u64| -> u64 {
        hist.pairs().filter(|(value, _)| *value == loads).map(|(_, times)| times).sum()
    };
    let more = |hist: &Hist| -> u64 {
        hist.pairs().filter(|(value, _)| *value > MOST).map(|(_, times)| times).sum()
    };
    let rows = (0..=MOST)
        .map(|loads| (loads.to_string(), count(&calm, loads), count(&faulty, loads)))
        .chain([(format!("more than {MOST}"), more(&calm), more(&faulty))]);
    let largest = calm.len().max(faulty.len()).max(1) as f64;
    let bar = |times: u64, class: &str| {
        // The square root shows a few of many.
        let width = 100.0 * (times as f64 / largest).sqrt();
        format!(
            "<svg style=\"min-width:0;width:120px\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\">\
             <rect class=\"bar {class}\" width=\"{width:.1}\" height=\"10\"/></svg>"
        )
    };
    let rows = rows.map(|(loads, calm, faulty)| {
        vec![loads, grouped(calm), bar(calm, "a"), grouped(faulty), bar(faulty, "c")]
    });
    let rows: Vec<_> = rows.collect();
    table(&["loads", "keys, no fault", "", "keys, faults", ""], rows)
}

const MOST: u64 = 6;

pub(super) fn faults(state: &State) -> String {
    let row = 22.0;
    let height = row * state.faults.len() as f64 + 8.0;
    let mut svg = begin(height, "faults injected");
    let largest = state.faults.values().max().copied().unwrap_or(1) as f64;
    for ((kind, times), number) in state.faults.iter().zip(0..) {
        let y = row * f64::from(number) + 4.0;
        let width = *times as f64 / largest * (RIGHT - 330.0);
        text(&mut svg, "end", (250.0, y + 13.0), kind);
        let _ = writeln!(
            svg,
            "<rect class=\"bar b\" x=\"260\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"3\"/>"
        );
        text(&mut svg, "tick", (266.0 + width, y + 12.0), &grouped(*times));
    }
    svg + "</svg>\n"
}

/// Screen readers read the title aloud.
fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(title)
    )
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let (x1, y1, x2, y2) = (from.0, from.1, to.0, to.1);
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

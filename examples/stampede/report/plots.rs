//! The four pictures of the report.

use super::Summaries;
use super::svg::{Canvas, Scale, WIDTH};
use super::table::short;
use crate::measure::{Burst, Summary, ms};
use crate::ways::Way;

const LEFT: f64 = 104.0;
const RIGHT: f64 = WIDTH - 22.0;

/// One bar for each way that has the figure, with the figure at its end.
pub(super) fn bars(
    title: &'static str,
    summaries: &Summaries,
    figure: fn(&Summary) -> Option<f64>,
) -> String {
    const ROW: f64 = 34.0;
    let rows: Vec<(Way, f64)> =
        summaries.iter().filter_map(|(way, summary)| Some((*way, figure(summary)?))).collect();
    let most = rows.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let scale = Scale::linear((0.0, most), (0.0, RIGHT - LEFT - 80.0));
    let mut canvas = Canvas::new(ROW * rows.len() as f64, title);
    for ((way, value), row) in rows.iter().zip(0..) {
        let top = ROW * f64::from(row);
        // A bar of 1 is visible beside one of 1,000.
        let width = if *value > 0.0 { scale.at(*value).max(3.0) } else { 0.0 };
        canvas.text("name end", (LEFT - 12.0, top + 21.0), way.name());
        canvas.bar(&format!("bar {}", way.name()), (LEFT, top + 5.0), (width, ROW - 10.0));
        canvas.text("value", (LEFT + width + 8.0, top + 21.0), short(*value));
    }
    canvas.finish()
}

/// The share of waiters that have their answer, by the time since the load.
pub(super) fn behind(bursts: &[Burst], ways: &[Way]) -> String {
    const TOP: f64 = 12.0;
    const BOTTOM: f64 = 250.0;
    let curves: Vec<(Way, Vec<f64>)> =
        ways.iter().map(|way| (*way, sorted_behind(bursts, *way))).collect();
    let longest =
        curves.iter().filter_map(|(_, values)| values.last()).copied().fold(1.0, f64::max);
    let x = Scale::log((0.1, longest), (LEFT, RIGHT));
    let y = Scale::linear((0.0, 100.0), (BOTTOM, TOP));
    let mut canvas = Canvas::new(
        BOTTOM + 44.0,
        "share of waiters that have their answer, by time since the load",
    );
    canvas.x_axis(&x, (TOP, BOTTOM));
    canvas.y_axis(&y, " %", (LEFT, RIGHT));
    for (way, values) in curves.iter().filter(|(_, values)| !values.is_empty()) {
        let points = shares(values).map(|(share, value)| (x.at(value), y.at(share)));
        canvas.curve(&format!("curve {}", way.name()), points);
    }
    canvas.text(
        "tick middle",
        ((LEFT + RIGHT) / 2.0, BOTTOM + 38.0),
        "time since the first load of the key ended, ms",
    );
    canvas.finish()
}

fn sorted_behind(bursts: &[Burst], way: Way) -> Vec<f64> {
    let bursts = bursts.iter().filter(|burst| burst.way == way);
    let mut values: Vec<f64> = bursts.flat_map(Burst::behind_load).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The points of a cumulative distribution, in percent: a few hundred at most.
pub(super) fn shares(sorted: &[f64]) -> impl Iterator<Item = (f64, f64)> {
    const POINTS: usize = 400;
    let last = sorted.len().saturating_sub(1);
    let points = last.clamp(1, POINTS);
    (0..=points).filter_map(move |point| {
        let rank = last * point / points;
        Some(((rank + 1) as f64 / sorted.len() as f64 * 100.0, *sorted.get(rank)?))
    })
}

/// When each caller of one round has its answer: one panel per way, on one time axis.
pub(super) fn timeline(bursts: &[Burst], round: u32) -> String {
    const PANEL: f64 = 112.0;
    let mut panels: Vec<&Burst> = bursts.iter().filter(|burst| burst.round == round).collect();
    panels.sort_by_key(|burst| Way::ALL.iter().position(|way| *way == burst.way));
    let longest = panels.iter().flat_map(|burst| answer_times(burst)).fold(1.0, f64::max);
    let x = Scale::linear((0.0, longest * 1.02), (LEFT, RIGHT));
    let bottom = PANEL * panels.len() as f64;
    let mut canvas = Canvas::new(bottom + 40.0, "when each caller of one round has its answer");
    canvas.x_axis(&x, (4.0, bottom));
    for (burst, number) in panels.iter().zip(0..) {
        let top = PANEL * f64::from(number);
        panel(&mut canvas, burst, &x, (top + 8.0, top + PANEL - 10.0));
    }
    canvas.text(
        "tick middle",
        ((LEFT + RIGHT) / 2.0, bottom + 34.0),
        "time since the requests, ms",
    );
    canvas.finish()
}

fn panel(canvas: &mut Canvas, burst: &Burst, x: &Scale, (top, bottom): (f64, f64)) {
    let mut times = answer_times(burst);
    times.sort_by(f64::total_cmp);
    let y = Scale::linear((0.0, times.len() as f64), (bottom, top));
    canvas.text("name end", (LEFT - 12.0, (top + bottom) / 2.0 + 4.0), burst.way.name());
    canvas.line("axis", (LEFT, bottom), (RIGHT, bottom));
    if let Some(ended) = burst.loads.iter().map(|load| load.ended).min() {
        let ended = x.at(ms(ended.saturating_sub(burst.start)));
        canvas.line("load-end", (ended, top), (ended, bottom));
    }
    let points = times.iter().zip(0..).map(|(time, rank)| (x.at(*time), y.at(f64::from(rank))));
    canvas.dots(&format!("dots {}", burst.way.name()), points);
}

fn answer_times(burst: &Burst) -> Vec<f64> {
    burst.answers.iter().map(|answer| ms(answer.at.saturating_sub(burst.start))).collect()
}

//! The latency plot: one SVG file for a README, with the latencies and the queries of each way.

#[cfg(test)]
mod tests;

use super::Summaries;
use super::plots::shares;
use super::svg::{Canvas, Scale, WIDTH};
use super::table::{plural, short};
use crate::args::{Settings, Store};
use crate::coordinator::Outcome;
use crate::database;
use crate::measure::{Burst, Quantiles, Summary, at_share, ms};
use crate::ways::Way;

const STYLE: &str = concat!(include_str!("../marks.css"), include_str!("style.css"));

const HEIGHT: f64 = 440.0;
const MARGIN: f64 = 28.0;
/// The edges of the curves.
const LEFT: f64 = 76.0;
const RIGHT: f64 = WIDTH - MARGIN;
const TOP: f64 = 214.0;
const BOTTOM: f64 = 376.0;
/// The shortest time that the plot tells from zero.
const LEAST_MS: f64 = 0.1;
/// The axis is logarithmic if the slowest answer takes more than so many times as long as the
/// fastest.
const SQUEEZED: f64 = 20.0;
/// The names of the curves, the fastest first, stand at these shares of callers, far from each other.
const LABELS_AT: [f64; 4] = [0.88, 0.62, 0.4, 0.2];
/// The longest name of a way fits into this width, with its distance from the curve.
const LABEL_WIDTH: f64 = 100.0;

/// What the plot shows.
struct Plot {
    title: String,
    subtitle: String,
    /// How long one query takes while no query of the same key runs beside it.
    query_ms: Option<f64>,
    curves: Vec<Curve>,
}

/// One way: its latencies, sorted, and its figures in words.
struct Curve {
    way: Way,
    latencies_ms: Vec<f64>,
    queries: String,
    unit: String,
    times: String,
}

/// The text of the file.
pub(super) fn svg(settings: &Settings, outcome: &Outcome, summaries: &Summaries) -> String {
    let query_ms = query_ms(&outcome.bursts);
    let curves = summaries.iter().map(|(way, summary)| {
        let latencies_ms = latencies_ms(&outcome.bursts, *way);
        Curve::new(*way, latencies_ms, summary, settings.keys)
    });
    let plot = Plot {
        title: title(settings),
        subtitle: subtitle(settings, outcome),
        query_ms,
        curves: curves.collect(),
    };
    plot.draw()
}

fn title(settings: &Settings) -> String {
    let callers = plural(settings.processes * settings.callers, "caller asks", "callers ask");
    match settings.keys {
        1 => format!("{callers} for the same uncached product at once"),
        keys => format!("{callers} for {} uncached products at once", short(f64::from(keys))),
    }
}

fn subtitle(settings: &Settings, outcome: &Outcome) -> String {
    let store = match (&settings.store, &outcome.redis_version) {
        (Store::Redis { .. }, Some(version)) => format!("Redis {version}"),
        _ => "entries in memory".to_owned(),
    };
    format!(
        "{} of {}, {}, {}, {store}, {}",
        plural(settings.processes, "process", "processes"),
        plural(settings.callers, "caller", "callers"),
        plural(settings.connections, "connection", "connections"),
        plural(settings.rounds, "burst", "bursts"),
        database::product_name(settings.database_url.as_deref()),
    )
}

/// The median of bellwether's loads.
fn query_ms(bursts: &[Burst]) -> Option<f64> {
    let loads = bursts.iter().filter(|burst| burst.way == Way::Bellwether);
    let loads = loads.flat_map(|burst| &burst.loads);
    let times = loads.map(|load| ms(load.ended.saturating_sub(load.started)));
    Quantiles::of(times.collect()).map(|times| times.p50)
}

fn latencies_ms(bursts: &[Burst], way: Way) -> Vec<f64> {
    let answers = bursts.iter().filter(|burst| burst.way == way).flat_map(|burst| &burst.answers);
    let mut latencies: Vec<f64> = answers.map(|answer| ms(answer.latency_us)).collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

impl Curve {
    fn new(way: Way, latencies_ms: Vec<f64>, summary: &Summary, keys: u32) -> Self {
        let queries = summary.queries_per_key_mean;
        let unit = if queries == 1.0 { "query" } else { "queries" };
        Self {
            way,
            latencies_ms,
            queries: short(queries),
            unit: if keys == 1 { unit.to_owned() } else { format!("{unit} per key") },
            times: times(summary),
        }
    }
}

fn times(summary: &Summary) -> String {
    let Some(latency) = summary.latency_ms else {
        return "no answers".to_owned();
    };
    let Quantiles { p50, p99, .. } = latency;
    match summary.errors {
        0 => format!("median {}, p99 {}", time(p50), time(p99)),
        errors => format!("median {}; errors: {}", time(p50), short(errors as f64)),
    }
}

fn time(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1_000.0) }
}

impl Plot {
    fn draw(&self) -> String {
        let mut canvas = Canvas::new(HEIGHT, self.in_words());
        canvas.bar("card", (0.5, 0.5), (WIDTH - 1.0, HEIGHT - 1.0));
        canvas.text("title", (MARGIN, 40.0), &self.title);
        canvas.text("quiet", (MARGIN, 61.0), &self.subtitle);
        let column = (WIDTH - 2.0 * MARGIN) / self.curves.len().max(1) as f64;
        for (curve, number) in self.curves.iter().zip(0..) {
            curve.draw_legend(&mut canvas, MARGIN + column * f64::from(number));
        }
        let x = self.time_scale();
        let y = Scale::linear((0.0, 100.0), (BOTTOM, TOP));
        self.draw_axes(&mut canvas, &x, &y);
        for curve in &self.curves {
            curve.draw(&mut canvas, &x, &y);
        }
        for (curve, share) in self.by_latency().iter().zip(LABELS_AT) {
            curve.draw_label(&mut canvas, &x, &y, share);
        }
        canvas.into_file(STYLE)
    }

    /// What a screen reader says.
    fn in_words(&self) -> String {
        let curve = |curve: &Curve| {
            format!("{}: {} {}, {}.", curve.way.name(), curve.queries, curve.unit, curve.times)
        };
        let curves: Vec<_> = self.curves.iter().map(curve).collect();
        format!("{}. {}. {}", self.title, self.subtitle, curves.join(" "))
    }

    /// From zero, with room behind the last answer, or logarithmic.
    fn time_scale(&self) -> Scale {
        let times =
            || self.curves.iter().flat_map(|curve| &curve.latencies_ms).chain(&self.query_ms);
        let first = times().copied().fold(f64::INFINITY, f64::min).max(LEAST_MS);
        let last = times().copied().fold(LEAST_MS, f64::max);
        if last > SQUEEZED * first {
            Scale::log((first / 2.0, last), (LEFT, RIGHT))
        } else {
            Scale::linear((0.0, 1.1 * last), (LEFT, RIGHT))
        }
    }

    /// The fastest first.
    fn by_latency(&self) -> Vec<&Curve> {
        let mut curves: Vec<_> = self.curves.iter().collect();
        let median = |curve: &Curve| at_share(&curve.latencies_ms, 0.5).unwrap_or(0.0);
        curves.sort_by(|one, other| median(one).total_cmp(&median(other)));
        curves
    }

    fn draw_axes(&self, canvas: &mut Canvas, x: &Scale, y: &Scale) {
        if let Some(query) = self.query_ms {
            let edge = x.at(query);
            canvas.bar("query", (LEFT, TOP), (edge - LEFT, BOTTOM - TOP));
            canvas.text("tick end", (edge - 7.0, BOTTOM - 24.0), "one query");
            canvas.text(
                "tick end",
                (edge - 7.0, BOTTOM - 9.0),
                format_args!("takes {query:.0} ms"),
            );
        }
        canvas.x_axis(x, (TOP, BOTTOM));
        canvas.y_axis(y, " %", (LEFT, RIGHT));
        canvas.text("tick", (MARGIN, TOP - 14.0), "callers that have their answer");
        let label = "time since the request, ms";
        canvas.text("tick middle", ((LEFT + RIGHT) / 2.0, BOTTOM + 40.0), label);
    }
}

impl Curve {
    fn draw_legend(&self, canvas: &mut Canvas, left: f64) {
        let way = self.way.name();
        canvas.bar(&format!("swatch {way}"), (left, 88.0), (12.0, 12.0));
        canvas.text("name", (left + 19.0, 99.0), way);
        canvas.text("tick", (left, 117.0), self.way.means());
        let number = format!("number {way}");
        canvas.spans((left, 149.0), [(&*number, &*self.queries), ("quiet", &*self.unit)]);
        canvas.text("tick", (left, 169.0), &self.times);
    }

    fn draw(&self, canvas: &mut Canvas, x: &Scale, y: &Scale) {
        let Some(first) = self.latencies_ms.first() else { return };
        let start = (x.at(*first), y.at(0.0));
        let points = shares(&self.latencies_ms).map(|(share, time)| (x.at(time), y.at(share)));
        let class = format!("curve {}", self.way.name());
        canvas.curve(&class, std::iter::once(start).chain(points));
    }

    /// The name beside the curve, at that share of the callers.
    fn draw_label(&self, canvas: &mut Canvas, x: &Scale, y: &Scale, share: f64) {
        let Some(time) = at_share(&self.latencies_ms, share) else { return };
        let place = x.at(time);
        // The room to the left of the fastest curve is empty, and so is that to the right of the
        // others, unless the picture ends there.
        let is_left = match share == LABELS_AT[0] {
            true => place > LEFT + LABEL_WIDTH,
            false => place > RIGHT - LABEL_WIDTH,
        };
        let (class, place) =
            if is_left { ("label end", place - 10.0) } else { ("label", place + 10.0) };
        let way = self.way.name();
        canvas.text(&format!("{class} {way}"), (place, y.at(100.0 * share) + 5.0), way);
    }
}

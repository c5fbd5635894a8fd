//! A little SVG: scales, axes and marks on a canvas of fixed width.

use std::fmt::{Display, Write};

pub(super) const WIDTH: f64 = 720.0;

/// Maps values to places on the canvas.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    kind: Kind,
    values: (f64, f64),
    places: (f64, f64),
}

#[derive(Clone, Copy)]
enum Kind {
    Linear,
    Log,
}

impl Scale {
    pub(super) fn linear(values: (f64, f64), places: (f64, f64)) -> Self {
        Self { kind: Kind::Linear, values, places }
    }

    /// The values must be positive. The lower end is rounded down, and the upper end is rounded up,
    /// to at least a decade.
    pub(super) fn log((from, to): (f64, f64), places: (f64, f64)) -> Self {
        let from = nice_below(from);
        Self { kind: Kind::Log, values: (from, nice(to.max(10.0 * from))), places }
    }

    /// A value outside gets a place on the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (from, to) = self.values;
        let value = value.clamp(from, to);
        let share = match self.kind {
            Kind::Linear => (value - from) / (to - from),
            Kind::Log => (value / from).log10() / (to / from).log10(),
        };
        self.places.0 + share * (self.places.1 - self.places.0)
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => multiples(nice((self.values.1 - self.values.0) / 6.0), self.values),
            Kind::Log if self.values.1 > 300.0 * self.values.0 => decades(self.values, &[1.0]),
            Kind::Log => decades(self.values, &[1.0, 2.0, 5.0]),
        }
    }
}

fn multiples(step: f64, (from, to): (f64, f64)) -> Vec<f64> {
    let first = (from / step).ceil() as i64;
    let last = (to / step).floor() as i64;
    (first..=last).map(|tick| tick as f64 * step).collect()
}

/// The factors times each power of ten, as far as they are in the range.
fn decades((from, to): (f64, f64), factors: &[f64]) -> Vec<f64> {
    let exponents = from.log10().floor() as i32..=to.log10().floor() as i32;
    let ticks = exponents
        .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)));
    // The ends of the range are ticks in spite of rounding errors.
    ticks.filter(|tick| (from * 0.999..=to * 1.001).contains(tick)).collect()
}

/// The next lower 1, 2 or 5 times a power of ten.
fn nice_below(at_most: f64) -> f64 {
    let power = 10f64.powf(at_most.log10().floor());
    let steps = [5.0, 2.0].into_iter().map(|factor| factor * power);
    steps.into_iter().find(|step| *step <= at_most).unwrap_or(power)
}

/// The next 1, 2 or 5 times a power of ten.
fn nice(at_least: f64) -> f64 {
    let power = 10f64.powf(at_least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= at_least)
        .unwrap_or(power)
}

/// A picture while it is drawn.
pub(super) struct Canvas {
    height: f64,
    title: String,
    body: String,
}

impl Canvas {
    /// Screen readers read the title aloud.
    pub(super) fn new(height: f64, title: impl Into<String>) -> Self {
        Self { height, title: escaped(&title.into()), body: String::new() }
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: impl Display) {
        let text = escaped(&text.to_string());
        self.push(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    /// Texts of different classes behind each other.
    pub(super) fn spans<const N: usize>(&mut self, (x, y): (f64, f64), spans: [(&str, &str); N]) {
        let spans = spans
            .map(|(class, text)| format!("<tspan class=\"{class}\">{}</tspan>", escaped(text)));
        self.push(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", spans.join(" ")));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (from.0, from.1, to.0, to.1);
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"3\"/>"
        ));
    }

    /// A line through all points.
    pub(super) fn curve(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let path: String = points.map(|(x, y)| format!(" {x:.1} {y:.1}")).collect();
        self.push(format_args!("<path class=\"{class}\" d=\"M{path}\"/>"));
    }

    /// A dot at each point: the round caps of strokes that have no length.
    pub(super) fn dots(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let path: String = points.map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect();
        self.push(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    /// Grid lines and labels for a horizontal scale, from one height to another.
    pub(super) fn x_axis(&mut self, scale: &Scale, (top, bottom): (f64, f64)) {
        for tick in scale.ticks() {
            let x = scale.at(tick);
            self.line("grid", (x, top), (x, bottom));
            self.text("tick middle", (x, bottom + 16.0), label(tick));
        }
    }

    pub(super) fn y_axis(&mut self, scale: &Scale, unit: &str, (left, right): (f64, f64)) {
        for tick in scale.ticks() {
            let y = scale.at(tick);
            self.line("grid", (left, y), (right, y));
            self.text("tick end", (left - 8.0, y + 4.0), format_args!("{}{unit}", label(tick)));
        }
    }

    /// The element in a page.
    pub(super) fn finish(self) -> String {
        let Self { height, title, body } = self;
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{body}</svg>"
        )
    }

    /// A file of its own, with its style.
    pub(super) fn into_file(self, style: &str) -> String {
        let Self { height, title, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
             <style>\n{style}</style>\n{body}\n</svg>\n"
        )
    }

    fn push(&mut self, mark: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.body.write_fmt(mark);
    }
}

/// A text as the content or an attribute of an element.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Ticks are multiples of 1, 2 or 5: more than three places would be rounding errors.
fn label(tick: f64) -> f64 {
    (tick * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_puts_its_ends_on_its_edges() {
        let scale = Scale::log((0.1, 800.0), (100.0, 500.0));
        assert_eq!(scale.ticks(), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!((scale.at(0.1), scale.at(10.0), scale.at(5_000.0)), (100.0, 300.0, 500.0));
    }

    #[test]
    fn a_short_logarithmic_scale_has_ticks_within_its_decades() {
        let scale = Scale::log((27.0, 431.0), (0.0, 1.0));
        assert_eq!(scale.ticks(), [20.0, 50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn ticks_are_round() {
        let scale = Scale::linear((0.0, 283.0), (0.0, 1.0));
        assert_eq!(scale.ticks(), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
    }
}

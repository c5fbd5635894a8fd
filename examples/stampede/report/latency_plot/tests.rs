//! The plot of any data is well-formed, shows all of it, and cannot be broken by a label.

use super::super::xml;
use super::*;

const COMMITTED: &str = include_str!("../../../../docs/stampede.svg");

fn curve(way: Way, latencies_ms: Vec<f64>) -> Curve {
    let summary = Summary::of(way, &[], &Default::default());
    Curve::new(way, latencies_ms, &summary, 1)
}

fn plot(latencies_ms: [Vec<f64>; 4], query_ms: Option<f64>) -> Plot {
    let curves = Way::ALL.into_iter().zip(latencies_ms);
    let curves = curves.map(|(way, latencies)| curve(way, latencies)).collect();
    Plot { title: "a title".to_owned(), subtitle: "a subtitle".to_owned(), query_ms, curves }
}

fn steady(from: f64, step: f64) -> Vec<f64> {
    (0..1_000).map(|caller| from + step * f64::from(caller)).collect()
}

/// The points of the curve of each way.
fn points(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let paths = svg.split("<path class=\"curve ").skip(1);
    let path = |path: &str| {
        let path = path.split(" d=\"M").nth(1)?.split('"').next()?;
        let numbers: Vec<f64> =
            path.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Some(numbers.chunks_exact(2).map(|point| (point[0], point[1])).collect())
    };
    paths.filter_map(path).collect()
}

#[test]
fn the_axes_cover_the_data() {
    for slowest in [60.0, 300.0, 70_000.0] {
        let plot = plot(
            [steady(52.0, 0.01), steady(53.0, 0.1), steady(55.0, 0.01), vec![slowest]],
            Some(51.0),
        );
        let x = plot.time_scale();
        let places = [51.0, 52.0, 60.0, slowest].map(|time| x.at(time));
        assert!(places.is_sorted(), "{places:?}");
        assert!(LEFT < places[0] && places[3] <= RIGHT, "{places:?}");
        let ticks = x.ticks();
        assert!(ticks.len() >= 3 && ticks.iter().all(|tick| x.at(*tick) <= RIGHT), "{ticks:?}");
    }
}

#[test]
fn the_curves_rise_from_no_caller_to_all_of_them() {
    let latencies =
        [steady(60.0, 0.1), steady(52.0, 0.002), steady(200.0, 0.02), steady(50.0, 0.001)];
    let svg = plot(latencies, None).draw();
    let curves = points(&svg);
    assert_eq!(curves.len(), 4);
    for points in curves {
        assert!(points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 >= next.1));
        assert_eq!((points[0].1, points[points.len() - 1].1), (BOTTOM, TOP));
    }
}

#[test]
fn a_plot_of_little_data_is_well_formed() {
    let none = || Vec::new();
    for latencies in [
        [none(), none(), none(), none()],
        [vec![0.0], none(), none(), none()],
        [vec![7.0], vec![7.0, 7.0], none(), vec![0.0, 7.0]],
    ] {
        for query_ms in [None, Some(0.0), Some(50.0)] {
            let svg = plot(latencies.clone(), query_ms).draw();
            xml::check(&svg).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
    xml::check(&Plot { curves: Vec::new(), ..plot([none(), none(), none(), none()], None) }.draw())
        .unwrap();
}

#[test]
fn labels_cannot_break_out_of_the_markup() {
    let subtitle = "</text><script>\"&'".to_owned();
    let svg = Plot { subtitle, ..plot([vec![1.0], vec![2.0], vec![3.0], vec![4.0]], None) }.draw();
    xml::check(&svg).unwrap();
    assert!(svg.contains("&lt;/text&gt;&lt;script&gt;&quot;&amp;'") && !svg.contains("<script"));
}

#[test]
fn the_committed_picture_is_small_and_needs_no_other_file() {
    xml::check(COMMITTED).unwrap();
    assert!(COMMITTED.len() < 40_000, "{} bytes", COMMITTED.len());
    assert_eq!(points(COMMITTED).len(), 4);
    let without_namespace = COMMITTED.replacen("http://www.w3.org/2000/svg", "", 1);
    for reference in ["http", "url(", "@import", "href"] {
        assert!(!without_namespace.contains(reference), "{reference}");
    }
}

//! Draws figures as SVG: lines over time, and bars. It knows no more of SVG than that takes, and places everything by itself.

use std::fmt::Write;
use std::path::Path;

use crate::failure::{Outcome, While};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 44.0;
/// The height of the field in which lines are drawn.
const FIELD: f64 = 360.0;
const BAR: f64 = 13.0;
/// Where bars begin: their names stand to the left.
const NAMES: f64 = 230.0;
/// What may lie between two times that are written, in seconds.
const TICKS: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Told apart also by those who don't see all colours (Okabe and Ito 2008); the second time around, lines are broken.
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

/// Writes a picture to a folder, which is made where it is missing.
pub fn write(folder: &Path, name: &str, picture: &str) -> Outcome<()> {
    std::fs::create_dir_all(folder).doing(|| format!("making {}", folder.display()))?;
    std::fs::write(folder.join(name), picture).doing(|| format!("writing {name}"))
}

/// Lines over time.
pub struct Lines {
    /// What it is about.
    pub title: String,
    /// What the values are.
    pub unit: String,
    /// The lines: name and points, in seconds.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// What happened when, in seconds.
    pub events: Vec<(f64, String)>,
    /// The lowest and the highest value of the field.
    pub range: (f64, f64),
}

/// Bars side by side.
pub struct Bars {
    /// What it is about.
    pub title: String,
    /// What the bars of each name are, in order.
    pub kinds: Vec<String>,
    /// The names, and their values; one that is not known has no bar but says so.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
    /// A bar that is longer is cut here.
    pub most: f64,
}

impl Lines {
    /// The picture.
    pub fn svg(&self) -> String {
        let end = self.lines.iter().flat_map(|(_, points)| points).map(|point| point.0).fold(1.0, f64::max).ceil();
        let (low, high) = self.range;
        let x = |at: f64| LEFT + at / end * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| TOP + FIELD * (1.0 - (value.clamp(low, high) - low) / (high - low));
        let mut svg = Svg::begin(&format!("{} ({})", self.title, self.unit), TOP + FIELD + 40.0);
        for step in 0..=6 {
            let value = low + (high - low) * f64::from(step) / 6.0;
            svg.line((LEFT, y(value)), (WIDTH - RIGHT, y(value)), "#DDD", "");
            svg.text(LEFT - 6.0, y(value) + 4.0, "end", "#000", &format!("{value:.2}"));
        }
        let tick = TICKS.into_iter().find(|tick| end / tick <= 8.0).unwrap_or(end);
        let mut at = 0.0;
        while at <= end {
            svg.text(x(at), TOP + FIELD + 18.0, "middle", "#000", &format!("{at:.0} s"));
            at += tick;
        }
        for (at, what) in &self.events {
            svg.line((x(*at), TOP), (x(*at), TOP + FIELD), "#888", "2 4");
            svg.text(x(*at) + 4.0, TOP + FIELD - 6.0, "start", "#555", what);
        }
        for (number, (name, points)) in self.lines.iter().enumerate() {
            let (colour, dashes) = stroke(number);
            let points: Vec<(f64, f64)> = points.iter().map(|(at, value)| (x(*at), y(*value))).collect();
            svg.path(&points, colour, dashes);
            let beside = TOP + 8.0 + 20.0 * f64::from(u32::try_from(number).unwrap_or(0));
            svg.path(&[(WIDTH - RIGHT + 12.0, beside), (WIDTH - RIGHT + 40.0, beside)], colour, dashes);
            svg.text(WIDTH - RIGHT + 46.0, beside + 4.0, "start", "#000", name);
        }
        svg.end()
    }
}

impl Bars {
    /// The picture.
    pub fn svg(&self) -> String {
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(0));
        let row = BAR * count(self.kinds.len()) + 10.0;
        let longest = self.rows.iter().flat_map(|(_, values)| values).flatten().copied().fold(0.0, f64::max);
        let scale = (WIDTH - NAMES - 90.0) / longest.min(self.most).max(f64::MIN_POSITIVE);
        let mut svg = Svg::begin(&self.title, TOP + row * count(self.rows.len()) + 34.0);
        for (number, (name, values)) in self.rows.iter().enumerate() {
            let top = TOP + row * count(number);
            svg.text(NAMES - 8.0, top + row / 2.0, "end", "#000", name);
            for (kind, value) in values.iter().enumerate() {
                let (colour, _) = stroke(kind);
                let place = top + BAR * count(kind);
                let drawn = value.unwrap_or(self.most).min(self.most) * scale;
                let drawn = if value.is_some() { drawn } else { 0.0 };
                svg.bar((NAMES, place), (drawn, BAR - 2.0), colour);
                let cut = if value.is_some_and(|value| value > self.most) { ", cut" } else { "" };
                let said = value.map_or("none: saturated".to_owned(), |value| format!("{value:.1}{cut}"));
                svg.text(NAMES + drawn + 6.0, place + BAR - 3.0, "start", "#000", &said);
            }
        }
        let below = TOP + row * count(self.rows.len()) + 12.0;
        for (kind, name) in self.kinds.iter().enumerate() {
            let left = NAMES + 150.0 * count(kind);
            svg.bar((left, below), (BAR, BAR - 2.0), stroke(kind).0);
            svg.text(left + BAR + 6.0, below + BAR - 3.0, "start", "#000", name);
        }
        svg.end()
    }
}

/// The colour and the dashes of the line with this number.
fn stroke(number: usize) -> (&'static str, &'static str) {
    let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or("#000");
    (colour, if number < COLOURS.len() { "" } else { "7 4" })
}

/// A picture that grows.
struct Svg(String);

impl Svg {
    fn begin(title: &str, height: f64) -> Self {
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#FFF\"/>\n"
        ));
        let _ = writeln!(svg.0, "<text x=\"14\" y=\"24\" font-size=\"15\">{}</text>", escaped(title));
        svg
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, dashes: &str) {
        self.path(&[from, to], colour, dashes);
    }

    fn path(&mut self, points: &[(f64, f64)], colour: &str, dashes: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let points = points.join(" ");
        let _ = writeln!(
            self.0,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}/>"
        );
    }

    fn bar(&mut self, at: (f64, f64), size: (f64, f64), colour: &str) {
        let ((x, y), (width, height)) = (at, size);
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, colour: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        );
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every coordinate of `name` in a picture.
    fn coordinates(svg: &str, name: &str) -> Vec<f64> {
        svg.split(&format!(" {name}=\"")).skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn lines_stay_in_their_field_and_names_are_escaped() {
        let points = vec![(0.0, 0.1), (30.0, 2.0), (59.5, 0.9)];
        let lines = Lines {
            title: "a < b".to_owned(),
            unit: "part".to_owned(),
            lines: (0..9).map(|number| (format!("line {number} & co"), points.clone())).collect(),
            events: vec![(40.0, "killed".to_owned())],
            range: (0.4, 1.0),
        };
        let svg = lines.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b (part)"));
        assert_eq!(svg.matches("&amp; co</text>").count(), 9);
        assert_eq!(svg.matches("stroke-dasharray=\"7 4\"").count(), 4, "two lines, each with its sample");
        // Below the field, above the field, and in between.
        assert!(svg.contains(&format!("points=\"60.0,{:.1} 4", TOP + FIELD)) && svg.contains(&format!(",{TOP:.1} ")));
    }

    #[test]
    fn bars_that_are_too_long_are_cut_and_unknown_ones_say_so() {
        let bars = Bars {
            title: "latency".to_owned(),
            kinds: vec!["p50".to_owned(), "p99".to_owned()],
            rows: vec![("one".to_owned(), vec![Some(5.0), Some(900.0)]), ("other".to_owned(), vec![Some(10.0), None])],
            most: 100.0,
        };
        let svg = bars.svg();
        let widths = coordinates(&svg, "width");
        assert!(widths.iter().all(|width| *width <= WIDTH - NAMES), "{widths:?}");
        assert!(widths.contains(&0.0) && svg.contains(">900.0, cut</text>") && svg.contains("saturated"));
    }
}

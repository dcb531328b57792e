//! What an experiment demands of its figures, and whether it got it.

use std::fmt::Write;

/// Something that is demanded.
pub struct Target {
    /// What.
    pub what: String,
    /// The figure and its bound.
    pub figure: Option<(f64, f64)>,
    /// Whether it is met; `None` where it can't be told.
    pub met: Option<bool>,
}

/// A target whose figure must not be below its bound.
pub fn at_least(what: &str, value: Option<f64>, bound: Option<f64>) -> Target {
    judged(what, value, bound, |value, bound| value >= bound)
}

/// A target whose figure must not be above its bound.
pub fn at_most(what: &str, value: Option<f64>, bound: Option<f64>) -> Target {
    judged(what, value, bound, |value, bound| value <= bound)
}

/// A target whose figures are not there is open.
fn judged(what: &str, value: Option<f64>, bound: Option<f64>, is_met: impl Fn(f64, f64) -> bool) -> Target {
    let figure = value.zip(bound);
    Target { what: what.to_owned(), figure, met: figure.map(|(value, bound)| is_met(value, bound)) }
}

/// The targets as Markdown.
pub fn text(targets: &[Target]) -> String {
    let mut text = "\n| target | figure | bound | met |\n| --- | --- | --- | --- |\n".to_owned();
    for target in targets {
        let (figure, bound) = match target.figure {
            Some((figure, bound)) => (format!("{figure:.3}"), format!("{bound:.3}")),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let met = match target.met {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "not judged: a row is missing",
        };
        let _ = writeln!(text, "| {} | {figure} | {bound} | {met} |", target.what);
    }
    text
}

/// Whether no target was missed; one that is open was not.
pub fn none_is_missed(targets: &[Target]) -> bool {
    targets.iter().all(|target| target.met != Some(false))
}

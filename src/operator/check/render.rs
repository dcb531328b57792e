//! Problems as text for people: message, place, the text underlined, help.

use miette::{GraphicalReportHandler, GraphicalTheme};

use crate::pure::config::Problem;

/// How problems are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With colours, for a terminal.
    Colour,
    /// Without, for files and pipes.
    Plain,
}

/// Columns of text; longer explanations are wrapped.
const WIDTH: usize = 110;

/// All problems, one below the other.
pub fn render<'a>(problems: impl IntoIterator<Item = &'a Problem>, style: Style) -> String {
    let theme = match style {
        Style::Colour => GraphicalTheme::unicode(),
        Style::Plain => GraphicalTheme::unicode_nocolor(),
    };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false);
    let mut text = String::new();
    for problem in problems {
        if handler.render_report(&mut text, problem).is_err() {
            // A place that can't be drawn must not hide the message.
            text.push_str(&format!("{}: {problem}\n", problem.place().unwrap_or_default()));
        }
        text.push('\n');
    }
    text
}

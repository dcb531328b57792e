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

/// How many problems are drawn; what comes behind them takes a line each.
const DRAWN_MAX: usize = 200;

/// How much text of a file is drawn with one problem, in bytes. Lines longer than this are made by machines.
const TEXT_MAX: usize = 4096;

/// All problems, one below the other.
pub fn render<'a>(problems: impl IntoIterator<Item = &'a Problem>, style: Style) -> String {
    let theme = match style {
        Style::Colour => GraphicalTheme::unicode(),
        Style::Plain => GraphicalTheme::unicode_nocolor(),
    };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false);
    let mut text = String::new();
    for (index, problem) in problems.into_iter().enumerate() {
        let mut drawn = String::new();
        let is_short = index < DRAWN_MAX && problem.text_length() <= TEXT_MAX;
        if is_short && handler.render_report(&mut drawn, problem).is_ok() {
            text.push_str(&drawn);
        } else {
            text.push_str(&problem.in_one_line());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::config::load_text;

    #[test]
    fn many_problems_and_long_lines_are_told_in_a_line_each() {
        let listen = "listen \"127.0.0.1:0\"; ";
        let many = load_text(&(listen.to_owned() + &"rul use=\"a\"\n".repeat(5000))).unwrap_err();
        let text = render(&many.problems, Style::Plain);
        assert_eq!(text.matches("no node of rule files").count(), 5000);
        assert_eq!(text.matches("did you mean").count(), DRAWN_MAX);
        assert!(text.ends_with("rules.kdl:5000: `rul` is no node of rule files\n"), "{text}");

        let long = load_text(&"rul use=\"a\";".repeat(5000)).unwrap_err();
        assert!(render(&long.problems, Style::Plain).len() < 5001 * 60);
    }
}

//! Letters that a line for people must not have: those that move a cursor, end the line, or turn the order of what follows, so
//! that it reads as something else. It refuses to say what stands in their place.

/// Whether a letter would make a line read as it is not: a control character, a separator of lines, or a mark or control of
/// bidirectional text (Unicode Standard Annex 9).
pub fn is_deceptive(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// A text from outside, fit for a line of a log.
pub fn without_deceptive(text: &str) -> String {
    text.chars().map(|letter| if is_deceptive(letter) { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_a_line_is_replaced_and_letters_of_all_scripts_are_not() {
        assert_eq!(without_deceptive("a\u{202e}b\u{2066}c\u{200f}d\n\u{2028}"), "a?b?c?d??");
        for plain in ["disk is full", "שלום", "مرحبا", "日本 ü 🎉"] {
            assert_eq!(without_deceptive(plain), plain);
        }
    }
}

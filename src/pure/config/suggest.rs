//! Which known name somebody meant who wrote an unknown one.
//!
//! Distance: insertions, deletions, replacements and swaps of neighbours (optimal string alignment), in characters.

/// The longest name that is compared.
const NAME_MAX: usize = 64;

/// The most names that one unknown name is compared with; a file with thousands of pools and of mistakes stays quick.
const CANDIDATES_MAX: usize = 4096;

/// The known name nearest to `written`: at most a third of its letters away, the first of equals.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = written.to_lowercase().chars().collect();
    if letters.is_empty() || letters.len() > NAME_MAX {
        return None;
    }
    let allowed = (letters.len() / 3).clamp(1, 3);
    let mut best: Option<(usize, &str)> = None;
    for name in known.into_iter().take(CANDIDATES_MAX) {
        if name != written && name.eq_ignore_ascii_case(written) {
            return Some(name);
        }
        // Only the same name in another case is nearer than one step.
        if matches!(best, Some((1, _))) {
            continue;
        }
        // Each letter more or less is a step.
        if name.chars().count().abs_diff(letters.len()) > allowed || name == written {
            continue;
        }
        let found = distance(&letters, &name.to_lowercase().chars().collect::<Vec<_>>());
        if found <= allowed && best.is_none_or(|(least, _)| found < least) {
            best = Some((found, name));
        }
    }
    best.map(|(_, name)| name)
}

/// `did you mean` and the nearest name, where there is one.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(written, known).map(|name| format!("did you mean `{name}`?"))
}

fn distance(left: &[char], right: &[char]) -> usize {
    let mut before = vec![0; right.len() + 1];
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = Vec::with_capacity(right.len() + 1);
        row.push(i + 1);
        for (j, b) in right.iter().enumerate() {
            let at = |list: &[usize], index: usize| list.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&above, j) + usize::from(a != b)).min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            let is_swap = i > 0 && j > 0 && left.get(i - 1) == Some(b) && right.get(j - 1) == Some(a);
            if is_swap {
                least = least.min(at(&before, j - 1) + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_far_ones_are_not() {
        let names = ["header-timeout", "idle-timeout", "body-max", "head-max"];
        assert_eq!(nearest("header-timeot", names), Some("header-timeout"));
        assert_eq!(nearest("body_max", names), Some("body-max"));
        assert_eq!(nearest("haed-max", names), Some("head-max"));
        assert_eq!(nearest("Body-Max", names), Some("body-max"));
        assert_eq!(nearest("H2C", ["h2", "h2c"]), Some("h2c"));
        assert_eq!(nearest("banana", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn distances_count_letters() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        for (left, right, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3), ("ü", "u", 1)]
        {
            assert_eq!(distance(&chars(left), &chars(right)), expected, "{left} {right}");
            assert_eq!(distance(&chars(right), &chars(left)), expected, "{right} {left}");
        }
    }
}

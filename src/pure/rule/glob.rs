//! Globs: texts in which `*` stands for any bytes, also none. Linear in the value: what a client sends can't make one slow.

use memchr::memmem;

use super::Glob;

/// A glob, ready to be compared.
#[derive(Clone, Debug)]
pub(super) struct GlobTest {
    /// The texts between the stars; one alone means that there is no star.
    pieces: Vec<Box<[u8]>>,
    ignores_case: bool,
}

impl GlobTest {
    /// Compares byte by byte.
    pub(super) fn exact(glob: &Glob) -> Self {
        Self::new(&glob.0, false)
    }

    /// Compares without regard to ASCII case.
    pub(super) fn any_case(text: &str) -> Self {
        Self::new(&text.to_ascii_lowercase(), true)
    }

    fn new(text: &str, ignores_case: bool) -> Self {
        let mut pieces: Vec<Box<[u8]>> = text.split('*').map(|piece| piece.as_bytes().into()).collect();
        // Empty pieces in the middle are stars side by side.
        let last = pieces.len() - 1;
        let mut position = 0;
        pieces.retain(|piece| {
            let keep = position == 0 || position == last || !piece.is_empty();
            position += 1;
            keep
        });
        Self { pieces, ignores_case }
    }

    pub(super) fn matches(&self, value: &[u8]) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some((last, middle)) = rest.split_last() else {
            return value.len() == first.len() && self.begins(value, first);
        };
        let inner_length = value.len().checked_sub(first.len() + last.len());
        let Some(inner_length) = inner_length.filter(|_| self.begins(value, first)) else { return false };
        let (head, tail) = value.split_at_checked(first.len() + inner_length).unwrap_or((value, &[]));
        if !self.begins(tail, last) {
            return false;
        }
        let mut inner = head.get(first.len()..).unwrap_or_default();
        for piece in middle {
            let Some(at) = self.find(inner, piece) else { return false };
            inner = inner.get(at + piece.len()..).unwrap_or_default();
        }
        true
    }

    fn begins(&self, value: &[u8], piece: &[u8]) -> bool {
        match value.get(..piece.len()) {
            Some(front) if self.ignores_case => front.eq_ignore_ascii_case(piece),
            Some(front) => front == piece,
            None => false,
        }
    }

    fn find(&self, value: &[u8], piece: &[u8]) -> Option<usize> {
        if self.ignores_case {
            value.windows(piece.len()).position(|window| window.eq_ignore_ascii_case(piece))
        } else {
            memmem::find(value, piece)
        }
    }
}

/// Whether a text matches a glob that is not worth being made ready. Compares byte by byte.
pub(super) fn matches(glob: &str, text: &[u8]) -> bool {
    let mut pieces = glob.as_bytes().split(|byte| *byte == b'*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(mut last) = pieces.next() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = memmem::find(rest, last) else { return false };
        rest = rest.get(at + last.len()..).unwrap_or_default();
        last = piece;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, by trying everything.
    fn naive(glob: &[u8], value: &[u8]) -> bool {
        match glob.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|skip| naive(rest, &value[skip..])),
            Some((byte, rest)) => value.split_first().is_some_and(|(front, tail)| front == byte && naive(rest, tail)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8192))]

        #[test]
        fn globs_match_what_their_definition_says(glob in "[ab*]{0,7}", value in "[ab]{0,9}") {
            let wanted = naive(glob.as_bytes(), value.as_bytes());
            prop_assert_eq!(GlobTest::exact(&Glob(glob.clone())).matches(value.as_bytes()), wanted);
            prop_assert_eq!(GlobTest::any_case(&glob).matches(value.to_uppercase().as_bytes()), wanted);
            prop_assert_eq!(matches(&glob, value.as_bytes()), wanted, "one that was not made ready");
        }
    }

    #[test]
    fn case_counts_unless_the_glob_says_otherwise() {
        assert!(!GlobTest::exact(&Glob("Ab*".to_owned())).matches(b"abc"));
        assert!(GlobTest::any_case("Image/*").matches(b"iMAGE/png"));
    }
}

//! What the winning rule captured of a path, and the working memory of the search for it: kept by the caller from request to
//! request, so that finding a rule allocates nothing.

use crate::pure::head::Span;

/// The captures of one path, by name (`{id}`) and by number (`$1` is `"1"`). They are places in the path that was matched,
/// which the caller keeps.
#[derive(Debug, Default)]
pub struct Captures {
    /// The names, one behind the other.
    names: String,
    entries: Vec<Entry>,
    pub(super) search: Search,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Span,
    value: Span,
}

/// The working memory of one search.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Lists of rules that are yet to be tried.
    pub(super) cursors: Vec<super::find::Cursor>,
    /// Rules whose expressions matched.
    pub(super) hits: Vec<u32>,
    /// Nodes of the index at this segment and at the next.
    pub(super) nodes: (Vec<u32>, Vec<u32>),
    /// How many rules had their predicates verified.
    pub(super) verified: u32,
}

impl Captures {
    /// No captures yet, and no memory.
    pub const fn new() -> Self {
        Self {
            names: String::new(),
            entries: Vec::new(),
            search: Search { cursors: Vec::new(), hits: Vec::new(), nodes: (Vec::new(), Vec::new()), verified: 0 },
        }
    }

    /// The capture of that name in `path`, the one that was matched: a name of a pattern or of a group of an expression, or
    /// a group's number in decimal, 0 for all that the expression matched.
    pub fn get<'p>(&self, path: &'p str, name: &str) -> Option<&'p str> {
        let entry = self.entries.iter().find(|entry| entry.name.of(self.names.as_bytes()) == name.as_bytes())?;
        path.get(entry.value.start as usize..entry.value.end as usize)
    }

    /// The names there are, in order of capture.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| self.names.get(entry.name.start as usize..entry.name.end as usize))
    }

    /// How many rules the last search compared with the request, beyond host, path and expression.
    pub const fn verified(&self) -> u32 {
        self.search.verified
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Notes the group of an expression.
    pub(super) fn push_number(&mut self, number: usize, start: usize, end: usize) {
        let mut digits = [0_u8; 20];
        let mut left = number;
        let mut first = digits.len();
        for (position, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + u8::try_from(left % 10).unwrap_or(0);
            left /= 10;
            first = position;
            if left == 0 {
                break;
            }
        }
        let text = digits.get(first..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default();
        self.push(text, start, end);
    }

    /// Notes a capture; places beyond 4 GiB, which no head reaches, are dropped.
    pub(super) fn push(&mut self, name: &str, start: usize, end: usize) {
        let name_start = self.names.len();
        self.names.push_str(name);
        if let (Some(name), Some(value)) = (span(name_start, self.names.len()), span(start, end)) {
            self.entries.push(Entry { name, value });
        }
    }
}

fn span(start: usize, end: usize) -> Option<Span> {
    Some(Span { start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? })
}

//! A scanner for Rust source that knows just enough: words, marks, comments and where strings end.
//!
//! It keeps line numbers and refuses to understand more: no types, no macros, no name resolution. What it finds is what
//! [`super`] can decide by path and by counting. Lexical rules: the Rust Reference, chapter "Lexical structure".

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier, a keyword or a number.
    Word,
    /// One character of punctuation; `::` is the one mark of two.
    Mark,
    /// A string, byte string, C string or character literal, contents and all.
    Literal,
    /// A lifetime or a loop label.
    Lifetime,
}

/// One token and the line it begins on, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text; of raw identifiers without the `r#`.
    pub text: &'a str,
    /// The line it begins on.
    pub line: usize,
}

/// A file taken apart.
#[derive(Debug)]
pub struct Source<'a> {
    /// The code, without space and comments.
    pub tokens: Vec<Token<'a>>,
    /// The comments, markers included, each with the line it begins on.
    pub comments: Vec<(usize, &'a str)>,
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    source: Source<'a>,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves over `length` bytes and gives them back.
    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.rest()[..length];
        self.at += length;
        self.line += taken.matches('\n').count();
        taken
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let line = self.line;
        let text = self.take(length);
        self.source.tokens.push(Token { kind, text, line });
    }

    fn push_comment(&mut self, length: usize) {
        let line = self.line;
        let text = self.take(length);
        self.source.comments.push((line, text));
    }

    fn step(&mut self) {
        let rest = self.rest();
        let first = rest.chars().next().expect("the loop ends at the end of the text");
        if first.is_whitespace() {
            self.take(first.len_utf8());
        } else if rest.starts_with("//") {
            self.push_comment(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.push_comment(block_comment_length(rest));
        } else if let Some(length) = string_length(rest) {
            self.push(Kind::Literal, length);
        } else if first == '\'' {
            self.push_quote(rest);
        } else if let Some(raw) = rest.strip_prefix("r#") {
            self.take(2);
            self.push(Kind::Word, word_length(raw));
        } else if is_word(first) {
            self.push(Kind::Word, word_length(rest));
        } else if rest.starts_with("::") {
            self.push(Kind::Mark, 2);
        } else {
            self.push(Kind::Mark, first.len_utf8());
        }
    }

    /// A character literal or a lifetime: both begin with `'`.
    fn push_quote(&mut self, rest: &str) {
        let mut inside = rest[1..].char_indices();
        let first = inside.next().map_or('\'', |(_, c)| c);
        if first == '\\' {
            self.push(Kind::Literal, 1 + quoted_length(&rest[1..], '\''));
        } else if inside.next().is_some_and(|(_, c)| c == '\'') {
            self.push(Kind::Literal, 1 + first.len_utf8() + 1);
        } else {
            self.push(Kind::Lifetime, 1 + word_length(&rest[1..]));
        }
    }
}

/// Takes a file apart. Text that is no Rust gives tokens that make no sense, never a panic or an endless loop.
pub fn scan(text: &str) -> Source<'_> {
    let mut scanner = Scanner { text, at: 0, line: 1, source: Source { tokens: Vec::new(), comments: Vec::new() } };
    while scanner.at < text.len() {
        scanner.step();
    }
    scanner.source
}

const fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii()
}

fn word_length(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of what stands before and including the first `quote` that no backslash escapes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The length of the string literal that `text` begins with, prefix included.
fn string_length(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|prefix| text.starts_with(prefix)).unwrap_or("");
    let rest = &text[prefix.len()..];
    if prefix == "b" && rest.starts_with('\'') {
        return Some(2 + quoted_length(&rest[1..], '\''));
    }
    if !prefix.ends_with('r') {
        return rest.strip_prefix('"').map(|inside| prefix.len() + 1 + quoted_length(inside, '"'));
    }
    let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
    let inside = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(prefix.len() + hashes + 1 + length)
}

/// A function: its name, and its first and last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// From the line of `fn` to that of the closing brace, that one excluded.
    pub lines: Range<usize>,
    /// Whether `#[test]`, or another attribute whose path ends in `test`, stands before it.
    pub is_test: bool,
}

impl<'a> Source<'a> {
    /// Whether the tokens from `at` on read as `texts`.
    pub fn reads(&self, at: usize, texts: &[&str]) -> bool {
        self.tokens.get(at..at + texts.len()).is_some_and(|found| {
            found.iter().zip(texts).all(|(token, text)| token.kind != Kind::Literal && token.text == *text)
        })
    }

    /// The index just beyond the bracket that closes the one at `open`.
    pub fn beyond_brackets(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(open).filter(|(_, token)| token.kind == Kind::Mark) {
            match token.text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth == 0 {
                return at + 1;
            }
        }
        self.tokens.len()
    }

    /// The index of the first `{` or `;` from `at` on that stands in no bracket: where an item's body begins or it ends.
    fn body_or_end(&self, mut at: usize) -> usize {
        while let Some(token) = self.tokens.get(at) {
            match (token.kind, token.text) {
                (Kind::Mark, "{" | ";") => return at,
                (Kind::Mark, "(" | "[") => at = self.beyond_brackets(at),
                _ => at += 1,
            }
        }
        at
    }

    fn line(&self, at: usize) -> usize {
        self.tokens.get(at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    /// Every function with a body, nested ones too.
    pub fn functions(&self) -> Vec<Function<'a>> {
        let mut found = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            let named = self.tokens.get(at + 1).filter(|name| name.kind == Kind::Word);
            let (true, Some(name)) = (self.reads(at, &["fn"]), named) else { continue };
            let body = self.body_or_end(at);
            if self.reads(body, &["{"]) {
                let last = self.line(self.beyond_brackets(body) - 1);
                found.push(Function { name: name.text, lines: token.line..last + 1, is_test: self.is_test(at) });
            }
        }
        found
    }

    /// Whether an attribute that ends in `test` stands before the function at `at`.
    fn is_test(&self, at: usize) -> bool {
        let start = self.tokens[..at]
            .iter()
            .rposition(|token| token.kind == Kind::Mark && matches!(token.text, "}" | ";" | "{"))
            .map_or(0, |before| before + 1);
        (start..at).any(|at| self.reads(at, &["test", "]"]) || self.reads(at, &["test", "("]))
    }

    /// The items that are only built for tests, each as its range of tokens, from its `#[cfg(test)]` on.
    pub fn test_items(&self) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for at in 0..self.tokens.len() {
            if found.last().is_some_and(|last| last.contains(&at)) || !self.reads(at, &["#", "[", "cfg", "("]) {
                continue;
            }
            let mut item = self.beyond_brackets(at + 1);
            let condition = &self.tokens[at..item];
            let names = |word: &str| condition.iter().any(|token| token.kind == Kind::Word && token.text == word);
            if !names("test") || names("not") {
                continue;
            }
            while self.reads(item, &["#", "["]) {
                item = self.beyond_brackets(item + 1);
            }
            let body = self.body_or_end(item);
            let end = if self.reads(body, &["{"]) { self.beyond_brackets(body) } else { body + 1 };
            found.push(at..end.min(self.tokens.len()));
        }
        found
    }

    /// Whether a function stands in an item that is only built for tests.
    pub fn is_in_test_item(&self, function: &Function<'_>) -> bool {
        let first = function.lines.start;
        self.test_items().iter().any(|item| (self.line(item.start)..=self.line(item.end - 1)).contains(&first))
    }

    /// The names of the modules that are only built for tests and have a file of their own.
    pub fn test_modules(&self) -> Vec<&'a str> {
        self.test_items()
            .into_iter()
            .filter_map(|item| {
                let name = item.end.checked_sub(2)?;
                let is_module = name > item.start && self.reads(name - 1, &["mod"]) && self.reads(name + 1, &[";"]);
                is_module.then(|| self.tokens[name].text)
            })
            .collect()
    }

    /// How many lines the items of [`Self::test_items`] take up.
    pub fn test_lines(&self) -> usize {
        self.test_items().into_iter().map(|item| self.line(item.end - 1) + 1 - self.line(item.start)).sum()
    }

    /// How many inline modules (`mod name { .. }`) the token at `at` stands in.
    pub fn inline_depth(&self, at: usize) -> usize {
        (0..at)
            .filter(|open| {
                self.reads(*open, &["mod"])
                    && self.reads(open + 2, &["{"])
                    && (open + 2..self.beyond_brackets(open + 2)).contains(&at)
            })
            .count()
    }

    /// What the paths that follow the `::` at `at` begin with: one name, or all of a `{ .. }` group.
    pub fn names_after(&self, at: usize) -> Vec<(usize, &'a str)> {
        let next = at + 1;
        if !self.reads(next, &["{"]) {
            return self.tokens.get(next).map(|token| (next, token.text)).into_iter().collect();
        }
        let (mut found, mut at) = (Vec::new(), next + 1);
        let end = self.beyond_brackets(next) - 1;
        while at < end {
            found.push((at, self.tokens[at].text));
            while at < end && !self.reads(at, &[","]) {
                at = if self.reads(at, &["{"]) { self.beyond_brackets(at) } else { at + 1 };
            }
            at += 1;
        }
        found
    }
}

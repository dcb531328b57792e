//! The media types that paths last answered with: what `media-type` falls back on for a path that says nothing of its type.
//!
//! A bounded table that all workers share; entries asked for lately stay. It is an aid for choosing, not a truth: two paths
//! with one 64-bit hash would share an entry. It refuses types that are no plain `type/subtype`, and longer ones than
//! [`TYPE_MAX`].

use crate::pure::key_table::{KeyTable, Usage};
use crate::pure::rule::hash::hash;
use crate::pure::rule::media::media_type_of_field;

/// Entries of a table, where nothing else is asked for: about 8 MiB when it is full.
pub const ENTRIES_DEFAULT: usize = 65_536;

/// Bytes of the longest media type that is remembered.
pub const TYPE_MAX: usize = 127;

/// What hosts and paths last answered with.
#[derive(Debug)]
pub struct LearnedTypes {
    table: KeyTable<Box<str>>,
    /// Secret, so that nobody can choose paths that share an entry.
    seed: u64,
}

impl LearnedTypes {
    /// An empty table of at most `capacity` entries, rounded up to a multiple of 64. `seed` is random.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self { table: KeyTable::new(capacity), seed }
    }

    /// Remembers that `path`, normalized, on `host` answered with this Content-Type. Parameters and case do not count.
    pub fn learn(&self, host: &str, path: &str, content_type: &[u8]) {
        let mut lower = [0; TYPE_MAX];
        let Some(media_type) = plain_type(content_type, &mut lower) else { return };
        let key = self.key(host, path);
        self.table.part(key, |table| match table.get_mut(key) {
            Some(known) if **known == *media_type => {}
            Some(known) => *known = media_type.into(),
            None => table.insert(key, media_type.into(), |_| false),
        });
    }

    /// Writes what `path` on `host` last answered with into `out`, and says whether that is known. `out` is cleared first.
    pub fn recall(&self, host: &str, path: &str, out: &mut String) -> bool {
        out.clear();
        let key = self.key(host, path);
        let known = self.table.part(key, |table| table.touch(key).map(|media_type| out.push_str(media_type)));
        known.flatten().is_some()
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        self.table.usage()
    }

    fn key(&self, host: &str, path: &str) -> u64 {
        hash(path.as_bytes(), hash(host.as_bytes(), self.seed))
    }
}

/// `type/subtype` in lower case, without parameters.
fn plain_type<'b>(content_type: &[u8], buffer: &'b mut [u8; TYPE_MAX]) -> Option<&'b str> {
    let text = media_type_of_field(content_type)?;
    let lower = buffer.get_mut(..text.len())?;
    lower.copy_from_slice(text.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalled(types: &LearnedTypes, host: &str, path: &str) -> Option<String> {
        let mut out = "old".to_owned();
        types.recall(host, path, &mut out).then_some(out)
    }

    #[test]
    fn the_last_answer_counts_for_its_host_and_path() {
        let types = LearnedTypes::new(ENTRIES_DEFAULT, 1);
        types.learn("a.test", "/x", b"Image/PNG ; q=1");
        assert_eq!(recalled(&types, "a.test", "/x").as_deref(), Some("image/png"));
        assert_eq!(recalled(&types, "a.test", "/y"), None);
        assert_eq!(recalled(&types, "b.test", "/x"), None);
        assert_eq!(recalled(&types, "a.test/", "x"), None);
        types.learn("a.test", "/x", b"text/html");
        assert_eq!(recalled(&types, "a.test", "/x").as_deref(), Some("text/html"));
        assert_eq!(types.usage().entries, 1);
    }

    #[test]
    fn what_is_no_media_type_is_not_remembered() {
        let types = LearnedTypes::new(ENTRIES_DEFAULT, 1);
        let long = format!("a/{}", "b".repeat(126));
        for bad in ["", "text", "text/", "/html", "a/b/c", "a b/c", "a,b/c", "image/*", "text/\u{e9}", &long] {
            types.learn("a.test", "/x", bad.as_bytes());
            assert_eq!(recalled(&types, "a.test", "/x"), None, "{bad}");
        }
        types.learn("a.test", "/x", format!("a/{}", "b".repeat(125)).as_bytes());
        assert!(recalled(&types, "a.test", "/x").is_some());
    }

    #[test]
    fn a_full_table_stays_at_its_bound_and_keeps_what_is_used() {
        let types = LearnedTypes::new(1024, 7);
        for number in 0..100_000 {
            types.learn("a.test", "/kept", b"text/css");
            assert_eq!(recalled(&types, "a.test", "/kept").as_deref(), Some("text/css"), "after {number}");
            types.learn("a.test", &format!("/{number}"), b"text/html");
        }
        let usage = types.usage();
        assert_eq!((usage.entries, usage.capacity), (1024, 1024));
        assert_eq!(usage.evictions, 100_001 - 1024);
    }

    #[test]
    fn threads_share_it() {
        let types = LearnedTypes::new(256, 7);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let types = &types;
                scope.spawn(move || {
                    for number in 0..5_000 {
                        let path = format!("/{}", (number * 7 + thread) % 600);
                        types.learn("a.test", &path, path.replace('/', "a/").as_bytes());
                        if let Some(found) = recalled(types, "a.test", &path) {
                            assert_eq!(found, path.replace('/', "a/"));
                        }
                    }
                });
            }
        });
        let usage = types.usage();
        assert!(usage.entries <= usage.capacity);
    }

    #[test]
    fn a_table_for_nothing_remembers_nothing() {
        let types = LearnedTypes::new(0, 7);
        types.learn("a.test", "/x", b"text/html");
        assert_eq!(recalled(&types, "a.test", "/x"), None);
    }
}

//! What can be asked of the servers of an experiment, and what it costs them: said by the path, so that client and servers agree
//! without telling each other.

use std::time::Duration;

/// A sort of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Content of one sort alone.
    Object,
    /// A page.
    Page,
    /// A picture.
    Image,
    /// An answer that is computed each time.
    Api,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Object, Self::Page, Self::Image, Self::Api];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "objects",
            Self::Page => "pages",
            Self::Image => "images",
            Self::Api => "api",
        }
    }

    /// The first and the last part of its paths. The ending tells the media type.
    fn shape(self) -> (&'static str, &'static str) {
        match self {
            Self::Object => ("objects", ""),
            Self::Page => ("pages", ".html"),
            Self::Image => ("images", ".png"),
            Self::Api => ("api", ".json"),
        }
    }

    /// Whether a server keeps it.
    pub fn is_cached(self) -> bool {
        self != Self::Api
    }

    /// The work of a hit and that of anything else.
    pub fn work(self) -> (Duration, Duration) {
        let (hit, miss) = match self {
            Self::Object | Self::Image => (1, 10),
            Self::Page => (2, 20),
            Self::Api => (20, 20),
        };
        (Duration::from_millis(hit), Duration::from_millis(miss))
    }
}

/// A request, as far as an experiment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
    /// For content: its sort, its number, and what makes the names of one run other ones than those of another.
    Item { kind: Kind, number: u32, salt: u32 },
    /// For so much work of a server of speed 1.
    Work(Duration),
    /// For nothing: whether anybody is there.
    Ping,
}

impl Ask {
    /// Its path.
    pub fn path(self) -> String {
        match self {
            Self::Item { kind, number, salt } => {
                let (first, ending) = kind.shape();
                format!("/{first}/{salt:x}/{number}{ending}")
            }
            Self::Work(work) => format!("/work/{}", work.as_micros()),
            Self::Ping => "/ping".to_owned(),
        }
    }

    /// What a path asks for.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let (first, second, third) = (parts.next()?, parts.next(), parts.next());
        match (first, second, third) {
            ("ping", None, None) => Some(Self::Ping),
            ("work", Some(work), None) => Some(Self::Work(Duration::from_micros(work.parse().ok()?))),
            (first, Some(salt), Some(last)) => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.shape().0 == first)?;
                let number = last.strip_suffix(kind.shape().1)?.parse().ok()?;
                Some(Self::Item { kind, number, salt: u32::from_str_radix(salt, 16).ok()? })
            }
            _ => None,
        }
    }
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server's cache.
    Cache,
    /// What is behind the cache.
    Storage,
    /// It was made for this request.
    Made,
}

impl Source {
    /// The value of Cache-Status (RFC 9211) when server `number`, counted from 0, answers.
    pub fn says(self, number: usize) -> String {
        let how = match self {
            Self::Cache => "hit",
            Self::Storage => "fwd=miss; stored",
            Self::Made => "fwd=bypass",
        };
        format!("s{}; {how}", number + 1)
    }

    /// What such a value says: the server's number, and the source.
    pub fn parse(value: &str) -> Option<(usize, Self)> {
        let mut parts = value.split(';').map(str::trim);
        let number = parts.next()?.strip_prefix('s')?.parse::<usize>().ok()?.checked_sub(1)?;
        let source = match parts.next()? {
            "hit" => Self::Cache,
            "fwd=miss" => Self::Storage,
            "fwd=bypass" => Self::Made,
            _ => return None,
        };
        Some((number, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_from_its_path() {
        let items = Kind::ALL.map(|kind| Ask::Item { kind, number: 4_711, salt: 0xBEEF });
        for ask in items.into_iter().chain([Ask::Work(Duration::from_micros(1_234)), Ask::Ping]) {
            assert_eq!(Ask::parse(&ask.path()), Some(ask), "{}", ask.path());
        }
        for path in ["/", "/128", "/images/1/2", "/images/x/2.png", "/work/", "/work/1/2", "ping"] {
            assert_eq!(Ask::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_server_and_its_source_are_read_from_cache_status() {
        for (number, source) in [(0, Source::Cache), (7, Source::Storage), (11, Source::Made)] {
            assert_eq!(Source::parse(&source.says(number)), Some((number, source)));
        }
        for value in ["", "s1", "s0; hit", "t1; hit", "s1; fwd=stale"] {
            assert_eq!(Source::parse(value), None, "{value}");
        }
    }
}

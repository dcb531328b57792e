//! Rule files of one listener, one pool and one rule for everything: what most subjects need. A subject adds its own lines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;

use crate::support::Origin;
use crate::support::h2c_front::H2cFront;

thread_local! {
    /// The fronts of this test's origins, where it is to be held over HTTP/2.
    static FRONTS: RefCell<Option<HashMap<SocketAddr, H2cFront>>> = const { RefCell::new(None) };
}

/// Holds a test once more, with servers that speak HTTP/2: whatever pool the test makes of its origins, each has a front.
pub fn over_h2c(test: impl FnOnce()) {
    FRONTS.set(Some(HashMap::new()));
    test();
    FRONTS.set(None);
}

/// How many connections the origin was asked over; a front opens one for each request.
#[track_caller]
pub fn assert_accepted(origin: &Origin, count: usize) {
    assert!(!upstream().is_empty() || origin.accepted() == count, "{} connections", origin.accepted());
}

/// Where an origin is reached.
fn address_of(origin: &Origin) -> SocketAddr {
    FRONTS.with_borrow_mut(|fronts| match fronts {
        Some(fronts) => fronts.entry(origin.address).or_insert_with(|| H2cFront::of(origin.address)).address,
        None => origin.address,
    })
}

/// The line that says how the servers are spoken to.
fn upstream() -> &'static str {
    if FRONTS.with_borrow(Option::is_some) { "upstream \"h2c\";" } else { "" }
}

/// A server of a pool: where it listens, and what else its line says.
pub struct Server {
    address: SocketAddr,
    settings: &'static str,
}

impl From<&Origin> for Server {
    fn from(origin: &Origin) -> Self {
        address_of(origin).into()
    }
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self { address, settings: "" }
    }
}

impl Server {
    /// A server whose line goes on with `settings`.
    pub fn with(origin: &Origin, settings: &'static str) -> Self {
        Self { address: address_of(origin), settings }
    }
}

/// A pool of one server for each name and origin.
pub fn pools_of_one(origins: &[(&str, &Origin)]) -> String {
    let pool = |(name, origin): &(&str, &Origin)| {
        format!("pool \"{name}\" {{ server \"o\" \"{}\"; {} }}\n", address_of(origin), upstream())
    };
    origins.iter().map(pool).collect()
}

/// The pool `p` of servers `o1`, `o2` and so on, with `lines` behind them.
pub fn pool(servers: impl IntoIterator<Item = impl Into<Server>>, lines: impl Display) -> String {
    let mut text = "pool \"p\" {\n".to_owned();
    for (index, server) in servers.into_iter().enumerate() {
        let Server { address, settings } = server.into();
        text.push_str(&format!("    server \"o{}\" \"{address}\" {settings}\n", index + 1));
    }
    let lines = lines.to_string();
    if lines.contains("upstream \"http/1.1\"") && !upstream().is_empty() {
        return format!("{text}    {}\n}}\n", lines.replace("\"http/1.1\"", "\"h2c\""));
    }
    format!("{text}    {}{lines}\n}}\n", upstream())
}

/// One worker, one plain listener without `Via`, the pool `p` with `lines` of its own, and one rule that sends everything
/// there. One worker makes the order in which servers and idle connections are used certain.
pub fn all_to(servers: impl IntoIterator<Item = impl Into<Server>>, lines: impl Display) -> String {
    let pool = pool(servers, lines);
    format!("workers 1\nlisten \"127.0.0.1:0\" {{ via \"off\" }}\n{pool}rule use=\"p\"\naccess-log \"access.log\"\n")
}

//! Rule files of one listener, one pool and one rule for everything: what most subjects need. A subject adds its own lines.

use std::fmt::Display;
use std::net::SocketAddr;

use crate::support::Origin;

/// A server of a pool: where it listens, and what else its line says.
pub struct Server {
    address: SocketAddr,
    settings: &'static str,
}

impl From<&Origin> for Server {
    fn from(origin: &Origin) -> Self {
        origin.address.into()
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
        Self { address: origin.address, settings }
    }
}

/// A pool of one server for each name and origin.
pub fn pools_of_one(origins: &[(&str, &Origin)]) -> String {
    let pool =
        |(name, origin): &(&str, &Origin)| format!("pool \"{name}\" {{ server \"o\" \"{}\" }}\n", origin.address);
    origins.iter().map(pool).collect()
}

/// The pool `p` of servers `o1`, `o2` and so on, with `lines` behind them.
pub fn pool(servers: impl IntoIterator<Item = impl Into<Server>>, lines: impl Display) -> String {
    let mut text = "pool \"p\" {\n".to_owned();
    for (index, server) in servers.into_iter().enumerate() {
        let Server { address, settings } = server.into();
        text.push_str(&format!("    server \"o{}\" \"{address}\" {settings}\n", index + 1));
    }
    format!("{text}    {lines}\n}}\n")
}

/// One worker, one plain listener without `Via`, the pool `p` with `lines` of its own, and one rule that sends everything
/// there. One worker makes the order in which servers and idle connections are used certain.
pub fn all_to(servers: impl IntoIterator<Item = impl Into<Server>>, lines: impl Display) -> String {
    let pool = pool(servers, lines);
    format!("workers 1\nlisten \"127.0.0.1:0\" {{ via \"off\" }}\n{pool}rule use=\"p\"\naccess-log \"access.log\"\n")
}

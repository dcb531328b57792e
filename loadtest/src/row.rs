//! The rows of the comparison: what is asked, who takes part, and what Pointsman must reach.

use std::time::Duration;

use crate::load::{Load, Protocol};
use crate::proxy::{Buffers, Product, Upstream, Variant};
use crate::site::GRPC_MESSAGE;

/// A row of the table, named as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum Row {
    /// 128 bytes over kept connections.
    #[value(name = "keep-alive-128")]
    KeepAlive128,
    /// 16 KiB over kept connections.
    #[value(name = "keep-alive-16k")]
    KeepAlive16k,
    /// 1 MiB over kept connections.
    #[value(name = "keep-alive-1m")]
    KeepAlive1m,
    /// A new connection for each request.
    NewConnection,
    /// 128 bytes over kept TLS connections.
    #[value(name = "tls-keep-alive-128")]
    TlsKeepAlive128,
    /// A full TLS handshake for each request.
    TlsNewConnection,
    /// 128 bytes over HTTP/2 and TLS, many streams a connection.
    #[value(name = "h2-128")]
    H2,
    /// 128 bytes over HTTP/2 and TLS, from an origin that is spoken to in HTTP/2.
    #[value(name = "h2c-upstream-128")]
    H2cUpstream,
    /// A unary gRPC call, over TLS to the proxy and without it to the origin.
    GrpcUnary,
    /// Memory of idle clients.
    Idle,
    /// Memory of idle TLS clients.
    IdleTls,
    /// Memory of idle HTTP/2 clients, over TLS.
    #[value(name = "idle-h2")]
    IdleH2,
}

impl Row {
    /// The rows about processor time.
    pub const LOADS: [Self; 9] = [
        Self::KeepAlive128,
        Self::KeepAlive16k,
        Self::KeepAlive1m,
        Self::NewConnection,
        Self::TlsKeepAlive128,
        Self::TlsNewConnection,
        Self::H2,
        Self::H2cUpstream,
        Self::GrpcUnary,
    ];
    /// The rows about memory.
    pub const IDLE: [Self; 3] = [Self::Idle, Self::IdleTls, Self::IdleH2];

    /// What it is, in a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::KeepAlive128 => "keep-alive, 128 B",
            Self::KeepAlive16k => "keep-alive, 16 KiB",
            Self::KeepAlive1m => "keep-alive, 1 MiB",
            Self::NewConnection => "new connection, 128 B",
            Self::TlsKeepAlive128 => "TLS keep-alive, 128 B",
            Self::TlsNewConnection => "TLS new connection, 128 B",
            Self::H2 => "h2, 128 B",
            Self::H2cUpstream => "h2 to h2c, 128 B",
            Self::GrpcUnary => "gRPC, unary",
            Self::Idle => "idle client",
            Self::IdleTls => "idle TLS client",
            Self::IdleH2 => "idle h2 client",
        }
    }

    /// Its load at saturation; `None` for the rows about memory.
    pub fn load(self, duration: Duration) -> Option<Load> {
        let base = Load {
            path: "128",
            body: 128,
            protocol: Protocol::H1,
            streams: 1,
            grpc: false,
            tls: false,
            fresh: false,
            connections: 64,
            rate: None,
            duration,
        };
        let h2 = Load { protocol: Protocol::H2, tls: true, connections: 16, streams: 32, ..base };
        match self {
            Self::KeepAlive128 => Some(base),
            Self::KeepAlive16k => Some(Load { path: "16k", body: 16 * 1024, ..base }),
            // Few connections: what is under way at the end of a round must stay small against what was answered.
            Self::KeepAlive1m => Some(Load { path: "1m", body: 1024 * 1024, connections: 8, ..base }),
            Self::NewConnection => Some(Load { fresh: true, ..base }),
            Self::TlsKeepAlive128 => Some(Load { tls: true, ..base }),
            Self::TlsNewConnection => Some(Load { tls: true, fresh: true, ..base }),
            // Over HTTP/1.1 h2load takes HAProxy's answers from an h2 origin for failures: their status line has no reason phrase.
            Self::H2 | Self::H2cUpstream => Some(h2),
            // As many calls at a time as all proxies can have connections to the origin: nginx needs one for each.
            Self::GrpcUnary => {
                Some(Load { path: "bench.Bench/Unary", body: GRPC_MESSAGE.len(), grpc: true, streams: 8, ..h2 })
            }
            Self::Idle | Self::IdleTls | Self::IdleH2 => None,
        }
    }

    /// Why `product` can't take part; `None` where it can.
    pub fn obstacle(self, product: Product) -> Option<&'static str> {
        let is_lacking = self == Self::H2cUpstream && product == Product::Nginx;
        is_lacking.then_some("its proxy_pass speaks no HTTP/2 to an origin, only grpc_pass does")
    }

    /// Who is measured beside the subject: `product` in one or more variants, none where it can't take part.
    pub fn variants(self, product: Product) -> Vec<Variant> {
        let upstream = match (self, product) {
            _ if self.obstacle(product).is_some() => return Vec::new(),
            (Self::GrpcUnary, _) => Upstream::Grpc,
            (Self::H2cUpstream, _) => Upstream::H2c,
            _ => Upstream::Http1,
        };
        let buffers: &[Buffers] = match (self, product) {
            (Self::KeepAlive1m, Product::Nginx) => &[Buffers::Default, Buffers::Large],
            (Self::KeepAlive1m, Product::Haproxy) => &[Buffers::Default, Buffers::Large, Buffers::Splice],
            _ => &[Buffers::Default],
        };
        buffers.iter().map(|buffers| Variant { product, buffers: *buffers, upstream }).collect()
    }

    /// How many times cheaper than `peer` Pointsman must be; `None` where the peer is shown for comparison alone.
    pub fn target(self, peer: Variant) -> Option<f64> {
        match (self, peer.product, peer.buffers) {
            (_, Product::Pointsman, _) | (Self::Idle | Self::IdleTls | Self::IdleH2, ..) => None,
            (Self::KeepAlive128, Product::Nginx, _) => Some(1.25),
            (Self::KeepAlive128 | Self::KeepAlive16k | Self::NewConnection, ..) => Some(1.15),
            (Self::KeepAlive1m, _, Buffers::Large) => Some(1.1),
            (Self::KeepAlive1m, ..) => None,
            (Self::H2, Product::Nginx, _) => None,
            (Self::H2 | Self::H2cUpstream | Self::GrpcUnary, ..) => Some(1.0),
            (Self::TlsKeepAlive128 | Self::TlsNewConnection, ..) => Some(1.3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_has_a_target_for_each_peer() {
        for row in Row::LOADS {
            assert!(row.load(Duration::from_secs(1)).is_some());
            for peer in [Product::Nginx, Product::Haproxy] {
                let is_shown = row == Row::H2 && peer == Product::Nginx;
                assert!(
                    is_shown
                        || row.obstacle(peer).is_some()
                        || row.variants(peer).into_iter().any(|variant| row.target(variant).is_some()),
                    "{row:?} {peer:?}"
                );
            }
        }
    }

    #[test]
    fn splicing_is_shown_and_not_judged() {
        let splice =
            Variant { product: Product::Haproxy, buffers: Buffers::Splice, ..Variant::plain(Product::Haproxy) };
        assert!(Row::KeepAlive1m.variants(Product::Haproxy).contains(&splice));
        assert_eq!(Row::KeepAlive1m.target(splice), None);
    }
}

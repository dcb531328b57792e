//! The rows of the comparison: what is asked, who takes part, and what Pointsman must reach.

use std::time::Duration;

use crate::load::Load;
use crate::proxy::{Buffers, Product, Variant};

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
    /// Memory of idle clients.
    Idle,
    /// Memory of idle TLS clients.
    IdleTls,
}

impl Row {
    /// The rows about processor time.
    pub const LOADS: [Self; 6] = [
        Self::KeepAlive128,
        Self::KeepAlive16k,
        Self::KeepAlive1m,
        Self::NewConnection,
        Self::TlsKeepAlive128,
        Self::TlsNewConnection,
    ];

    /// What it is, in a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::KeepAlive128 => "keep-alive, 128 B",
            Self::KeepAlive16k => "keep-alive, 16 KiB",
            Self::KeepAlive1m => "keep-alive, 1 MiB",
            Self::NewConnection => "new connection, 128 B",
            Self::TlsKeepAlive128 => "TLS keep-alive, 128 B",
            Self::TlsNewConnection => "TLS new connection, 128 B",
            Self::Idle => "idle client",
            Self::IdleTls => "idle TLS client",
        }
    }

    /// Its load at saturation; `None` for the rows about memory.
    pub fn load(self, duration: Duration) -> Option<Load> {
        let base = Load { path: "128", body: 128, tls: false, fresh: false, connections: 64, rate: None, duration };
        match self {
            Self::KeepAlive128 => Some(base),
            Self::KeepAlive16k => Some(Load { path: "16k", body: 16 * 1024, ..base }),
            // Few connections: what is under way at the end of a round must stay small against what was answered.
            Self::KeepAlive1m => Some(Load { path: "1m", body: 1024 * 1024, connections: 8, ..base }),
            Self::NewConnection => Some(Load { fresh: true, ..base }),
            Self::TlsKeepAlive128 => Some(Load { tls: true, ..base }),
            Self::TlsNewConnection => Some(Load { tls: true, fresh: true, ..base }),
            Self::Idle | Self::IdleTls => None,
        }
    }

    /// Who is measured beside the subject: `product` in one or more variants.
    pub fn variants(self, product: Product) -> Vec<Variant> {
        let buffers: &[Buffers] = match (self, product) {
            (Self::KeepAlive1m, Product::Nginx) => &[Buffers::Default, Buffers::Large],
            (Self::KeepAlive1m, Product::Haproxy) => &[Buffers::Default, Buffers::Large, Buffers::Splice],
            _ => &[Buffers::Default],
        };
        buffers.iter().map(|buffers| Variant { product, buffers: *buffers }).collect()
    }

    /// How many times cheaper than `peer` Pointsman must be; `None` where the peer is shown for comparison alone.
    pub fn target(self, peer: Variant) -> Option<f64> {
        match (self, peer.product, peer.buffers) {
            (_, Product::Pointsman, _) | (Self::Idle | Self::IdleTls, ..) => None,
            (Self::KeepAlive128, Product::Nginx, _) => Some(1.25),
            (Self::KeepAlive128 | Self::KeepAlive16k | Self::NewConnection, ..) => Some(1.15),
            (Self::KeepAlive1m, _, Buffers::Large) => Some(1.1),
            (Self::KeepAlive1m, ..) => None,
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
                assert!(
                    row.variants(peer).into_iter().any(|variant| row.target(variant).is_some()),
                    "{row:?} {peer:?}"
                );
            }
        }
    }

    #[test]
    fn splicing_is_shown_and_not_judged() {
        let splice = Variant { product: Product::Haproxy, buffers: Buffers::Splice };
        assert!(Row::KeepAlive1m.variants(Product::Haproxy).contains(&splice));
        assert_eq!(Row::KeepAlive1m.target(splice), None);
    }
}

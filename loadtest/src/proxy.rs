//! The proxies that are compared, each in its variants, and how one is started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::accounting;
use crate::child::{Child, Recipe};
use crate::client;
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::load::{Load, Protocol};
use crate::site::Site;
use crate::template;

/// A product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Product {
    /// What this is all about.
    Pointsman,
    /// A peer.
    Nginx,
    /// A peer.
    Haproxy,
}

impl Product {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pointsman, Self::Nginx, Self::Haproxy];

    /// Its name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pointsman => "Pointsman",
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
        }
    }

    fn configuration(self) -> (&'static str, &'static str) {
        match self {
            Self::Pointsman => ("pointsman.kdl", include_str!("../configurations/pointsman.kdl")),
            Self::Nginx => ("nginx.conf", include_str!("../configurations/nginx.conf")),
            Self::Haproxy => ("haproxy.cfg", include_str!("../configurations/haproxy.cfg")),
        }
    }
}

/// How the buffers of a proxy are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffers {
    /// As they come.
    Default,
    /// 64 KiB.
    Large,
    /// As they come, and bodies may be spliced in the kernel.
    Splice,
}

/// What a proxy speaks to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upstream {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS.
    H2c,
    /// gRPC, over HTTP/2 without TLS.
    Grpc,
}

/// A product with its buffers: what a column of a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    /// The product.
    pub product: Product,
    /// Its buffers.
    pub buffers: Buffers,
    /// What it speaks to the origin.
    pub upstream: Upstream,
}

impl Variant {
    /// `product` as it comes.
    pub fn plain(product: Product) -> Self {
        Self { product, buffers: Buffers::Default, upstream: Upstream::Http1 }
    }

    /// Its name in a table.
    pub fn name(self) -> String {
        let name = self.product.name();
        match self.buffers {
            Buffers::Default => name.to_owned(),
            Buffers::Large => format!("{name}, 64 KiB"),
            Buffers::Splice => format!("{name}, splice-auto"),
        }
    }
}

/// What is the same for all proxies of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The binary of Pointsman.
    pub pointsman: PathBuf,
    /// The core that the proxy has for itself.
    pub core: usize,
    /// Where requests go.
    pub origin_port: u16,
    /// Where requests go over HTTP/2.
    pub origin_h2c_port: u16,
    /// Where gRPC calls go.
    pub origin_grpc_port: u16,
    /// Whether access logs are written.
    pub logged: bool,
    /// Run it under this instead of directly, for example valgrind and its options.
    pub under: Vec<OsString>,
}

/// A running proxy that has answered a first request.
pub struct Proxy {
    /// Where it listens without TLS.
    pub port: u16,
    /// Where it listens with TLS.
    pub tls_port: u16,
    /// Where it listens for HTTP/2 without TLS.
    pub h2c_port: u16,
    child: Child,
    processes: Vec<u32>,
}

impl Proxy {
    /// Starts `variant` and waits until it answers.
    pub fn start(variant: Variant, setting: &Setting, site: &mut Site) -> Outcome<Self> {
        let (port, tls_port, h2c_port) = (site.free_port()?, site.free_port()?, site.free_port()?);
        let file = Self::configure(variant, setting, site, [port, tls_port, h2c_port])?;
        let errors = format!("{port}.stderr");
        let mut recipe = Self::recipe(variant.product, setting, site, &file).errors(site.append(&errors)?);
        if variant.product == Product::Haproxy {
            recipe = recipe.output(site.append(&format!("{port}.access.log"))?);
        }
        let mut child = recipe.start()?;
        let name = variant.name();
        // A tool that instruments the program makes its start slow.
        let patience = Duration::from_secs(if setting.under.is_empty() { 10 } else { 60 });
        let ready = clock::wait_for(&format!("an answer of {name}"), patience, || {
            child.still_runs()?;
            Ok(client::answers(port).then_some(()))
        });
        ready.doing(|| format!("starting {name} (it said: {})", site.tail(&errors)))?;
        let processes = accounting::tree_of(child.id())?;
        Ok(Self { port, tls_port, h2c_port, child, processes })
    }

    fn configure(variant: Variant, setting: &Setting, site: &Site, ports: [u16; 3]) -> Outcome<PathBuf> {
        let (name, text) = variant.product.configuration();
        let buffers = match variant.buffers {
            Buffers::Default => "small",
            Buffers::Large => "large",
            Buffers::Splice => "splice",
        };
        let upstream: &[&str] = match variant.upstream {
            Upstream::Http1 => &["h1"],
            Upstream::H2c => &["h2c"],
            // nginx has a way of its own; to the others it is HTTP/2 like any.
            Upstream::Grpc => &["grpc", "h2c"],
        };
        let wanted: [&[&str]; 2] = [&[buffers], upstream];
        let missing =
            wanted.iter().find(|marks| marks.iter().all(|mark| *mark != "small" && !template::knows(text, mark)));
        if let Some(missing) = missing {
            return Err(Failure::new(format!("{name} has no lines marked {missing:?}")));
        }
        let marks = [&[if setting.logged { "logged" } else { "silent" }, buffers], upstream].concat();
        let mut values = site.values();
        let [port, tls_port, h2c_port] = ports;
        values.push(("PORT", port.to_string()));
        values.push(("TLS_PORT", tls_port.to_string()));
        values.push(("H2C_PORT", h2c_port.to_string()));
        let origin_port = match variant.upstream {
            Upstream::Http1 => setting.origin_port,
            Upstream::H2c => setting.origin_h2c_port,
            Upstream::Grpc => setting.origin_grpc_port,
        };
        values.push(("ORIGIN_PORT", origin_port.to_string()));
        let file = format!("{port}.{name}");
        site.write(&file, &template::fill(text, &marks, &values).doing(|| format!("filling {name}"))?)?;
        Ok(site.path(&file))
    }

    /// How `product` is started with a configuration.
    pub fn recipe(product: Product, setting: &Setting, site: &Site, file: &std::path::Path) -> Recipe {
        let core = setting.core.to_string();
        let mut command = setting.under.clone();
        match product {
            Product::Pointsman => command.extend([setting.pointsman.clone().into(), "run".into(), file.into()]),
            Product::Nginx => {
                let folder = site.path("").into_os_string();
                command.extend([
                    "nginx".into(),
                    "-p".into(),
                    folder,
                    "-e".into(),
                    "stderr".into(),
                    "-c".into(),
                    file.into(),
                ]);
                if !setting.under.is_empty() {
                    // One process, so that the tool sees the one that works.
                    command.extend(["-g".into(), "master_process off;".into()]);
                }
            }
            Product::Haproxy => command.extend(["haproxy".into(), "-db".into(), "-f".into(), file.into()]),
        }
        let mut words = command.into_iter();
        Recipe::new(words.next().unwrap_or_default(), &core).arguments(words)
    }

    /// Fails if it has ended.
    pub fn still_runs(&mut self) -> Outcome<()> {
        self.child.still_runs()
    }

    /// Where `load` goes to.
    pub fn port_for(&self, load: &Load) -> u16 {
        match load.protocol {
            _ if load.tls => self.tls_port,
            Protocol::H1 => self.port,
            Protocol::H2 => self.h2c_port,
        }
    }

    /// Processor time used so far.
    pub fn processor_time(&self) -> Outcome<Duration> {
        accounting::processor_time(&self.processes)
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Outcome<u64> {
        accounting::resident(&self.processes)
    }

    /// Asks it to end and waits until it has.
    pub fn terminate(self, limit: Duration) -> Outcome<()> {
        self.child.terminate(limit)
    }
}

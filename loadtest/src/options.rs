//! The command line of the measurements: words in, what to measure out.

use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bare;
use crate::clock;
use crate::contender::Contender;
use crate::experiments;
use crate::failure::{Outcome, While};
use crate::grpc_origin;
use crate::load::Protocol;
use crate::peers;
use crate::proxy::Product;
use crate::rounds::Offer;
use crate::row::Row;
use crate::serve::{self, Serve};
use crate::trials;

mod trial;

pub use trial::{Capacity, Feedback, Kill, Mttr, Namespaces, Trial};

/// Measures Pointsman beside nginx and HAProxy on one machine.
#[derive(Parser)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Processor time a request and memory an idle client, as ratios, in alternating rounds
    Peers(Peers),
    /// User instructions a request, counted by callgrind
    Instructions(Instructions),
    /// Memory an idle client
    Idle(Idle),
    /// Every kind of client at once and for long: no error, no descriptor left, no memory that grows
    Soak(Soak),
    /// Where requests for the same content go: hit rates, latencies, balance and what a failure costs
    Cache(Cache),
    /// Servers of unlike speeds, and jobs of very unlike sizes
    Uneven(Uneven),
    /// What a server's overloads cost, as the push-detection paper measures it
    Mttr(Mttr),
    /// What clients notice when a server dies, hangs, fails or vanishes
    Kill(Kill),
    /// Whether reports keep servers even: who gets too much, for how long, and what it costs
    Feedback(Feedback),
    /// How much a server can take at a time: its `max` and its agent's `--connections-max`
    Capacity(Capacity),
    /// An agent behind a link that loses and delays packets: whether its server is ever taken for dead
    Namespaces(Namespaces),
    /// A server of these experiments
    #[command(hide = true)]
    Serve(Serve),
    /// The bare servers that idle TLS and HTTP/2 clients are compared with
    #[command(hide = true)]
    BareServer { protocol: Protocol, port: u16, files: Vec<PathBuf> },
    /// The origin of gRPC calls
    #[command(hide = true)]
    GrpcOrigin { port: u16 },
}

/// What is measured on which cores, and where the report goes.
#[derive(Args)]
pub struct Stand {
    /// The binary to measure, with `pointsman-agent` beside it where agents report [default: this workspace's, built with --release]
    #[arg(long)]
    pub pointsman: Option<PathBuf>,
    /// The proxy's core [default: the last]
    #[arg(long)]
    pub proxy_core: Option<usize>,
    /// The cores of servers and clients [default: all others]
    #[arg(long, value_delimiter = ',')]
    pub load_cores: Option<Vec<usize>>,
    /// Also write the report to this file
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Of those that draw.
#[derive(Args)]
pub struct Pictures {
    /// Where pictures go [default: loadtest/results]
    #[arg(long)]
    results: Option<PathBuf>,
}

impl Pictures {
    /// Where they go.
    pub fn folder(&self) -> PathBuf {
        self.results.clone().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("results"))
    }
}

/// What the comparisons with peers share.
#[derive(Args)]
pub struct Shared {
    #[command(flatten)]
    pub stand: Stand,
    /// Who is measured
    #[arg(long, value_delimiter = ',', default_values_t = Product::ALL)]
    pub products: Vec<Product>,
}

/// Access logs of the proxies.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Logs {
    /// One table, without logs
    Off,
    /// One table, with logs
    On,
    /// Two tables
    Both,
}

#[derive(Args)]
pub struct Peers {
    #[command(flatten)]
    pub shared: Shared,
    /// Alternating rounds
    #[arg(long, default_value_t = 15)]
    pub rounds: u32,
    /// Seconds of each load
    #[arg(long, default_value_t = 1)]
    pub seconds: u64,
    /// Only these rows
    #[arg(long, value_delimiter = ',')]
    pub rows: Vec<Row>,
    /// How load is offered
    #[arg(long, value_delimiter = ',', default_values = ["equal", "saturated"])]
    pub offers: Vec<Offer>,
    /// Access logs
    #[arg(long, default_value = "both")]
    pub logs: Logs,
    /// Compare this one with the others
    #[arg(long, default_value_t = Product::Pointsman)]
    pub subject: Product,
    /// Idle clients
    #[arg(long, default_value_t = 15_000)]
    pub clients: usize,
    /// Rounds of the rows about memory
    #[arg(long, default_value_t = 3)]
    pub idle_rounds: u32,
}

#[derive(Args)]
pub struct Idle {
    #[command(flatten)]
    pub shared: Shared,
    /// Idle clients
    #[arg(long, default_value_t = 15_000)]
    pub clients: usize,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Only these rows
    #[arg(long, value_delimiter = ',', default_values = ["idle", "idle-tls", "idle-h2"])]
    pub rows: Vec<Row>,
}

#[derive(Args)]
pub struct Instructions {
    #[command(flatten)]
    pub shared: Shared,
    /// Requests of the short run
    #[arg(long, default_value_t = 6_400)]
    pub few: u64,
    /// Requests of the long run
    #[arg(long, default_value_t = 32_000)]
    pub many: u64,
    /// What the clients speak, without TLS
    #[arg(long, default_value = "h1")]
    pub protocol: Protocol,
    /// Measurements of each proxy
    #[arg(long, default_value_t = 2)]
    pub rounds: u32,
    /// Leave callgrind's files of the long runs in this folder, for callgrind_annotate
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

#[derive(Args)]
pub struct Soak {
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// Where what is drawn by lot begins [default: the time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Clients of each way to come in
    #[arg(long, default_value_t = 6)]
    pub clients: usize,
    /// The binary to soak [default: this workspace's, built with --release]
    #[arg(long)]
    pub pointsman: Option<PathBuf>,
    /// Also write the report to this file
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// What the experiments about the choice of a server share.
#[derive(Args)]
pub struct Placing {
    /// Short runs, to see whether everything works
    #[arg(long)]
    pub quick: bool,
    /// Who is measured [default: all that the experiment compares]
    #[arg(long, value_delimiter = ',')]
    pub products: Vec<Contender>,
    /// Where what is drawn by lot begins: arrivals, keys, their names, and who is killed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds that count in each run: they bound the memory that requests take
    #[arg(long, value_parser = |text: &str| between(text, 1u64, 600))]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub stand: Stand,
    #[command(flatten)]
    pub pictures: Pictures,
}

#[derive(Args)]
pub struct Cache {
    #[command(flatten)]
    pub placing: Placing,
    /// Exponents of Zipf's law [default: 0.9,1.0,1.1, with --quick 1.0]
    #[arg(long, value_delimiter = ',', value_parser = |text: &str| between(text, 0.1, 3.0))]
    pub alphas: Vec<f64>,
    /// The rate, as a part of what the servers could do if every key had one home
    #[arg(long, default_value_t = 0.55, value_parser = |text: &str| between(text, 0.05, 2.0))]
    pub load: f64,
    /// Keys [default: 10000, with --quick 4000]
    #[arg(long, value_parser = |text: &str| between(text, 1_000usize, 100_000))]
    pub keys: Option<usize>,
}

#[derive(Args)]
pub struct Uneven {
    #[command(flatten)]
    pub placing: Placing,
}

/// A number within bounds.
fn between<T: FromStr<Err: Display> + PartialOrd + Display>(text: &str, least: T, most: T) -> Result<T, String> {
    let number: T = text.parse().map_err(|error| format!("{error}"))?;
    if (&least..=&most).contains(&&number) { Ok(number) } else { Err(format!("it is from {least} to {most}")) }
}

impl Display for Product {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl Options {
    /// Does what was asked for; false where a gate was missed.
    pub fn run(self) -> Outcome<bool> {
        if let Command::BareServer { protocol, port, files } = &self.command {
            return bare::run(*protocol, *port, files).map(|()| true);
        }
        if let Command::GrpcOrigin { port } = &self.command {
            return grpc_origin::serve(*port).map(|()| true);
        }
        if let Command::Serve(options) = &self.command {
            return serve::run(options).map(|()| true);
        }
        clock::catch_interrupts()?;
        let (text, passed, out) = match self.command {
            Command::Peers(options) => (peers::compare(&options)?, true, options.shared.stand.out),
            Command::Idle(options) => (peers::idle(&options)?, true, options.shared.stand.out),
            Command::Instructions(options) => {
                let (text, passed) = peers::instructions(&options)?;
                (text, passed, options.shared.stand.out)
            }
            Command::Soak(options) => {
                let (text, passed) = peers::soak(&options)?;
                (text, passed, options.out)
            }
            Command::Cache(options) => {
                let (text, passed) = experiments::cache(&options)?;
                (text, passed, options.placing.stand.out)
            }
            Command::Uneven(options) => {
                let (text, passed) = experiments::uneven(&options)?;
                (text, passed, options.placing.stand.out)
            }
            Command::Mttr(options) => {
                let (text, passed) = trials::mttr(&options)?;
                (text, passed, options.trial.stand.out)
            }
            Command::Kill(options) => {
                let (text, passed) = trials::kill(&options)?;
                (text, passed, options.trial.stand.out)
            }
            Command::Feedback(options) => {
                let (text, passed) = trials::feedback(&options)?;
                (text, passed, options.trial.stand.out)
            }
            Command::Capacity(options) => {
                let (text, passed) = trials::capacity(&options)?;
                (text, passed, options.out)
            }
            Command::Namespaces(options) => {
                let (text, passed) = trials::namespaces(&options)?;
                (text, passed, options.trial.stand.out)
            }
            Command::Serve(_) | Command::BareServer { .. } | Command::GrpcOrigin { .. } => return Ok(true),
        };
        print!("{text}");
        if let Some(file) = out {
            std::fs::write(&file, text).doing(|| format!("writing {}", file.display()))?;
        }
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_its_bounds_is_an_error_and_not_cut_short() {
        let parse =
            |words: &str| Options::try_parse_from(words.split(' ')).map(drop).map_err(|error| error.to_string());
        for words in [
            "loadtest mttr --rounds 100 --healthy 3600",
            "loadtest kill --rate 1",
            "loadtest feedback --seconds 2",
            "loadtest capacity --seconds 0.1 --most 1",
            "loadtest namespaces --loss 0 --jitter 1000 --minutes 0.25",
            "loadtest cache --alphas 0.9,1.1 --load 0.5 --keys 1000 --seconds 600",
        ] {
            assert_eq!(parse(words), Ok(()), "{words}");
        }
        for (words, bounds) in [
            ("loadtest mttr --rounds 101", "from 1 to 100"),
            ("loadtest kill --rate 0", "from 1 to 20000"),
            ("loadtest namespaces --loss 101", "from 0 to 100"),
            ("loadtest namespaces --minutes NaN", "from 0.01 to 60"),
            ("loadtest cache --alphas 0.9,9", "from 0.1 to 3"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(bounds), "{error}");
        }
    }
}

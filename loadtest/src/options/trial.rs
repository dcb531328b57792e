//! The command line of the experiments about failure and feedback.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{Pictures, Stand, between};
use crate::kill::Fault;

/// What these experiments share.
#[derive(Args)]
pub struct Trial {
    /// Short runs, to see whether everything works
    #[arg(long)]
    pub quick: bool,
    /// Who is measured [default: all that the experiment compares; a wrong name says which there are]
    #[arg(long, value_delimiter = ',')]
    pub products: Vec<String>,
    /// Where what is drawn by lot begins
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub stand: Stand,
}

#[derive(Args)]
pub struct Mttr {
    #[command(flatten)]
    pub trial: Trial,
    /// As the paper has it: an overload every 5 minutes, for an hour a row
    #[arg(long, conflicts_with = "quick")]
    pub full: bool,
    /// Overloads in each row [default: 12, with --quick 2]
    #[arg(long, value_parser = |text: &str| between(text, 1u32, 100))]
    pub rounds: Option<u32>,
    /// Seconds of a healthy load of 95 % [default: 60, with --quick 15; 0: none]
    #[arg(long, value_parser = |text: &str| between(text, 0u64, 3_600))]
    pub healthy: Option<u64>,
}

#[derive(Args)]
pub struct Kill {
    #[command(flatten)]
    pub trial: Trial,
    #[command(flatten)]
    pub pictures: Pictures,
    /// What happens to a server [default: all]
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<Fault>,
    /// Requests a second
    #[arg(long, default_value_t = 2_000, value_parser = |text: &str| between(text, 1u32, 20_000))]
    pub rate: u32,
}

#[derive(Args)]
pub struct Feedback {
    #[command(flatten)]
    pub trial: Trial,
    #[command(flatten)]
    pub pictures: Pictures,
    /// Seconds of each part [default: 36, with --quick 12]
    #[arg(long, value_parser = |text: &str| between(text, 2u64, 600))]
    pub seconds: Option<u64>,
}

#[derive(Args)]
pub struct Namespaces {
    #[command(flatten)]
    pub trial: Trial,
    /// For how long [default: 5, with --quick 0.25]
    #[arg(long, value_parser = |text: &str| between(text, 0.01, 60.0))]
    pub minutes: Option<f64>,
    /// Packets that are lost, in percent
    #[arg(long, default_value_t = 1.0, value_parser = |text: &str| between(text, 0.0, 100.0))]
    pub loss: f64,
    /// A packet takes up to so many milliseconds longer
    #[arg(long, default_value_t = 20, value_parser = |text: &str| between(text, 0u64, 1_000))]
    pub jitter: u64,
}

#[derive(Args)]
pub struct Capacity {
    /// The server [default: one of this program's own, whose capacity is known]
    pub address: Option<SocketAddr>,
    /// What is asked for there
    #[arg(long, default_value = "/", requires = "address")]
    pub path: String,
    /// Seconds of each step
    #[arg(long, default_value_t = 2.0, value_parser = |text: &str| between(text, 0.1, 60.0))]
    pub seconds: f64,
    /// The most requests at a time
    #[arg(long, default_value_t = 1_024, value_parser = |text: &str| between(text, 1usize, 10_000))]
    pub most: usize,
    /// Also write the report to this file
    #[arg(long)]
    pub out: Option<PathBuf>,
}

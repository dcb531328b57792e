//! Measures Pointsman beside its peers on one machine. It never claims an absolute speed: what counts are ratios of the same minutes.
//!
//! It speaks to loopback alone, bounds every load in time and count, and ends every process that it starts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the terminal")]

mod accounting;
mod alarm;
mod bare;
mod call;
mod catalogue;
mod child;
mod client;
mod clock;
mod contender;
mod drawing;
mod experiment;
mod experiments;
mod failure;
mod farm;
mod figures;
mod grpc_origin;
mod idle;
mod instructions;
mod law;
mod load;
mod locality;
mod lru;
mod machine;
mod open_loop;
mod options;
mod origin;
mod peers;
mod proxy;
mod report;
mod rounds;
mod row;
mod site;
mod soak;
mod station;
mod statistics;
mod target;
mod template;
mod uneven;
mod wire;

use std::process::ExitCode;

use clap::Parser;

/// The allocator of the product, so that the bare TLS server is compared on equal terms.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match options::Options::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            eprintln!("loadtest: {failure}");
            ExitCode::from(3)
        }
    }
}

//! Measures Pointsman beside its peers on one machine. It never claims an absolute speed: what counts are ratios of the same minutes.
//!
//! It speaks to loopback alone, bounds every load in time and count, and ends every process that it starts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the terminal")]

mod accounting;
mod alarm;
mod backend;
mod bare;
mod cable;
mod call;
mod capacity;
mod catalogue;
mod changes;
mod child;
mod client;
mod clock;
mod closed_loop;
mod contender;
mod drawing;
mod experiment;
mod experiments;
mod failure;
mod farm;
mod feedback;
mod figures;
mod gauge;
mod grpc_origin;
mod idle;
mod instructions;
mod kill;
mod law;
mod load;
mod locality;
mod lru;
mod machine;
mod mttr;
mod namespaces;
mod open_loop;
mod options;
mod origin;
mod peers;
mod proxy;
mod report;
mod reporter;
mod rival;
mod rounds;
mod row;
mod serve;
mod site;
mod soak;
mod station;
mod statistics;
mod target;
mod template;
mod trials;
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

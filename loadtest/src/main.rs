//! Measures Pointsman beside its peers on one machine. It never claims an absolute speed: what counts are ratios of the same minutes.
//!
//! It speaks to loopback alone, bounds every load in time and count, and ends every process that it starts.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the terminal")]

mod accounting;
mod bare;
mod call;
mod child;
mod client;
mod clock;
mod failure;
mod grpc_origin;
mod idle;
mod instructions;
mod load;
mod machine;
mod options;
mod origin;
mod peers;
mod proxy;
mod report;
mod rounds;
mod row;
mod site;
mod soak;
mod statistics;
mod template;
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

//! The `pointsman` binary: the command line, and the allocator that a proxy wants.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pointsman::operator::cli::main()
}

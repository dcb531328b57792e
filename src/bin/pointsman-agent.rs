//! The `pointsman-agent` binary: runs beside a server and tells the balancer how it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    pointsman::agent::cli::main()
}

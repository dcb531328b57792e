//! The binaries of this build, for tests that start them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is tested.
pub const LOADTEST: &str = env!("CARGO_BIN_EXE_loadtest");

/// The binary beside it, brought up to date first.
pub fn pointsman() -> PathBuf {
    let profile = Path::new(LOADTEST).parent().expect("a folder of the profile");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--package", "pointsman", "--bin", "pointsman", "--target-dir"]);
    command.arg(profile.parent().expect("a folder of the target")).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    assert!(command.status().expect("cargo starts").success(), "pointsman does not build");
    profile.join("pointsman")
}

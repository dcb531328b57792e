//! A soak of some seconds over the binary of this build, so that it keeps working and nothing glaring passes by.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::soak::exchanges::Kind;
use crate::soak::link::Way;

const WITH_H2C: bool = false;

/// The binary beside this test's, brought up to date first.
fn pointsman() -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("tests are run by cargo");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = std::env::current_exe().expect("a path of this test");
    let profile = own.parent().and_then(Path::parent).expect("a folder of the profile");
    let target = profile.parent().expect("a folder of the target");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "pointsman", "--bin", "pointsman", "--target-dir"]).arg(target);
    command.current_dir(workspace);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    assert!(command.status().expect("cargo starts").success(), "pointsman does not build");
    profile.join("pointsman")
}

#[test]
fn a_short_soak_keeps_all_bounds_and_exchanges_of_every_kind_are_in_it() {
    let plan = Plan {
        pointsman: pointsman(),
        duration: Duration::from_secs(5),
        seed: 1,
        clients: 2,
        with_h2c_server: WITH_H2C,
    };
    let site = Site::new().expect("a folder");
    let findings = plan.run(&site, &crate::machine::own_cores().expect("cores")).expect("a soak");
    assert!(findings.passes(), "{}", findings.text());
    for way in Way::ALL {
        for kind in Kind::of(way.protocol()).iter().filter(|kind| WITH_H2C || **kind != Kind::Grpc) {
            assert!(findings.tally.done.contains_key(&(*kind, way)), "{kind:?} {way:?}\n{}", findings.text());
        }
        assert!(findings.tally.aborted.contains_key(&way), "{way:?}\n{}", findings.text());
    }
}

#[test]
fn ports_are_read_once_all_are_there() {
    let said = "x listening on http://127.0.0.1:81\ny\nx listening on https://127.0.0.1:82 \n";
    assert_eq!(ports_of(said), None);
    assert_eq!(ports_of(&format!("{said}listening on http://127.0.0.1:83\n")), Some([81, 82, 83]));
}

//! `certs/make` makes what the proxy takes: certificates of several kinds of names, with their keys. It needs `openssl`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Output};

use pointsman::pure::config::CertificateFiles;
use pointsman::transport::tls::{CertificateName, certificate_names, load_certificate};

fn make(folder: &Path, kind: &str, names: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("certs/make");
    Command::new(script).env("KIND", kind).arg(folder).args(names).output().unwrap()
}

fn names_of(folder: &Path, file: &str) -> Vec<CertificateName> {
    let [certificate, key] = ["crt", "key"].map(|end| folder.join(format!("{file}.{end}")));
    let loaded = load_certificate(&CertificateFiles { certificate, key }).unwrap();
    certificate_names(loaded.end_entity_cert().unwrap())
}

#[test]
fn it_makes_certificates_for_hosts_wildcards_and_addresses() {
    let folder = tempfile::TempDir::new().unwrap();
    let made = make(folder.path(), "ecdsa", &["a.test,b.test", "*.c.test", "192.0.2.7", "2001:db8::1"]);
    assert!(made.status.success(), "{made:?}");
    assert!(make(folder.path(), "rsa", &["rsa.test"]).status.success());
    let host = |name: &str| CertificateName::Host(name.to_owned());
    let address = |address: &str| CertificateName::Address(address.parse().unwrap());
    assert_eq!(names_of(folder.path(), "a.test"), [host("a.test"), host("b.test")]);
    assert_eq!(names_of(folder.path(), "wildcard.c.test"), [host("*.c.test")]);
    assert_eq!(names_of(folder.path(), "192.0.2.7"), [address("192.0.2.7")]);
    assert_eq!(names_of(folder.path(), "2001:db8::1"), [address("2001:db8::1")]);
    assert_eq!(names_of(folder.path(), "rsa.test"), [host("rsa.test")]);
}

#[test]
fn it_makes_nothing_where_a_name_is_none() {
    let folder = tempfile::TempDir::new().unwrap();
    for name in ["bad name", "a..test", "*.", "a.*.test", "../a.test", "a:/b"] {
        let made = make(&folder.path().join("new"), "ecdsa", &["a.test", name]);
        assert_eq!(made.status.code(), Some(1), "{name}: {made:?}");
        assert!(String::from_utf8_lossy(&made.stderr).contains(name), "{made:?}");
    }
    assert!(!folder.path().join("new").exists());
}

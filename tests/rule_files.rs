//! The example rule files: each loads without an error and a warning, with certificates made for the purpose, and its
//! `expect` lines hold.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use pointsman::operator::check::{Style, check};
use pointsman::operator::rule_files::DiskFiles;
use pointsman::pure::config::load;

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "kdl"));
    files.sort();
    files
}

/// A copy of `file` in `folder/rules`, and beside it the certificates that it names.
fn copied(file: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join("rules").join(file.file_name().unwrap());
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::copy(file, &copy).unwrap();
    let config = load(&DiskFiles, &copy).unwrap_or_else(|errors| panic!("{errors}"));
    for site in config.listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificates) {
        let files = &site.files;
        std::fs::create_dir_all(files.certificate.parent().unwrap()).unwrap();
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    }
    copy
}

#[test]
fn every_example_passes_its_own_check() {
    let files = examples();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let folder = tempfile::tempdir().unwrap();
        let report = check(&copied(&file, folder.path()));
        let text = report.render(Style::Plain);
        assert!(report.is_good() && report.warnings.is_empty(), "{}\n{text}", file.display());
        assert!(report.expects_run >= 4, "{}: {text}", file.display());
        let config = report.config.unwrap();
        assert!(config.access_log.is_some(), "{} has no access-log", file.display());
    }
}

/// A rule without an `expect` line would be an example that nothing shows to be true.
#[test]
fn every_rule_of_the_examples_is_expected_by_a_line() {
    for file in examples() {
        let text = std::fs::read_to_string(&file).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = check(&copied(&file, folder.path())).config.unwrap();
        for rule in &config.rules {
            // Without this rule, some line must fail or some name must be missing.
            let header = format!("rule \"{}\"", rule.name);
            assert!(text.contains(&header), "{}: {header}", file.display());
            let without = text.replacen(&header, &format!("/-{header}"), 1);
            let copy = folder.path().join("rules/without.kdl");
            std::fs::write(&copy, without).unwrap();
            assert!(!check(&copy).is_good(), "{}: no line expects the rule `{}`", file.display(), rule.name);
        }
    }
}

//! Which certificate a name gets, held against a plain scan.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

use super::*;
use crate::transport::tls::tests::{ANY, certificate};

const SCHEMES: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519];

fn make(names: &[&str]) -> Arc<CertifiedKey> {
    certificate(names, &PKCS_ECDSA_P256_SHA256, 0)
}

/// Which of the certificates a client gets, by position; each is given by its names.
fn check(certificates: &[&[&str]], listening: IpAddr, cases: &[(Option<&str>, usize)]) {
    let made: Vec<_> = certificates.iter().map(|names| make(names)).collect();
    let table = CertificateTable::new(made.clone(), listening).unwrap();
    for (name, expected) in cases {
        let found = table.find(*name, SCHEMES).unwrap();
        let position = made.iter().position(|certificate| Arc::ptr_eq(certificate, &found));
        assert_eq!(position, Some(*expected), "{name:?} of {certificates:?}");
    }
}

#[test]
fn an_exact_name_beats_a_wildcard_which_stands_for_one_label() {
    check(
        &[&["default.test"], &["*.example.test"], &["www.example.test"], &["*.a.example.test", "b.test"]],
        ANY,
        &[
            (Some("www.example.test"), 2),
            (Some("other.example.test"), 1),
            (Some("x.a.example.test"), 3),
            (Some("a.example.test"), 1),
            (Some("x.y.example.test"), 0),
            (Some("example.test"), 0),
            (Some(".example.test"), 0),
            (Some("x..example.test"), 0),
            (Some("b.test"), 3),
            (Some("x.b.test"), 0),
            (Some("*.example.test"), 1),
            (Some(""), 0),
            (Some("."), 0),
            (None, 0),
        ],
    );
}

#[test]
fn case_and_a_trailing_dot_are_ignored_on_both_sides() {
    check(
        &[&["d.test"], &["WWW.Example.TEST", "*.UPPER.test"]],
        ANY,
        &[(Some("www.example.test"), 1), (Some("wWw.eXample.test."), 1), (Some("X.upper.test."), 1)],
    );
}

#[test]
fn addresses_are_found_as_names_and_by_the_listeners_own() {
    let own = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    let certificates: &[&[&str]] = &[&["d.test"], &["192.0.2.7"], &["2001:db8::1"]];
    check(certificates, own, &[(None, 1), (Some("192.0.2.7"), 1), (Some("2001:DB8:0::1"), 2), (Some("192.0.2.8"), 0)]);
    check(certificates, ANY, &[(None, 0)]);
    check(certificates, IpAddr::V4(Ipv4Addr::LOCALHOST), &[(None, 0)]);
}

#[test]
fn a_name_longer_than_names_can_be_gets_the_default() {
    let long = format!("{}.example.test", "x".repeat(300));
    check(&[&["d.test"], &["*.example.test"]], ANY, &[(Some(&long), 0)]);
}

#[test]
fn a_table_needs_a_certificate() {
    assert_eq!(CertificateTable::new(Vec::new(), ANY).err(), Some(NoCertificates));
}

#[test]
fn alternatives_for_a_name_are_chosen_by_what_the_client_verifies_whatever_the_order() {
    let ecdsa = certificate(&["a.test"], &PKCS_ECDSA_P256_SHA256, 0);
    let lasting = certificate(&["a.test"], &PKCS_ECDSA_P256_SHA256, 9);
    let ed25519 = certificate(&["a.test"], &PKCS_ED25519, 99);
    let first = certificate(&["d.test"], &PKCS_ED25519, 0);
    let orders = [[&ecdsa, &lasting, &ed25519], [&ed25519, &lasting, &ecdsa], [&lasting, &ed25519, &ecdsa]];
    for order in orders {
        let mut all = vec![Arc::clone(&first)];
        all.extend(order.into_iter().cloned());
        let table = CertificateTable::new(all, ANY).unwrap();
        let find = |name, schemes: &[_]| table.find(name, schemes).unwrap();
        assert!(Arc::ptr_eq(&find(Some("a.test"), SCHEMES), &lasting));
        assert!(Arc::ptr_eq(&find(Some("a.test"), &[SignatureScheme::ED25519]), &ed25519));
        // The default is the first that the client can verify; the first of all where there is none.
        assert!(Arc::ptr_eq(&find(None, SCHEMES), &first));
        assert!(!Arc::ptr_eq(&find(None, &[SignatureScheme::ECDSA_NISTP256_SHA256]), &first));
        assert!(Arc::ptr_eq(&find(None, &[]), &first));
    }
}

/// The rule as one reads it: exact before wildcard, one label, anywhere in the list.
fn naive(certificates: &[Vec<String>], name: &str) -> usize {
    let has = |wanted: &str| certificates.iter().position(|names| names.iter().any(|name| name == wanted));
    let parent = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    has(name).or_else(|| parent.and_then(|parent| has(&parent))).unwrap_or(0)
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|labels| labels.join("."))
}

fn pattern() -> impl Strategy<Value = String> {
    (any::<bool>(), name()).prop_map(|(wild, name)| if wild { format!("*.{name}") } else { name })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_table_agrees_with_a_scan_in_any_order(
        names in prop::collection::btree_set(pattern(), 1..10),
        asked in prop::collection::vec(name(), 20),
        seed in any::<u64>(),
    ) {
        // Every name belongs to one certificate; two names a certificate; the order is shuffled by the seed.
        let names: Vec<_> = names.into_iter().collect();
        let mut certificates: Vec<Vec<String>> = names.chunks(2).map(<[_]>::to_vec).collect();
        let mut rng = crate::base::rng::Rng::new(seed);
        for last in (1..certificates.len()).rev() {
            certificates.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let made: Vec<_> = certificates.iter().map(|names| make(&names.iter().map(String::as_str).collect::<Vec<_>>())).collect();
        let table = CertificateTable::new(made.clone(), ANY).unwrap();
        for name in asked {
            let found = table.find(Some(&name), SCHEMES).unwrap();
            prop_assert!(Arc::ptr_eq(&found, &made[naive(&certificates, &name)]), "{} of {:?}", name, certificates);
        }
    }
}

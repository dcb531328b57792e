//! Which demand holds for which name, whatever the order of the certificates.

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519};

use super::*;
use crate::transport::tls::ClientCertificates;
use crate::transport::tls::tests::{ANY, certificate};

/// A demand that differs from those of other numbers, and from none, which is 0.
fn demand(number: u8) -> ClientPolicy {
    let kind = match number {
        0 => ClientCertificates::None,
        1 => ClientCertificates::Optional { authorities: [1; 32] },
        _ => ClientCertificates::Required { authorities: [number; 32] },
    };
    ClientPolicy { kind, ..ClientPolicy::NONE }
}

fn policies(certificates: &[(&[&str], u8)]) -> Result<Policies, PolicyError> {
    let made = |(names, number): &(&[&str], u8)| (certificate(names, &PKCS_ECDSA_P256_SHA256, 0), demand(*number));
    Policies::new(&certificates.iter().map(made).collect::<Vec<_>>(), ANY)
}

fn kind(policies: &Policies, name: Option<&str>) -> ClientCertificates {
    policies.entries[policies.position(name)].policy.kind
}

#[test]
fn a_name_has_the_demand_of_the_certificate_that_it_gets() {
    let mut certificates: [(&[&str], u8); 4] =
        [(&["a.test", "*.a.test"], 0), (&["admin.a.test"], 2), (&["10.0.0.1", "b.test"], 1), (&["*.b.test"], 2)];
    for _ in 0..4 {
        certificates.rotate_left(1);
        let policies = policies(&certificates).unwrap();
        for (name, number) in
            [("a.test", 0), ("x.a.test", 0), ("admin.a.test", 2), ("10.0.0.1", 1), ("b.test", 1), ("x.b.test", 2)]
        {
            assert_eq!(kind(&policies, Some(name)), demand(number).kind, "{name}");
        }
        // The default's, for whoever else is asked for.
        for name in [None, Some("other.test"), Some("x.y.a.test"), Some("")] {
            assert_eq!(kind(&policies, name), demand(certificates[0].1).kind, "{name:?}");
        }
        assert_eq!(policies.entries.len(), 3, "equal demands are one");
    }
}

#[test]
fn each_demand_has_its_own_certificates_and_no_others() {
    let policies = policies(&[(&["a.test"], 0), (&["b.test"], 2), (&["c.test"], 0)]).unwrap();
    let counts: Vec<usize> = policies.entries.iter().map(|entry| entry.table.certificates().len()).collect();
    assert_eq!(counts, [2, 1]);
}

#[test]
fn certificates_of_one_name_demand_the_same() {
    let ecdsa = certificate(&["a.test", "b.test"], &PKCS_ECDSA_P256_SHA256, 0);
    let ed25519 = certificate(&["b.test"], &PKCS_ED25519, 0);
    let with = |one, other| {
        let certificates = [(Arc::clone(&ecdsa), demand(one)), (Arc::clone(&ed25519), demand(other))];
        Policies::new(&certificates, ANY).err()
    };
    assert_eq!(with(2, 2), None);
    assert_eq!(with(2, 1), Some(PolicyError::Conflict("b.test".to_owned())));
    let wild = [(&["*.a.test"][..], 0), (&["*.a.test"][..], 1)];
    assert_eq!(policies(&wild).err(), Some(PolicyError::Conflict("*.a.test".to_owned())));
    assert_eq!(policies(&[]).err(), Some(PolicyError::NoCertificates(NoCertificates)));
}

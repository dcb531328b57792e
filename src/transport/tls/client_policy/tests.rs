//! The subject and the fingerprint of certificates, held against what OpenSSL writes for them.

use std::process::Command;

use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use tempfile::TempDir;

use super::*;

fn made(name: DistinguishedName) -> rcgen::Certificate {
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.self_signed(&KeyPair::generate().unwrap()).unwrap()
}

/// What `openssl x509` says of a certificate, without the names of what it says.
fn openssl(certificate: &rcgen::Certificate) -> (String, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("client.crt");
    std::fs::write(&file, certificate.pem()).unwrap();
    let told = |arguments: &[&str]| {
        let output =
            Command::new("openssl").args(["x509", "-noout", "-in"]).arg(&file).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_once('=').unwrap().1.strip_suffix('\n').unwrap().to_owned()
    };
    (told(&["-subject", "-nameopt", "RFC2253"]), told(&["-fingerprint", "-sha256"]).replace(':', "").to_lowercase())
}

#[test]
fn a_subject_reads_as_openssl_writes_it() {
    let mut name = DistinguishedName::new();
    for (kind, value) in [
        (DnType::CountryName, DnValue::PrintableString(PrintableString::try_from("DE").unwrap())),
        (DnType::OrganizationName, DnValue::Utf8String("Sue, Grabbit + \"Runn\"; <Söhne> \\".to_owned())),
        (DnType::OrganizationalUnitName, DnValue::TeletexString(TeletexString::try_from("#1 plain").unwrap())),
        (DnType::LocalityName, DnValue::BmpString(BmpString::try_from("Łódź").unwrap())),
        (DnType::StateOrProvinceName, DnValue::Utf8String(" spaces around ".to_owned())),
        (
            DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]),
            DnValue::Ia5String(Ia5String::try_from("a@b.test").unwrap()),
        ),
        (DnType::CustomDnType(vec![1, 2, 3, 4, 55]), DnValue::Utf8String("of no name".to_owned())),
        (DnType::CommonName, DnValue::Utf8String("robot\r\nX-Evil: 1\u{7f}".to_owned())),
    ] {
        name.push(kind, value);
    }
    let certificate = made(name);
    let identity = identity_of(std::slice::from_ref(certificate.der())).unwrap();
    assert_eq!((identity.subject, identity.fingerprint), openssl(&certificate));
}

#[test]
fn an_empty_subject_is_empty_and_one_that_is_too_long_is_none() {
    let identity = identity_of(std::slice::from_ref(made(DistinguishedName::new()).der())).unwrap();
    assert_eq!(identity.subject, "");
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "x".repeat(SUBJECT_MAX));
    assert_eq!(identity_of(std::slice::from_ref(made(name).der())), None);
    assert_eq!(identity_of(&[]), None);
}

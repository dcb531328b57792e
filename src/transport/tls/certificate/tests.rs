//! Certificate files, good and bad, each held against the sentence that is said of it.

use std::fs;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SanType};
use tempfile::TempDir;

use super::*;

struct Made {
    certificate: String,
    key: String,
    der: Vec<u8>,
}

fn make(names: &[&str], last_year: i32) -> Made {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_after = rcgen::date_time_ymd(last_year, 6, 1);
    let certificate = params.self_signed(&key).unwrap();
    Made { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().to_vec() }
}

/// Loads a certificate and a key file of this content; the folder's name is left out of the message.
fn load(certificate: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let folder = TempDir::new().unwrap();
    let files = CertificateFiles { certificate: folder.path().join("site.crt"), key: folder.path().join("site.key") };
    fs::write(&files.certificate, certificate).unwrap();
    fs::write(&files.key, key).unwrap();
    load_certificate(&files).map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn check_error(certificate: &[u8], key: &[u8], expected: &str) {
    assert_eq!(load(certificate, key).err().as_deref(), Some(expected));
}

#[test]
fn a_chain_and_its_key_are_loaded_also_from_one_file() {
    let (site, authority) = (make(&["a.test"], 2031), make(&["ca.test"], 2030));
    let chain = format!("a comment\n{}{}", site.certificate, authority.certificate);
    assert_eq!(load(chain.as_bytes(), site.key.as_bytes()).unwrap().cert.len(), 2);
    let all = format!("{}{chain}", site.key);
    assert_eq!(load(all.as_bytes(), all.as_bytes()).unwrap().cert.len(), 2);
}

#[test]
fn the_chain_expires_with_the_first_of_its_certificates() {
    let (site, authority) = (make(&["a.test"], 2031), make(&["ca.test"], 2030));
    let chain = format!("{}{}", site.certificate, authority.certificate);
    let loaded = load(chain.as_bytes(), site.key.as_bytes()).unwrap();
    let first_of_june_2030 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_906_502_400);
    assert_eq!(expiry(&loaded), Some(first_of_june_2030));
}

#[test]
fn a_missing_file_is_named_with_what_relative_names_mean() {
    let missing = CertificateFiles { certificate: "/nowhere/site.crt".into(), key: "/nowhere/site.key".into() };
    assert_eq!(
        load_certificate(&missing).unwrap_err().to_string(),
        "can't read /nowhere/site.crt: No such file or directory (os error 2); relative names start at the folder of the \
         rule file that names them"
    );
    let folder = TempDir::new().unwrap();
    let files = CertificateFiles { certificate: folder.path().to_owned(), key: folder.path().to_owned() };
    assert!(matches!(load_certificate(&files), Err(CertificateError::Unreadable { .. })));
}

#[test]
fn a_file_that_is_no_certificate_by_its_size_is_not_read_to_its_end() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("huge.crt");
    std::fs::File::create(&path).unwrap().set_len(FILE_MAX + 1).unwrap();
    let files = CertificateFiles { certificate: path.clone(), key: path.clone() };
    assert_eq!(
        load_certificate(&files).unwrap_err().to_string(),
        format!("can't read {}: more than 1 MiB is no certificate or key", path.display())
    );
}

/// To open a pipe would wait for somebody to write to it, and a device may never end.
#[test]
fn what_is_no_ordinary_file_is_not_opened() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [pipe, "/dev/zero".into()] {
        let files = CertificateFiles { certificate: path.clone(), key: path.clone() };
        assert_eq!(
            load_certificate(&files).unwrap_err().to_string(),
            format!("can't read {}: it is no ordinary file", path.display())
        );
    }
}

#[test]
fn a_file_without_what_it_should_hold_says_what_that_is() {
    let site = make(&["a.test"], 2030);
    check_error(
        b"hello",
        site.key.as_bytes(),
        "site.crt holds no certificate: it needs a block that begins with -----BEGIN CERTIFICATE-----, the site's own first",
    );
    check_error(
        &site.der,
        site.key.as_bytes(),
        "site.crt holds no certificate: it needs a block that begins with -----BEGIN CERTIFICATE-----, the site's own first; \
         it looks like DER, which `openssl x509 -inform der -in FILE -out FILE.crt` turns into PEM",
    );
    check_error(
        site.certificate.as_bytes(),
        site.certificate.as_bytes(),
        "site.key holds no private key: it needs a block that begins with -----BEGIN PRIVATE KEY----- (or EC, or RSA PRIVATE KEY)",
    );
    check_error(
        site.certificate.as_bytes(),
        site.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY").as_bytes(),
        "the private key in site.key has a passphrase: `openssl pkey -in FILE -out FILE.key` makes a copy without one",
    );
}

#[test]
fn a_broken_file_is_named() {
    let site = make(&["a.test"], 2030);
    let cut = &site.certificate[..site.certificate.len() / 2];
    let error = load(cut.as_bytes(), site.key.as_bytes()).unwrap_err();
    assert!(error.starts_with("site.crt is not valid PEM: "), "{error}");
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = load(format!("{}{nonsense}", site.certificate).as_bytes(), site.key.as_bytes()).unwrap_err();
    assert!(error.starts_with("certificate 2 in site.crt can't be used: "), "{error}");
    let nonsense = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let error = load(site.certificate.as_bytes(), nonsense.as_bytes()).unwrap_err();
    assert!(error.starts_with("the private key in site.key can't be used: "), "{error}");
}

#[test]
fn a_key_of_another_certificate_is_refused_and_its_own_is_pointed_out() {
    let (site, other) = (make(&["a.test"], 2030), make(&["b.test"], 2030));
    check_error(
        site.certificate.as_bytes(),
        other.key.as_bytes(),
        "the key in site.key does not belong to the certificate in site.crt; name the key that the certificate was made for",
    );
    let wrong_order = format!("{}{}", site.certificate, other.certificate);
    check_error(
        wrong_order.as_bytes(),
        other.key.as_bytes(),
        "the key in site.key does not belong to the certificate in site.crt: it belongs to certificate 2 of that file, \
         which must stand first",
    );
}

#[test]
fn names_are_the_alternative_names_that_clients_accept() {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params =
        CertificateParams::new(["A.Test", "*.b.test", "w*.c.test", "*", "192.0.2.7", "2001:db8::1"].map(String::from))
            .unwrap();
    params.subject_alt_names.push(SanType::Rfc822Name("mail@d.test".try_into().unwrap()));
    let certificate = params.self_signed(&key).unwrap();
    assert_eq!(
        certificate_names(certificate.der()),
        [
            CertificateName::Host("a.test".into()),
            CertificateName::Host("*.b.test".into()),
            CertificateName::Address("192.0.2.7".parse().unwrap()),
            CertificateName::Address("2001:db8::1".parse().unwrap()),
        ]
    );
    assert_eq!(certificate_names(b"nonsense"), []);
}

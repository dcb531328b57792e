//! What is offered and asked for in a handshake with a server, seen from a listener of our own.

use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;
use crate::pure::config::CertificateFiles;
use crate::shared::endpoint::tests::endpoint;
use crate::transport::tls::{CertificateTable, ClientCertificates, TicketSecret, TlsAcceptor, load_certificate};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A self-signed certificate for these names, as files in `folder`.
fn files(folder: &Path, names: &[&str]) -> CertificateFiles {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let files = CertificateFiles { certificate: folder.join("s.crt"), key: folder.join("s.key") };
    std::fs::write(&files.certificate, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

/// What comes of a handshake with a server that has a certificate for `names`.
fn handshake(names: &[&str], server_name: Option<&str>, alpn: &[&[u8]]) -> Result<Option<Vec<u8>>, DialError> {
    let folder = TempDir::new().unwrap();
    let files = files(folder.path(), names);
    let tls = UpstreamTls {
        verification: Verification::Authorities(files.certificate.clone()),
        server_name: server_name.map(str::to_owned),
        certificate: None,
    };
    let connector = TlsConnector::new(&tls, &mut SystemAuthorities::default(), alpn).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = endpoint(Address::Socket(listener.local_addr().unwrap()), &[]);
        let key = load_certificate(&files).unwrap();
        let table = Arc::new(CertificateTable::new(vec![key], [127, 0, 0, 1].into()).unwrap());
        let tickets = TicketSecret::from_bytes(&[7; 32]).ticketer(ClientCertificates::None);
        let acceptor = TlsAcceptor::new(&table, &tickets, &[b"h2", HTTP1]).unwrap();
        let server = async {
            let (tcp, _) = listener.accept().await.unwrap();
            acceptor.accept(tcp).await
        };
        let (client, _server) = tokio::join!(dial_tls(&endpoint, &connector, None, TIMEOUT), server);
        client.map(|stream| stream.protocol().map(<[u8]>::to_vec))
    })
}

#[test]
fn the_server_chooses_among_what_is_offered() {
    let names = ["app.internal"];
    let chosen = |alpn| handshake(&names, Some("app.internal"), alpn).unwrap();
    assert_eq!(chosen(&[b"h2"]).as_deref(), Some(&b"h2"[..]));
    assert_eq!(chosen(&[HTTP1]).as_deref(), Some(HTTP1));
    assert_eq!(chosen(&[]), None);
}

#[test]
fn a_certificate_is_for_the_name_or_else_for_the_address() {
    for (names, server_name, is_good) in [
        (["app.internal"], Some("app.internal"), true),
        (["app.internal"], Some("APP.internal."), true),
        (["app.internal"], Some("other.internal"), false),
        (["app.internal"], None, false),
        (["127.0.0.1"], None, true),
        (["10.0.0.1"], Some("10.0.0.1"), true),
        (["10.0.0.1"], None, false),
    ] {
        let result = handshake(&names, server_name, &[HTTP1]);
        match (&result, is_good) {
            (Ok(_), true) | (Err(DialError::Handshake(_)), false) => {}
            _ => panic!("{names:?} for {server_name:?}: {result:?}"),
        }
    }
}

#[test]
fn a_unix_socket_has_no_name_of_its_own() {
    let tls = UpstreamTls { verification: Verification::Insecure, server_name: None, certificate: None };
    let connector = TlsConnector::new(&tls, &mut SystemAuthorities::default(), &[]).unwrap();
    assert!(connector.name_for(&Address::Unix("/run/app".into())).is_none());
    assert!(connector.name_for(&Address::Name("app.internal".to_owned(), 1)).is_some());
}

#[test]
fn a_connector_without_sessions_shakes_hands_in_full_each_time() {
    let folder = TempDir::new().unwrap();
    let files = files(folder.path(), &["app.internal"]);
    let verification = Verification::Authorities(files.certificate.clone());
    let tls = UpstreamTls { verification, ..UpstreamTls::default() };
    let connector = TlsConnector::new(&tls, &mut SystemAuthorities::default(), &[]).unwrap();
    let table =
        Arc::new(CertificateTable::new(vec![load_certificate(&files).unwrap()], [127, 0, 0, 1].into()).unwrap());
    let tickets = TicketSecret::from_bytes(&[7; 32]).ticketer(ClientCertificates::None);
    let server = crate::transport::tls::server_config(table, tickets, &[]).unwrap();
    let kinds = |connector: &TlsConnector| {
        [(); 2].map(|()| {
            let (server, _) =
                crate::transport::tls::tests::connect(&server, &connector.config, "app.internal").unwrap();
            server.handshake_kind().unwrap()
        })
    };
    assert_eq!(kinds(&connector.without_sessions()), [rustls::HandshakeKind::Full; 2]);
    assert_eq!(kinds(&connector)[1], rustls::HandshakeKind::Resumed, "as requests do");
}

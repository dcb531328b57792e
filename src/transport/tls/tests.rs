//! Handshakes in memory between a rustls client and the configurations made here, and what the other tests make
//! certificates with.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SignatureAlgorithm};
use rustls::client::Resumption;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion, RootCertStore, ServerConnection,
    SupportedProtocolVersion,
};

use super::*;

/// A self-signed certificate for these names, valid for `days` from now on.
pub(crate) fn certificate(names: &[&str], algorithm: &'static SignatureAlgorithm, days: i64) -> Arc<CertifiedKey> {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_after = rcgen::date_time_ymd(2030, 1, 1) + std::time::Duration::from_secs(days.unsigned_abs() * 86_400);
    let certificate = params.self_signed(&key).unwrap();
    let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Arc::new(CertifiedKey::from_der(vec![certificate.into()], der, provider()).unwrap())
}

pub(crate) const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(crate) fn table(names: &[&str]) -> Arc<CertificateTable> {
    Arc::new(CertificateTable::new(vec![certificate(names, &PKCS_ECDSA_P256_SHA256, 0)], ANY).unwrap())
}

pub(crate) fn client(
    table: &CertificateTable,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&[u8]],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certified in table.certificates() {
        roots.add(certified.cert[0].clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

/// Shakes hands, lets the client read one byte (and its tickets with it), and gives both ends.
pub(super) fn connect(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<(ServerConnection, ClientConnection), rustls::Error> {
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    while server.is_handshaking() || client.is_handshaking() {
        exchange(&mut server, &mut client)?;
    }
    std::io::Write::write_all(&mut server.writer(), b"x").unwrap();
    exchange(&mut server, &mut client)?;
    let mut byte = [0];
    std::io::Read::read_exact(&mut client.reader(), &mut byte).unwrap();
    assert_eq!(&byte, b"x");
    Ok((server, client))
}

fn exchange(server: &mut ServerConnection, client: &mut ClientConnection) -> Result<(), rustls::Error> {
    let mut wire = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut wire).unwrap();
    }
    let mut rest = &wire[..];
    while !rest.is_empty() {
        server.read_tls(&mut rest).unwrap();
        server.process_new_packets()?;
    }
    let mut wire = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut wire).unwrap();
    }
    let mut rest = &wire[..];
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

pub(crate) fn ticketer() -> Arc<Ticketer> {
    TicketSecret::random().unwrap().ticketer(ClientCertificates::None)
}

#[test]
fn a_client_that_can_gets_the_hybrid_group_and_http1() {
    let table = table(&["a.test"]);
    let server = server_config(Arc::clone(&table), ticketer(), &[HTTP1]).unwrap();
    let client = Arc::new(client(&table, &[&TLS13, &TLS12], &[b"h2", HTTP1]));
    let (server, client) = connect(&server, &client, "a.test").unwrap();
    assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(server.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);
    assert_eq!(client.alpn_protocol(), Some(HTTP1));
    assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
}

#[test]
fn a_client_without_a_protocol_in_common_is_refused_and_one_that_names_none_is_not() {
    let table = table(&["a.test"]);
    let server = server_config(Arc::clone(&table), ticketer(), &[HTTP1]).unwrap();
    let other = Arc::new(client(&table, &[&TLS13], &[b"h3"]));
    assert_eq!(connect(&server, &other, "a.test").unwrap_err(), rustls::Error::NoApplicationProtocol);
    let silent = Arc::new(client(&table, &[&TLS13], &[]));
    assert_eq!(connect(&server, &silent, "a.test").unwrap().0.alpn_protocol(), None);
}

#[test]
fn sessions_resume_in_both_versions_and_take_a_new_ticket_each_time() {
    for version in [&TLS13, &TLS12] {
        let table = table(&["a.test"]);
        let server = server_config(Arc::clone(&table), ticketer(), &[HTTP1]).unwrap();
        let client = Arc::new(client(&table, &[version], &[HTTP1]));
        assert_eq!(connect(&server, &client, "a.test").unwrap().0.handshake_kind(), Some(HandshakeKind::Full));
        for _ in 0..3 {
            let (server, client) = connect(&server, &client, "a.test").unwrap();
            assert_eq!(server.handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
            assert_eq!(client.handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
        }
    }
}

#[test]
fn one_ticket_is_sent_per_handshake() {
    let table = table(&["a.test"]);
    let server = server_config(Arc::clone(&table), ticketer(), &[HTTP1]).unwrap();
    let client = Arc::new(client(&table, &[&TLS13], &[HTTP1]));
    assert_eq!(connect(&server, &client, "a.test").unwrap().1.tls13_tickets_received(), 1);
    assert_eq!(connect(&server, &client, "a.test").unwrap().1.tls13_tickets_received(), 1);
}

#[test]
fn a_session_resumes_on_another_listener_of_the_same_policy_and_on_none_of_another() {
    let authorities = [7; 32];
    let policies = [
        ClientCertificates::None,
        ClientCertificates::Optional { authorities },
        ClientCertificates::Required { authorities },
        ClientCertificates::Required { authorities: [8; 32] },
    ];
    for version in [&TLS13, &TLS12] {
        let secret = TicketSecret::random().unwrap();
        let table = table(&["a.test"]);
        for (from, first) in policies.iter().enumerate() {
            for (to, second) in policies.iter().enumerate() {
                let config = |policy| server_config(Arc::clone(&table), secret.ticketer(policy), &[HTTP1]).unwrap();
                let client = Arc::new(client(&table, &[version], &[HTTP1]));
                connect(&config(*first), &client, "a.test").unwrap();
                let (server, _) = connect(&config(*second), &client, "a.test").unwrap();
                let expected = if from == to { HandshakeKind::Resumed } else { HandshakeKind::Full };
                assert_eq!(server.handshake_kind(), Some(expected), "{first:?} to {second:?} in {version:?}");
            }
        }
    }
}

#[test]
fn a_server_takes_no_early_data() {
    let table = table(&["a.test"]);
    let server = server_config(Arc::clone(&table), ticketer(), &[HTTP1]).unwrap();
    let mut client = client(&table, &[&TLS13], &[HTTP1]);
    client.enable_early_data = true;
    let client = Arc::new(client);
    connect(&server, &client, "a.test").unwrap();
    let name = ServerName::try_from("a.test").unwrap();
    let mut again = ClientConnection::new(client, name).unwrap();
    assert!(again.early_data().is_none(), "the ticket offers none");
    assert_eq!(server.max_early_data_size, 0);
}

#[test]
fn the_certificate_follows_the_name_that_the_client_asks_for() {
    let (a, b) =
        (certificate(&["a.test"], &PKCS_ECDSA_P256_SHA256, 0), certificate(&["*.b.test"], &PKCS_ECDSA_P256_SHA256, 0));
    let table = Arc::new(CertificateTable::new(vec![Arc::clone(&a), Arc::clone(&b)], ANY).unwrap());
    let server = server_config(Arc::clone(&table), ticketer(), &[HTTP1]).unwrap();
    let client = Arc::new(client(&table, &[&TLS13], &[HTTP1]));
    for (name, expected) in [("a.test", &a), ("x.b.test", &b), ("X.B.TEST", &b), ("x.b.test.", &b)] {
        let (_, client) = connect(&server, &client, name).unwrap();
        assert_eq!(client.peer_certificates().unwrap()[0], expected.cert[0], "{name}");
    }
    // Nobody has this name: the default comes, and the client refuses it by its own judgement.
    let error = connect(&server, &client, "c.test").unwrap_err();
    assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{error}");
}

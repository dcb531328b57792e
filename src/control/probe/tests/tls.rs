//! Checks of servers that speak TLS: the handshake is the pool's own, and a certificate that requests would not take is a
//! failure.

use tempfile::TempDir;

use super::http2::{PLAIN, Seen, serve};
use super::*;
use crate::pure::config::CertificateFiles;
use crate::pure::pool::{UpstreamTls, Verification};
use crate::transport::tls::{
    CertificateTable, ClientCertificates, HTTP1, SystemAuthorities, TicketSecret, TlsAcceptor, load_certificate,
};

/// What a server does on a connection on which a handshake came about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Answers,
    AnswersHttp2,
    Closes,
}

/// A world of one TLS server.
struct World {
    _folder: TempDir,
    files: CertificateFiles,
}

impl World {
    fn new(names: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = CertificateFiles { certificate: path("s.crt"), key: path("s.key") };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        Self { _folder: folder, files }
    }

    /// Who trusts the certificate of this world, for its name.
    fn connector(&self, server_name: &str, alpn: &[&[u8]]) -> TlsConnector {
        let tls = UpstreamTls {
            verification: Verification::Authorities(self.files.certificate.clone()),
            server_name: Some(server_name.to_owned()),
            certificate: None,
        };
        TlsConnector::new(&tls, &mut SystemAuthorities::default(), alpn).unwrap()
    }

    /// What comes of `count` checks in a row, with these lines, of a server that speaks those protocols.
    fn checks(
        &self,
        count: usize,
        lines: &str,
        connector: &TlsConnector,
        speaks: &[&[u8]],
        then: Then,
    ) -> Vec<Result<(), CheckFailure>> {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = Address::Socket(listener.local_addr().unwrap());
            let pool = pool_at(&address.to_string(), lines);
            let key = load_certificate(&self.files).unwrap();
            let table = Arc::new(CertificateTable::new(vec![key], [127, 0, 0, 1].into()).unwrap());
            let tickets = TicketSecret::from_bytes(&[7; 32]).ticketer(ClientCertificates::None);
            let acceptor = TlsAcceptor::new(&table, &tickets, speaks).unwrap();
            let mut results = Vec::new();
            for _ in 0..count {
                let server = async {
                    let (tcp, _) = listener.accept().await.unwrap();
                    let Ok(mut stream) = acceptor.accept(tcp).await else { return };
                    match then {
                        Then::Answers => _ = answer(&mut stream, OK, true).await,
                        Then::AnswersHttp2 => serve(stream, Some(PLAIN), Seen::default()).await,
                        Then::Closes => {}
                    }
                };
                let endpoint = endpoint(address.clone(), &[]);
                let (result, ()) = tokio::join!(check(&endpoint, &pool, Some(connector), TIMEOUT), server);
                results.push(result.map(|_| ()).map_err(|error| error.as_failure()));
            }
            results
        })
    }
}

const TLS: &str = "upstream \"http/1.1\" { tls }";

#[test]
fn a_handshake_that_comes_about_passes_and_a_request_goes_over_it() {
    let world = World::new(&["app.internal"]);
    let connector = world.connector("app.internal", &[HTTP1]);
    let lines = |check: &str| format!("{TLS}\n{check}");
    let of = |check: &str, then| world.checks(2, &lines(check), &connector, &[HTTP1], then);
    assert_eq!(of("check \"tls\"", Then::Closes), [Ok(()), Ok(())]);
    assert_eq!(of("check \"http\" body=\"well\"", Then::Answers), [Ok(()), Ok(())]);
    assert_eq!(
        of("check \"http\" status=\"404\"", Then::Answers),
        [wrong(WrongAnswer::Status(200)), wrong(WrongAnswer::Status(200))]
    );
    assert_eq!(of("check \"http\"", Then::Closes)[0], wrong(WrongAnswer::Cut));
}

#[test]
fn a_certificate_for_another_name_fails_though_the_server_takes_connections() {
    let world = World::new(&["app.internal"]);
    let connector = world.connector("other.internal", &[HTTP1]);
    for check in ["check \"tls\"", "check \"http\""] {
        let results = world.checks(1, &format!("{TLS}\n{check}"), &connector, &[HTTP1], Then::Answers);
        assert_eq!(results, [wrong(WrongAnswer::Certificate)]);
    }
    let connects = world.checks(1, &format!("{TLS}\ncheck \"tcp\""), &connector, &[HTTP1], Then::Closes);
    assert_eq!(connects, [Ok(())]);
}

#[test]
fn http2_is_asked_over_tls_where_the_server_agrees_to_it() {
    let world = World::new(&["app.internal"]);
    let connector = world.connector("app.internal", &[HTTP2]);
    let lines = "upstream \"h2\"\ncheck \"http\" body=\"well\"";
    let results = world.checks(2, lines, &connector, &[HTTP2], Then::AnswersHttp2);
    assert_eq!(results, [Ok(()), Ok(())]);
}

#[test]
fn a_server_that_does_not_agree_to_http2_or_speaks_no_tls_fails() {
    let world = World::new(&["app.internal"]);
    let connector = world.connector("app.internal", &[HTTP2]);
    let h2 = "upstream \"h2\"\ncheck \"http\"";
    // It has nothing in common with us, and says so.
    assert_eq!(world.checks(1, h2, &connector, &[HTTP1], Then::Answers), [wrong(WrongAnswer::Handshake)]);
    // It chooses no protocol at all.
    assert_eq!(world.checks(1, h2, &connector, &[], Then::Closes), [wrong(WrongAnswer::NotHttp2)]);
    let result = run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Socket(listener.local_addr().unwrap());
        let pool = pool_at(&address.to_string(), &format!("{TLS}\ncheck \"tls\""));
        let endpoint = endpoint(address, &[]);
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        };
        let (result, ()) = tokio::join!(check(&endpoint, &pool, Some(&connector), TIMEOUT), server);
        result.map(|_| ()).map_err(|error| error.as_failure())
    });
    assert_eq!(result, wrong(WrongAnswer::Handshake));
}

#[test]
fn a_pool_whose_tls_is_not_there_yet_is_not_checked_and_not_blamed() {
    let (socket, address) = bound();
    socket.listen(16).unwrap();
    for check in ["check \"tls\"", "check \"http\""] {
        let result = run(check_at(&address, &[], &format!("{TLS}\n{check}"), TIMEOUT));
        assert_eq!(result, Err(CheckFailure::NotRun));
    }
    assert_eq!(run(check_at(&address, &[], &format!("{TLS}\ncheck \"tcp\""), TIMEOUT)), Ok(()));
}

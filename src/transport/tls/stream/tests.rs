//! Over real sockets, with rustls's own client at the other end.

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ClientConnection, HandshakeKind, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::base::rng::Rng;
use crate::transport::tls::tests::{client, table, ticketer};
use crate::transport::tls::{HTTP1, TlsAcceptor};

type ClientStream = tokio_rustls::client::TlsStream<TcpStream>;

const BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// A listener's acceptor and a client that trusts it.
struct Pair {
    acceptor: TlsAcceptor,
    client: ClientConfig,
}

fn pair(versions: &[&'static SupportedProtocolVersion]) -> Pair {
    let table = table(&["a.test"]);
    let client = client(&table, versions, &[HTTP1]);
    Pair { acceptor: TlsAcceptor::new(&table, &ticketer(), &[HTTP1]).unwrap(), client }
}

/// Runs a test with a bound on its time.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.unwrap() });
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

async fn connect(pair: &Pair) -> (ClientStream, TlsStream) {
    let (near, far) = sockets().await;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(pair.client.clone()));
    let name = ServerName::try_from("A.test").unwrap();
    let (client, server) = tokio::join!(connector.connect(name, near), pair.acceptor.accept(far));
    (client.unwrap(), server.unwrap())
}

/// Whether the connection keeps any buffer.
fn owns_buffers(stream: &TlsStream) -> bool {
    stream.session.incoming().len() + stream.session.plain.rest().len() + stream.session.outgoing.rest().len() > 0
}

#[test]
fn it_tells_what_was_agreed_and_asked_for() {
    run(async {
        for (version, text) in [(&TLS13, "TLSv1.3"), (&TLS12, "TLSv1.2")] {
            let (_client, server) = connect(&pair(&[version])).await;
            assert_eq!(server.version(), Some(text));
            assert_eq!(server.server_name(), Some("a.test"));
            assert_eq!(server.agreed().alpn_protocol(), Some(HTTP1));
        }
    });
}

#[test]
fn a_name_that_was_not_asked_for_is_no_other_connections() {
    run(async {
        let mut nameless = pair(&BOTH);
        nameless.client.enable_sni = false;
        let (_first, named) = connect(&pair(&BOTH)).await;
        let (_second, unnamed) = connect(&nameless).await;
        assert_eq!((named.server_name(), unnamed.server_name()), (Some("a.test"), None));
    });
}

#[test]
fn sessions_resume_and_the_name_is_known_then_too() {
    run(async {
        for version in BOTH {
            let pair = pair(&[version]);
            for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
                let (mut client, mut server) = connect(&pair).await;
                assert_eq!(server.agreed().handshake_kind(), Some(expected));
                assert_eq!(server.server_name(), Some("a.test"));
                // In TLS 1.3 the client has its ticket once it has read something.
                server.write_all(b"x").await.unwrap();
                client.read_u8().await.unwrap();
            }
        }
    });
}

/// Sends `total` bytes each way at once, in pieces of random sizes, and compares.
async fn exchange(seed: u64, version: &'static SupportedProtocolVersion, total: usize, piece: usize) {
    let (client, server) = connect(&pair(&[version])).await;
    let sent: Vec<u8> = {
        let mut rng = Rng::new(seed);
        (0..total).map(|_| rng.next_u64() as u8).collect()
    };
    let (mut client_read, mut client_write) = tokio::io::split(client);
    let (mut server_read, mut server_write) = tokio::io::split(server);
    tokio::join!(
        send(&mut client_write, &sent, seed + 1, piece),
        send(&mut server_write, &sent, seed + 2, piece),
        receive(&mut client_read, &sent, seed + 3, piece),
        receive(&mut server_read, &sent, seed + 4, piece),
    );
    assert!(!owns_buffers(&server_read.unsplit(server_write)), "all was given back (seed {seed})");
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), sent: &[u8], seed: u64, piece: usize) {
    let mut rng = Rng::new(seed);
    let mut rest = sent;
    while !rest.is_empty() {
        let length = 1 + rng.below(piece as u64) as usize;
        let (now, _) = rest.split_at(length.min(rest.len()));
        let (a, b) = now.split_at(rng.below(now.len() as u64 + 1) as usize);
        let count = stream.write_vectored(&[IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)]).await.unwrap();
        rest = &rest[count..];
    }
    stream.flush().await.unwrap();
}

async fn receive(stream: &mut (impl AsyncRead + Unpin), sent: &[u8], seed: u64, piece: usize) {
    let mut rng = Rng::new(seed);
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let mut buffer = vec![0; 1 + rng.below(piece as u64) as usize];
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "ended early (seed {seed})");
        got.extend_from_slice(&buffer[..count]);
    }
    assert!(got == sent, "other bytes came than were sent (seed {seed})");
}

#[test]
fn bytes_arrive_as_they_were_sent_both_ways_at_once() {
    run(async {
        for version in BOTH {
            exchange(1, version, 3_000_000, 300_000).await;
            exchange(2, version, 300_000, 5_000).await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn bytes_arrive_whatever_the_pieces(seed in any::<u32>(), is_13: bool, total in 1..200_000_usize, piece in 1..40_000_usize) {
        run(exchange(seed.into(), if is_13 { &TLS13 } else { &TLS12 }, total, piece.max(total / 500)));
    }
}

#[test]
fn it_is_readable_for_what_was_decrypted_already_and_for_an_end() {
    run(async {
        let (mut client, mut server) = connect(&pair(&[&TLS13])).await;
        assert!(poll_fn(|context| Poll::Ready(server.poll_readable(context).is_pending())).await);
        client.write_all(b"ab").await.unwrap();
        client.flush().await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'a');
        assert!(poll_fn(|context| Poll::Ready(server.poll_readable(context).is_ready())).await);
        assert_eq!(server.read_u8().await.unwrap(), b'b');
        client.shutdown().await.unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        assert!(poll_fn(|context| Poll::Ready(server.poll_readable(context).is_ready())).await);
    });
}

#[test]
fn a_client_that_ended_its_side_still_gets_its_answer_and_our_end() {
    run(async {
        for version in BOTH {
            let (mut client, mut server) = connect(&pair(&[version])).await;
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut got = String::new();
            server.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, "question");
            server.write_all(b"answer").await.unwrap();
            server.shutdown().await.unwrap();
            let mut got = String::new();
            client.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, "answer");
        }
    });
}

#[test]
fn an_end_that_the_client_did_not_say_is_an_error() {
    run(async {
        let (mut client, mut server) = connect(&pair(&[&TLS13])).await;
        client.write_all(b"cut").await.unwrap();
        client.flush().await.unwrap();
        client.get_mut().0.shutdown().await.unwrap();
        let error = server.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn what_is_no_tls_is_refused_with_an_alert() {
    run(async {
        let pair = pair(&BOTH);
        for bytes in [&b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"[..], &[22, 3, 1, 0, 4, 1, 0, 0, 0], &[0; 300]] {
            let (mut near, far) = sockets().await;
            near.write_all(bytes).await.unwrap();
            let error = pair.acceptor.accept(far).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            let mut alert = [0; 7];
            near.read_exact(&mut alert).await.unwrap();
            assert_eq!((alert[0], alert[5]), (21, 2), "a fatal alert");
        }
    });
}

#[test]
fn a_client_that_goes_away_ends_the_handshake() {
    run(async {
        let pair = pair(&BOTH);
        for bytes in [&b""[..], &[22, 3, 1]] {
            let (mut near, far) = sockets().await;
            near.write_all(bytes).await.unwrap();
            drop(near);
            assert_eq!(pair.acceptor.accept(far).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    });
}

#[test]
fn a_record_that_was_tampered_with_ends_it_with_an_alert() {
    run(async {
        let (mut client, mut server) = connect(&pair(&[&TLS13])).await;
        let record = [23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
        client.get_mut().0.write_all(&record).await.unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let error = client.read(&mut [0]).await.unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    });
}

/// A client by hand: its handshake's bytes go one at a time, and so does a request that comes with them.
#[test]
fn a_handshake_in_single_bytes_is_shaken_too() {
    run(async {
        for version in BOTH {
            let pair = pair(&[version]);
            let (near, far) = sockets().await;
            near.set_nodelay(true).unwrap();
            let server = async {
                let mut server = pair.acceptor.accept(far).await.unwrap();
                let mut got = [0; 5];
                server.read_exact(&mut got).await.unwrap();
                server.write_all(b"world").await.unwrap();
                (server, got)
            };
            let name = ServerName::try_from("a.test").unwrap();
            let mut tls = ClientConnection::new(Arc::new(pair.client.clone()), name).unwrap();
            std::io::Write::write_all(&mut tls.writer(), b"hello").unwrap();
            let client = async {
                let mut got = Vec::new();
                while got.len() < 5 {
                    let mut wire = Vec::new();
                    while tls.wants_write() {
                        tls.write_tls(&mut wire).unwrap();
                    }
                    for byte in wire {
                        near.writable().await.unwrap();
                        near.try_write(&[byte]).unwrap();
                        tokio::task::yield_now().await;
                    }
                    near.readable().await.unwrap();
                    let mut bytes = vec![0; 4096];
                    let Ok(count) = near.try_read(&mut bytes) else { continue };
                    let mut rest = &bytes[..count];
                    while !rest.is_empty() {
                        tls.read_tls(&mut rest).unwrap();
                        tls.process_new_packets().unwrap();
                    }
                    std::io::Read::read_to_end(&mut tls.reader(), &mut got).ok();
                }
                got
            };
            let ((server, got), answer) = tokio::join!(server, client);
            assert_eq!((&got, &*answer), (b"hello", &b"world"[..]));
            assert!(!owns_buffers(&server));
        }
    });
}

#[test]
fn a_ticket_goes_at_once_where_no_request_came_and_with_the_answer_where_one_did() {
    run(async {
        let pair = pair(&[&TLS13]);
        let (_client, server) = connect(&pair).await;
        assert!(!owns_buffers(&server), "the ticket is gone");

        let (near, far) = sockets().await;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(pair.client.clone()));
        let name = ServerName::try_from("a.test").unwrap();
        // The request waits in the client's session, and leaves together with the end of its handshake.
        let client = connector.connect_with(name, near, |session| {
            std::io::Write::write_all(&mut session.writer(), b"request").unwrap();
        });
        let (client, server) = tokio::join!(client, pair.acceptor.accept(far));
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        let waits = !server.session.outgoing.rest().is_empty();
        let came = server.session.plain.rest().to_vec();
        assert_eq!((waits, &*came), (true, &b"request"[..]));
        let mut request = [0; 7];
        server.read_exact(&mut request).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        assert!(!owns_buffers(&server));
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(client.get_ref().1.tls13_tickets_received(), 1);
    });
}

#[test]
fn keys_change_in_the_middle_when_the_client_wants_it() {
    run(async {
        let (mut client, mut server) = connect(&pair(&[&TLS13])).await;
        for number in 0..20_u8 {
            client.get_mut().1.refresh_traffic_keys().unwrap();
            client.write_all(&[number]).await.unwrap();
            client.flush().await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), number);
            server.write_all(&[number]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), number);
        }
    });
}

#[test]
fn a_client_that_does_not_read_makes_us_wait_and_keep_a_bounded_rest() {
    run(async {
        let (mut client, mut server) = connect(&pair(&[&TLS13])).await;
        let piece = vec![7; WRITE_MAX];
        let mut written = 0;
        let mut refused = 0;
        // The socket's own buffers grow for a while after they were first full.
        while refused < 100 {
            match poll_fn(|context| Poll::Ready(Pin::new(&mut server).poll_write(context, &piece))).await {
                Poll::Ready(count) => (written, refused) = (written + count.unwrap(), 0),
                Poll::Pending => refused += 1,
            }
            assert!(server.session.outgoing.rest().len() <= UNTAKEN_MAX);
            tokio::task::yield_now().await;
        }
        // Meanwhile the other way is open.
        client.write_all(b"still here").await.unwrap();
        client.flush().await.unwrap();
        let mut got = [0; 10];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"still here");
        let (_, read) = tokio::join!(server.flush(), async {
            let mut all = vec![0; written];
            client.read_exact(&mut all).await.map(|_| all.iter().all(|byte| *byte == 7))
        });
        assert!(read.unwrap());
        assert!(!owns_buffers(&server));
    });
}

#[test]
fn the_suite_is_ours_to_choose_unless_the_client_has_no_aes() {
    const AES_128: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;
    const AES_256: CipherSuite = CipherSuite::TLS13_AES_256_GCM_SHA384;
    const CHACHA: CipherSuite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    run(async {
        for (offered, expected) in [
            (&[AES_256, CHACHA, AES_128][..], AES_128),
            (&[AES_128, AES_256, CHACHA], AES_128),
            (&[CHACHA, AES_128, AES_256], CHACHA),
            (&[AES_256, CHACHA], AES_256),
            (&[AES_256], AES_256),
        ] {
            let table = table(&["a.test"]);
            let mut client = client(&table, &[&TLS13], &[HTTP1]);
            let mut provider = rustls::crypto::CryptoProvider::clone(client.crypto_provider());
            provider.cipher_suites.retain(|suite| offered.contains(&suite.suite()));
            provider.cipher_suites.sort_by_key(|suite| offered.iter().position(|offered| *offered == suite.suite()));
            let mut roots = rustls::RootCertStore::empty();
            roots.add(table.certificates()[0].cert[0].clone()).unwrap();
            client = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[&TLS13])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let acceptor = TlsAcceptor::new(&table, &ticketer(), &[HTTP1]).unwrap();
            let (_client, server) = connect(&Pair { acceptor, client }).await;
            assert_eq!(server.agreed().negotiated_cipher_suite().unwrap().suite(), expected, "of {offered:?}");
        }
    });
}

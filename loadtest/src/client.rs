//! A client of our own, for what wrk and h2load can't do: hold thousands of idle connections, and make TLS connections that never
//! resume (wrk resumes whatever it is told) at a given pace.
//!
//! It trusts any certificate: it measures servers on the same machine, and a check would only cost the load's core.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, NamedGroup, SignatureScheme};
use socket2::{Domain, Socket, Type};

use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;

mod h2;

pub use h2::REQUEST as PRIOR;

const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for 128 bytes and keeps the connection.
pub const KEEP: &[u8] = b"GET /128 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
/// Asks for 128 bytes and then for the end of the connection.
pub const CLOSE: &[u8] = b"GET /128 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";

/// Whom to connect to, and how.
#[derive(Clone)]
pub struct Target {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The settings of TLS, where it is spoken.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A connection.
pub struct Session {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Session {
    /// Connects from `source` (several of 127.0.0.0/8 give more ports than one) and shakes hands.
    pub fn open(target: &Target, source: Ipv4Addr) -> Outcome<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).doing(|| "making a socket".to_owned())?;
        if !source.is_unspecified() {
            socket.bind(&SocketAddr::from((source, 0)).into()).doing(|| format!("binding {source}"))?;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, target.port));
        socket.connect(&address.into()).doing(|| format!("connecting to {address}"))?;
        let stream = TcpStream::from(socket);
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
        set.and_then(|()| stream.set_write_timeout(Some(PATIENCE))).doing(|| "setting up a socket".to_owned())?;
        let mut session = Self { stream, tls: None };
        if let Some(config) = &target.tls {
            session.shake_hands(config)?;
        }
        Ok(session)
    }

    fn shake_hands(&mut self, config: &Arc<ClientConfig>) -> Outcome<()> {
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let mut tls = ClientConnection::new(config.clone(), name).doing(|| "starting TLS".to_owned())?;
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream).doing(|| "shaking hands".to_owned())?;
        }
        let group = tls.negotiated_key_exchange_group().map(|group| group.name());
        if tls.handshake_kind() != Some(HandshakeKind::Full) || group != Some(NamedGroup::X25519) {
            return Err(Failure::new(format!(
                "not a full handshake over X25519: {:?}, {group:?}",
                tls.handshake_kind()
            )));
        }
        let offered = config.alpn_protocols.first().map(Vec::as_slice);
        if offered == Some(b"h2") && tls.alpn_protocol() != offered {
            return Err(Failure::new("the server does not speak HTTP/2"));
        }
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// The first exchange of a connection that is then left idle.
    pub fn first_exchange(&mut self, protocol: Protocol) -> Outcome<()> {
        match protocol {
            Protocol::H1 => self.exchange(KEEP),
            Protocol::H2 => self.exchange_h2(),
        }
    }

    /// Sends `request` and reads its answer, which must be a 200 with a body of 128 bytes.
    pub fn exchange(&mut self, request: &[u8]) -> Outcome<()> {
        self.answer(request, &mut [0; 4096]).map(drop)
    }

    /// The same, and the answer's bytes are in `buffer`; returns how many.
    pub fn answer(&mut self, request: &[u8], buffer: &mut [u8; 4096]) -> Outcome<usize> {
        self.write(request).doing(|| "sending a request".to_owned())?;
        let mut filled = 0;
        loop {
            let count = self.read(buffer.get_mut(filled..).unwrap_or_default());
            let count = count.doing(|| "reading an answer".to_owned())?;
            filled += count;
            let answer = buffer.get(..filled).unwrap_or_default();
            let complete = is_complete(answer);
            if (complete || count == 0) && !(complete && answer.starts_with(b"HTTP/1.1 200 ")) {
                return Err(Failure::new(format!("not a whole 200: {:?}", String::from_utf8_lossy(answer))));
            }
            if complete {
                return Ok(filled);
            }
        }
    }

    /// Waits for the other side to end the connection.
    pub fn end(mut self) -> Outcome<()> {
        match self.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Failure::new("bytes after the answer")),
            // An end without close_notify: the length of the answer was known, so nothing is lost.
            Err(cause) if self.tls.is_some() && cause.kind() == ErrorKind::UnexpectedEof => Ok(()),
            Err(cause) => Err(Failure::new(format!("waiting for the end of a connection: {cause}"))),
        }
    }

    /// Whether the other side has kept the connection and is silent.
    pub fn is_idle(&self) -> bool {
        let quiet = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0; 1]));
        let restored = self.stream.set_nonblocking(false).is_ok();
        restored && matches!(quiet, Err(cause) if cause.kind() == ErrorKind::WouldBlock)
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.tls {
            None => self.stream.write_all(bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write_all(bytes),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(into),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(into),
        }
    }
}

fn is_complete(answer: &[u8]) -> bool {
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    head.is_some_and(|end| answer.len() >= end + 4 + 128)
}

/// Whether something on `port` answers a request; for waiting until a server is up.
pub fn answers(port: u16) -> bool {
    let target = Target { port, tls: None };
    Session::open(&target, Ipv4Addr::UNSPECIFIED).and_then(|mut session| session.exchange(CLOSE)).is_ok()
}

/// TLS 1.3, X25519 and AES-128-GCM only, no resumption, any certificate; `protocol` alone is offered.
pub fn tls(protocol: Protocol) -> Outcome<Arc<ClientConfig>> {
    let provider = CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..aws_lc_rs::default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .doing(|| "setting up TLS".to_owned())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let name: &[u8] = match protocol {
        Protocol::H1 => b"http/1.1",
        Protocol::H2 => b"h2",
    };
    config.alpn_protocols = vec![name.to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

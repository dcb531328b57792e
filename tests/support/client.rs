//! A raw HTTP/1.x client, plain or over TLS: it sends exactly the bytes it is given and tells exactly what came back.
//!
//! It refuses to repair, follow, retry or keep anything: that would hide what is tested.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, StreamOwned};
use socket2::{Domain, Protocol, Socket, Type};

use super::deadline::{DEADLINE, Deadline};
use super::message::{Fields, Head};
use super::wire::{BodyReader, End, Stream, Wire};

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub struct Response {
    /// The final head.
    pub head: Head,
    /// The 1xx heads before it.
    pub interim: Vec<Head>,
    /// The body, framing removed.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Fields,
    /// Why the body broke off; `None`: it is complete.
    pub broken: Option<End>,
}

impl Response {
    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// The one field of that name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the body is as long as its framing says.
    pub const fn is_complete(&self) -> bool {
        self.broken.is_none()
    }
}

/// What the handshake of a TLS connection came to.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// TLS 1.2 or 1.3.
    pub version: ProtocolVersion,
    /// Whether it was full or resumed.
    pub kind: HandshakeKind,
    /// The server's certificate.
    pub certificate: CertificateDer<'static>,
    /// The protocol that ALPN chose.
    pub protocol: Option<String>,
}

/// How to connect.
#[derive(Clone, Default)]
pub struct Options {
    /// The socket's receive buffer (`SO_RCVBUF`), bytes.
    pub receive_buffer: Option<usize>,
    /// The address to connect from: any of 127.0.0.0/8 makes another client.
    pub from: Option<IpAddr>,
    /// What is sent first, before TLS.
    pub first: Vec<u8>,
    /// TLS with this name (an IP address sends no SNI) and this configuration.
    pub tls: Option<(String, Arc<ClientConfig>)>,
}

impl Options {
    /// Connects.
    ///
    /// # Errors
    /// The connect's or the handshake's.
    pub fn try_connect(self, address: SocketAddr) -> std::io::Result<Client> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if let Some(size) = self.receive_buffer {
            socket.set_recv_buffer_size(size)?;
        }
        if let Some(from) = self.from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        socket.connect_timeout(&address.into(), DEADLINE)?;
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        let local = socket.local_addr()?;
        (&socket).write_all(&self.first)?;
        let (stream, handshake): (Box<dyn Stream>, _) = match self.tls {
            None => (Box::new(socket), None),
            Some((name, config)) => {
                let (stream, handshake) = shake_hands(socket, &name, config)?;
                (Box::new(stream), Some(handshake))
            }
        };
        Ok(Client { wire: Wire::new(stream), local, handshake, patience: DEADLINE })
    }

    /// Connects, or fails the test.
    #[track_caller]
    pub fn connect(self, address: SocketAddr) -> Client {
        self.try_connect(address).unwrap_or_else(|error| panic!("can't connect to {address}: {error}"))
    }
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn shake_hands(
    mut socket: TcpStream,
    name: &str,
    config: Arc<ClientConfig>,
) -> std::io::Result<(TlsStream, Handshake)> {
    let name = ServerName::try_from(name.to_owned()).expect("a server name");
    let mut connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let handshake = Handshake {
        version: connection.protocol_version().expect("a version after the handshake"),
        kind: connection.handshake_kind().expect("a kind after the handshake"),
        certificate: connection.peer_certificates().expect("a certificate after the handshake")[0].clone().into_owned(),
        protocol: connection.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned()),
    };
    Ok((StreamOwned::new(connection, socket), handshake))
}

/// A connection to a server.
pub struct Client {
    wire: Wire,
    /// Our end's address.
    pub local: SocketAddr,
    /// What the handshake came to; `None`: plain.
    pub handshake: Option<Handshake>,
    /// How long each of the calls below may take.
    pub patience: Duration,
}

impl Client {
    /// A plain connection.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Options::default().connect(address)
    }

    /// A TLS connection that asks for `name` and speaks HTTP/1.1.
    #[track_caller]
    pub fn connect_tls(address: SocketAddr, name: &str) -> Self {
        let tls = Some((name.to_owned(), super::tls::default_config()));
        Options { tls, ..Options::default() }.connect(address)
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.patience)
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// Why not all of them could be sent.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), End> {
        let deadline = self.deadline();
        self.wire.write(bytes.as_ref(), deadline)
    }

    /// Sends these bytes, or fails the test.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|end| panic!("can't send: {end:?}"));
    }

    /// Sends `total` bytes, `piece` over and over, until a head has come back or the other side has ended. Gives back how
    /// many were sent, and the end if it came.
    pub fn send_until_answered(&mut self, piece: &[u8], total: u64) -> (u64, Option<End>) {
        let deadline = self.deadline();
        self.wire.write_while_reading(piece, total, deadline, |read| read.windows(4).any(|found| found == b"\r\n\r\n"))
    }

    /// Sends `total` bytes, `piece` over and over, reading whatever comes meanwhile, to the end.
    pub fn send_all_while_reading(&mut self, piece: &[u8], total: u64) -> (u64, Option<End>) {
        let deadline = self.deadline();
        self.wire.write_while_reading(piece, total, deadline, |_| false)
    }

    /// The next head, interim or final.
    ///
    /// # Errors
    /// Why none came.
    pub fn try_head(&mut self) -> Result<Head, End> {
        let deadline = self.deadline();
        self.wire.head(deadline)
    }

    /// The next head, interim or final, or fails the test.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        self.try_head().unwrap_or_else(|end| panic!("no head: {end:?}; read so far: {:?}", self.read_so_far()))
    }

    /// A reader for the body that follows `head`, the answer to a request of `method`.
    #[track_caller]
    pub fn body_of(&self, head: &Head, method: &str) -> BodyReader {
        BodyReader::new(head.response_framing(method).unwrap_or_else(|error| panic!("{error}")))
    }

    /// The next piece of a body; `None` at its end.
    ///
    /// # Errors
    /// Why it broke off.
    pub fn piece(&mut self, body: &mut BodyReader) -> Result<Option<Vec<u8>>, End> {
        let deadline = self.deadline();
        body.piece(&mut self.wire, deadline)
    }

    /// The answer to a request of `method`.
    ///
    /// # Errors
    /// Why no head of a final answer came.
    pub fn try_response_to(&mut self, method: &str) -> Result<Response, End> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.try_head()?;
            match head.status() {
                101 | 200.. => break head,
                _ => interim.push(head),
            }
        };
        let mut reader = BodyReader::new(head.response_framing(method).map_err(End::Malformed)?);
        let mut body = Vec::new();
        let broken = loop {
            match self.piece(&mut reader) {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break None,
                Err(end) => break Some(end),
            }
        };
        Ok(Response { head, interim, body, trailers: reader.trailers, broken })
    }

    /// The answer to a request of `method`, or fails the test.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Response {
        self.try_response_to(method)
            .unwrap_or_else(|end| panic!("no answer: {end:?}; read so far: {:?}", self.read_so_far()))
    }

    /// The answer to a request of any method but HEAD, or fails the test.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Sends a request and reads its answer, whose framing follows from the request's method.
    #[track_caller]
    pub fn request(&mut self, bytes: impl AsRef<[u8]>) -> Response {
        let is_head = bytes.as_ref().starts_with(b"HEAD ");
        self.send(bytes);
        self.response_to(if is_head { "HEAD" } else { "GET" })
    }

    /// The answer to a plain GET of `target` at host `a.test`.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
    }

    /// Exactly `length` raw bytes, or fails the test.
    #[track_caller]
    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        let deadline = self.deadline();
        let read = self.wire.exactly(length, deadline);
        read.unwrap_or_else(|end| panic!("not {length} bytes: {end:?}; read so far: {:?}", self.read_so_far()))
    }

    /// Exactly `length` raw bytes.
    ///
    /// # Errors
    /// Why they did not come.
    pub fn try_exactly(&mut self, length: usize) -> Result<Vec<u8>, End> {
        let deadline = self.deadline();
        self.wire.exactly(length, deadline)
    }

    /// All raw bytes up to the end, and how it ended.
    pub fn rest(&mut self) -> (Vec<u8>, End) {
        let deadline = self.deadline();
        loop {
            if let Err(end) = self.wire.more(deadline) {
                return (self.wire.take_buffer(), end);
            }
        }
    }

    /// How the connection ended, or fails the test where a byte comes first.
    #[track_caller]
    pub fn end(&mut self) -> End {
        let (rest, end) = self.rest();
        assert!(rest.is_empty(), "more came before the end: {:?}", super::message::latin1(&rest));
        end
    }

    fn read_so_far(&mut self) -> String {
        super::message::latin1(&self.wire.take_buffer())
    }

    /// Ends our side; the answer can still be read.
    pub fn finish_writing(&mut self) {
        self.wire.finish_writing();
    }

    /// Closes with a reset.
    pub fn reset(self) {
        self.wire.reset_on_close();
    }
}

//! Sessions in memory, against clients that keep to the protocol up to a point. A client that has shaken hands encrypts its
//! records by itself here, so that it can say what rustls's own client would not.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, SupportedProtocolVersion};

use super::*;
use crate::transport::tls::tests::{client, table, ticketer};
use crate::transport::tls::{HTTP1, server_config};

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// A whole KeyUpdate that asks for one in turn (RFC 8446 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 1];

/// What sessions are made with.
struct Ends {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

fn ends(version: &'static SupportedProtocolVersion) -> Ends {
    let table = table(&["a.test"]);
    let mut client = client(&table, &[version], &[HTTP1]);
    client.enable_secret_extraction = true;
    Ends { server: server_config(table, ticketer(), &[HTTP1]).unwrap(), client: Arc::new(client) }
}

impl Ends {
    fn connect(&self) -> (Session, ClientConnection) {
        let name = ServerName::try_from("a.test").unwrap();
        let client = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
        (Session::new(Arc::clone(&self.server)).unwrap(), client)
    }

    /// A session whose handshake is done, and its client.
    fn open(&self) -> (Session, ClientConnection) {
        let (mut session, mut client) = self.connect();
        while !session.is_open || client.is_handshaking() {
            feed(&mut session, &said(&mut client)).unwrap();
            hear(&mut session, &mut client);
        }
        (session, client)
    }
}

/// What the client says next.
fn said(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Lets the client hear what the session has to say.
fn hear(session: &mut Session, client: &mut ClientConnection) {
    let said = std::mem::take(&mut session.outgoing);
    let mut rest = said.rest();
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        client.process_new_packets().unwrap();
    }
}

/// Bytes come from the client; what it says by them.
fn feed(session: &mut Session, bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut input = [session.incoming(), bytes].concat();
    let mut plain = Vec::new();
    session.receive(&mut input, |piece| plain.extend_from_slice(piece))?;
    Ok(plain)
}

/// A client that encrypts its records by itself.
struct Forger {
    key: LessSafeKey,
    start: Vec<u8>,
    sequence: u64,
}

impl Forger {
    fn new(client: ClientConnection) -> Self {
        let (sequence, secrets) = client.dangerous_extract_secrets().unwrap().tx;
        let (algorithm, key, start) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            _ => panic!("another suite"),
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).unwrap());
        Self { key, start: start.as_ref().to_vec(), sequence }
    }

    /// A record of TLS 1.3 (RFC 8446 5.2).
    fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce: [u8; 12] = self.start.as_slice().try_into().unwrap();
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        let mut sealed = [content, &[kind]].concat();
        let head = head(DATA, sealed.len() + 16);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(head), &mut sealed).unwrap();
        [&head[..], &sealed].concat()
    }
}

fn head(kind: u8, length: usize) -> [u8; 5] {
    let length = u16::try_from(length).unwrap().to_be_bytes();
    [kind, 3, 3, length[0], length[1]]
}

fn plain_record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&head(kind, content.len())[..], content].concat()
}

/// Whatever became of the session: it can be written to, ended and fed, and does not panic at it.
fn goes_on(session: &mut Session) {
    let mut out = [0; 2048];
    let _ = session.send(b"answer", &mut out);
    if session.failure.is_some() {
        assert!(feed(session, b"more").is_err());
        assert!(session.send(b"answer", &mut out).is_err());
        assert!(session.say_end(&mut out).is_err());
    }
}

#[test]
fn a_record_between_the_parts_of_a_hello_ends_the_session_without_a_panic() {
    let (mut session, _) = ends(&TLS13).connect();
    let bytes = [plain_record(HANDSHAKE, &[1]), plain_record(DATA, &[0])].concat();
    assert!(feed(&mut session, &bytes).is_err());
    goes_on(&mut session);
}

#[test]
fn an_answer_while_a_key_update_has_come_in_part_goes_out_without_a_panic() {
    let ends = ends(&TLS13);
    for cut in 1..KEY_UPDATE.len() {
        let (mut session, client) = ends.open();
        let mut forger = Forger::new(client);
        let mut out = [0; 1024];
        assert_eq!(feed(&mut session, &forger.record(HANDSHAKE, &KEY_UPDATE[..cut])).unwrap(), b"");
        let used = session.send(b"answer", &mut out).unwrap();
        assert!(used > b"answer".len(), "the answer is encrypted");
        // The rest of it is understood all the same, and answered.
        assert_eq!(feed(&mut session, &forger.record(HANDSHAKE, &KEY_UPDATE[cut..])).unwrap(), b"");
        assert!(session.incoming().is_empty(), "nothing is kept");
        let mut out = [0; 1024];
        assert!(session.send(b"answer", &mut out).unwrap() > used, "our own KeyUpdate goes first");
    }
}

#[test]
fn a_fault_is_told_the_client_once() {
    let (mut session, _) = ends(&TLS13).connect();
    assert!(feed(&mut session, &[0; 5]).is_err());
    let alert = session.outgoing.rest().to_vec();
    assert_eq!(alert, plain_record(21, &[2, 50]), "decode_error");
    goes_on(&mut session);
    assert_eq!(session.outgoing.rest(), alert);
}

/// Changes to bytes, some of which come in pieces.
#[derive(Clone, Debug)]
struct Mangling {
    flips: Vec<(Index, u8)>,
    insertion: Option<(Index, Vec<u8>)>,
    pieces: Vec<usize>,
}

impl Mangling {
    fn mangle(&self, bytes: &mut Vec<u8>) {
        if let Some((at, inserted)) = &self.insertion {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, inserted.iter().copied());
        }
        for (at, value) in &self.flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
    }

    /// Feeds bytes in pieces. False: the session has failed.
    fn feed(&self, session: &mut Session, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for piece in self.pieces.iter().copied().chain([usize::MAX]) {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            rest = later;
            let is_well = feed(session, now).is_ok();
            goes_on(session);
            if !is_well {
                return false;
            }
        }
        true
    }
}

fn mangling() -> impl Strategy<Value = Mangling> {
    let flips = prop_oneof![2 => Just(Vec::new()), 1 => vec((any::<Index>(), any::<u8>()), 1..4)];
    let inserted = (20u8..25, vec(any::<u8>(), 0..6)).prop_map(|(kind, content)| plain_record(kind, &content));
    let insertion = prop::option::weighted(0.3, (any::<Index>(), inserted));
    let pieces = vec(prop_oneof![1usize..12, 1usize..2000], 0..6);
    (flips, insertion, pieces).prop_map(|(flips, insertion, pieces)| Mangling { flips, insertion, pieces })
}

/// The same records, with those of the handshake in several each.
fn split_records(bytes: &[u8], lengths: &[usize]) -> Vec<u8> {
    let mut split = Vec::new();
    let mut rest = bytes;
    let mut lengths = lengths.iter().copied();
    while let [kind, _, _, high, low, ..] = *rest {
        // What is broken may say that it is longer than it is.
        let length = 5 + usize::from(u16::from_be_bytes([high, low]));
        let Some((record, later)) = rest.split_at_checked(length) else { break };
        rest = later;
        let mut content = &record[5..];
        while kind == HANDSHAKE
            && let Some(length) = lengths.next().filter(|length| *length < content.len())
        {
            split.extend(plain_record(kind, &content[..length]));
            content = &content[length..];
        }
        split.extend(plain_record(kind, content));
    }
    split.extend_from_slice(rest);
    split
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_handshake_that_a_client_sends_makes_it_panic(
        is_12 in any::<bool>(),
        lengths in vec(prop_oneof![Just(0usize), 1usize..6, 1usize..300], 0..6),
        first in mangling(),
        second in mangling(),
    ) {
        thread_local! {
            static ENDS: [Ends; 2] = [ends(&TLS13), ends(&TLS12)];
        }
        ENDS.with(|ends| {
            let (mut session, mut client) = ends[usize::from(is_12)].connect();
            let mut hello = split_records(&said(&mut client), &lengths);
            first.mangle(&mut hello);
            if !first.feed(&mut session, &hello) {
                return;
            }
            let answer = std::mem::take(&mut session.outgoing);
            // What was changed may make an answer that the client refuses; then it says so.
            let _ = client.read_tls(&mut answer.rest());
            let _ = client.process_new_packets();
            let mut flight = said(&mut client);
            if is_12 && client.is_handshaking() {
                // The last message is encrypted, as the type of its record does not tell.
                let (open, sealed) = flight.split_at(flight.len().saturating_sub(45));
                flight = [split_records(open, &lengths), sealed.to_vec()].concat();
            }
            if !flight.is_empty() {
                second.mangle(&mut flight);
                second.feed(&mut session, &flight);
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_client_says_after_its_handshake_makes_it_panic(
        records in vec(
            (
                prop_oneof![3 => Just(HANDSHAKE), 2 => Just(DATA), 1 => 20u8..25],
                prop_oneof![
                    Just(KEY_UPDATE.to_vec()),
                    (0usize..6).prop_map(|cut| KEY_UPDATE[..cut.min(5)].to_vec()),
                    (0usize..6).prop_map(|cut| KEY_UPDATE[cut.min(5)..].to_vec()),
                    vec(any::<u8>(), 0..30),
                ],
            ),
            1..6,
        ),
        mangling in mangling(),
    ) {
        thread_local! {
            static ENDS: Ends = ends(&TLS13);
        }
        ENDS.with(|ends| {
            let (mut session, client) = ends.open();
            let mut forger = Forger::new(client);
            let mut bytes: Vec<u8> = records.iter().flat_map(|(kind, content)| forger.record(*kind, content)).collect();
            mangling.mangle(&mut bytes);
            mangling.feed(&mut session, &bytes);
        });
    }
}

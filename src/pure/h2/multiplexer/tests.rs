//! The two roles against each other, bytes in any pieces, and against what no peer should send.

mod flow;
mod hostile;
mod messages;

use proptest::prelude::*;

use super::*;
use crate::pure::h2::frames::{ACK, END_HEADERS, END_STREAM, HEADER, PAYLOAD_MAX};
use crate::pure::h2::hpack::FieldBlock;

const SERVER: OwnSettings = OwnSettings {
    role: Role::Server,
    stream_window: 128 * 1024,
    connection_window: 256 * 1024,
    streams_max: 4,
    list_max: 64 * 1024,
};
const CLIENT: OwnSettings = OwnSettings { role: Role::Client, streams_max: 0, ..SERVER };
const NOW: Timestamp = Timestamp::ZERO;

fn frame(kind: FrameKind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_frame(&mut out, kind, flags, stream, payload);
    out
}

/// A server that has heard a client's preface and settings, and its first frames thrown away.
fn server() -> Multiplexer {
    let mut server = Multiplexer::new(SERVER, NOW);
    server.receive(PREFACE, NOW);
    server.receive(&frame(FrameKind::Settings, 0, 0, &[]), NOW);
    server.advance(server.output().len());
    server
}

/// GET /
fn head() -> Vec<u8> {
    let mut block = Vec::new();
    let mut encoder = Encoder::default();
    encoder.begin(&mut block);
    for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")] {
        encoder.push(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn request(stream: u32, is_whole: bool) -> Vec<u8> {
    frame(FrameKind::Headers, END_HEADERS | if is_whole { END_STREAM } else { 0 }, stream, &head())
}

/// A server that is asked something with a body of that length; the head has been taken.
fn asked(length: &str) -> (Multiplexer, StreamKey) {
    let mut server = server();
    let mut block = head();
    Encoder::default().push(&mut block, b"content-length", length.as_bytes());
    server.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &block), NOW);
    let key = server.next_opened().unwrap();
    server.take_head(key);
    (server, key)
}

/// A client on a server that has said its settings, and a stream on it whose request has gone.
fn asking(settings: OwnSettings) -> (Multiplexer, StreamKey) {
    let mut client = Multiplexer::new(settings, NOW);
    client.receive(&frame(FrameKind::Settings, 0, 0, &[]), NOW);
    let key = ask(&mut client);
    (client, key)
}

fn ask(client: &mut Multiplexer) -> StreamKey {
    let key = client.open().unwrap();
    client.send_head(key, true, |encoder, out| encoder.push(out, b":method", b"GET")).unwrap();
    client.advance(client.output().len());
    key
}

/// What lies ready, frame by frame.
fn said(multiplexer: &mut Multiplexer) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut frames = Vec::new();
    let output = multiplexer.output().to_vec();
    let mut rest = output.strip_prefix(PREFACE.as_slice()).unwrap_or(&output);
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        let header = FrameHeader::read(header);
        let (payload, behind) = behind.split_at(header.length as usize);
        frames.push((header, payload.to_vec()));
        rest = behind;
    }
    multiplexer.advance(output.len());
    frames
}

/// The codes of the resets that lie ready, and their streams.
fn resets(multiplexer: &mut Multiplexer) -> Vec<(u32, u32)> {
    let resets = said(multiplexer).into_iter().filter(|(header, _)| header.kind == FrameKind::RstStream);
    resets.map(|(header, code)| (header.stream, u32::from_be_bytes(code.try_into().unwrap()))).collect()
}

/// Moves what lies ready from one to the other, in pieces of that size.
fn pass(from: &mut Multiplexer, to: &mut Multiplexer, size: usize) -> bool {
    let output = from.output().to_vec();
    output.chunks(size).for_each(|piece| to.receive(piece, NOW));
    from.advance(output.len());
    !output.is_empty()
}

fn text(block: &FieldBlock) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    block.fields().map(|(name, value)| (text(name), text(value))).collect()
}

/// Sends as much of a body as there is room for; gives back what is left.
fn send(multiplexer: &mut Multiplexer, key: StreamKey, mut body: Vec<u8>) -> Vec<u8> {
    while !body.is_empty() {
        let room = multiplexer.room(key, body.len()).unwrap();
        if room == 0 {
            break;
        }
        let is_last = room == body.len();
        multiplexer.send_data(key, [body.as_slice()], room, is_last).unwrap();
        body.drain(..room);
    }
    body
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Requests and answers with bodies of any size come as they went, however the bytes are cut and however little is taken at
    /// a time; and with both sides done, nothing is held.
    #[test]
    fn exchanges_come_as_they_went(
        bodies in proptest::collection::vec((0_usize..400_000, 0_usize..400_000), 1..4),
        size in 1_usize..70_000,
        taken in 1_usize..40_000,
    ) {
        let (mut client, mut server) = (Multiplexer::new(CLIENT, NOW), Multiplexer::new(SERVER, NOW));
        let size = if bodies.iter().any(|(up, down)| up + down > 1000) { size.max(500) } else { size };
        pass(&mut client, &mut server, size);
        pass(&mut server, &mut client, size);
        let body = |length: usize, salt: usize| -> Vec<u8> { (0..length).map(|place| (place * 7 + salt) as u8).collect() };
        let mut asked: Vec<_> = bodies.iter().enumerate().map(|(number, (up, down))| {
            let key = client.open().unwrap();
            client.send_head(key, *up == 0, |encoder, out| {
                encoder.push(out, b":method", b"PUT");
                encoder.push(out, b"x-number", number.to_string().as_bytes());
            }).unwrap();
            (key, body(*up, number), body(*down, number + 1), Vec::new(), false)
        }).collect();
        let mut served = Vec::new();
        let mut idle = 0;
        // Less at a time only takes longer.
        let taken = taken.max(bodies.iter().map(|(up, down)| up + down).sum::<usize>() / 1_000);
        loop {
            let mut moved = pass(&mut client, &mut server, size);
            while let Some(key) = server.next_opened() {
                let fields = text(&server.take_head(key).unwrap());
                let number: usize = fields[1].1.parse().unwrap();
                served.push((key, number, Vec::new(), None::<Vec<u8>>));
            }
            for (key, number, came, answer) in &mut served {
                moved |= server.take_data(*key, came, taken) > 0;
                if answer.is_none() && server.arrival(*key) == Ok(Arrival::End) {
                    let down = bodies[*number].1;
                    prop_assert_eq!(&*came, &body(bodies[*number].0, *number));
                    server.send_head(*key, down == 0, |encoder, out| encoder.push_status(out, 200)).unwrap();
                    *answer = Some(body(down, *number + 1));
                }
                if let Some(left) = answer {
                    *left = send(&mut server, *key, std::mem::take(left));
                }
            }
            moved |= pass(&mut server, &mut client, size);
            for (key, up, _, came, has_head) in &mut asked {
                *up = send(&mut client, *key, std::mem::take(up));
                if !*has_head && client.arrival(*key) == Ok(Arrival::Head) {
                    prop_assert_eq!(text(&client.take_head(*key).unwrap()), [(":status".to_owned(), "200".to_owned())]);
                    *has_head = true;
                }
                moved |= client.take_data(*key, came, taken) > 0;
            }
            let is_done = asked.iter().all(|(key, ..)| client.arrival(*key) == Ok(Arrival::End));
            if is_done {
                break;
            }
            idle = if moved { 0 } else { idle + 1 };
            prop_assert!(idle < 10, "nothing moves");
        }
        for (key, _, down, came, _) in asked {
            prop_assert_eq!(came, down);
            client.release(key);
        }
        served.into_iter().for_each(|(key, ..)| server.release(key));
        prop_assert!(client.is_idle() && server.is_idle() && client.streams.open() == 0 && server.streams.open() == 0);
        prop_assert!(client.fault().is_none() && server.fault().is_none());
        prop_assert!(resets(&mut client).is_empty() && resets(&mut server).is_empty());
        prop_assert_eq!((client.out.capacity(), server.out.capacity()), (0, 0), "an idle connection holds nothing");
    }

    /// Any bytes at all: no panic, and memory in bounds.
    #[test]
    fn whatever_comes_is_taken_or_refused(
        frames in proptest::collection::vec((0_u8..11, any::<u8>(), 0_u32..9, proptest::collection::vec(any::<u8>(), 0..40)), 0..60),
        is_server: bool,
        size in 1_usize..200,
        lets_go in 1_usize..5,
    ) {
        let mut multiplexer = if is_server { server() } else { Multiplexer::new(CLIENT, NOW) };
        let keys: Vec<_> = (0..3).filter_map(|_| multiplexer.open().ok()).collect();
        keys.iter().for_each(|key| multiplexer.send_head(*key, false, |_, _| {}).unwrap());
        let mut bytes = frame(FrameKind::Settings, 0, 0, &[]);
        for (kind, flags, stream, payload) in frames {
            let length = payload.len() as u32;
            let mut header = FrameHeader { kind: FrameKind::Data, length, flags, stream }.bytes();
            header[3] = kind;
            bytes.extend(header);
            bytes.extend(payload);
        }
        let mut opened = Vec::new();
        for (number, piece) in bytes.chunks(size).enumerate() {
            multiplexer.receive(piece, NOW);
            opened.extend(std::iter::from_fn(|| multiplexer.next_opened()));
            if !opened.is_empty() && number % lets_go == 0 {
                multiplexer.release(opened.remove(number % opened.len()));
            }
            if opened.len() < 9 {
                opened.extend(multiplexer.open().ok());
            }
            prop_assert!(multiplexer.streams.len() <= 2 * SERVER.streams_max as usize + PENDING_RESETS);
            prop_assert!(multiplexer.news.len() <= 64, "{} news", multiplexer.news.len());
            multiplexer.take_news(&mut Vec::new());
        }
        multiplexer.end_if_faulty();
        keys.into_iter().chain(opened).for_each(|key| multiplexer.release(key));
        multiplexer.lose();
        while multiplexer.next_opened().is_some() {}
        prop_assert!(multiplexer.is_over() && multiplexer.streams.open() == 0);
    }
}

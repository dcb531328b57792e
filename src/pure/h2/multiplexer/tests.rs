//! The two roles against each other, bytes in any pieces, and against what no peer should send.

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

#[test]
fn a_stream_that_waits_for_room_on_the_connection_is_not_starved_by_another() {
    let mut server = server();
    server.receive(&request(1, true), NOW);
    server.receive(&request(3, true), NOW);
    let keys = [server.next_opened().unwrap(), server.next_opened().unwrap()];
    // Windows of streams that are no bound, so that the connection's is.
    for key in keys {
        let id = server.id(key);
        server.receive(&frame(FrameKind::WindowUpdate, 0, id, &(1_u32 << 20).to_be_bytes()), NOW);
        server.send_head(key, false, |encoder, out| encoder.push_status(out, 200)).unwrap();
    }
    let mut sent = [0, 0];
    for _ in 0..40 {
        for (place, key) in keys.into_iter().enumerate() {
            // As much as it can, as a task would.
            loop {
                let room = server.room(key, 1 << 20).unwrap();
                if room == 0 {
                    break;
                }
                server.send_data(key, [&vec![0; room][..]], room, false).unwrap();
                sent[place] += room;
            }
        }
        server.advance(server.output().len());
        server.receive(&frame(FrameKind::WindowUpdate, 0, 0, &32_768_u32.to_be_bytes()), NOW);
    }
    let (less, more) = (sent[0].min(sent[1]), sent[0].max(sent[1]));
    assert!(more - less <= OUT_MAX + PAYLOAD_MAX, "{sent:?}");
}

#[test]
fn a_turn_that_is_not_taken_goes_on_to_the_next() {
    let mut server = server();
    for stream in [1, 3] {
        server.receive(&request(stream, true), NOW);
    }
    let (first, second) = (server.next_opened().unwrap(), server.next_opened().unwrap());
    for key in [first, second] {
        let id = server.id(key);
        server.receive(&frame(FrameKind::WindowUpdate, 0, id, &(1_u32 << 20).to_be_bytes()), NOW);
        server.send_head(key, false, |_, _| {}).unwrap();
    }
    // All the room of the connection.
    let room = server.room(first, 1 << 20).unwrap();
    server.send_data(first, [&vec![0; room][..]], room, false).unwrap();
    server.advance(server.output().len());
    let room = server.room(second, 1 << 20).unwrap();
    server.send_data(second, [&vec![0; room][..]], room, false).unwrap();
    server.advance(server.output().len());
    assert_eq!((server.room(first, 10), server.room(second, 10)), (Ok(0), Ok(0)));
    server.receive(&frame(FrameKind::WindowUpdate, 0, 0, &10_u32.to_be_bytes()), NOW);
    server.release(first);
    let mut news = Vec::new();
    server.take_news(&mut news);
    assert!(news.iter().any(|news| news.key == second && news.writes));
    assert_eq!(server.room(second, 10), Ok(10));
}

#[test]
fn the_last_byte_of_a_body_is_held_back_until_the_stream_has_ended() {
    let mut server = server();
    let mut block = head();
    Encoder::default().push(&mut block, b"content-length", b"5");
    server.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &block), NOW);
    let key = server.next_opened().unwrap();
    server.take_head(key);
    server.receive(&frame(FrameKind::Data, 0, 1, b"hello"), NOW);
    assert_eq!(server.arrival(key), Ok(Arrival::Data(4)));
    let mut came = Vec::new();
    server.take_data(key, &mut came, 100);
    assert_eq!(server.arrival(key), Ok(Arrival::Nothing));
    server.receive(&frame(FrameKind::Data, END_STREAM, 1, b""), NOW);
    server.take_data(key, &mut came, 100);
    assert_eq!((came.as_slice(), server.arrival(key)), (&b"hello"[..], Ok(Arrival::End)));
}

#[test]
fn more_data_than_a_head_says_is_never_a_whole_message() {
    for pieces in [&["hello", "!"][..], &["hello!"], &["", "hello", "", "world"]] {
        let mut server = server();
        let mut block = head();
        Encoder::default().push(&mut block, b"content-length", b"5");
        server.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &block), NOW);
        let key = server.next_opened().unwrap();
        server.take_head(key);
        let mut came = Vec::new();
        for piece in pieces {
            server.receive(&frame(FrameKind::Data, 0, 1, piece.as_bytes()), NOW);
            server.take_data(key, &mut came, 100);
        }
        assert!(came.len() < 5 || !came.starts_with(b"hello"), "{pieces:?}");
        assert_eq!(server.end_of(key), Some(StreamEnd::Malformed));
        assert_eq!(resets(&mut server), [(1, H2Reset::PROTOCOL_ERROR.0)]);
    }
}

#[test]
fn a_window_that_becomes_smaller_than_what_was_sent_is_a_debt() {
    let mut server = server();
    server.receive(&request(1, true), NOW);
    let key = server.next_opened().unwrap();
    server.send_head(key, false, |_, _| {}).unwrap();
    assert_eq!(server.room(key, 1000), Ok(1000));
    server.send_data(key, [&[0; 1000][..]], 1000, false).unwrap();
    server.receive(&frame(FrameKind::Settings, 0, 0, &[0, 4, 0, 0, 0, 100]), NOW);
    assert_eq!(server.room(key, 1000), Ok(0));
    server.receive(&frame(FrameKind::WindowUpdate, 0, 1, &900_u32.to_be_bytes()), NOW);
    assert_eq!(server.room(key, 1000), Ok(0));
    server.receive(&frame(FrameKind::WindowUpdate, 0, 1, &7_u32.to_be_bytes()), NOW);
    assert_eq!(server.room(key, 1000), Ok(7));
}

#[test]
fn data_for_a_stream_that_was_given_up_gives_its_room_back() {
    let mut server = server();
    server.receive(&request(1, false), NOW);
    let key = server.next_opened().unwrap();
    server.release(key);
    assert_eq!(resets(&mut server), [(1, H2Reset::CANCEL.0)]);
    let mut told = 0;
    for _ in 0..100 {
        server.receive(&frame(FrameKind::Data, 0, 1, &[0; 10_000]), NOW);
        for (header, payload) in said(&mut server) {
            assert_eq!((header.kind, header.stream), (FrameKind::WindowUpdate, 0));
            told += u32::from_be_bytes(payload.try_into().unwrap());
        }
    }
    assert_eq!(server.fault(), None);
    assert!(told >= 1_000_000 - SERVER.connection_window / 2);
}

#[test]
fn padding_counts_like_data_and_is_given_back() {
    let mut server = server();
    server.receive(&request(1, false), NOW);
    let key = server.next_opened().unwrap();
    let mut came = Vec::new();
    for _ in 0..2_000 {
        server.receive(&frame(FrameKind::Data, 8, 1, &[&[200][..], b"x", &[0; 200]].concat()), NOW);
        server.take_data(key, &mut came, 100);
        server.advance(server.output().len());
    }
    assert_eq!((server.fault(), came.len()), (None, 2_000));
}

#[test]
fn more_than_a_window_ends_the_connection() {
    let mut server = server();
    server.receive(&request(1, false), NOW);
    let _held = server.next_opened().unwrap();
    for _ in 0..9 {
        server.receive(&frame(FrameKind::Data, 0, 1, &[0; PAYLOAD_MAX]), NOW);
    }
    assert_eq!(server.fault(), Some(Fault::FlowControl));
    assert!(server.end_if_faulty() && !server.end_if_faulty());
    let last = said(&mut server).pop().unwrap();
    assert_eq!((last.0.kind, last.1), (FrameKind::GoAway, vec![0, 0, 0, 1, 0, 0, 0, 3]));
    assert!(server.is_over());
}

#[test]
fn streams_above_the_limit_are_refused_and_those_given_up_in_haste_are_a_flood() {
    let mut server = server();
    for stream in [1, 3, 5, 7, 9] {
        server.receive(&request(stream, true), NOW);
    }
    assert_eq!(resets(&mut server), [(9, H2Reset::REFUSED_STREAM.0)]);
    for round in 0..1_000 {
        let stream = 11 + 2 * round;
        server.receive(&frame(FrameKind::RstStream, 0, stream - if round == 0 { 4 } else { 2 }, &[0; 4]), NOW);
        server.receive(&request(stream, true), NOW);
    }
    assert_eq!(server.fault(), Some(Fault::Flood));
}

#[test]
fn a_graceful_end_takes_streams_until_the_client_has_heard_of_it_and_finishes_them() {
    let mut server = server();
    server.receive(&request(1, true), NOW);
    let first = server.next_opened().unwrap();
    server.end_gracefully();
    let told = said(&mut server);
    assert_eq!(told[0].1, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(told[1].0.kind, FrameKind::Ping);
    server.receive(&request(3, true), NOW);
    let second = server.next_opened().unwrap();
    server.receive(&frame(FrameKind::Ping, ACK, 0, &told[1].1), NOW);
    assert_eq!(said(&mut server)[0].1, [0, 0, 0, 3, 0, 0, 0, 0]);
    server.receive(&request(5, true), NOW);
    assert_eq!(server.next_opened(), None);
    for key in [first, second] {
        assert!(!server.is_over());
        server.send_head(key, true, |encoder, out| encoder.push_status(out, 204)).unwrap();
        server.release(key);
    }
    assert!(!server.is_over(), "the last answer is still to be sent");
    server.advance(server.output().len());
    assert!(server.is_over());
}

/// A client that has three streams, on a server that has said its settings.
fn client() -> (Multiplexer, [StreamKey; 3]) {
    let mut client = Multiplexer::new(CLIENT, NOW);
    client.receive(&frame(FrameKind::Settings, 0, 0, &[]), NOW);
    let keys = [(); 3].map(|()| {
        let key = client.open().unwrap();
        client.send_head(key, true, |encoder, out| encoder.push(out, b":method", b"GET")).unwrap();
        key
    });
    client.advance(client.output().len());
    (client, keys)
}

#[test]
fn streams_behind_the_last_of_a_goaway_were_not_looked_at_and_those_before_go_on() {
    let (mut client, [first, second, third]) = client();
    client.receive(&frame(FrameKind::GoAway, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]), NOW);
    assert_eq!(client.end_of(third), Some(StreamEnd::Refused));
    assert_eq!(client.open(), Err(StreamEnd::Refused));
    let answer = frame(FrameKind::Headers, END_HEADERS | END_STREAM, 1, &[0x88]);
    client.receive(&answer, NOW);
    assert_eq!(client.arrival(first), Ok(Arrival::Head));
    client.receive(&frame(FrameKind::RstStream, 0, 3, &H2Reset::REFUSED_STREAM.0.to_be_bytes()), NOW);
    assert_eq!(client.arrival(second), Err(StreamEnd::Refused));
    [first, second, third].into_iter().for_each(|key| client.release(key));
    client.advance(client.output().len());
    assert!(client.is_over());
}

#[test]
fn an_answer_that_is_whole_is_read_although_the_stream_is_reset_behind_it() {
    let mut client = Multiplexer::new(CLIENT, NOW);
    client.receive(&frame(FrameKind::Settings, 0, 0, &[]), NOW);
    let key = client.open().unwrap();
    client.send_head(key, false, |encoder, out| encoder.push(out, b":method", b"PUT")).unwrap();
    client.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &[0x88]), NOW);
    client.receive(&frame(FrameKind::Data, END_STREAM, 1, b"early"), NOW);
    client.receive(&frame(FrameKind::RstStream, 0, 1, &[0; 4]), NOW);
    assert_eq!(client.arrival(key), Ok(Arrival::Head));
    client.take_head(key);
    let mut body = Vec::new();
    client.take_data(key, &mut body, 100);
    assert_eq!((body.as_slice(), client.arrival(key)), (&b"early"[..], Ok(Arrival::End)));
    assert!(client.room(key, 10).is_err());
}

#[test]
fn a_head_larger_than_a_frame_goes_out_in_several_and_is_read_as_one() {
    let (mut client, mut server) = (Multiplexer::new(CLIENT, NOW), Multiplexer::new(SERVER, NOW));
    pass(&mut server, &mut client, 100);
    let key = client.open().unwrap();
    let value = vec![b'v'; 40_000];
    client.send_head(key, true, |encoder, out| encoder.push(out, b"x-large", &value)).unwrap();
    pass(&mut client, &mut server, 1000);
    let key = server.next_opened().unwrap();
    let fields = server.take_head(key).unwrap();
    assert_eq!(fields.fields().next(), Some((&b"x-large"[..], value.as_slice())));
}

#[test]
fn a_head_waits_while_much_lies_ready_that_nobody_takes() {
    let mut server = server();
    server.receive(&frame(FrameKind::WindowUpdate, 0, 0, &(1_u32 << 20).to_be_bytes()), NOW);
    for stream in [1, 3] {
        server.receive(&request(stream, true), NOW);
        server.receive(&frame(FrameKind::WindowUpdate, 0, stream, &(1_u32 << 20).to_be_bytes()), NOW);
    }
    let (first, second) = (server.next_opened().unwrap(), server.next_opened().unwrap());
    server.send_head(first, false, |_, _| {}).unwrap();
    while let Ok(room @ 1..) = server.room(first, 1 << 20) {
        server.send_data(first, [&vec![0; room][..]], room, false).unwrap();
    }
    assert!(!server.has_room_for_head(second));
    server.advance(30_000);
    let mut news = Vec::new();
    server.take_news(&mut news);
    assert!(news.iter().any(|news| news.key == second && news.writes) && server.has_room_for_head(second));
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

#[test]
fn streams_that_nobody_reads_stall_no_other_as_long_as_the_connection_has_room_for_all() {
    let settings = OwnSettings { connection_window: 16 * 65_536, stream_window: 65_536, ..CLIENT };
    let (mut client, first) = asking(settings);
    let others: Vec<_> = (0..15).map(|_| ask(&mut client)).collect();
    for stream in (0..16).map(|place| 2 * place + 1) {
        client.receive(&frame(FrameKind::Headers, END_HEADERS, stream, &[0x88]), NOW);
    }
    for key in &others {
        let id = client.id(*key);
        (0..4).for_each(|_| client.receive(&frame(FrameKind::Data, 0, id, &[0; PAYLOAD_MAX]), NOW));
    }
    client.take_head(first);
    let (mut window, mut came) = (16 * 65_536 - 15 * 65_536, Vec::new());
    for _ in 0..100 {
        assert!(window >= 8_192, "the server may send no more than {window} bytes");
        client.receive(&frame(FrameKind::Data, 0, 1, &[0; 8_192]), NOW);
        window -= 8_192;
        client.take_data(first, &mut came, usize::MAX);
        let told = said(&mut client).into_iter().filter(|(header, _)| header.stream == 0);
        window += told.map(|(_, more)| u32::from_be_bytes(more.try_into().unwrap())).sum::<u32>();
    }
    assert_eq!((client.fault(), came.len()), (None, 819_200));
}

#[test]
fn a_frame_that_was_cut_ends_its_own_stream_and_not_the_one_that_comes_after() {
    let (mut client, key) = asking(CLIENT);
    client.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &[0x88]), NOW);
    let last = frame(FrameKind::Data, END_STREAM, 1, b"hello");
    client.receive(&last[..11], NOW);
    client.release(key);
    let next = ask(&mut client);
    assert_eq!((next, client.id(next)), (key, 3), "in the same place");
    client.receive(&last[11..], NOW);
    assert_eq!(client.arrival(next), Ok(Arrival::Nothing));
    client.receive(&frame(FrameKind::Headers, END_HEADERS | END_STREAM, 3, &[0x88]), NOW);
    assert_eq!((client.arrival(next), client.fault()), (Ok(Arrival::Head), None));
}

#[test]
fn trailers_without_data_before_them_are_not_lost() {
    let (mut client, key) = asking(CLIENT);
    client.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &[0x88]), NOW);
    client.receive(&frame(FrameKind::Headers, END_HEADERS | END_STREAM, 1, b"\x00\x01x\x01y"), NOW);
    client.take_head(key);
    assert!(!client.is_received(key));
    assert_eq!(client.arrival(key), Ok(Arrival::End));
    assert!(client.take_trailers(key).is_some() && client.is_received(key));
}

#[test]
fn resets_that_a_client_provokes_are_a_flood_like_those_it_sends() {
    let provocations: [&dyn Fn(u32) -> Vec<u8>; 4] = [
        &|stream| frame(FrameKind::WindowUpdate, 0, stream, &[0; 4]),
        &|stream| frame(FrameKind::WindowUpdate, 0, stream, &[0x7f, 255, 255, 255]),
        &|stream| frame(FrameKind::Headers, END_HEADERS, stream, b"\x00\x01x\x01y"),
        &|stream| frame(FrameKind::Headers, END_HEADERS | END_STREAM, stream, b"\x82"),
    ];
    for (number, provoke) in provocations.iter().enumerate() {
        let mut server = server();
        let borne = (0..5_000).map(|place| 2 * place + 1).take_while(|stream| {
            server.receive(&request(*stream, false), NOW);
            let Some(key) = server.next_opened() else { return false };
            server.receive(&provoke(*stream), NOW);
            server.release(key);
            server.advance(server.output().len());
            server.fault().is_none()
        });
        assert!(borne.count() < 1_000, "{number}");
        assert_eq!(server.fault(), Some(Fault::Flood), "{number}");
    }
}

#[test]
fn trailers_pay_for_no_resets() {
    let mut server = server();
    let borne = (0..5_000).map(|place| 2 * place + 1).take_while(|stream| {
        server.receive(&request(*stream, false), NOW);
        server.receive(&frame(FrameKind::Headers, END_HEADERS | END_STREAM, *stream, b"\x00\x01x\x01y"), NOW);
        server.receive(&frame(FrameKind::RstStream, 0, *stream, &[0; 4]), NOW);
        while let Some(key) = server.next_opened() {
            server.release(key);
        }
        server.fault().is_none()
    });
    assert!(borne.count() < 1_000);
    assert_eq!(server.fault(), Some(Fault::Flood));
}

#[test]
fn a_frame_of_many_settings_tells_each_stream_once() {
    let mut server = server();
    (0..4).for_each(|place| server.receive(&request(2 * place + 1, false), NOW));
    let one = [[0, 4, 0, 0, 0, 0], [0, 4, 0, 0, 0xff, 0xff]].concat();
    server.take_news(&mut Vec::new());
    server.receive(&frame(FrameKind::Settings, 0, 0, &one.repeat(1_000)), NOW);
    assert!(server.news.len() <= 4, "{}", server.news.len());
}

#[test]
fn a_turn_of_a_stream_whose_own_window_has_closed_goes_to_the_next() {
    let mut server = server();
    for stream in [1, 3] {
        server.receive(&request(stream, true), NOW);
    }
    let keys = [server.next_opened().unwrap(), server.next_opened().unwrap()];
    for key in keys {
        let id = server.id(key);
        server.receive(&frame(FrameKind::WindowUpdate, 0, id, &1_000_u32.to_be_bytes()), NOW);
        server.send_head(key, false, |_, _| {}).unwrap();
    }
    // All the room of the connection.
    while let Ok(room @ 1..) = server.room(keys[0], 1 << 20) {
        server.send_data(keys[0], [&vec![0; room][..]], room, false).unwrap();
        server.advance(server.output().len());
    }
    assert_eq!(keys.map(|key| server.room(key, 10_000)), [Ok(0), Ok(0)]);
    server.receive(&frame(FrameKind::Settings, 0, 0, &[0, 4, 0, 0, 0, 0]), NOW);
    server.receive(&frame(FrameKind::WindowUpdate, 0, 0, &70_000_u32.to_be_bytes()), NOW);
    assert_eq!(server.room(keys[0], 10_000), Ok(0), "its own window is closed");
    assert_eq!(server.room(keys[1], 10_000), Ok(1_000));
    assert_eq!((server.turns, server.line.len()), (0, 0));
}

#[test]
fn interim_heads_are_bounded_by_what_a_head_may_be() {
    let (mut client, key) = asking(CLIENT);
    let (mut block, mut encoder) = (Vec::new(), Encoder::default());
    encoder.push_status(&mut block, 103);
    encoder.push(&mut block, b"x", &[b'v'; 5_000]);
    let sent = (0..100).take_while(|_| {
        client.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &block), NOW);
        client.end_of(key).is_none()
    });
    assert!((5..20).contains(&sent.count()));
    assert_eq!(client.end_of(key), Some(StreamEnd::Malformed));
}

#[test]
fn an_unknown_frame_of_a_server_is_passed_over() {
    let (mut client, _) = asking(CLIENT);
    let mut odd = frame(FrameKind::Ping, 0, 99, b"whatever");
    odd[3] = 0xbb;
    client.receive(&odd, NOW);
    assert_eq!(client.fault(), None);
}

#[test]
fn streams_get_their_identities_in_the_order_their_heads_go() {
    let (mut client, first) = asking(CLIENT);
    let (late, soon, never) = (client.open().unwrap(), client.open().unwrap(), client.open().unwrap());
    for key in [soon, late] {
        client.send_head(key, true, |encoder, out| encoder.push(out, b":method", b"GET")).unwrap();
    }
    assert_eq!([first, soon, late, never].map(|key| client.id(key)), [1, 3, 5, 0]);
    client.advance(client.output().len());
    client.release(never);
    assert!(!client.has_output(), "nobody has heard of it");
    client.lose();
    assert_eq!(client.end_of(late), Some(StreamEnd::Lost));
}

#[test]
fn an_answer_that_is_not_as_long_as_it_says_is_never_whole() {
    for (pieces, is_malformed) in
        [(&["hello"][..], false), (&["hel"], true), (&["hello", "!"], true), (&["hello!"], true)]
    {
        for knows_first in [true, false] {
            let (mut client, key) = asking(CLIENT);
            let expect = |client: &mut Multiplexer, is_due: bool| is_due && client.expect(key, 5).is_err();
            client.receive(&frame(FrameKind::Headers, END_HEADERS, 1, &[0x88]), NOW);
            client.take_head(key);
            let mut was_malformed = expect(&mut client, knows_first);
            let mut came = Vec::new();
            for (number, piece) in pieces.iter().enumerate() {
                let flags = if number + 1 == pieces.len() { END_STREAM } else { 0 };
                client.receive(&frame(FrameKind::Data, flags, 1, piece.as_bytes()), NOW);
                if knows_first {
                    client.take_data(key, &mut came, 100);
                }
            }
            was_malformed |= expect(&mut client, !knows_first);
            was_malformed |= client.end_of(key) == Some(StreamEnd::Malformed);
            assert_eq!(was_malformed, is_malformed, "{pieces:?} {knows_first}");
            assert!(!is_malformed || came.len() < 5, "{pieces:?}");
        }
    }
}

#[test]
fn heads_for_streams_of_long_ago_are_paid_for() {
    let mut server = server();
    for stream in [1, 1001] {
        server.receive(&request(stream, true), NOW);
        let key = server.next_opened().unwrap();
        server.release(key);
    }
    let borne = (0..5_000).take_while(|_| {
        server.receive(&request(1, true), NOW);
        server.fault().is_none()
    });
    assert!(borne.count() <= 1_000);
    assert_eq!(server.fault(), Some(Fault::Flood));
}

#[test]
fn data_that_is_padding_alone_is_paid_for_like_empty_data() {
    let mut server = server();
    server.receive(&request(1, false), NOW);
    let _held = server.next_opened();
    let borne = (0..5_000).take_while(|_| {
        server.receive(&frame(FrameKind::Data, 8, 1, &[0]), NOW);
        server.fault().is_none()
    });
    assert!(borne.count() <= 1_000);
}

#[test]
fn a_server_opens_no_streams_of_its_own() {
    let (mut client, _) = asking(CLIENT);
    ask(&mut client);
    client.receive(&frame(FrameKind::Headers, END_HEADERS, 2, &[0x88]), NOW);
    assert_eq!(client.fault(), Some(Fault::Protocol));
}

#[test]
fn a_client_that_gives_up_the_rest_of_uploads_that_were_answered_is_no_flood() {
    let mut server = server();
    for stream in (0..5_000).map(|place| 2 * place + 1) {
        server.receive(&request(stream, false), NOW);
        let key = server.next_opened().unwrap();
        server.send_head(key, true, |encoder, out| encoder.push_status(out, 401)).unwrap();
        server.receive(&frame(FrameKind::RstStream, 0, stream, &H2Reset::CANCEL.0.to_be_bytes()), NOW);
        server.release(key);
        server.advance(server.output().len());
    }
    assert_eq!(server.fault(), None);
}

#[test]
fn what_was_sent_is_not_kept_where_some_always_lies_ready_behind_it() {
    let mut server = server();
    server.receive(&request(1, true), NOW);
    let key = server.next_opened().unwrap();
    server.send_head(key, false, |_, _| {}).unwrap();
    for _ in 0..200 {
        for stream in [0, 1] {
            server.receive(&frame(FrameKind::WindowUpdate, 0, stream, &50_000_u32.to_be_bytes()), NOW);
        }
        while let Ok(room @ 1..) = server.room(key, 50_000) {
            server.send_data(key, [&vec![0; room][..]], room, false).unwrap();
        }
        // All but a byte, as a slow client may.
        server.advance(server.output().len() - 1);
    }
    assert!(server.out.capacity() < 4 * OUT_MAX, "{} bytes", server.out.capacity());
}

//! What peers must not do, and what they may do however often.

use super::*;

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

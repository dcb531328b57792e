//! Messages: their heads, lengths, trailers and ends, and whose frames are whose.

use super::*;

#[test]
fn the_last_byte_of_a_body_is_held_back_until_the_stream_has_ended() {
    let (mut server, key) = asked("5");
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
        let (mut server, key) = asked("5");
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

#[test]
fn streams_behind_the_last_of_a_goaway_were_not_looked_at_and_those_before_go_on() {
    let (mut client, first) = asking(CLIENT);
    let (second, third) = (ask(&mut client), ask(&mut client));
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

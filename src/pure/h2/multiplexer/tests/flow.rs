//! Windows, turns, and memory of what waits on either side.

use super::*;

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

/// What lies ready of a connection that is lost is never taken: who waits for that has to learn it.
#[test]
fn a_head_does_not_wait_for_room_on_a_connection_that_is_lost() {
    let (mut client, _) = asking(CLIENT);
    while client.output().len() < OUT_MAX {
        let key = client.open().unwrap();
        client.send_head(key, true, |encoder, out| encoder.push(out, b"x", &[b'a'; 10_000])).unwrap();
    }
    let late = client.open().unwrap();
    assert!(!client.has_room_for_head(late));
    client.lose();
    let mut news = Vec::new();
    client.take_news(&mut news);
    assert!(news.iter().any(|news| news.key == late && news.writes));
    assert!(client.has_room_for_head(late));
    assert_eq!(client.send_head(late, true, |_, _| {}), Err(StreamEnd::Lost));
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

//! Bodies over HTTP/2: at each reader's pace in bounded memory, visibly cut where they are cut, and free of their server
//! where nobody wants them any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bodies::{LARGE, MIB, are_bytes_at, piece_at, wait_until_stalled, write_large};
use crate::h2::{connect, get, h2c, run};
use crate::support::deadline::Gate;
use crate::support::frames::{Frame, FrameClient, StreamEnd, code, frame, kind};
use crate::support::{DEADLINE, Origin, Proxy, Setup, wait_for};

/// Room that is enough for anything.
const ROOM: u32 = 1 << 30;

/// Memory that comes in pieces of 2 MiB would hide what a connection costs.
fn without_huge_pages(origin: &Origin) -> Proxy {
    Setup::new(&h2c(origin, "")).variable("MIMALLOC_ALLOW_THP", "0").start()
}

fn grown_since(proxy: &Proxy, before: u64) -> u64 {
    proxy.rss_bytes().saturating_sub(before)
}

/// The rest of a large body, whose first `length` bytes have come, to its end.
fn read_large(client: &mut FrameClient, stream: u32) -> u64 {
    let mut length = 0;
    loop {
        let frame = client.next_that(|frame| frame.kind == kind::DATA && frame.stream == stream).unwrap();
        client.seen.clear();
        assert!(are_bytes_at(length, &frame.payload), "at {length}");
        length += frame.payload.len() as u64;
        if frame.ends_stream() {
            return length;
        }
    }
}

/// A server of large bodies, and a proxy through which some have gone; then none of the next has been written.
fn warm() -> (Origin, Proxy, Arc<AtomicU64>) {
    let moved = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&moved);
    let origin = Origin::with(move |exchange| write_large(exchange, LARGE, &counted));
    let proxy = without_huge_pages(&origin);
    for _ in 0..2 {
        let mut client = FrameClient::connect(proxy.address());
        client.get(1, "/warm");
        client.give_room(0, ROOM);
        client.give_room(1, ROOM);
        assert_eq!(read_large(&mut client, 1), LARGE);
    }
    moved.store(0, Ordering::Relaxed);
    (origin, proxy, moved)
}

#[test]
fn a_download_of_64_mib_to_a_client_that_gives_no_room_costs_no_memory_and_comes_whole() {
    let (_origin, proxy, moved) = warm();
    let before = proxy.rss_bytes();
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    let stalled_at = wait_until_stalled(&moved);
    assert!(stalled_at < LARGE / 2, "{stalled_at} bytes were taken for a client with room for none");
    let grown = grown_since(&proxy, before);
    assert!(grown < MIB, "the proxy has grown by {grown} bytes");
    // Another stream of the same connection is held up by the connection's window alone, and another client by nothing.
    run(async {
        let mut other = connect(proxy.address()).await;
        let request = http::Request::head("http://a.test/").body(()).unwrap();
        crate::h2::send(&mut other, request, &[], None).await.unwrap();
    });
    client.give_room(0, ROOM);
    client.give_room(1, ROOM);
    assert_eq!(read_large(&mut client, 1), LARGE);
}

#[test]
fn a_download_to_a_client_that_gives_room_and_reads_nothing_costs_no_memory() {
    let (_origin, proxy, moved) = warm();
    let before = proxy.rss_bytes();
    let mut client = FrameClient::with_receive_buffer(proxy.address(), 64 * 1024);
    client.get(1, "/");
    client.give_room(0, ROOM);
    client.give_room(1, ROOM);
    let stalled_at = wait_until_stalled(&moved);
    assert!(stalled_at < LARGE, "the system's own buffers have taken it all");
    let grown = grown_since(&proxy, before);
    assert!(grown < MIB, "the proxy has grown by {grown} bytes");
    assert_eq!(read_large(&mut client, 1), LARGE);
}

/// The connection's room is given out in turns. Who has no room of its own when its turn comes hands it on.
#[test]
fn a_turn_of_a_stream_without_a_window_goes_to_one_that_waits() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let origin = Origin::with(|exchange| write_large(exchange, MIB, &AtomicU64::new(0)));
    let proxy = Proxy::start(&h2c(&origin, ""));
    // One of the two is the first in the line.
    for served in [1, 3] {
        let mut client = FrameClient::connect(proxy.address());
        let is_data = |frame: &Frame| frame.kind == kind::DATA;
        (1..4).step_by(2).for_each(|stream| client.get(stream, "/"));
        let mut length = 0;
        while length < 65_535 {
            length += client.next_that(is_data).unwrap().payload.len();
        }
        // What is left of the windows goes, one of the streams gets another, and the connection has room, all at once.
        let no_window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &[0; 4]].concat();
        let room = |stream, bytes: u32| frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        let settings = frame(kind::SETTINGS, 0, 0, &no_window);
        client.client.send([settings, room(served, 1 << 20), room(0, 16_384)].concat());
        assert_eq!(client.next_that(is_data).unwrap().stream, served);
    }
}

#[test]
fn an_upload_of_64_mib_to_a_stalled_server_costs_no_memory_and_comes_whole() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.target() == "/stalled" {
            opened.wait();
        }
        let mut length = 0;
        while let Some(piece) = exchange.piece() {
            assert!(are_bytes_at(length, &piece), "at {length}");
            length += piece.len() as u64;
        }
        exchange.respond(200, &[], length.to_string().as_bytes());
    });
    let proxy = without_huge_pages(&origin);
    let sent = Arc::new(AtomicU64::new(0));
    let upload = |path: &'static str| {
        let (address, sent) = (proxy.address(), Arc::clone(&sent));
        std::thread::spawn(move || run(upload(address, path, sent)))
    };
    for _ in 0..2 {
        assert_eq!(upload("/").join().unwrap(), LARGE.to_string());
    }
    sent.store(0, Ordering::Relaxed);
    let before = proxy.rss_bytes();
    let stalled = upload("/stalled");
    let stalled_at = wait_until_stalled(&sent);
    assert!(stalled_at < LARGE, "the way has taken it all");
    let grown = grown_since(&proxy, before);
    assert!(grown < MIB, "the proxy has grown by {grown} bytes");
    gate.open();
    assert_eq!(stalled.join().unwrap(), LARGE.to_string());
}

/// Sends a large body as there is room for it, and gives the answer's body back.
async fn upload(address: std::net::SocketAddr, path: &str, sent: Arc<AtomicU64>) -> String {
    let mut client = connect(address).await;
    client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://a.test{path}")).body(()).unwrap();
    let (response, mut stream) = client.send_request(request, false).unwrap();
    let mut offset = 0;
    while offset < LARGE {
        let mut piece = bytes::Bytes::from(piece_at(offset));
        offset += piece.len() as u64;
        while !piece.is_empty() {
            stream.reserve_capacity(piece.len());
            let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await.unwrap().unwrap();
            let part = piece.split_to(room.min(piece.len()));
            sent.fetch_add(part.len() as u64, Ordering::Relaxed);
            stream.send_data(part, offset == LARGE && piece.is_empty()).unwrap();
        }
    }
    let mut body = response.await.unwrap().into_body();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

/// Its server dies in the middle of its answer, however that is framed: the stream is reset and never looks complete.
#[test]
fn a_cut_body_ends_by_a_reset_and_never_as_if_it_were_whole() {
    for framing in ["Content-Length: 1000", "Transfer-Encoding: chunked"] {
        for by_reset in [false, true] {
            let gate = Arc::new(Gate::default());
            let opened = Arc::clone(&gate);
            let origin = Origin::with(move |exchange| {
                if exchange.head.target() == "/whole" {
                    exchange.respond(200, &[], b"whole");
                    return;
                }
                let body = if framing.starts_with('T') { "5\r\nhello\r\n" } else { "hello" };
                exchange.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}"));
                opened.wait();
                if by_reset { exchange.reset() } else { exchange.close() }
            });
            let proxy = Proxy::start(&h2c(&origin, ""));
            let mut client = FrameClient::connect(proxy.address());
            client.get(1, "/");
            let data = client.next_that(|frame| frame.kind == kind::DATA).unwrap();
            assert_eq!(data.payload, b"hello");
            gate.open();
            assert_eq!(client.end_of(1), StreamEnd::Reset(code::INTERNAL_ERROR, None), "{framing} {by_reset}");
            // It costs that stream alone.
            client.get(3, "/whole");
            assert_eq!(client.end_of(3), StreamEnd::Answered(200, b"whole".to_vec()));
            let records = proxy.wait_for_records("access.log", 2);
            assert_eq!(records[0]["reason"], "truncated");
        }
    }
}

#[test]
fn a_stream_that_is_reset_in_either_direction_frees_its_servers_connection() {
    let moved = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&moved);
    let origin = Origin::with(move |exchange| match exchange.head.target() {
        "/down" => write_large(exchange, 1 << 40, &counted),
        "/wait" => drop(exchange.wait_for_end()),
        "/up" => drop(exchange.read_body()),
        _ => drop(exchange.respond(200, &[], b"one")),
    });
    let proxy = Proxy::start(&h2c(&origin, "").replacen("\" \n}", "\" max=1\n}", 1));
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/one");
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"one".to_vec()));
    let before = proxy.open_descriptors();
    let mut stream = 3;
    for path in ["/down", "/up", "/wait", "/down", "/up", "/wait"] {
        if path == "/up" {
            client.post(stream, path, &[]);
            client.data(stream, b"part", false);
        } else {
            client.get(stream, path);
        }
        let target = path.to_owned();
        origin.wait_for_that("the request", |requests| requests.last().is_some_and(|r| r.head.target() == target));
        client.cancel(stream);
        wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
        let request = origin.requests().pop().unwrap();
        assert!(path != "/up" || !request.is_complete, "half an upload looked complete");
        // The one place that the server has is free again, and the connection serves on.
        client.get(stream + 2, "/one");
        assert_eq!(client.end_of(stream + 2), StreamEnd::Answered(200, b"one".to_vec()));
        assert!(proxy.open_descriptors() <= before);
        stream += 4;
    }
    let records = proxy.wait_for_records("access.log", 13);
    assert_eq!(records.iter().filter(|record| record["status"] == 499 || record["reason"] == "client-gone").count(), 6);
}

#[test]
fn an_early_answer_over_http2_ends_well_and_the_connection_goes_on() {
    let origin = Origin::with(|exchange| match exchange.head.target() {
        "/early" => {
            exchange.respond(200, &[], b"early");
            exchange.close();
        }
        _ => {
            exchange.respond(200, &[], b"one");
        }
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    client.post(1, "/early", &[]);
    client.data(1, &[b'x'; 1000], false);
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"early".to_vec()));
    // The rest of the upload is nobody's.
    client.data(1, &[b'x'; 1000], true);
    client.get(3, "/");
    assert_eq!(client.end_of(3), StreamEnd::Answered(200, b"one".to_vec()));
}

#[test]
fn an_upload_that_is_cut_short_over_http2_never_looks_complete_to_a_server() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    for fields in [&[][..], &[("content-length", "10")]] {
        let count = origin.requests().len();
        let mut client = FrameClient::connect(proxy.address());
        client.post(1, "/", fields);
        client.data(1, b"hello", false);
        origin.wait_for_requests(count + 1);
        drop(client);
        let requests = origin.wait_for_that("the cut", |requests| requests.last().is_some_and(|r| r.broken.is_some()));
        assert!(!requests.last().unwrap().is_complete);
    }
}

#[test]
fn limit_body_max_is_413_over_http2_while_the_client_still_sends() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { body-max \"100KiB\" }"));
    for fields in [&[][..], &[("content-length", "1000000")]] {
        let mut client = FrameClient::connect(proxy.address());
        client.get(1, "/");
        assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"one".to_vec()));
        client.post(3, "/", fields);
        for _ in 0..8 {
            client.data(3, &[b'x'; 16_000], false);
        }
        match client.end_of(3) {
            StreamEnd::Answered(413, _) => {}
            other => panic!("{other:?}"),
        }
        client.get(5, "/");
        assert_eq!(client.end_of(5), StreamEnd::Answered(200, b"one".to_vec()));
    }
    let complete = origin.requests().iter().filter(|request| request.is_complete).count();
    assert_eq!(complete, 4, "only those without a body");
    run(async {
        let mut client = connect(proxy.address()).await;
        get(&mut client, "/").await.unwrap();
    });
}

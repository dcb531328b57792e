//! Bodies on their way: both directions at once, each at its reader's pace, in bounded memory; and what is cut short never
//! looks complete to the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::pools::{all_to, assert_accepted};
use crate::support::deadline::{Deadline, Gate, between_looks};
use crate::support::{Client, DEADLINE, End, Exchange, Origin, Proxy, Setup, wait_for};

pub const MIB: u64 = 1 << 20;
/// The length of the large bodies, in bytes.
pub const LARGE: u64 = 64 * MIB;

/// The length of the pieces in which they are sent.
const PIECE: u64 = 65_536;
const PIECE_STEP: usize = 65_536;

/// The piece of a large body that begins at `offset`: every piece is another, so that one that is lost, doubled or out of
/// place is noticed.
pub fn piece_at(offset: u64) -> Vec<u8> {
    let pattern = b"abcdefghijklmnopqrstuvwxyz\r\n";
    let mut piece = pattern.repeat(usize::try_from(PIECE).unwrap() / pattern.len() + 1);
    piece[..8].copy_from_slice(&offset.to_be_bytes());
    piece.truncate(usize::try_from(PIECE).unwrap());
    piece
}

/// Whether `bytes` are what a large body has at `offset`.
pub fn are_bytes_at(offset: u64, bytes: &[u8]) -> bool {
    let start = offset / PIECE * PIECE;
    let piece = piece_at(start);
    let rest = &piece[usize::try_from(offset - start).unwrap()..];
    let length = rest.len().min(bytes.len());
    let (these, others) = bytes.split_at(length);
    these == &rest[..length] && (others.is_empty() || are_bytes_at(start + PIECE, others))
}

/// Waits until `moved` has stopped growing: the whole way is full.
pub fn wait_until_stalled(moved: &AtomicU64) -> u64 {
    let deadline = Deadline::after(DEADLINE);
    let (mut last, mut looks) = (0, 0);
    while looks < 200 {
        assert!(deadline.left().is_some(), "bytes go on moving");
        between_looks();
        let now = moved.load(Ordering::Relaxed);
        looks = if now == last && now > 0 { looks + 1 } else { 0 };
        last = now;
    }
    last
}

/// Memory that comes in pieces of 2 MiB would hide what a connection costs.
fn without_huge_pages(origin: &Origin) -> Proxy {
    Setup::new(&all_to([origin], "")).variable("MIMALLOC_ALLOW_THP", "0").start()
}

pub fn write_large(exchange: &mut Exchange<'_>, length: u64, moved: &AtomicU64) {
    exchange.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"));
    for offset in (0..length).step_by(PIECE_STEP) {
        if !exchange.write(piece_at(offset)) {
            return;
        }
        moved.fetch_add(PIECE, Ordering::Relaxed);
    }
}

/// Reads a large body to its end.
fn read_large(client: &mut Client) -> u64 {
    let head = client.head();
    let mut reader = client.body_of(&head, "GET");
    let mut length = 0;
    while let Some(piece) = client.piece(&mut reader).unwrap() {
        assert!(are_bytes_at(length, &piece), "at {length}");
        length += piece.len() as u64;
    }
    length
}

#[test]
pub fn a_download_of_64_mib_to_a_stalled_reader_costs_no_memory_and_comes_whole() {
    let moved = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&moved);
    let origin = Origin::with(move |exchange| write_large(exchange, LARGE, &counted));
    let proxy = without_huge_pages(&origin);
    for _ in 0..2 {
        let mut client = proxy.client();
        client.send("GET /warm HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!(read_large(&mut client), LARGE);
    }
    moved.store(0, Ordering::Relaxed);
    let before = proxy.rss_bytes();
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let stalled_at = wait_until_stalled(&moved);
    assert!(stalled_at < LARGE, "the system's own buffers have taken it all");
    let grown = proxy.rss_bytes().saturating_sub(before);
    assert!(grown < MIB, "the proxy has grown by {grown} bytes");
    assert_eq!(read_large(&mut client), LARGE);
}

#[test]
pub fn an_upload_of_64_mib_to_a_stalled_reader_costs_no_memory_and_comes_whole() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.target() == "/stalled" {
            opened.wait();
        }
        let mut offset = 0;
        while let Some(piece) = exchange.piece() {
            assert!(are_bytes_at(offset, &piece), "at {offset}");
            offset += piece.len() as u64;
        }
        exchange.respond(200, &[], offset.to_string().as_bytes());
    });
    let proxy = without_huge_pages(&origin);
    let moved = Arc::new(AtomicU64::new(0));
    let upload = |target: &'static str| {
        let mut client = proxy.client();
        let moved = Arc::clone(&moved);
        thread::spawn(move || {
            client.send(format!("PUT {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LARGE}\r\n\r\n"));
            for offset in (0..LARGE).step_by(PIECE_STEP) {
                client.send(piece_at(offset));
                moved.fetch_add(PIECE, Ordering::Relaxed);
            }
            client.response().text()
        })
    };
    for _ in 0..2 {
        assert_eq!(upload("/warm").join().unwrap(), LARGE.to_string());
    }
    moved.store(0, Ordering::Relaxed);
    let before = proxy.rss_bytes();
    let stalled = upload("/stalled");
    let stalled_at = wait_until_stalled(&moved);
    assert!(stalled_at < LARGE, "the system's own buffers have taken it all");
    let grown = proxy.rss_bytes().saturating_sub(before);
    assert!(grown < MIB, "the proxy has grown by {grown} bytes");
    gate.open();
    assert_eq!(stalled.join().unwrap(), LARGE.to_string());
}

#[test]
pub fn each_piece_of_an_upload_and_of_its_answer_passes_as_it_comes() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while let Some(piece) = exchange.piece() {
            exchange.write([format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat());
        }
        exchange.write("0\r\n\r\n");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n");
        let head = client.head();
        let mut reader = client.body_of(&head, "POST");
        for number in 0..50 {
            let text = format!("piece {number:04}");
            client.send(format!("a\r\n{text}\r\n"));
            assert_eq!(client.piece(&mut reader), Ok(Some(text.into_bytes())));
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.piece(&mut reader), Ok(None));
    }
    assert_accepted(&origin, 1);
}

#[test]
pub fn an_early_answer_reaches_a_client_that_uploads_and_both_end_well() {
    let origin = Origin::with(|exchange| {
        exchange.piece();
        exchange.respond(200, &[], b"early");
        exchange.read_body();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2000005\r\n\r\nfirst");
    assert_eq!(client.response().text(), "early");
    client.send(vec![b'x'; 2_000_000]);
    let requests = origin.wait_for_that("the whole body", |requests| requests[0].is_complete);
    assert_eq!(requests[0].body_length, 2_000_005);
    assert_eq!(client.get("/").text(), "early");
    assert_accepted(&origin, 1);
}

/// The server says no and closes while the client is still at it.
#[test]
pub fn an_early_refusal_of_a_server_that_closes_reaches_a_client_that_uploads() {
    for round in 0..20 {
        let origin = Origin::with(move |exchange| {
            exchange.piece();
            let close = if round % 2 == 0 { "Connection: close\r\n" } else { "" };
            exchange.write(format!("HTTP/1.1 413 No\r\n{close}Content-Length: 8\r\n\r\ntoo much"));
            exchange.close();
        });
        let proxy = Proxy::start(&all_to([&origin], ""));
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 50000000\r\n\r\n");
        client.send_until_answered(&[b'x'; 65_536], 50_000_000);
        let answer = client.response();
        assert_eq!((answer.status(), answer.text().as_str()), (413, "too much"));
    }
}

/// A connection whose upload broke off at the server still has the rest of the body on it.
#[test]
pub fn the_rest_of_an_upload_that_its_server_broke_off_is_never_read_as_a_request() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        exchange.piece();
        exchange.respond(200, &[], b"early");
        opened.wait();
        exchange.reset();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send("POST /first HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nbody");
    assert_eq!(client.response().text(), "early");
    gate.open();
    wait_for("the server to break off", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    // As much of the body as the proxy takes.
    for _ in 0..20 {
        if client.try_send(inner.repeat(10)).is_err() {
            break;
        }
    }
    client.finish_writing();
    let (rest, _) = client.rest();
    assert_eq!(String::from_utf8_lossy(&rest), "");
    assert_eq!(origin.requests().len(), 1);
}

/// What a server sends before it breaks off, by how the end of its body is found.
const CUT: [(&str, &str); 4] = [
    ("Content-Length: 10\r\n", "1234"),
    ("Transfer-Encoding: chunked\r\n", "4\r\n1234\r\n"),
    ("Transfer-Encoding: chunked\r\n", "8\r\n1234"),
    ("Transfer-Encoding: chunked\r\n", "4\r\n1234\r\n0\r\nT: 1\r\n"),
];

#[test]
pub fn an_answer_that_is_cut_short_never_looks_complete_to_a_client() {
    for (framing, body) in CUT.into_iter().chain([("", "1234")]) {
        for version in ["1.1", "1.0"] {
            for reset in [false, true] {
                if framing.is_empty() && !reset {
                    // The end of the connection is the end of this body.
                    continue;
                }
                let gate = Arc::new(Gate::default());
                let opened = Arc::clone(&gate);
                let origin = Origin::with(move |exchange| {
                    exchange.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n{body}"));
                    opened.wait();
                    if reset { exchange.reset() } else { exchange.close() }
                });
                let proxy = Proxy::start(&all_to([&origin], ""));
                let mut client = proxy.client();
                client.send(format!("GET / HTTP/{version}\r\nHost: a.test\r\n\r\n"));
                let head = client.head();
                let mut reader = client.body_of(&head, "GET");
                assert_eq!(client.piece(&mut reader), Ok(Some(b"1234".to_vec())));
                gate.open();
                let end = client.piece(&mut reader);
                assert!(
                    matches!(end, Err(End::Closed | End::Reset)),
                    "{framing:?} to HTTP/{version}, reset {reset}: {end:?}"
                );
            }
        }
    }
}

#[test]
pub fn an_answer_whose_chunks_are_broken_never_looks_complete_to_a_client() {
    for version in ["1.1", "1.0"] {
        for broken in ["zz\r\n", "4\r\n1234x\r\n0\r\n\r\n", "0\r\nno trailer\r\n\r\n"] {
            let gate = Arc::new(Gate::default());
            let opened = Arc::clone(&gate);
            let origin = Origin::with(move |exchange| {
                exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
                opened.wait();
                exchange.write(broken);
                exchange.wait_for_end();
            });
            let proxy = Proxy::start(&all_to([&origin], ""));
            let mut client = proxy.client();
            client.send(format!("GET / HTTP/{version}\r\nHost: a.test\r\n\r\n"));
            let head = client.head();
            let mut reader = client.body_of(&head, "GET");
            assert_eq!(client.piece(&mut reader), Ok(Some(b"first".to_vec())));
            gate.open();
            let end = loop {
                match client.piece(&mut reader) {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            assert!(matches!(end, Err(End::Closed | End::Reset)), "{broken:?} to HTTP/{version}: {end:?}");
        }
    }
}

#[test]
pub fn a_body_that_ends_with_its_servers_connection_is_whole_for_both_kinds_of_client() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.0 200 OK\r\n\r\nall of it");
        exchange.close();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let answer = proxy.client().get("/");
    assert_eq!((answer.text().as_str(), answer.is_complete()), ("all of it", true));
    assert_eq!(answer.head.all("transfer-encoding"), ["chunked"]);
    let mut client = proxy.client();
    let answer = client.request("GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!((answer.text().as_str(), answer.is_complete()), ("all of it", true));
    assert_eq!(answer.field("connection"), Some("close"));
    assert!(answer.head.all("transfer-encoding").is_empty());
    assert_eq!(client.end(), End::Closed);
}

#[test]
pub fn an_upload_that_is_cut_short_never_looks_complete_to_a_server() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        exchange.respond(200, &[], b"");
    });
    let proxy = Proxy::start(&all_to([&origin], "retry count=5"));
    let mut count = 0;
    for (framing, sent) in CUT {
        for method in ["POST", "PUT"] {
            for reset in [false, true] {
                let mut client = proxy.client();
                client.send(format!("{method} / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n{sent}"));
                count += 1;
                let what = format!("request {count}");
                origin.wait_for_that(&what, |requests| requests.len() == count && requests[count - 1].body_length >= 4);
                if reset {
                    client.reset()
                } else {
                    drop(client)
                }
                let requests =
                    origin.wait_for_that("the cut", |requests| requests.iter().all(|one| one.broken.is_some()));
                let request = &requests[count - 1];
                assert!(!request.is_complete && request.broken != Some(End::TimedOut), "{request:?}");
                // Nothing of it is sent again either.
                assert_eq!(requests.len(), count);
            }
        }
    }
}

#[test]
pub fn an_upload_whose_chunks_are_broken_is_400_and_never_looks_complete_to_a_server() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    for broken in ["zz\r\n", "4\r\n1234x\r\n0\r\n\r\n", "0\r\nno trailer\r\n\r\n"] {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        let before = origin.wait_for_that("the body's begin", |requests| {
            requests.last().is_some_and(|request| request.body_length == 5 && request.broken.is_none())
        });
        client.send(broken);
        assert_eq!(client.response().status(), 400);
        let requests = origin.wait_for_that("the cut", |requests| requests[before.len() - 1].broken.is_some());
        assert!(!requests[before.len() - 1].is_complete);
        assert!(matches!(client.rest().1, End::Closed | End::Reset));
    }
}

/// Some clients send a line too much (RFC 9112 2.2). What is closed on bytes that were not read is reset, with all that the client
/// has not got yet.
#[test]
fn an_answer_is_whole_also_where_more_was_sent_than_the_request() {
    let (origin, gate) = Origin::gated();
    gate.open();
    let proxy = Proxy::start(&all_to([&origin], ""));
    // So that a connection to the server is there.
    assert_eq!(proxy.client().get("/").text(), "late");
    for behind in ["\r\n", "GET /more HTTP/1.1\r\nHost: a.test\r\n\r\n"] {
        for head in ["POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close", "POST / HTTP/1.0\r\nHost: a.test"] {
            for _ in 0..50 {
                let mut client = proxy.client();
                client.send(format!("{head}\r\nContent-Length: 3\r\n\r\nabc"));
                // The proxy may be through already.
                let _ = client.try_send(behind);
                assert_eq!(client.response().text(), "late");
            }
        }
    }
}

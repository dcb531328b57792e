//! Servers that speak HTTP/2 without TLS: connections shared within the servers' limits, frames both ways, resets and
//! GOAWAY, and what is repeated of it. Against frames by hand, and against nghttpd.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pools::all_to;
use crate::support::deadline::Gate;
use crate::support::h2_frames::{
    DATA, ENABLE_CONNECT_PROTOCOL, END_STREAM, Frames, H2Server, HEADERS, MAX_CONCURRENT_STREAMS, RST_STREAM,
};
use crate::support::nghttpd::Nghttpd;
use crate::support::tls::Authority;
use crate::support::tls_server::TlsServer;
use crate::support::{Client, DEADLINE, End, Proxy, Response, Setup, wait_for};

const REFUSED_STREAM: u32 = 7;
const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

pub fn proxy_of(server: &H2Server, lines: &str) -> Proxy {
    Proxy::start(&all_to([server.address], format!("upstream \"h2c\"; {lines}")))
}

fn ask(client: &mut Client, method: &str, body: &str) -> Response {
    client.request(format!("{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// Answers every request with its stream's number.
pub fn answering(frames: &mut Frames, _: usize) {
    while let Some(stream) = frames.request() {
        frames.respond(stream, "200", &stream.to_string());
    }
}

#[test]
fn requests_share_one_connection_and_each_gets_its_own_answer() {
    let server = H2Server::new(&[], answering);
    let proxy = proxy_of(&server, "");
    let mut client = proxy.client();
    for round in 0..50_u32 {
        assert_eq!(client.get("/").text(), (2 * round + 1).to_string());
    }
    assert_eq!((server.accepted(), server.requests()), (1, 50));
}

/// It takes connections all the same: what brings it back is what it has failed in.
#[test]
fn a_server_that_speaks_no_http2_does_not_come_back_for_taking_connections() {
    let good = H2Server::new(&[], answering);
    let bad = H2Server::shy(|frames, _| frames.raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
    let proxy = Proxy::start(&all_to([bad.address, good.address], "upstream \"h2c\"; scheduler \"rr\""));
    proxy.ask_until_it_says("/", "p/o1 was up and is suspect");
    let before = bad.accepted();
    wait_for("tries", DEADLINE, || (bad.accepted() > before + 5).then_some(()));
    let is_back = ["is up", "is recovering"].iter().any(|state| proxy.has_said(&["p/o1 was", state]));
    assert!(!is_back, "{:?}", proxy.errors());
}

#[test]
fn requests_that_come_while_a_connection_is_made_wait_for_it() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let server = H2Server::shy(move |frames, _| {
        opened.wait();
        frames.settings(&[]);
        answering(frames, 0);
    });
    let proxy = proxy_of(&server, "timeout connect=\"20s\"");
    let before = proxy.open_descriptors();
    let mut clients: Vec<_> = (0..50).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    wait_for("the clients", DEADLINE, || (proxy.open_descriptors() >= before + 51).then_some(()));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(server.accepted(), 1);
}

/// No connection ever has more streams than the server allows, and there are as many connections as that takes.
#[test]
fn the_servers_limit_of_streams_is_kept() {
    let gate = Arc::new(Gate::default());
    let (opened, most) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let server = H2Server::new(&[(MAX_CONCURRENT_STREAMS, 2)], move |frames, _| {
        let mut open = Vec::new();
        while let Some(stream) = frames.request() {
            open.push(stream);
            seen.fetch_max(open.len(), Ordering::SeqCst);
            if open.len() == 2 {
                opened.wait();
                open.drain(..).for_each(|stream| frames.respond(stream, "200", "ok"));
            }
        }
    });
    let proxy = proxy_of(&server, "");
    let mut clients: Vec<_> = (0..10).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    wait_for("the requests", DEADLINE, || (server.requests() == 10).then_some(()));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!((server.accepted(), most.load(Ordering::SeqCst)), (5, 2));
}

#[test]
fn a_connection_has_at_most_128_streams_whatever_its_server_allows() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let server = H2Server::new(&[], move |frames, _| {
        let first = frames.request();
        opened.wait();
        first.into_iter().for_each(|stream| frames.respond(stream, "200", "ok"));
        answering(frames, 0);
    });
    let proxy = proxy_of(&server, "timeout connect=\"20s\"");
    let mut clients: Vec<_> = (0..129).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    wait_for("the second connection", DEADLINE, || (server.requests() == 2).then_some(()));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!((server.accepted(), server.requests()), (2, 129));
}

#[test]
fn where_all_connections_are_full_a_request_waits_for_a_place_and_then_gets_503() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let server = H2Server::new(&[(MAX_CONCURRENT_STREAMS, 1)], move |frames, _| {
        while let Some(stream) = frames.request() {
            opened.wait();
            frames.respond(stream, "200", "ok");
        }
    });
    let proxy = proxy_of(&server, "timeout connect=\"3s\"");
    let mut clients: Vec<_> = (0..256).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    wait_for("the requests", DEADLINE, || (server.requests() == 256).then_some(()));
    assert_eq!(proxy.client().get("/").status(), 503);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "connections-full");
    let mut waiting = proxy.client();
    waiting.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    gate.open();
    assert_eq!(waiting.response().status(), 200);
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(server.accepted(), 256);
}

#[test]
fn a_refused_stream_is_sent_again_whatever_its_method_and_with_its_body() {
    for (method, body) in [("GET", ""), ("POST", "body"), ("PATCH", "body"), ("POST", "")] {
        let server = H2Server::new(&[], |frames, _| {
            while let Some(stream) = frames.request() {
                match stream {
                    1 => frames.reset(stream, REFUSED_STREAM),
                    _ => frames.respond(stream, "200", "ok"),
                }
            }
        });
        let proxy = proxy_of(&server, "");
        assert_eq!((method, ask(&mut proxy.client(), method, body).status()), (method, 200));
        assert_eq!(server.requests(), 2);
        let sent: Vec<_> = server.frames().into_iter().filter(|frame| frame.kind == DATA).map(|f| f.payload).collect();
        assert_eq!(sent.concat(), [body, body].concat().as_bytes());
        let record = proxy.wait_for_records("access.log", 1).remove(0);
        assert_eq!((record["attempts"].as_u64(), record["status"].as_u64()), (Some(2), Some(200)));
    }
}

#[test]
fn a_stream_that_is_always_refused_gets_502_and_is_no_evidence_against_its_server() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            frames.reset(stream, REFUSED_STREAM);
        }
    });
    let proxy = proxy_of(&server, "");
    for _ in 0..5 {
        assert_eq!(ask(&mut proxy.client(), "POST", "x").status(), 502);
    }
    let records = proxy.wait_for_records("access.log", 5);
    assert!(records.iter().all(|record| record["reason"] == "upstream-refused"));
    assert!(!proxy.errors().iter().any(|line| line.contains("suspect")), "{:?}", proxy.errors());
}

#[test]
fn streams_above_the_last_of_a_goaway_are_sent_again_and_those_below_go_on() {
    for method in ["GET", "POST"] {
        let gate = Arc::new(Gate::default());
        let opened = Arc::clone(&gate);
        let server = H2Server::new(&[], move |frames, number| {
            if number > 1 {
                return answering(frames, number);
            }
            let (first, second) = (frames.request(), frames.request());
            assert_eq!((first, second), (Some(1), Some(3)));
            frames.go_away(1);
            opened.wait();
            frames.respond(1, "200", "first");
            while frames.next().is_some() {}
        });
        let proxy = proxy_of(&server, "");
        let mut clients = [proxy.client(), proxy.client()];
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx"));
            wait_for("the request", DEADLINE, || (server.requests() > index).then_some(()));
        }
        // The second was repeated on a connection of its own, while the first waits.
        assert_eq!(clients[1].response().text(), "1");
        gate.open();
        assert_eq!(clients[0].response().text(), "first");
        assert_eq!((server.accepted(), server.requests()), (2, 3));
    }
}

#[test]
fn a_post_that_may_have_been_done_is_never_sent_twice() {
    type End = fn(&mut Frames, u32);
    let ends: [(End, bool); 4] = [
        (|frames, stream| frames.reset(stream, INTERNAL_ERROR), true),
        (|frames, stream| frames.reset(stream, CANCEL), true),
        // Processed, as the server says, and then cut off.
        (|frames, stream| frames.go_away(stream), false),
        (|_, _| {}, false),
    ];
    for (end, goes_on) in ends {
        for (method, status, count) in [("POST", 502, 1), ("PATCH", 502, 1), ("PUT", 200, 2), ("DELETE", 200, 2)] {
            let asked = AtomicUsize::new(0);
            let server = H2Server::new(&[], move |frames, _| {
                while let Some(stream) = frames.request() {
                    if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                        frames.respond(stream, "200", "ok");
                        continue;
                    }
                    end(frames, stream);
                    if !goes_on {
                        return;
                    }
                }
            });
            let proxy = proxy_of(&server, "");
            assert_eq!((method, ask(&mut proxy.client(), method, "body").status()), (method, status));
            assert_eq!(server.requests(), count);
        }
    }
}

#[test]
fn nothing_is_repeated_after_an_interim_answer_and_a_cut_body_never_looks_whole() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            match stream {
                1 => {
                    frames.headers(stream, 0, &[(":status", "103"), ("link", "</a>")]);
                    frames.reset(stream, INTERNAL_ERROR);
                }
                3 => {
                    frames.headers(stream, 0, &[(":status", "200"), ("content-length", "5")]);
                    frames.write(DATA, END_STREAM, stream, b"abc");
                }
                5 => {
                    frames.headers(stream, 0, &[(":status", "200"), ("content-length", "2")]);
                    frames.write(DATA, END_STREAM, stream, b"abc");
                }
                7 => {
                    frames.headers(stream, 0, &[(":status", "200")]);
                    frames.write(DATA, 0, stream, b"abc");
                    frames.reset(stream, INTERNAL_ERROR);
                }
                _ => {
                    frames.headers(stream, 0, &[(":status", "200")]);
                    frames.write(DATA, 0, stream, b"abc");
                    return;
                }
            }
        }
    });
    let proxy = proxy_of(&server, "");
    let answer = proxy.client().get("/");
    assert_eq!((answer.status(), answer.interim.len()), (502, 1));
    for round in 2..=5 {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let answer = client.response();
        assert!(answer.status() == 502 || !answer.is_complete(), "{round}: {answer:?}");
        assert_eq!(server.requests(), round);
    }
}

#[test]
fn interim_answers_fields_and_trailers_pass_both_ways() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            frames.headers(stream, 0, &[(":status", "102")]);
            frames.headers(stream, 0, &[(":status", "103"), ("link", "</a>"), ("link", "</b>")]);
            frames.headers(stream, 0, &[(":status", "200"), ("set-cookie", "a=b"), ("set-cookie", "c=d")]);
            frames.write(DATA, 0, stream, b"bo");
            frames.write(DATA, 0, stream, b"");
            frames.write(DATA, 0, stream, b"dy");
            frames.headers(stream, END_STREAM, &[("x-sum", "1"), ("grpc-status", "0")]);
        }
    });
    let proxy = proxy_of(&server, "");
    let mut client = proxy.client();
    let answer = client.request(
        "POST / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Up: 1\r\n\r\n",
    );
    let interim: Vec<_> = answer.interim.iter().map(|head| (head.status(), head.all("link"))).collect();
    assert_eq!(interim, [(102, vec![]), (103, vec!["</a>", "</b>"])]);
    assert_eq!((answer.text().as_str(), answer.head.all("set-cookie")), ("body", vec!["a=b", "c=d"]));
    let trailers = [("x-sum".to_owned(), "1".to_owned()), ("grpc-status".to_owned(), "0".to_owned())];
    assert_eq!(answer.trailers, trailers);
    // The request's came as a second list of fields, which ends the stream.
    let kinds: Vec<_> = server.frames().iter().map(|frame| (frame.kind, frame.flags & END_STREAM)).collect();
    assert_eq!(kinds, [(HEADERS, 0), (DATA, 0), (HEADERS, END_STREAM)]);
}

/// An answer that comes before the end of the request is whole, whatever becomes of the upload.
#[test]
fn a_server_that_answers_early_and_wants_no_more_of_the_upload_has_answered() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(frame) = frames.next() {
            if frame.kind == HEADERS {
                frames.respond(frame.stream, "413", "too much");
                frames.reset(frame.stream, 0);
            }
        }
    });
    let proxy = proxy_of(&server, "");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10000000\r\n\r\nbegin");
    let answer = client.response();
    assert_eq!((answer.status(), answer.text().as_str(), answer.is_complete()), (413, "too much", true));
    assert_eq!(proxy.client().get("/").status(), 413);
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_client_that_vanishes_cancels_its_stream_and_frees_the_servers_place() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            if stream > 1 {
                frames.respond(stream, "200", "ok");
            }
        }
    });
    let rules = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\npool \"p\" {{ server \"o\" \"{}\" max=1; upstream \"h2c\"; }}\nrule use=\"p\"\n",
        server.address
    );
    let proxy = Proxy::start(&rules);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    wait_for("the request", DEADLINE, || (server.requests() == 1).then_some(()));
    client.reset();
    let frame = server.wait_for_frame("a reset", |frame| frame.kind == RST_STREAM);
    assert_eq!((frame.stream, frame.payload.as_slice()), (1, &CANCEL.to_be_bytes()[..]));
    assert_eq!(proxy.client().get("/").status(), 200);
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_server_that_is_silent_gets_504_and_a_cancelled_stream() {
    let server = H2Server::new(&[], |frames, _| while frames.next().is_some() {});
    let proxy = proxy_of(&server, "timeout response=\"300ms\"");
    assert_eq!(proxy.client().get("/").status(), 504);
    let frame = server.wait_for_frame("a reset", |frame| frame.kind == RST_STREAM);
    assert_eq!(frame.payload, CANCEL.to_be_bytes());
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_server_that_speaks_no_http_2_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let _ = std::io::Write::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let proxy = Proxy::start(&all_to([address], "upstream \"h2c\""));
    assert_eq!(ask(&mut proxy.client(), "POST", "x").status(), 502);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "connect-not-http2");
}

#[test]
fn a_server_that_never_says_its_settings_is_a_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Proxy::start(&all_to([address], "upstream \"h2c\"; timeout connect=\"200ms\"; retry count=0"));
    assert_eq!(proxy.client().get("/").status(), 504);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "connect-timeout");
}

#[test]
fn idle_connections_are_let_go_after_their_time_and_used_before() {
    let (ended, ends) = std::sync::mpsc::channel();
    let ended = std::sync::Mutex::new(ended);
    let server = H2Server::new(&[], move |frames, number| {
        answering(frames, number);
        let _ = ended.lock().unwrap().send(number);
    });
    let proxy = proxy_of(&server, "");
    assert_eq!(proxy.client().get("/").text(), "1");
    assert_eq!(proxy.client().get("/").text(), "3");
    drop(proxy);
    assert_eq!(ends.recv_timeout(DEADLINE), Ok(1));
    let proxy = Proxy::start(&all_to([server.address], "upstream \"h2c\" idle-timeout=\"300ms\""));
    assert_eq!(proxy.client().get("/").text(), "1");
    assert_eq!(ends.recv_timeout(DEADLINE), Ok(2));
    assert_eq!(proxy.client().get("/").text(), "1");
}

/// The frames of a server that went away are there before the request: it is not written to a dead connection.
#[test]
fn a_post_after_its_idle_connection_has_ended_goes_to_a_new_one() {
    let server = H2Server::new(&[], |frames, number| {
        if let Some(stream) = frames.request() {
            frames.respond(stream, "200", &number.to_string());
            frames.go_away(stream);
        }
    });
    let proxy = proxy_of(&server, "");
    let mut client = proxy.client();
    for round in 1..=100 {
        assert_eq!(ask(&mut client, "POST", "x").text(), round.to_string());
    }
    assert_eq!(server.requests(), 100);
}

#[test]
fn a_websocket_becomes_an_extended_connect_where_the_server_takes_one_and_else_502() {
    let server = H2Server::new(&[(ENABLE_CONNECT_PROTOCOL, 1)], |frames, _| {
        let Some(head) = frames.next() else { return };
        assert_eq!((head.kind, head.flags & END_STREAM), (HEADERS, 0));
        frames.headers(head.stream, 0, &[(":status", "200"), ("sec-websocket-protocol", "chat")]);
        frames.write(DATA, 0, head.stream, b"hello");
        while let Some(frame) = frames.next() {
            if frame.kind == DATA {
                frames.write(DATA, frame.flags, frame.stream, &frame.payload);
            }
        }
    });
    let opening = "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let proxy = proxy_of(&server, "");
    let mut client = proxy.client();
    client.send(opening);
    let head = client.head();
    assert_eq!((head.status(), head.field("upgrade")), (101, Some("websocket")));
    assert_eq!(head.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(head.field("sec-websocket-protocol"), Some("chat"));
    assert_eq!(client.exactly(5), b"hello");
    for round in 0..10 {
        let text = format!("round {round}");
        client.send(&text);
        assert_eq!(client.exactly(text.len()), text.as_bytes());
    }
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);

    let server = H2Server::new(&[], answering);
    let proxy = proxy_of(&server, "");
    let mut client = proxy.client();
    client.send(opening);
    assert_eq!(client.head().status(), 502);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "no-extended-connect");
    assert_eq!(server.requests(), 0);
}

/// An upload goes on as fast as the server takes it, and no faster.
#[test]
fn an_upload_waits_for_the_servers_window() {
    let server = H2Server::new(&[], |frames, _| {
        let mut length = 0;
        while let Some(frame) = frames.next() {
            if frame.kind == DATA {
                length += frame.payload.len();
                let more = u32::try_from(frame.payload.len()).unwrap();
                if more > 0 {
                    frames.grant(frame.stream, more);
                }
            }
            if frame.ends_stream() {
                frames.respond(frame.stream, "200", &length.to_string());
                length = 0;
            }
        }
    });
    let proxy = proxy_of(&server, "");
    for framing in ["length", "chunked"] {
        let mut client = proxy.client();
        let piece = vec![b'x'; 100_000];
        if framing == "length" {
            client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 20000000\r\n\r\n");
        } else {
            client.send("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n");
        }
        for _ in 0..200 {
            match framing {
                "length" => client.send(&piece),
                _ => client.send([b"186a0\r\n", piece.as_slice(), b"\r\n"].concat()),
            }
        }
        if framing == "chunked" {
            client.send("0\r\n\r\n");
        }
        assert_eq!(client.response().text(), "20000000");
    }
}

#[test]
fn nghttpd_serves_files_echoes_uploads_and_sends_trailers() {
    let folder = tempfile::TempDir::new().unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|index| (index / 7 % 251) as u8).collect();
    std::fs::write(folder.path().join("large"), &large).unwrap();
    std::fs::write(folder.path().join("empty"), b"").unwrap();
    let Some(server) = Nghttpd::start(folder.path(), &["--trailer", "x-sum: 1"]) else { return };
    let proxy = Proxy::start(&all_to([server.address], "upstream \"h2c\""));
    let mut client = proxy.client();
    for _ in 0..3 {
        let answer = client.get("/large");
        assert_eq!((answer.status(), answer.body == large, answer.is_complete()), (200, true, true));
        assert_eq!((client.get("/empty").status(), client.get("/none").status()), (200, 404));
        client.send("HEAD /large HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!(client.response_to("HEAD").field("content-length"), Some("3000000"));
    }
    let Some(server) = Nghttpd::start(folder.path(), &["--echo-upload", "-m", "3"]) else { return };
    let proxy = Proxy::start(&all_to([server.address], "upstream \"h2c\""));
    let rounds: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, body) = (proxy.client(), large[..300_000].to_vec());
            std::thread::spawn(move || {
                for _ in 0..5 {
                    client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len()));
                    client.send(&body);
                    assert!(client.response().body == body);
                }
            })
        })
        .collect();
    rounds.into_iter().for_each(|round| round.join().unwrap());
}

#[test]
fn h2_over_tls_needs_a_server_that_agrees_to_it() {
    let authority = Authority::new("inner");
    let certificate = authority.issue(&["app.internal"]);
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("key"), &certificate.key).unwrap();
    std::fs::write(path("crt"), &certificate.certificate).unwrap();
    std::fs::write(path("small"), b"small").unwrap();
    let start = |address: std::net::SocketAddr| {
        let tls = "upstream \"h2\" { tls { ca \"ca.crt\"; server-name \"app.internal\"; }; }";
        Setup::new(&all_to([address], tls)).file("ca.crt", &authority.certificate).start()
    };
    let Some(server) = Nghttpd::start_with(folder.path(), &[], &[&path("key"), &path("crt")]) else { return };
    let proxy = start(server.address);
    let mut client = proxy.client();
    for _ in 0..10 {
        assert_eq!(client.get("/small").text(), "small");
    }
    // openssl's server speaks TLS, and knows no ALPN.
    let server = TlsServer::openssl(&certificate);
    let proxy = start(server.address);
    assert_eq!(proxy.client().get("/").status(), 502);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "connect-not-http2");
}

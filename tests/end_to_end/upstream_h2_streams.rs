//! Streams to servers that speak HTTP/2: what bounds them, who gives them up, and how long their answers are.

use std::sync::Arc;

use crate::pools::all_to;
use crate::support::deadline::Gate;
use crate::support::frames::{FrameClient, StreamEnd, block, code, frame, kind, request};
use crate::support::h2_frames::{DATA, END_HEADERS, END_STREAM, H2Server, HEADERS, MAX_CONCURRENT_STREAMS, RST_STREAM};
use crate::support::{DEADLINE, Proxy, wait_for};
use crate::upstream_h2::{answering, proxy_of};

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;

#[test]
fn via_of_an_answer_says_by_which_protocol_it_came() {
    let server = H2Server::new(&[], answering);
    let rules = all_to([server.address], "upstream \"h2c\"").replacen("via \"off\"", "", 1);
    let proxy = Proxy::start(&rules);
    assert_eq!(proxy.client().get("/").head.all("via"), ["2.0 pointsman"]);
}

/// The setting SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The server takes nothing of the body, so that nothing more is read of the client: its reset is seen all the same.
#[test]
fn a_client_that_resets_an_upload_which_its_server_does_not_take_frees_the_servers_place() {
    let server = H2Server::new(&[(INITIAL_WINDOW_SIZE, 0)], |frames, _| while frames.next().is_some() {});
    let rules = format!(
        "listen \"127.0.0.1:0\" {{ protocols \"h2c\"; limits {{ streams-max 4 }} }}\n\
         pool \"p\" {{ server \"o\" \"{}\"; upstream \"h2c\" }}\nrule use=\"p\"\n",
        server.address
    );
    let proxy = Proxy::start(&rules);
    let mut client = FrameClient::connect(proxy.address());
    for round in 0..20 {
        for stream in (0..4).map(|place| 8 * round + 2 * place + 1) {
            client.post(stream, "/", &[]);
            for _ in 0..6 {
                client.data(stream, &[0; 10_000], false);
            }
        }
        let requests = 4 * (round as usize + 1);
        wait_for("the requests", DEADLINE, || (server.requests() == requests).then_some(()));
        (0..4).for_each(|place| _ = client.cancel(8 * round + 2 * place + 1));
        let resets = || server.frames().iter().filter(|frame| frame.kind == RST_STREAM).count();
        wait_for("the resets", DEADLINE, || (resets() == requests).then_some(()));
    }
    // The client has kept to its limits, and its connection goes on.
    client.send(kind::PING, 0, 0, b"pingpong");
    assert!(client.next_that(|frame| frame.kind == kind::PING).is_ok());
}

#[test]
fn a_server_gets_the_code_by_which_its_client_gives_up() {
    let server = H2Server::new(&[], |frames, _| {
        let mut requests = 0;
        while let Some(frame) = frames.next() {
            requests += usize::from(frame.kind == HEADERS);
            // The second gets the beginning of an answer.
            if frame.kind == HEADERS && requests == 2 {
                frames.headers(frame.stream, 0, &[(":status", "200")]);
            }
        }
    });
    let rules = all_to([server.address], "upstream \"h2c\"".to_owned());
    let proxy = Proxy::start(&rules.replacen("via \"off\"", "via \"off\"; protocols \"h2c\"", 1));
    let mut client = FrameClient::connect(proxy.address());
    for (stream, code) in [(1, code::STREAM_CLOSED), (3, code::ENHANCE_YOUR_CALM)] {
        client.post(stream, "/", &[]);
        let count = |kind| server.frames().iter().filter(|frame| frame.kind == kind).count();
        let number = stream as usize / 2 + 1;
        wait_for("the request", DEADLINE, || (count(HEADERS) == number).then_some(()));
        if stream == 3 {
            client.next_that(|frame| frame.kind == kind::HEADERS).unwrap();
        }
        client.send(kind::RST_STREAM, 0, stream, &code.to_be_bytes());
        wait_for("the reset", DEADLINE, || (count(RST_STREAM) == number).then_some(()));
        let frames = server.frames();
        assert_eq!(frames.iter().rfind(|frame| frame.kind == RST_STREAM).unwrap().code(), code);
    }
}

/// The RFC allows it for a while. Further connections would be the same, and none is made.
#[test]
fn a_server_that_allows_no_stream_for_now_is_waited_for_on_the_connection_that_is_there() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let server = H2Server::new(&[(MAX_CONCURRENT_STREAMS, 0)], move |frames, _| {
        opened.wait();
        frames.settings(&[(MAX_CONCURRENT_STREAMS, 10)]);
        answering(frames, 0);
    });
    let proxy = proxy_of(&server, "timeout connect=\"20s\"");
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    wait_for("the connection", DEADLINE, || (server.accepted() == 1).then_some(()));
    gate.open();
    assert_eq!(client.response().status(), 200);
    assert_eq!(server.accepted(), 1);
}

/// What comes while a server is waited for joins what came with the head, in memory that is half full.
#[test]
fn an_upload_that_comes_while_its_server_is_waited_for_is_not_taken_for_malformed() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let server = H2Server::new(&[(MAX_CONCURRENT_STREAMS, 0)], move |frames, _| {
        opened.wait();
        frames.settings(&[(MAX_CONCURRENT_STREAMS, 10)]);
        let mut length = 0;
        while let Some(frame) = frames.next() {
            length += if frame.kind == DATA { frame.payload.len() } else { 0 };
            if frame.ends_stream() {
                frames.respond(frame.stream, "200", &length.to_string());
            } else if frame.kind == DATA {
                frames.grant(frame.stream, 100_000);
            }
        }
    });
    let rules = all_to([server.address], "upstream \"h2c\"; timeout connect=\"20s\"");
    let proxy = Proxy::start(&rules.replacen("via \"off\"", "via \"off\"; protocols \"h2c\"", 1));
    let mut client = FrameClient::connect(proxy.address());
    let head = frame(HEADERS, END_HEADERS, 1, &block(&request("POST", "/", &[])));
    client.client.send([head, frame(DATA, 0, 1, &[b'a'; 5_000])].concat());
    wait_for("the connection", DEADLINE, || (server.accepted() == 1).then_some(()));
    (0..10).for_each(|_| _ = client.data(1, &[b'b'; 10_000], false));
    for _ in 0..2 {
        client.send(kind::PING, 0, 0, b"pingpong");
        assert!(client.next_that(|frame| frame.kind == kind::PING).is_ok());
    }
    gate.open();
    client.data(1, &[], true);
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"105000".to_vec()));
}

/// As servers do before they end: the streams that are open go on, and others go to a new connection.
#[test]
fn a_connection_that_is_closed_to_new_streams_keeps_none_from_a_new_one() {
    let server = H2Server::new(&[], |frames, connection| {
        let first = frames.request();
        if connection == 1 {
            frames.settings(&[(MAX_CONCURRENT_STREAMS, 0)]);
            // What came before that was heard goes elsewhere.
            while let Some(stream) = frames.request() {
                frames.reset(stream, REFUSED_STREAM);
            }
        }
        first.into_iter().for_each(|stream| frames.respond(stream, "200", "ok"));
        answering(frames, 0);
    });
    let proxy = proxy_of(&server, "");
    let mut held = proxy.client();
    held.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    wait_for("the first request", DEADLINE, || (server.requests() == 1).then_some(()));
    assert_eq!(proxy.client().get("/").status(), 200);
    assert_eq!(server.accepted(), 2);
}

/// Announced trailers make the answer a chunked one, which does not show its length any more.
#[test]
fn an_answer_that_is_shorter_than_it_says_never_looks_whole_also_where_it_announces_trailers() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            let fields = [(":status", "200"), ("content-length", "10"), ("trailer", "x-t")];
            frames.headers(stream, END_HEADERS, &fields);
            frames.write(DATA, END_STREAM, stream, b"hello");
        }
    });
    let rules = |protocol: &str| {
        let rules = all_to([server.address], "upstream \"h2c\"".to_owned());
        rules.replacen("via \"off\"", &format!("via \"off\"; protocols \"{protocol}\""), 1)
    };
    let proxy = Proxy::start(&rules("h2c"));
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    assert!(!matches!(client.end_of(1), StreamEnd::Answered(200, _)));
    let proxy = Proxy::start(&rules("http/1.1"));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let (bytes, _) = client.rest();
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&bytes));
}

/// RFC 9113 8.1: a server that has answered says that it wants no more of the request. A client that pauses sends nothing by
/// which that would be noticed.
#[test]
fn a_server_that_lets_go_of_an_upload_gets_its_place_back_while_the_client_pauses() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(frame) = frames.next() {
            if frame.kind == HEADERS {
                frames.respond(frame.stream, "200", "enough");
                if !frame.ends_stream() {
                    frames.reset(frame.stream, NO_ERROR);
                }
            }
        }
    });
    let rules = format!(
        "listen \"127.0.0.1:0\" {{ protocols \"http/1.1\" \"h2c\" }}\n\
         pool \"p\" {{ server \"o\" \"{}\" max=1; upstream \"h2c\"; queue max=1 timeout=\"20s\" }}\nrule use=\"p\"\n",
        server.address
    );
    let proxy = Proxy::start(&rules);
    let mut paused = proxy.client();
    paused.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(paused.response().text(), "enough");
    assert_eq!(proxy.client().get("/").status(), 200);
    let mut paused = FrameClient::connect(proxy.address());
    paused.post(1, "/", &[]);
    paused.data(1, b"hello", false);
    assert!(matches!(paused.end_of(1), StreamEnd::Answered(200, _)));
    assert_eq!(proxy.client().get("/").status(), 200);
}

/// Rules for both protocols in front of servers that speak h2c.
fn both_before(servers: &str) -> String {
    format!(
        "listen \"127.0.0.1:0\" {{ protocols \"http/1.1\" \"h2c\" }}\npool \"p\" {{ scheduler \"rr\"; {servers} }}\nrule use=\"p\"\n"
    )
}

/// With its head such an answer is whole for a client of HTTP/1.1.
#[test]
fn an_empty_answer_that_something_follows_never_looks_whole() {
    let server = H2Server::new(&[], |frames, number| {
        while let Some(stream) = frames.request() {
            frames.headers(stream, END_HEADERS, &[(":status", "200"), ("content-length", "0")]);
            match number {
                1 => frames.write(DATA, END_STREAM, stream, b"more"),
                2 => frames.reset(stream, INTERNAL_ERROR),
                _ => frames.write(DATA, END_STREAM, stream, b""),
            }
            if number < 3 {
                return;
            }
        }
    });
    let rules = both_before(&format!("server \"o\" \"{}\"; upstream \"h2c\"; retry count=0", server.address));
    let proxy = Proxy::start(&rules);
    assert_eq!(proxy.client().get("/").status(), 502);
    assert_eq!(proxy.client().get("/").status(), 502);
    let whole = proxy.client().get("/");
    assert_eq!((whole.status(), whole.field("content-length")), (200, Some("0")));
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, Vec::new()));
}

/// Its head has come, so that it has done something with the request, whatever it says then.
#[test]
fn a_request_whose_empty_answer_turns_out_malformed_is_not_sent_again() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            frames.headers(stream, END_HEADERS, &[(":status", "200"), ("content-length", "0")]);
            frames.reset(stream, REFUSED_STREAM);
        }
    });
    let proxy = proxy_of(&server, "retry count=3");
    let answer = proxy.client().request("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!((answer.status(), server.requests()), (502, 1));
    assert_eq!((proxy.client().get("/").status(), server.requests()), (502, 2));
}

/// Nothing has been sent to the one, so that it costs nothing to ask the other.
#[test]
fn a_server_that_allows_no_stream_for_now_keeps_none_from_another_that_does() {
    let closed = H2Server::new(&[(MAX_CONCURRENT_STREAMS, 0)], |frames, _| while frames.next().is_some() {});
    let open = H2Server::new(&[], answering);
    let rules = both_before(&format!(
        "server \"a\" \"{}\"; server \"b\" \"{}\"; upstream \"h2c\"; timeout connect=\"20s\"; retry count=0",
        closed.address, open.address
    ));
    let proxy = Proxy::start(&format!("{rules}admin \"unix:admin.sock\"\n"));
    for _ in 0..30 {
        assert_eq!(proxy.client().get("/").status(), 200);
    }
    assert_eq!((open.requests(), closed.requests()), (30, 0));
    for server in proxy.status()["pools"][0]["servers"].as_array().unwrap() {
        assert_eq!(server["retries"], 0, "{server}");
    }
}

/// More of a body than is kept for a repetition lies there when the one server turns out to allow no stream.
#[test]
fn a_request_that_goes_to_another_server_goes_there_from_its_start() {
    const SIZE: usize = 300_000;
    let closed = H2Server::new(&[(MAX_CONCURRENT_STREAMS, 0)], |frames, _| while frames.next().is_some() {});
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let open = H2Server::new(&[], move |frames, _| {
        let mut length = 0;
        while let Some(frame) = frames.next() {
            if frame.kind == DATA {
                length += frame.payload.len();
                frames.grant(frame.stream, 1 << 20);
            }
            if frame.ends_stream() {
                // All of the next request has come by then.
                opened.wait();
                frames.respond(frame.stream, "200", &std::mem::take(&mut length).to_string());
            }
        }
    });
    let rules = both_before(&format!(
        "server \"a\" \"{}\"; server \"b\" \"{}\"; upstream \"h2c\"; timeout connect=\"20s\"",
        closed.address, open.address
    ));
    let proxy = Proxy::start(&rules);
    let mut client = proxy.client();
    let post = "POST / HTTP/1.1\r\nHost: a.test\r\n";
    let body = "a".repeat(SIZE);
    // The first has the memory grow that the others are read into.
    client.send(format!("{post}Content-Length: {}\r\n\r\n{}", 4 * SIZE, "a".repeat(4 * SIZE)));
    for _ in 0..2 {
        client.send(format!("{post}Transfer-Encoding: chunked\r\n\r\n{SIZE:x}\r\n{body}\r\n0\r\n\r\n"));
    }
    gate.open();
    for size in [4 * SIZE, SIZE, SIZE] {
        let answer = client.response();
        assert_eq!((answer.status(), answer.text()), (200, size.to_string()));
    }
}

#[test]
fn a_server_that_ends_the_connection_before_its_settings_is_told_from_one_that_speaks_something_else() {
    let mute = H2Server::shy(|_, _| {});
    let other = H2Server::shy(|frames, _| frames.raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
    for (server, said) in
        [(mute, "closed the connection before it took requests over HTTP/2"), (other, "not speak HTTP/2")]
    {
        let proxy = proxy_of(&server, "retry count=0");
        assert_eq!(proxy.client().get("/").status(), 502);
        proxy.wait_for_error(said);
        let records = proxy.wait_for_records("access.log", 1);
        assert_eq!(records[0]["reason"], "connect-not-http2");
    }
}

/// What the access log tells of one request, standard error tells the cause of.
#[test]
fn what_a_server_refuses_or_cuts_short_is_told_on_standard_error() {
    let refusing = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            frames.reset(stream, REFUSED_STREAM);
        }
    });
    let cutting = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            frames.headers(stream, END_HEADERS, &[(":status", "200")]);
            frames.write(DATA, 0, stream, b"half");
            frames.reset(stream, INTERNAL_ERROR);
        }
    });
    let proxy = proxy_of(&refusing, "retry count=0");
    assert_eq!(proxy.client().get("/").status(), 502);
    proxy.wait_for_error("a request to the server p/o");
    proxy.wait_for_error("refused the request unprocessed");
    let proxy = proxy_of(&cutting, "");
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.rest();
    proxy.wait_for_error("cut its answer short: HTTP/2 error code 2");
}

//! What HTTP/2 clients must not do: malformed requests cost their stream, broken framing its connection, and floods nobody
//! but who sends them.

use crate::h2::h2c;
use crate::support::deadline::Gate;
use crate::support::frames::{
    END_HEADERS, END_STREAM, FrameClient, PREFACE, StreamEnd, block, code, frame, kind, push_field, request,
};
use crate::support::{DEADLINE, End, Origin, Proxy, Setup, wait_for};

const MIB: u64 = 1 << 20;

fn one(proxy: &Proxy) -> FrameClient {
    FrameClient::connect(proxy.address())
}

/// Asks on a connection of its own, and on this stream of a connection that is there.
fn assert_served(proxy: &Proxy, client: &mut FrameClient, stream: u32) {
    client.get(stream, "/fine");
    assert_eq!(client.end_of(stream), StreamEnd::Answered(200, b"one".to_vec()));
    let mut other = one(proxy);
    other.get(1, "/fine");
    assert_eq!(other.end_of(1), StreamEnd::Answered(200, b"one".to_vec()));
}

/// The targets of the requests that came whole, but for those of [`assert_served`].
fn complete(origin: &Origin) -> Vec<String> {
    let requests = origin.requests();
    let complete = requests.iter().filter(|request| request.is_complete && request.head.target() != "/fine");
    complete.map(|request| request.head.target().to_owned()).collect()
}

type Fields = Vec<(&'static str, &'static str)>;

/// The pseudo-header fields with one changed, or taken away where its value is `None`, and more.
fn changed(name: &str, value: Option<&'static str>, more: &[(&'static str, &'static str)]) -> Fields {
    let fields = request("GET", "/bad", more).into_iter();
    fields.filter_map(|field| if field.0 == name { value.map(|value| (field.0, value)) } else { Some(field) }).collect()
}

fn with(more: &[(&'static str, &'static str)]) -> Fields {
    request("GET", "/bad", more)
}

/// Heads that are malformed (RFC 9113 8.1.1), or that HTTP/1.1 could not say without saying something else.
fn malformed() -> Vec<(&'static str, Fields)> {
    let mut twice = vec![(":path", "/other")];
    twice.extend(with(&[]));
    let mut late = vec![("x-a", "b")];
    late.extend(with(&[]));
    let mut unknown = vec![(":foo", "b")];
    unknown.extend(with(&[]));
    let mut status = vec![(":status", "200")];
    status.extend(with(&[]));
    let mut protocol = vec![(":protocol", "websocket")];
    protocol.extend(with(&[]));
    vec![
        ("no method", changed(":method", None, &[])),
        ("no scheme", changed(":scheme", None, &[])),
        ("no path", changed(":path", None, &[])),
        ("no authority", changed(":authority", None, &[])),
        ("empty path", changed(":path", Some(""), &[])),
        ("empty method", changed(":method", Some(""), &[])),
        ("empty scheme", changed(":scheme", Some(""), &[])),
        ("space in the scheme", changed(":scheme", Some("ht tp"), &[])),
        ("path without a slash", changed(":path", Some("bad"), &[])),
        ("asterisk without OPTIONS", changed(":path", Some("*"), &[])),
        ("absolute path", changed(":path", Some("http://b.test/bad"), &[])),
        ("fragment", changed(":path", Some("/bad#f"), &[])),
        ("space in the path", changed(":path", Some("/bad HTTP/1.1"), &[])),
        ("line end in the path", changed(":path", Some("/bad HTTP/1.1\r\nx: "), &[])),
        ("line end in the method", changed(":method", Some("GET / HTTP/1.1\r\nx: "), &[])),
        ("CONNECT", vec![(":method", "CONNECT"), (":authority", "a.test:443")]),
        ("user in the authority", changed(":authority", Some("b@a.test"), &[])),
        ("space in the authority", changed(":authority", Some("a .test"), &[])),
        ("two authorities", changed(":authority", Some("a.test,b.test"), &[])),
        ("no port", changed(":authority", Some("a.test:99999"), &[])),
        ("another host", with(&[("host", "b.test")])),
        ("two hosts", changed(":authority", None, &[("host", "a.test"), ("host", "a.test")])),
        ("two paths", twice),
        ("pseudo behind others", late),
        ("unknown pseudo", unknown),
        ("status", status),
        ("protocol without CONNECT", protocol),
        ("connection", with(&[("connection", "close")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        ("proxy-connection", with(&[("proxy-connection", "keep-alive")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("upgrade", with(&[("upgrade", "websocket")])),
        ("te", with(&[("te", "trailers, gzip")])),
        ("upper case", with(&[("X-A", "b")])),
        ("empty name", with(&[("", "b")])),
        ("colon in a name", with(&[("x-a: c", "b")])),
        ("space in a name", with(&[("x a", "b")])),
        ("NUL in a name", with(&[("x\0a", "b")])),
        ("line end in a value", with(&[("x-a", "b\r\nc: d")])),
        ("LF in a value", with(&[("x-a", "b\nc")])),
        ("CR in a value", with(&[("x-a", "b\rc")])),
        ("NUL in a value", with(&[("x-a", "b\0c")])),
        ("space before a value", with(&[("x-a", " b")])),
        ("tab behind a value", with(&[("x-a", "b\t")])),
        ("length without data", with(&[("content-length", "5")])),
        ("no length", with(&[("content-length", "-1")])),
        ("signed length", with(&[("content-length", "+0")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "5")])),
    ]
}

#[test]
fn a_malformed_request_is_refused_and_reaches_no_server() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    for (what, fields) in malformed() {
        let mut client = one(&proxy);
        client.head(1, &fields, true);
        match client.end_of(1) {
            StreamEnd::Reset(code::PROTOCOL_ERROR, None) | StreamEnd::Answered(400 | 501, _) => {
                assert_served(&proxy, &mut client, 3);
            }
            // It may cost the connection as well.
            StreamEnd::GoAway(code::PROTOCOL_ERROR) => assert_served(&proxy, &mut one(&proxy), 1),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(complete(&origin), Vec::<String>::new(), "{what}");
    }
}

/// Where all of it came at once, it is known to be malformed before it is begun.
#[track_caller]
fn assert_is_refused(end: StreamEnd) {
    assert!(matches!(end, StreamEnd::Reset(code::PROTOCOL_ERROR, None) | StreamEnd::Answered(400, _)), "{end:?}");
}

/// Pseudo-header fields in trailers, in each way that compression can say them (RFC 9113 8.1).
#[test]
fn an_upload_with_pseudo_fields_in_its_trailers_is_reset_and_never_complete() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = one(&proxy);
    // An entry in the table, once and for all.
    let mut head = block(&request("POST", "/bad", &[]));
    head.extend(b"\x44\x04/bad");
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, 1, &head);
    assert_is_refused(client.end_of(1));
    let mut plain = block(&[("x-a", "b")]);
    push_field(&mut plain, b":path", b"/other");
    let trailers: [&[u8]; 5] = [b"\x84", b"\x04\x01/", b"\xbe", b"\x10\x84\xb9\x58\xd3\x3f\x01/", &plain];
    let mut stream = 3;
    for trailers in trailers {
        for fields in [&[][..], &[("content-length", "5")]] {
            client.post(stream, "/bad", fields);
            client.data(stream, b"hello", false);
            client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, trailers);
            assert_is_refused(client.end_of(stream));
            stream += 2;
        }
    }
    client.post(stream, "/bad", &[("content-length", "0")]);
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, b"\x84");
    assert_is_refused(client.end_of(stream));
    assert_served(&proxy, &mut client, stream + 2);
    assert_eq!(complete(&origin), Vec::<String>::new());
    // Others are taken.
    client.post(stream + 4, "/good", &[]);
    client.data(stream + 4, b"hello", false);
    client.head(stream + 4, &[("x-sum", "1")], true);
    assert_eq!(client.end_of(stream + 4), StreamEnd::Answered(200, b"one".to_vec()));
    assert_eq!(complete(&origin), ["/good"]);
}

/// More and less than its head says: a server never sees it whole (RFC 9113 8.1.1).
#[test]
fn an_upload_that_is_longer_or_shorter_than_it_says_is_reset_and_never_complete() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = one(&proxy);
    for (stream, pieces) in [(1, ["hello", "world"]), (3, ["he", ""]), (5, ["", "hello world"]), (7, ["hello", "!"])] {
        client.post(stream, &format!("/bad{stream}"), &[("content-length", "5")]);
        client.data(stream, pieces[0].as_bytes(), false);
        if pieces[0].len() == 5 {
            // All the data that the head says has come, and still the server waits for the last of it.
            origin.wait_for_that("the head", |requests| {
                requests.iter().any(|request| request.head.target() == format!("/bad{stream}"))
            });
        }
        client.data(stream, pieces[1].as_bytes(), true);
        assert_eq!(client.end_of(stream), StreamEnd::Reset(code::PROTOCOL_ERROR, None), "{pieces:?}");
    }
    assert_served(&proxy, &mut client, 9);
    assert_eq!(complete(&origin), Vec::<String>::new());
}

#[test]
fn broken_framing_ends_its_connection_with_its_code() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let head = || block(&request("POST", "/bad", &[]));
    let opened = |more: Vec<u8>| [frame(kind::HEADERS, END_HEADERS, 1, &head()), more].concat();
    let ended = |more: Vec<u8>| [frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &head()), more].concat();
    let cases: Vec<(&str, u32, Vec<u8>)> = vec![
        ("data on no stream", code::PROTOCOL_ERROR, frame(kind::DATA, 0, 0, b"x")),
        ("head on no stream", code::PROTOCOL_ERROR, frame(kind::HEADERS, 5, 0, &head())),
        ("an even stream", code::PROTOCOL_ERROR, frame(kind::HEADERS, 5, 2, &head())),
        ("settings of five bytes", code::FRAME_SIZE_ERROR, frame(kind::SETTINGS, 0, 0, &[0; 5])),
        ("settings of a stream", code::PROTOCOL_ERROR, frame(kind::SETTINGS, 0, 1, &[])),
        ("a ping of seven bytes", code::FRAME_SIZE_ERROR, frame(kind::PING, 0, 0, &[0; 7])),
        ("a ping of a stream", code::PROTOCOL_ERROR, frame(kind::PING, 0, 1, &[0; 8])),
        ("a lone continuation", code::PROTOCOL_ERROR, frame(kind::CONTINUATION, 4, 1, &[])),
        ("a push", code::PROTOCOL_ERROR, opened(frame(kind::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]))),
        ("a reset of no stream", code::PROTOCOL_ERROR, frame(kind::RST_STREAM, 0, 0, &[0; 4])),
        ("a reset of an idle stream", code::PROTOCOL_ERROR, frame(kind::RST_STREAM, 0, 9, &[0; 4])),
        ("no room", code::PROTOCOL_ERROR, frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("too much room", code::FLOW_CONTROL_ERROR, frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])),
        ("an unknown table entry", code::COMPRESSION_ERROR, frame(kind::HEADERS, 5, 1, b"\xff\x7f")),
        ("too large a window", code::FLOW_CONTROL_ERROR, frame(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0])),
        ("data behind the end", code::STREAM_CLOSED, ended(frame(kind::DATA, 1, 1, b"x"))),
        ("a head behind the end", code::STREAM_CLOSED, ended(frame(kind::HEADERS, 5, 1, &block(&[("x-a", "b")])))),
        ("data behind a reset", code::STREAM_CLOSED, ended([frame(3, 0, 1, &[0; 4]), frame(0, 1, 1, b"x")].concat())),
        ("a frame too large", code::FRAME_SIZE_ERROR, opened(frame(kind::DATA, 0, 1, &[b'x'; 16_385]))),
        ("too much padding", code::PROTOCOL_ERROR, opened(frame(kind::DATA, 8, 1, b"\x09abc"))),
        ("data in a head", code::PROTOCOL_ERROR, [frame(kind::HEADERS, 0, 1, &head()), frame(0, 1, 1, b"x")].concat()),
    ];
    for (what, wanted, bytes) in cases {
        let mut client = one(&proxy);
        client.client.send(&bytes);
        assert_eq!(client.goaway(), Some(wanted), "{what}");
    }
    assert_served(&proxy, &mut one(&proxy), 1);
    // What had ended before was whole.
    assert!(complete(&origin).len() <= 3);
}

/// A client that only sends: whether it was told to go, or went.
fn flood(client: &mut FrameClient, frames: &[u8], rounds: usize) -> Option<u32> {
    for _ in 0..rounds {
        if client.client.try_send(frames).is_err() {
            break;
        }
    }
    client.goaway()
}

#[test]
fn floods_end_their_connection_while_others_are_served_and_cost_no_memory() {
    let gate = std::sync::Arc::new(Gate::default());
    let opened = std::sync::Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.target() == "/held" {
            opened.wait();
        }
        exchange.read_body();
        exchange.respond(200, &[], b"one");
    });
    let proxy = Setup::new(&h2c(&origin, "")).variable("MIMALLOC_ALLOW_THP", "0").start();
    assert_served(&proxy, &mut one(&proxy), 1);
    let before = proxy.rss_bytes();
    let many = |kind, flags, stream, payload: &[u8]| frame(kind, flags, stream, payload).repeat(100);
    let field = block(&[("x-flood", &"v".repeat(512))]);
    let floods: [(&str, Vec<u8>, Vec<u8>); 6] = [
        ("ping", Vec::new(), many(kind::PING, 0, 0, b"pingping")),
        ("settings", Vec::new(), many(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("priority", Vec::new(), many(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 16])),
        (
            "empty data",
            frame(kind::HEADERS, END_HEADERS, 1, &block(&request("POST", "/held", &[]))),
            many(kind::DATA, 0, 1, &[]),
        ),
        (
            "continuation",
            frame(kind::HEADERS, END_STREAM, 1, &block(&request("GET", "/bad", &[]))),
            frame(kind::CONTINUATION, 0, 1, &field.repeat(31)),
        ),
        (
            "empty continuation",
            frame(kind::HEADERS, END_STREAM, 1, &block(&request("GET", "/bad", &[]))),
            many(kind::CONTINUATION, 0, 1, &[]),
        ),
    ];
    for (what, first, frames) in floods {
        let mut client = one(&proxy);
        client.client.send(&first);
        let told = flood(&mut client, &frames, 1000);
        assert!(matches!(told, None | Some(code::ENHANCE_YOUR_CALM | code::PROTOCOL_ERROR)), "{what}: {told:?}");
        assert_served(&proxy, &mut one(&proxy), 1);
    }
    let mut client = one(&proxy);
    let told = rapid_reset(&mut client);
    assert!(matches!(told, None | Some(code::ENHANCE_YOUR_CALM)), "{told:?}");
    assert_served(&proxy, &mut one(&proxy), 1);
    gate.open();
    let grown = proxy.rss_bytes().saturating_sub(before);
    assert!(grown < 4 * MIB, "the proxy has grown by {grown} bytes");
    assert!(!complete(&origin).iter().any(|target| target == "/bad"));
}

/// Requests that are given up at once, as fast as can be.
fn rapid_reset(client: &mut FrameClient) -> Option<u32> {
    let head = block(&request("GET", "/reset", &[]));
    for round in 0..200 {
        let mut frames = Vec::new();
        for stream in (round * 100..round * 100 + 100).map(|stream| 2 * stream + 1) {
            frames.extend(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &head));
            frames.extend(frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes()));
        }
        if client.client.try_send(frames).is_err() {
            break;
        }
    }
    client.goaway()
}

/// Requests that are begun and then broken, so that we reset them, as fast as can be; others are served meanwhile.
#[test]
fn resets_that_a_client_provokes_end_its_connection_like_those_it_sends() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let head = block(&request("POST", "/broken", &[]));
    let mut client = one(&proxy);
    let mut told = None;
    for stream in (0..3_000).map(|place| 2 * place + 1) {
        let window = frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4]);
        if client.client.try_send([frame(kind::HEADERS, END_HEADERS, stream, &head), window].concat()).is_err() {
            told = Some(client.goaway());
            break;
        }
        if stream % 199 == 0 {
            assert_served(&proxy, &mut one(&proxy), 1);
        }
    }
    let told = told.unwrap_or_else(|| client.goaway());
    assert!(matches!(told, None | Some(code::ENHANCE_YOUR_CALM)), "{told:?}");
    assert_served(&proxy, &mut one(&proxy), 1);
    assert_eq!(complete(&origin), Vec::<String>::new());
}

/// A field that is sent once and named four thousand times.
#[test]
fn a_head_that_grows_by_decompression_is_refused_before_it_has_grown() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut head = block(&request("GET", "/bad", &[]));
    head.extend(b"\x40\x03x-b\x7f\xa1\x1e");
    head.extend([b'b'; 4000]);
    head.extend([0xbe; 4000]);
    let mut client = one(&proxy);
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, 1, &head);
    match client.end_of(1) {
        StreamEnd::Answered(431, _) | StreamEnd::Reset(..) | StreamEnd::GoAway(code::ENHANCE_YOUR_CALM) => {}
        other => panic!("{other:?}"),
    }
    assert_served(&proxy, &mut one(&proxy), 1);
    assert_eq!(complete(&origin), Vec::<String>::new());
}

#[test]
fn streams_above_the_limit_are_refused_and_the_others_are_served() {
    let gate = std::sync::Arc::new(Gate::default());
    let opened = std::sync::Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        opened.wait();
        exchange.respond(200, &[], b"one");
    });
    let rules = h2c(&origin, "limits { streams-max 4 }");
    let proxy = Proxy::start(&format!("{rules}admin \"unix:admin.sock\"\n"));
    let mut client = one(&proxy);
    for stream in [1, 3, 5, 7, 9, 11] {
        client.get(stream, "/");
    }
    for _ in 0..2 {
        let reset = client.next_that(|frame| frame.kind == kind::RST_STREAM).unwrap();
        assert_eq!(reset.code(), code::REFUSED_STREAM);
        assert!(reset.stream >= 9);
    }
    gate.open();
    let mut answered = 0;
    while answered < 4 {
        let frame = client.next().unwrap();
        answered += usize::from(frame.ends_stream() && frame.stream <= 7);
    }
    assert_eq!(origin.requests().len(), 4);
    assert_eq!(proxy.status()["process"]["http2_streams_refused"], 2);
}

#[test]
fn connections_that_end_by_their_clients_fault_are_counted() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&format!("{}admin \"unix:admin.sock\"\n", h2c(&origin, "")));
    let mut breaks = one(&proxy);
    breaks.send(kind::DATA, 0, 0, b"on no stream");
    assert_eq!(breaks.goaway(), Some(code::PROTOCOL_ERROR));
    proxy.wait_for_error("was ended: it broke the protocol");
    let mut floods = one(&proxy);
    while floods.send(kind::SETTINGS, 0, 0, &[]) {}
    floods.goaway();
    let count = |what: &str| proxy.status()["process"][what].as_u64();
    wait_for("the counts", DEADLINE, || {
        (count("http2_errors") == Some(1) && count("http2_floods") == Some(1)).then_some(())
    });
}

/// What is not the preface is no HTTP/2, and is not taken for anything else either.
#[test]
fn a_wrong_preface_ends_the_connection() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    for bytes in [&b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", &[0; 100]] {
        let mut client = proxy.client();
        client.send(bytes);
        let (_, end) = client.rest();
        assert!(matches!(end, End::Closed | End::Reset), "{end:?}");
    }
    proxy.wait_for_error("was ended: it does not speak HTTP/2");
    let mut half = proxy.client();
    half.send(&PREFACE[..10]);
    half.finish_writing();
    assert!(matches!(half.rest().1, End::Closed | End::Reset));
    wait_for("nothing at the server", DEADLINE, || origin.requests().is_empty().then_some(()));
}

/// An upload of many small frames is slow, and no flood.
#[test]
fn an_upload_of_five_thousand_frames_of_a_byte_comes_whole() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        exchange.respond(200, &[], b"whole");
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = one(&proxy);
    client.post(1, "/", &[]);
    for number in 1..=5_000 {
        assert!(client.data(1, b"x", number == 5_000), "frame {number}");
    }
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"whole".to_vec()));
    assert_eq!(origin.requests()[0].body.len(), 5_000);
}

/// The name of a protocol becomes a field of the request to the server.
#[test]
fn what_a_protocol_is_called_can_not_become_another_field() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    for protocol in ["websocket\r\nX-Evil: 1", "websocket\r\n\r\nGET /evil HTTP/1.1", "web socket", ""] {
        let mut client = one(&proxy);
        let fields = [
            (":method", "CONNECT"),
            (":protocol", protocol),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "a.test"),
        ];
        client.head(1, &fields, false);
        assert_is_refused(client.end_of(1));
    }
    assert_eq!(origin.requests().len(), 0);
}

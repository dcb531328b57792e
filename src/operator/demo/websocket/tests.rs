//! The WebSocket over pipes in memory, held against the examples of RFC 6455 and against bytes of any kind.

use axum::http::HeaderValue;
use proptest::prelude::*;
use tokio::io::DuplexStream;

use super::*;

fn handshake() -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
    fields.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
    fields.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    fields.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
    fields
}

#[test]
fn the_handshake_of_rfc_6455_is_answered_and_no_other() {
    assert_eq!(accept_value(&handshake()).as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for missing in [UPGRADE, CONNECTION, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_KEY] {
        let mut fields = handshake();
        fields.remove(&missing);
        assert_eq!(accept_value(&fields), None, "without {missing}");
    }
    let mut fields = handshake();
    fields.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
    assert_eq!(accept_value(&fields), None);
}

/// A frame as a client sends it.
fn client_frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_frame(
        &mut bytes,
        first,
        payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect::<Vec<_>>().into_iter(),
    );
    bytes[1] |= MASKED;
    let head = bytes.len() - payload.len();
    bytes.splice(head..head, mask);
    bytes
}

fn server_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_frame(&mut bytes, first, payload.iter().copied());
    bytes
}

/// All that comes back for what a client sends, the greeting left out.
fn talk(sent: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (client, server): (DuplexStream, DuplexStream) = tokio::io::duplex(1000);
        let (mut read, mut write) = tokio::io::split(client);
        let mut got = Vec::new();
        let (_, _, ended) = tokio::join!(
            async {
                write.write_all(sent).await.ok();
                write.shutdown().await.ok();
            },
            read.read_to_end(&mut got),
            give_back(server, "api-1"),
        );
        // A client whose last words the server no longer reads breaks its writing, and nothing else.
        ended.ok();
        let greeting = server_frame(FINAL | TEXT, b"hello from api-1");
        assert_eq!(got[..greeting.len()], greeting);
        got.split_off(greeting.len())
    })
}

const MASK: [u8; 4] = [1, 2, 3, 4];

#[test]
fn messages_come_back_pings_are_answered_and_a_close_ends_it() {
    let sent = [
        client_frame(FINAL | TEXT, b"hello", MASK),
        client_frame(TEXT, b"in two ", MASK),
        client_frame(FINAL | PING, b"there?", MASK),
        client_frame(FINAL, b"parts", MASK),
        client_frame(FINAL | PONG, b"", MASK),
        client_frame(FINAL | CLOSE, &[3, 232], MASK),
        client_frame(FINAL | TEXT, b"too late", MASK),
    ];
    let expected = [
        server_frame(FINAL | TEXT, b"hello"),
        server_frame(TEXT, b"in two "),
        server_frame(FINAL | PONG, b"there?"),
        server_frame(FINAL, b"parts"),
        server_frame(FINAL | CLOSE, &[3, 232]),
    ];
    assert_eq!(talk(&sent.concat()), expected.concat());
}

#[test]
fn what_breaks_the_protocol_ends_with_a_protocol_error() {
    let refused = server_frame(FINAL | CLOSE, &1002_u16.to_be_bytes());
    assert_eq!(talk(&server_frame(FINAL | TEXT, b"not masked")), refused);
    assert_eq!(talk(&client_frame(FINAL | TEXT | 0x40, b"compressed", MASK)), refused);
    assert_eq!(talk(&client_frame(FINAL | TEXT, &vec![b'x'; FRAME_MAX + 1], MASK)), refused);
    let largest = vec![b'x'; FRAME_MAX];
    assert_eq!(talk(&client_frame(FINAL | TEXT, &largest, MASK)), server_frame(FINAL | TEXT, &largest));
}

proptest! {
    #[test]
    fn a_frame_is_found_as_soon_as_it_is_whole(
        payload in prop::collection::vec(any::<u8>(), 0..300), mask in any::<[u8; 4]>(), more in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut bytes = client_frame(FINAL | TEXT, &payload, mask);
        let length = bytes.len();
        for cut in 0..length {
            prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
        }
        bytes.extend(more);
        let frame = parse(&bytes).unwrap().unwrap();
        prop_assert_eq!(frame.end, length);
        let mut out = Vec::new();
        prop_assert!(!answer(&mut out, frame, &bytes[frame.start..frame.end]));
        prop_assert_eq!(out, server_frame(FINAL | TEXT, &payload));
    }

    #[test]
    fn no_bytes_upset_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        talk(&bytes);
    }
}

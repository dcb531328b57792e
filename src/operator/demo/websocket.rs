//! A WebSocket that greets and then gives every message back (RFC 6455): enough for a tunnel to have something in it.
//!
//! It refuses frames above [`FRAME_MAX`] bytes, extensions and subprotocols, and it does not check that text is UTF-8: it
//! gives back what it gets.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::pure::websocket;

/// The largest payload of a frame, in bytes.
const FRAME_MAX: usize = 64 * 1024;
/// The largest head of a frame: two bytes, a length of eight, a mask of four.
const HEAD_MAX: usize = 14;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Answers the opening handshake and gives messages back from then on.
pub(super) async fn upgrade(State(name): State<&'static str>, mut request: Request) -> Response {
    let Some(accept) = accept_value(request.headers()) else {
        let hint = "this is a WebSocket: open it with a client that speaks one (version 13)\n";
        return (StatusCode::UPGRADE_REQUIRED, [(UPGRADE, "websocket"), (SEC_WEBSOCKET_VERSION, "13")], hint)
            .into_response();
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            // A client that breaks off or talks nonsense ends its own connection, and nothing else.
            let _ = give_back(TokioIo::new(upgraded), name).await;
        }
    });
    let fields =
        [(CONNECTION, "Upgrade".to_owned()), (UPGRADE, "websocket".to_owned()), (SEC_WEBSOCKET_ACCEPT, accept)];
    (StatusCode::SWITCHING_PROTOCOLS, fields, Body::empty()).into_response()
}

/// The answer to the client's key, where the request is an opening handshake (RFC 6455 4.2.1).
fn accept_value(fields: &HeaderMap) -> Option<String> {
    let has = |name: HeaderName, token: &str| {
        let mut values = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
    };
    let key = fields.get(SEC_WEBSOCKET_KEY)?.as_bytes();
    let is_opening = has(UPGRADE, "websocket") && has(CONNECTION, "upgrade") && has(SEC_WEBSOCKET_VERSION, "13");
    is_opening.then(|| websocket::accept_value(key))
}

/// A client's frame: its first byte, where its payload starts and ends, and the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    first: u8,
    start: usize,
    end: usize,
    mask: [u8; 4],
}

/// A frame that breaks RFC 6455, or is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BadFrame;

/// The frame at the front of `bytes`; `None` where it has not come whole.
fn parse(bytes: &[u8]) -> Result<Option<Frame>, BadFrame> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if second & MASKED == 0 || first & 0x70 != 0 {
        return Err(BadFrame);
    }
    let (length, rest) = match (second & !MASKED, rest) {
        (126, [a, b, rest @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), rest),
        (127, [a, b, c, d, e, f, g, h, rest @ ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), rest),
        (126 | 127, _) => return Ok(None),
        (length, rest) => (u64::from(length), rest),
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_MAX).ok_or(BadFrame)?;
    let Some((mask, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    if rest.len() < length {
        return Ok(None);
    }
    let start = bytes.len() - rest.len();
    Ok(Some(Frame { first: *first, start, end: start + length, mask: *mask }))
}

/// Appends a frame as servers send it, without a mask.
fn push_frame(out: &mut Vec<u8>, first: u8, payload: impl ExactSizeIterator<Item = u8>) {
    out.push(first);
    match payload.len() {
        length @ 0..126 => out.push(length as u8),
        length @ 126..=0xFFFF => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend(payload);
}

/// Greets, then gives messages back until the client closes or breaks off.
async fn give_back(mut stream: impl AsyncRead + AsyncWrite + Unpin, name: &str) -> std::io::Result<()> {
    let mut out = Vec::new();
    push_frame(&mut out, FINAL | TEXT, format!("hello from {name}").into_bytes().into_iter());
    stream.write_all(&out).await?;
    let mut bytes = Vec::new();
    loop {
        let room = (FRAME_MAX + HEAD_MAX).saturating_sub(bytes.len()).max(1);
        if (&mut stream).take(room as u64).read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        out.clear();
        let mut is_over = false;
        while !is_over {
            let Ok(frame) = parse(&bytes) else {
                // 1002: protocol error.
                push_frame(&mut out, FINAL | CLOSE, 1002_u16.to_be_bytes().into_iter());
                is_over = true;
                break;
            };
            let Some(frame) = frame else { break };
            is_over = answer(&mut out, frame, bytes.get(frame.start..frame.end).unwrap_or_default());
            bytes.drain(..frame.end);
        }
        stream.write_all(&out).await?;
        if is_over {
            return stream.shutdown().await;
        }
    }
}

/// Appends what a frame is answered with. Whether it was the last.
fn answer(out: &mut Vec<u8>, frame: Frame, payload: &[u8]) -> bool {
    let payload: Vec<u8> = payload.iter().zip(frame.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    match frame.first & 0x0F {
        PONG => {}
        PING => push_frame(out, FINAL | PONG, payload.into_iter()),
        _ => push_frame(out, frame.first, payload.into_iter()),
    }
    frame.first & 0x0F == CLOSE
}

#[cfg(test)]
mod tests;

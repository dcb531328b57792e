//! A check's request over HTTP/1.1, on our own codec: what it refuses, requests would be refused as well.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{ANSWER_MAX, ProbeError};
use crate::pure::check::{HttpCheck, WrongAnswer};
use crate::pure::h1::body::{BodyDecoder, BodyLength};
use crate::pure::h1::request::{HeadLimits, Parsed};
use crate::pure::h1::response::{ResponseHead, parse_response_head};

const HEAD_LIMITS: HeadLimits = HeadLimits { bytes: ANSWER_MAX, fields: 256 };

/// How much is read at a time.
const PIECE: usize = 4 * 1024;

/// Asks, and judges the answer: its head, and of its body as much as it takes.
pub(super) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    check: &HttpCheck,
    authority: &str,
) -> Result<(), ProbeError> {
    // A server that answers at once and closes may not take it: what it has to say is read all the same.
    let _ = stream.write_all(&request(check, authority)).await;
    let _ = stream.flush().await;
    let (head, rest) = read_head(stream, check.method == "HEAD").await?;
    check.judge_status(head.status)?;
    if check.wants_body() {
        check.judge_body(&read_body(stream, head.body, rest, check).await?)?;
    }
    Ok(())
}

fn request(check: &HttpCheck, authority: &str) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\nhost: {authority}\r\n", check.method, check.path);
    for (name, value) in check.sent_fields() {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text.push_str("connection: close\r\n\r\n");
    text.into_bytes()
}

/// The final head, and what has come behind it. Interim answers, which nobody has asked for, are passed over.
async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    to_head_request: bool,
) -> Result<(ResponseHead, Vec<u8>), ProbeError> {
    let mut head = ResponseHead::default();
    let (mut buffer, mut interim) = (Vec::new(), 0);
    loop {
        match parse_response_head(&buffer, HEAD_LIMITS, to_head_request, &mut head) {
            // No other protocol was asked for.
            Ok(Parsed::Complete) if head.status == 101 => return Err(WrongAnswer::Malformed.into()),
            Ok(Parsed::Complete) if head.status < 200 && interim + head.length <= ANSWER_MAX => {
                interim += head.length;
                buffer.drain(..head.length);
            }
            Ok(Parsed::Complete) if head.status < 200 => return Err(WrongAnswer::Malformed.into()),
            Ok(Parsed::Complete) => {
                let rest = buffer.split_off(head.length);
                return Ok((head, rest));
            }
            Ok(Parsed::Partial) => {
                if read(stream, &mut buffer).await? == 0 {
                    return Err(WrongAnswer::Cut.into());
                }
            }
            Err(_) => return Err(WrongAnswer::Malformed.into()),
        }
    }
}

/// The body, until it decides: to its end, or to [`ANSWER_MAX`].
async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    length: BodyLength,
    mut raw: Vec<u8>,
    check: &HttpCheck,
) -> Result<Vec<u8>, ProbeError> {
    let mut decoder = BodyDecoder::new(length);
    let mut body = Vec::new();
    loop {
        let decoded = decoder.decode(&mut raw).map_err(|_| WrongAnswer::Malformed)?;
        body.extend_from_slice(raw.get(decoded.data).unwrap_or_default());
        if decoded.is_complete || body.len() >= ANSWER_MAX || check.is_satisfied(&body) {
            body.truncate(ANSWER_MAX);
            return Ok(body);
        }
        raw.clear();
        if read(stream, &mut raw).await? == 0 {
            return if length == BodyLength::UntilClose { Ok(body) } else { Err(WrongAnswer::Cut.into()) };
        }
    }
}

/// Reads a piece; 0: the end.
async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Result<usize, ProbeError> {
    let before = buffer.len();
    let mut limited = stream.take(PIECE as u64);
    loop {
        buffer.reserve(PIECE);
        match limited.read_buf(buffer).await {
            Ok(_) => return Ok(buffer.len() - before),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(WrongAnswer::Cut.into()),
        }
    }
}

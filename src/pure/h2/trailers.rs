//! Trailers on their way between HTTP/2 and the trailer section of a chunked body (RFC 9110 6.5, RFC 9112 7.1.2).
//!
//! What has no place there (RFC 9110 6.5.1) is left out, by the rule of the chunked coding.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::pure::h1::body::may_trail;
use crate::pure::h1::encode::push_all;

/// Appends trailers as field lines, each with its CRLF.
pub fn push_trailers(out: &mut Vec<u8>, trailers: &HeaderMap) {
    for (name, value) in trailers {
        if may_trail(name.as_str().as_bytes()) {
            push_all(out, [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
    }
}

/// The trailers that field lines say, as the parser of chunked bodies has let them through.
pub fn read_trailers(lines: &[u8]) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.iter().position(|byte| *byte == b':').and_then(|colon| {
            let (name, value) = line.split_at_checked(colon)?;
            Some((HeaderName::from_bytes(name).ok()?, value.get(1..)?.trim_ascii()))
        }) else {
            continue;
        };
        if may_trail(name.as_str().as_bytes())
            && let Ok(value) = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(value))
        {
            trailers.append(name, value);
        }
    }
    trailers
}

/// Appends what ends a chunked body: the last chunk, the trailers, the empty line.
pub fn push_chunked_end(out: &mut Vec<u8>, trailers: Option<&HeaderMap>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        push_trailers(out, trailers);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_come_back_as_they_went_without_those_that_have_no_place_there() {
        let lines =
            b"grpc-status: 5\r\nX-A:  1 \r\nx-a:2\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nempty:\r\n";
        let trailers = read_trailers(lines);
        let mut out = Vec::new();
        push_trailers(&mut out, &trailers);
        assert_eq!(String::from_utf8(out).unwrap(), "grpc-status: 5\r\nx-a: 1\r\nx-a: 2\r\nempty: \r\n");
    }
}

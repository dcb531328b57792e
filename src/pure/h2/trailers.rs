//! Trailers on their way between HTTP/2 and the trailer section of a chunked body (RFC 9110 6.5, RFC 9112 7.1.2).
//!
//! What has no place there (RFC 9110 6.5.1) is left out, by the rule of the chunked coding.

use crate::pure::h1::body::may_trail;
use crate::pure::h1::encode::push_all;
use crate::pure::h2::field_rules::is_field;
use crate::pure::h2::hpack::{Encoder, FieldBlock};

/// Whether these may be trailers (RFC 9113 8.1): fields, and no pseudo-header fields among them.
pub fn are_fine(trailers: &FieldBlock) -> bool {
    !trailers.is_too_large() && trailers.fields().all(is_field)
}

/// Appends what ends a chunked body: the last chunk, the trailers, which are fine, as field lines, the empty line.
pub fn push_chunked_end(out: &mut Vec<u8>, trailers: Option<&FieldBlock>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flat_map(FieldBlock::fields).filter(|(name, _)| may_trail(name)) {
        push_all(out, [name, b": ", value, b"\r\n"]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether field lines, as the parser of chunked bodies has let them through, say any trailers.
pub fn has_trailers(lines: &[u8]) -> bool {
    fields_of(lines).next().is_some()
}

/// Appends the trailers that field lines say.
pub fn push_trailers(encoder: &mut Encoder, out: &mut Vec<u8>, lines: &[u8]) {
    for (name, value) in fields_of(lines) {
        encoder.push(out, name, value);
    }
}

fn fields_of(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let fields = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        Some((name, value.get(1..)?.trim_ascii()))
    });
    fields.filter(|(name, _)| !name.is_empty() && may_trail(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::h2::hpack::Decoder;

    #[test]
    fn trailers_come_back_as_they_went_without_those_that_have_no_place_there() {
        let lines =
            b"grpc-status: 5\r\nX-A:  1 \r\nx-a:2\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nempty:\r\n";
        assert!(has_trailers(lines) && !has_trailers(b"") && !has_trailers(b"Content-Length: 3\r\n"));
        let (mut block, mut fields, mut out) = (Vec::new(), FieldBlock::default(), Vec::new());
        push_trailers(&mut Encoder::default(), &mut block, lines);
        Decoder::default().decode(&block, 1000, &mut fields).unwrap();
        push_chunked_end(&mut out, Some(&fields));
        assert_eq!(String::from_utf8(out).unwrap(), "0\r\ngrpc-status: 5\r\nx-a: 1\r\nx-a: 2\r\nempty: \r\n\r\n");
    }

    #[test]
    fn what_is_no_field_is_no_trailer() {
        let are_fine = |name: &[u8], value: &[u8]| {
            let mut fields = FieldBlock::default();
            fields.push(name, value);
            are_fine(&fields)
        };
        assert!(are_fine(b"x", b"y"));
        for (name, value) in [(":path", "/"), ("X", "y"), ("x: y", "z"), ("x", "y\r\nz: 1")] {
            assert!(!are_fine(name.as_bytes(), value.as_bytes()), "{name}");
        }
    }
}

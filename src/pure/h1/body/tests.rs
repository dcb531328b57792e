//! Bodies: what the framing may look like, and that pieces make no difference.

use proptest::prelude::*;

use super::*;

/// What came of a body: its data, the bytes behind it, its trailer lines.
type Outcome = Result<(Vec<u8>, usize, Vec<u8>), BodyError>;

/// Decodes `input`, of which the pieces end at `ends`; `None` where more is awaited.
fn decode_in_pieces(length: BodyLength, input: &[u8], ends: impl IntoIterator<Item = usize>) -> Option<Outcome> {
    let mut decoder = BodyDecoder::new(length);
    let mut data = Vec::new();
    let mut consumed = 0;
    for end in ends {
        let mut piece = input[consumed..end].to_vec();
        let decoded = match decoder.decode(&mut piece) {
            Ok(decoded) => decoded,
            Err(error) => {
                assert_eq!(decoder.decode(&mut b"0\r\n\r\n".to_vec()), Err(error), "what is broken stays broken");
                assert!(!decoder.is_complete());
                return Some(Err(error));
            }
        };
        data.extend_from_slice(&piece[decoded.data]);
        consumed += decoded.consumed;
        assert_eq!(decoded.is_complete, decoder.is_complete());
        if decoded.is_complete {
            return Some(Ok((data, input.len() - consumed, decoder.trailers().to_vec())));
        }
        assert_eq!(consumed, end, "a body that goes on takes all there is");
    }
    None
}

/// Decodes a chunked body whole, in every two pieces, and byte by byte.
fn check(input: impl AsRef<[u8]>, expected: Result<(&str, &str), BodyError>) {
    let input = input.as_ref();
    let bytes = |text: &str| text.as_bytes().to_vec();
    let expected = Some(expected.map(|(data, trailers)| (bytes(data), bytes(trailers))));
    let outcome = |ends: &[usize]| {
        let outcome = decode_in_pieces(BodyLength::Chunked, input, ends.iter().copied());
        outcome.map(|outcome| {
            outcome.map(|(data, rest, trailers)| {
                assert_eq!(rest, 0, "all of the input belongs to the body");
                (data, trailers)
            })
        })
    };
    let shown = String::from_utf8_lossy(&input[..input.len().min(200)]).into_owned();
    assert_eq!(outcome(&[input.len()]), expected, "whole: {shown:?}");
    if input.len() > 2048 {
        return;
    }
    for split in 0..input.len() {
        assert_eq!(outcome(&[split, input.len()]), expected, "split at {split}: {shown:?}");
    }
    assert_eq!(outcome(&(0..=input.len()).collect::<Vec<_>>()), expected, "byte by byte: {shown:?}");
}

#[test]
fn chunks_are_put_together() {
    check("0\r\n\r\n", Ok(("", "")));
    check("5\r\nhello\r\n0\r\n\r\n", Ok(("hello", "")));
    check("5\r\nhello\r\n6\r\n world\r\n1\r\n!\r\n000\r\n\r\n", Ok(("hello world!", "")));
    check("00000000000000A\r\n0123456789\r\n0\r\n\r\n", Ok(("0123456789", "")));
    check("000000000000000b\r\n0123456789a\r\n0\r\n\r\n", Ok(("0123456789a", "")));
    check("4\r\n\r\n\r\n\r\n0\r\n\r\n", Ok(("\r\n\r\n", "")));
}

#[test]
fn data_stays_where_it_is_until_a_second_chunk_comes() {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let mut buffer = *b"5\r\nhello\r\n6\r\n wor";
    let decoded = decoder.decode(&mut buffer).unwrap();
    assert_eq!(decoded, Decoded { data: 3..12, consumed: buffer.len(), is_complete: false });
    assert_eq!(&buffer[decoded.data], b"hello wor");
    let mut buffer = *b"ld\r\n0\r\n\r\nGET /";
    let decoded = decoder.decode(&mut buffer).unwrap();
    assert_eq!(decoded, Decoded { data: 0..2, consumed: 9, is_complete: true });
    assert_eq!(decoder.decode(&mut buffer), Ok(Decoded { data: 0..0, consumed: 0, is_complete: true }));
}

#[test]
fn chunk_sizes_are_hex_digits_and_nothing_else() {
    for size in [
        "",
        "x",
        "5zz",
        "z5",
        "0x5",
        "0_5",
        "5_",
        "-5",
        "+5",
        " 5",
        "\t5",
        "5 ",
        "5\t",
        "5 5",
        "5,",
        "5.",
        "5\0",
        "\0",
        "00000000000000005",
        "10000000000000000",
        "ffffffffffffffff5",
        "\u{e9}",
        "5\r",
        "\r",
        "5\n",
        "\n5",
        "5\u{7f}",
    ] {
        check(format!("{size}\r\nhello\r\n0\r\n\r\n"), Err(BodyError::ChunkSize));
    }
    check("5\nhello\r\n0\r\n\r\n", Err(BodyError::ChunkSize));
    check("5\r\nhello\r\n0\n\r\n", Err(BodyError::ChunkSize));
    check("GET / HTTP/1.1\r\n", Err(BodyError::ChunkSize));
    let largest = decode_in_pieces(BodyLength::Chunked, b"ffffffffffffffff\r\nabc", [21]);
    assert_eq!(largest, None, "2^64 - 1 bytes are awaited");
}

#[test]
fn chunks_end_in_crlf() {
    for end in ["XX\r\n", "\n", "\r", "\rX", "", "\n\r", "0\r\n"] {
        check(format!("5\r\nhello{end}0\r\n\r\n"), Err(BodyError::ChunkEnd));
    }
}

#[test]
fn extensions_are_dropped_and_bounded() {
    for extension in [";name=val;q=\"x y\"", ";a", ";", " ;a", "\t ; a = b", ";a=\";\"", ";a=\"\u{e9}\t\""] {
        check(format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\n"), Ok(("hello", "")));
    }
    for extension in [";a=b\rc", ";a\rb"] {
        check(format!("5{extension}\r\nhello\r\n0\r\n\r\n"), Err(BodyError::ChunkSize));
    }
    for extension in [";a\nb", ";a\0b", ";\u{7f}", ";\n"] {
        check(format!("5{extension}\r\nhello\r\n0\r\n\r\n"), Err(BodyError::ChunkExtension));
    }
    check(format!("5{}\r\nhello\r\n0\r\n\r\n", ";a".repeat(2048)), Ok(("hello", "")));
    check(format!("5{}x\r\nhello\r\n0\r\n\r\n", ";a".repeat(2048)), Err(BodyError::ChunkExtension));
    check(format!("5{}\r\nhello\r\n0\r\n\r\n", " ".repeat(4097)), Err(BodyError::ChunkExtension));
    let chunk = format!("1{}\r\na\r\n", ";a".repeat(2048));
    check(chunk.repeat(4) + "0\r\n\r\n", Ok(("aaaa", "")));
    check(chunk.repeat(4) + "0;\r\n\r\n", Err(BodyError::ChunkExtension));
}

#[test]
fn trailers_are_field_lines() {
    check("1\r\na\r\n0\r\nX-Sum: 1\r\nx-b:2\r\n\r\n", Ok(("a", "X-Sum: 1\r\nx-b:2\r\n")));
    check("0\r\nX-Empty:\r\n\r\n", Ok(("", "X-Empty:\r\n")));
    for line in
        ["XX", "X A: b", "X-A : b", ": b", " X-A: b", "X-A: a\0b", "X-A: a\nb", "X-A: a\r\n b", "\n", "X\u{e9}: b"]
    {
        check(format!("0\r\n{line}\r\n\r\n"), Err(BodyError::Trailer));
    }
    check("0\r\nX-A: a\rb\r\n\r\n", Err(BodyError::Trailer));
    check("0\r\n\rX", Err(BodyError::Trailer));
    check("0\r\nXXGET / HTTP/1.1\r\n", Err(BodyError::Trailer));
}

#[test]
fn trailers_that_would_change_the_message_are_left_out() {
    for name in [
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "Authorization",
        "Set-Cookie",
        "Cookie",
        "Trailer",
        "TE",
        "Connection",
        "Content-Type",
        "content-encoding",
        "Content-Range",
        "Content-Anything",
        "Cache-Control",
        "Age",
        "Expires",
        "Date",
        "Location",
        "Vary",
        "If-Match",
        "Range",
        "Expect",
        "Max-Forwards",
        "X-Forwarded-For",
        "Forwarded",
        "Via",
        "X-Request-Id",
        "Proxy-Authorization",
        "WWW-Authenticate",
        "Upgrade",
        "Keep-Alive",
        "HTTP2-Settings",
    ] {
        check(format!("0\r\nX-Sum: 1\r\n{name}: 99\r\nX-B: 2\r\n\r\n"), Ok(("", "X-Sum: 1\r\nX-B: 2\r\n")));
    }
    for name in ["Content-Digest", "Content-MD5", "Server-Timing", "ETag", "grpc-status", "Contents"] {
        check(format!("0\r\n{name}: 1\r\n\r\n"), Ok(("", &format!("{name}: 1\r\n"))));
    }
}

#[test]
fn trailer_sections_are_bounded() {
    let lines = |count: usize, value: usize| format!("A: {}\r\n", "v".repeat(value)).repeat(count);
    check(format!("0\r\n{}\r\n", lines(64, 1)), Ok(("", &lines(64, 1))));
    check(format!("0\r\n{}\r\n", lines(65, 1)), Err(BodyError::TrailerTooLarge));
    check(format!("0\r\n{}\r\n", lines(1, 8192 - 3)), Ok(("", &lines(1, 8192 - 3))));
    check(format!("0\r\n{}\r\n", lines(1, 8192 - 2)), Err(BodyError::TrailerTooLarge));
    check(format!("0\r\n{}\r\n", "Host: a\r\n".repeat(65)), Err(BodyError::TrailerTooLarge));
}

#[test]
fn other_lengths() {
    let decode = |length, ends: &[usize]| decode_in_pieces(length, b"hello world", ends.iter().copied());
    let whole = |data: &[u8], rest| Some(Ok((data.to_vec(), rest, Vec::new())));
    assert_eq!(decode(BodyLength::None, &[11]), whole(b"", 11));
    assert_eq!(decode(BodyLength::Length(0), &[11]), whole(b"", 11));
    assert_eq!(decode(BodyLength::Length(5), &[11]), whole(b"hello", 6));
    assert_eq!(decode(BodyLength::Length(5), &[2, 5]), whole(b"hello", 6));
    assert_eq!(decode(BodyLength::Length(12), &[11]), None);
    assert_eq!(decode(BodyLength::Length(u64::MAX), &[11]), None);
    assert_eq!(decode(BodyLength::UntilClose, &[3, 11]), None);
    assert!(BodyDecoder::new(BodyLength::None).is_complete());
    assert!(!BodyDecoder::new(BodyLength::Length(1)).is_complete());
    assert!(!BodyDecoder::new(BodyLength::UntilClose).is_complete());
}

#[test]
fn a_decoder_is_small() {
    assert!(size_of::<BodyDecoder>() <= 32, "{} bytes", size_of::<BodyDecoder>());
}

#[test]
fn chunk_lines_are_hex_digits() {
    for length in [0, 1, 9, 10, 15, 16, 255, 256, 0x1234, 65_536, usize::MAX] {
        let mut out = b"x".to_vec();
        push_chunk_line(&mut out, length);
        assert_eq!(out, format!("x{length:x}\r\n").into_bytes());
    }
}

/// How one chunk is written: its data, the digits before its size, their case, and an extension.
fn write_chunk(out: &mut Vec<u8>, data: &[u8], style: u8) {
    let zeros = "0".repeat(usize::from(style % 4));
    let extension = ["", ";a", " ; b=\"c;d\"", "\t;"][usize::from(style / 4 % 4)];
    let line = if style & 0x80 == 0 {
        format!("{zeros}{:x}{extension}\r\n", data.len())
    } else {
        format!("{zeros}{:X}{extension}\r\n", data.len())
    };
    out.extend_from_slice(line.as_bytes());
    if !data.is_empty() {
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

proptest! {
    /// However a body is cut into chunks and pieces, its data come out whole, and what follows is left alone.
    #[test]
    fn any_chunking_and_any_pieces_give_the_data(
        chunks in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..80), any::<u8>()), 0..20),
        last in any::<u8>(),
        trailers in prop::collection::vec("[A-Z][a-z]{0,8}: [ -~]{0,20}", 0..3),
        rest in prop::collection::vec(any::<u8>(), 0..20),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let trailers: Vec<_> = trailers.into_iter().map(|line| format!("X-{line}\r\n")).collect();
        let mut input = Vec::new();
        for (data, style) in &chunks {
            write_chunk(&mut input, data, *style);
        }
        write_chunk(&mut input, b"", last);
        input.extend_from_slice((trailers.concat() + "\r\n").as_bytes());
        input.extend_from_slice(&rest);

        let data: Vec<u8> = chunks.into_iter().flat_map(|(data, _)| data).collect();
        let expected = (data, rest.len(), trailers.concat().into_bytes());
        let mut ends: Vec<_> = ends.iter().map(|end| end.index(input.len() + 1)).chain([input.len()]).collect();
        ends.sort_unstable();
        prop_assert_eq!(decode_in_pieces(BodyLength::Chunked, &input, ends), Some(Ok(expected)));
    }
}

//! The reader of names held against a plain encoder that keeps the whole table.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::pure::h2::frames::{FrameReader, PREFACE, Seen};

/// The static table as far as it matters here: index and name.
const STATIC: [(u32, &str); 6] = [
    (1, ":authority"),
    (7, ":scheme"),
    (14, ":status"),
    (15, "accept-charset"),
    (32, "cookie"),
    (61, "www-authenticate"),
];

/// The codes of some letters (RFC 7541 Appendix B).
const CODES: [(char, &str); 13] = [
    ('#', "111111111010"),
    ('/', "011000"),
    ('p', "101011"),
    ('t', "01001"),
    ('h', "100111"),
    ('~', "1111111111101"),
    (':', "1011100"),
    (';', "11111011"),
    ('-', "010110"),
    ('a', "00011"),
    ('b', "100011"),
    ('e', "00101"),
    ('x', "1111001"),
];

fn huffman(text: &str) -> Vec<u8> {
    let code = |letter| CODES.iter().find(|(other, _)| *other == letter).unwrap().1;
    let mut bits: String = text.chars().map(code).collect();
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    (0..bits.len() / 8).map(|byte| u8::from_str_radix(&bits[byte * 8..byte * 8 + 8], 2).unwrap()).collect()
}

fn push_number(out: &mut Vec<u8>, pattern: u8, bits: u32, number: usize) {
    let max = (1 << bits) - 1;
    if number < max {
        out.push(pattern | u8::try_from(number).unwrap());
        return;
    }
    out.push(pattern | u8::try_from(max).unwrap());
    let mut rest = number - max;
    while rest >= 128 {
        out.push(0x80 | u8::try_from(rest % 128).unwrap());
        rest /= 128;
    }
    out.push(u8::try_from(rest).unwrap());
}

fn push_string(out: &mut Vec<u8>, text: &str, is_huffman: bool) {
    let bytes = if is_huffman { huffman(text) } else { text.as_bytes().to_vec() };
    push_number(out, if is_huffman { 0x80 } else { 0 }, 7, bytes.len());
    out.extend(bytes);
}

/// A field, or what else stands in a block.
#[derive(Clone, Debug)]
enum Item {
    Indexed(Index),
    /// How it is kept: 0 in the table, 1 not, 2 never. Its name, of a table or a literal, and its value.
    Literal(u8, Result<Index, (String, bool)>, String, bool),
}

fn text(max: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(select(vec![':', ';', '-', 'a', 'b', 'e', 'x', '/', '~', '#']), 0..max)
        .prop_map(|letters| letters.into_iter().collect())
}

fn literal_name() -> impl Strategy<Value = String> {
    let pseudo = text(6).prop_map(|name| format!(":{name}"));
    prop_oneof![text(6), text(160), pseudo, select(vec![":path".to_owned(), ":patx".to_owned()])]
}

fn item() -> impl Strategy<Value = Item> {
    let name = prop_oneof![any::<Index>().prop_map(Ok), (literal_name(), any::<bool>()).prop_map(Err),];
    prop_oneof![
        any::<Index>().prop_map(Item::Indexed),
        (0_u8..3, name, prop_oneof![text(4), text(4), text(1500)], any::<bool>())
            .prop_map(|(kept, name, value, is_huffman)| Item::Literal(kept, name, value, is_huffman)),
    ]
}

/// The other side's compression, plainly.
#[derive(Default)]
struct Encoder {
    /// Names and values, the newest first.
    table: VecDeque<(String, String)>,
    max: Option<usize>,
}

impl Encoder {
    fn entry(&self, index: Index) -> (usize, String, String) {
        let count = STATIC.len() + self.table.len();
        match index.index(count).checked_sub(STATIC.len()) {
            None => {
                let (place, name) = STATIC[index.index(count)];
                (usize::try_from(place).unwrap(), name.to_owned(), String::new())
            }
            Some(age) => (62 + age, self.table[age].0.clone(), self.table[age].1.clone()),
        }
    }

    fn evict(&mut self, room: usize) -> bool {
        let max = self.max.unwrap_or(4096);
        let size = |(name, value): &(String, String)| name.len() + value.len() + 32;
        while self.table.iter().map(size).sum::<usize>() + room > max && self.table.pop_back().is_some() {}
        room <= max
    }

    /// Appends a block. Whether a name in it begins with a colon, and whether a path has a fragment.
    fn push(&mut self, out: &mut Vec<u8>, resize: Option<usize>, items: &[Item]) -> (bool, bool) {
        if let Some(max) = resize {
            self.max = resize;
            self.evict(0);
            push_number(out, 0x20, 5, max);
        }
        let (mut has_pseudo, mut has_fragment) = (false, false);
        for item in items {
            let (name, value) = match item {
                Item::Indexed(index) => {
                    let (place, name, value) = self.entry(*index);
                    push_number(out, 0x80, 7, place);
                    (name, value)
                }
                Item::Literal(kept, name, value, is_huffman) => {
                    let (pattern, bits) = [(0x40, 6), (0, 4), (0x10, 4)][usize::from(*kept)];
                    let name = match name {
                        Ok(index) => {
                            let (place, name, _) = self.entry(*index);
                            push_number(out, pattern, bits, place);
                            name
                        }
                        Err((name, is_huffman)) => {
                            out.push(pattern);
                            push_string(out, name, *is_huffman);
                            name.clone()
                        }
                    };
                    push_string(out, value, *is_huffman);
                    if *kept == 0 && self.evict(name.len() + value.len() + 32) {
                        self.table.push_front((name.clone(), value.clone()));
                    }
                    (name, value.clone())
                }
            };
            has_pseudo |= name.starts_with(':');
            has_fragment |= name == ":path" && value.contains('#');
        }
        (has_pseudo, has_fragment)
    }
}

/// How a block is put into frames: where it is cut, its padding, and whether it has a priority.
type Packing = (Vec<Index>, Option<u8>, bool);

fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

fn push_frames(out: &mut Vec<u8>, stream: u32, block: &[u8], (cuts, padding, has_priority): &Packing) {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(block.len() + 1)).chain([0, block.len()]).collect();
    cuts.sort_unstable();
    let pieces: Vec<_> = cuts.windows(2).map(|pair| &block[pair[0]..pair[1]]).collect();
    for (place, piece) in pieces.iter().enumerate() {
        let mut flags = if place + 1 == pieces.len() { 4 } else { 0 };
        let mut payload = Vec::new();
        if place == 0 {
            if let Some(padding) = padding {
                flags |= 8;
                payload.push(*padding);
            }
            if *has_priority {
                flags |= 0x20;
                payload.extend([0x80, 0, 0, 0, 16]);
            }
        }
        payload.extend(*piece);
        if place == 0
            && let Some(padding) = padding
        {
            // Of what would be a pseudo-header field.
            payload.extend(vec![0x82; usize::from(*padding)]);
        }
        push_frame(out, if place == 0 { 1 } else { 9 }, flags, stream, &payload);
    }
}

/// What the reader says of a client's bytes that come in these pieces.
fn verdicts<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Verdict> {
    let (mut frames, mut fields, mut said) = (FrameReader::default(), FieldReader::default(), Vec::new());
    for piece in pieces {
        frames.read(piece, |seen| {
            match seen {
                Seen::Frame(frame) => fields.begin(frame),
                Seen::HeadPayload(payload) => match fields.read(payload) {
                    Verdict::Fine => {}
                    other => said.push(other),
                },
                Seen::SettingsPayload(_) => {}
            }
            true
        });
    }
    said
}

/// What it says of frames of one block each.
fn of_blocks(blocks: &[(u32, &[u8])]) -> Vec<Verdict> {
    let mut bytes = PREFACE.to_vec();
    for (stream, block) in blocks {
        push_frame(&mut bytes, 1, 4, *stream, block);
    }
    verdicts([bytes.as_slice()])
}

#[test]
fn a_head_has_pseudo_fields_and_trailers_must_not() {
    let path: &[u8] = b"\x04\x01/";
    let plain: &[u8] = b"\x00\x01a\x01b";
    assert_eq!(of_blocks(&[(1, path), (3, path)]), []);
    assert_eq!(of_blocks(&[(1, path), (1, plain)]), []);
    for bad in [path, b"\x82", b"\x00\x02:x\x00", b"\x10\x82\xb9\xe7\x00"] {
        assert_eq!(of_blocks(&[(1, path), (3, path), (1, bad)]), [Verdict::Malformed(1)], "{bad:?}");
        assert_eq!(of_blocks(&[(1, path), (1, &[plain, bad, bad].concat())]), [Verdict::Malformed(1)]);
    }
}

#[test]
fn a_path_with_a_fragment_is_malformed_however_it_is_said() {
    let good: [&[u8]; 4] = [b"\x04\x02/a", b"\x00\x05:path\x02/a", b"\x04\x83\x60\x75\x1f", b"\x00\x05:patx\x02/#"];
    let bad: [&[u8]; 5] = [
        b"\x04\x02/#",
        b"\x45\x03/a#",
        b"\x00\x05:path\x02/#",
        b"\x10\x84\xb9\x58\xd3\x3f\x84\x60\x7f\xf5\x1f",
        b"\x01\x02#\x00\x85\x01#",
    ];
    for block in good {
        assert_eq!(of_blocks(&[(1, block), (3, block)]), [], "{block:?}");
    }
    for block in &bad[..4] {
        assert_eq!(of_blocks(&[(1, block)]), [Verdict::Malformed(1)], "{block:?}");
    }
    // An entry of the table, and its name with another value.
    let kept: &[u8] = b"\x44\x02/#\x40\x01a\x01b";
    assert_eq!(of_blocks(&[(1, kept), (3, b"\xbf")]), [Verdict::Malformed(1), Verdict::Malformed(3)]);
    assert_eq!(of_blocks(&[(1, kept), (3, b"\xbe")]), [Verdict::Malformed(1)]);
    assert_eq!(of_blocks(&[(1, kept), (3, b"\x0f\x30\x02/a")]), [Verdict::Malformed(1)]);
    assert_eq!(of_blocks(&[(1, kept), (3, b"\x0f\x30\x02/#")]), [Verdict::Malformed(1), Verdict::Malformed(3)]);
}

#[test]
fn faults_of_compression_are_called_so() {
    let blocks: [&[u8]; 8] = [
        b"\xff\xff\xff\xff\xff\xff",
        b"\x80",
        b"\xff\x7f",
        b"\xbe",
        b"\x40\x01a\x01b\xbf",
        b"\x3f\xe2\x1f\x82",
        b"\x82\x20",
        b"\x82\x00\x05abc",
    ];
    for block in blocks {
        assert_eq!(of_blocks(&[(1, block)]), [Verdict::Broken(Fault::Compression)], "{block:?}");
    }
    for block in [&b"\x3f\xe1\x1f\x82"[..], b"\x20\x3f\xe1\x1f\x40\x01a\x01b\xbe", b"\x82\x00\x00\x00"] {
        assert_eq!(of_blocks(&[(1, block)]), [], "{block:?}");
    }
    // A table that was emptied.
    assert_eq!(of_blocks(&[(1, b"\x40\x01a\x01b"), (3, b"\x20\xbe")]), [Verdict::Broken(Fault::Compression)]);
}

#[test]
fn a_stream_that_depends_on_itself_ends_the_connection() {
    let mut bytes = PREFACE.to_vec();
    push_frame(&mut bytes, 1, 0x24, 5, &[0x80, 0, 0, 5, 16, 0x82]);
    assert_eq!(verdicts([bytes.as_slice()]), [Verdict::Broken(Fault::Protocol)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever a client's compression does, and however its frames and bytes are cut.
    #[test]
    fn it_agrees_with_a_plain_encoder_of_whole_tables(
        blocks in proptest::collection::vec(
            (
                1_u32..6,
                proptest::option::weighted(0.2, 0_usize..=4096),
                proptest::collection::vec(item(), 0..12),
                (proptest::collection::vec(any::<Index>(), 0..4), proptest::option::of(any::<u8>()), any::<bool>()),
            ),
            1..30,
        ),
        cuts in proptest::collection::vec(any::<Index>(), 0..60),
    ) {
        let (mut encoder, mut newest, mut wanted) = (Encoder::default(), 0, Vec::new());
        let mut bytes = PREFACE.to_vec();
        for (stream, resize, items, packing) in &blocks {
            // Heads of new streams and trailers of old ones.
            let stream = if *stream == 5 { newest + 1 } else { newest.max(*stream) - stream.min(&newest) + 1 };
            let mut block = Vec::new();
            let (has_pseudo, has_fragment) = encoder.push(&mut block, *resize, items);
            if has_fragment || (has_pseudo && stream <= newest) {
                wanted.push(Verdict::Malformed(stream));
            }
            newest = newest.max(stream);
            push_frames(&mut bytes, stream, &block, packing);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        prop_assert_eq!(verdicts(cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]])), wanted.clone());
        prop_assert_eq!(verdicts(bytes.chunks(1)), wanted);
    }

    #[test]
    fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut all = PREFACE.to_vec();
        all.extend(&bytes);
        let whole = verdicts([all.as_slice()]);
        let pieces = verdicts(all.chunks(1));
        let is_broken = |verdicts: &[Verdict]| verdicts.iter().any(|verdict| matches!(verdict, Verdict::Broken(_)));
        prop_assert_eq!(is_broken(&whole), is_broken(&pieces));
    }
}

//! What holds for all bytes and all fields.

use proptest::collection::vec;
use proptest::prelude::*;

use super::naive::{Field, NaiveDecoder};
use super::*;

fn owned(block: &FieldBlock) -> Vec<Field> {
    block.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// A name that the encoder knows, or not.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        ":authority",
        ":path",
        ":method",
        ":scheme",
        "accept",
        "accept-encoding",
        "user-agent",
        "content-type",
        "date",
        "via",
        "te",
        "x-forwarded-proto",
        "grpc-status",
        "cookie",
        "authorization",
        "set-cookie",
        "etag",
        "Server",
        "Content-Length",
        "access-control-allow-credentials",
        "X-Request-Id",
    ];
    prop_oneof![
        6 => proptest::sample::select(known.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

/// A value of which there are not many, or any.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let common = ["", "/", "GET", "https", "gzip, deflate", "text/html; charset=utf-8", "trailers", "0", "example.com"];
    prop_oneof![
        4 => proptest::sample::select(common.to_vec()).prop_map(|value| value.as_bytes().to_vec()),
        2 => (0_u8..30).prop_map(|number| format!("value-{number}").into_bytes()),
        1 => vec(any::<u8>(), 0..60),
        1 => (0_usize..2000).prop_map(|length| vec![b'a'; length]),
    ]
}

/// Bytes that are a representation, more or less.
fn representation() -> impl Strategy<Value = Vec<u8>> {
    let string = || {
        prop_oneof![
            3 => vec(any::<u8>(), 0..20).prop_map(|plain| [&[plain.len() as u8][..], &plain].concat()),
            3 => vec(any::<u8>(), 0..20).prop_map(|plain| {
                let mut coded = Vec::new();
                huffman::encode(&plain, &mut coded);
                [&[0x80 | coded.len().min(126) as u8][..], &coded].concat()
            }),
            1 => vec(any::<u8>(), 0..4).prop_map(|coded| [&[0x80 | coded.len() as u8][..], &coded].concat()),
            1 => (0_u8..20).prop_map(|length| [&[0x7F, 0x80 | length, 7][..], &vec![b'x'; 127 + 7 * 128 + length as usize]].concat()),
        ]
    };
    let literal = (prop_oneof![Just(0x40_u8), Just(0), Just(0x10)], string(), string())
        .prop_map(|(form, name, value)| [&[form][..], &name, &value].concat());
    let named = (prop_oneof![0x41_u8..0x7F, 0x01_u8..0x0F, 0x11_u8..0x1F], string())
        .prop_map(|(first, value)| [&[first][..], &value].concat());
    let far_named = (0_u8..70, string()).prop_map(|(index, value)| [&[0x7F, index][..], &value].concat());
    prop_oneof![
        20 => literal,
        20 => named,
        6 => far_named,
        20 => (0x81_u8..0xC4).prop_map(|byte| vec![byte]),
        2 => (0_u8..0x80).prop_map(|low| vec![0x3F, 0x80 | low, 0x10]),
        1 => vec(any::<u8>(), 0..6),
    ]
}

/// A block, with sizes before it now and then.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let sizes = prop_oneof![
        6 => Just(Vec::new()),
        1 => (0x20_u8..0x3F).prop_map(|byte| vec![byte]),
        2 => (0_u8..0x80, 0_u8..0x21).prop_map(|(low, high)| vec![0x3F, 0x80 | low, high]),
    ];
    (sizes, vec(representation(), 0..12)).prop_map(|(sizes, parts)| [sizes, parts.concat()].concat())
}

/// Decodes blocks one after another, both ways, to the first error.
fn compare(blocks: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let (mut decoder, mut naive) = (Decoder::default(), NaiveDecoder::default());
    for block in blocks {
        let mut out = FieldBlock::default();
        let result = decoder.decode(block, usize::MAX, &mut out);
        let wanted = naive.decode(block);
        prop_assert_eq!(result.is_ok(), wanted.is_some());
        let Some(wanted) = wanted else { break };
        prop_assert_eq!(owned(&out), wanted);
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_written_is_read_whatever_happens_to_the_table(
        blocks in vec((vec(prop_oneof![Just(0_u32), 0_u32..300, 0_u32..5000], 0..3), vec((name(), value()), 0..20)), 1..12),
        resizes in vec(0_u8..3, 12),
    ) {
        let mut encoder = Encoder::default();
        let (mut decoder, mut naive) = (Decoder::default(), NaiveDecoder::default());
        for ((sizes, fields), resizes) in blocks.iter().zip(resizes) {
            if resizes == 0 {
                sizes.iter().for_each(|size| encoder.set_table_max(*size));
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in fields {
                encoder.push(&mut block, name, value);
            }
            let wanted: Vec<_> =
                fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
            let mut out = FieldBlock::default();
            prop_assert!(decoder.decode(&block, usize::MAX, &mut out).is_ok());
            prop_assert_eq!(owned(&out), wanted.clone());
            prop_assert_eq!(naive.decode(&block), Some(wanted));
        }
    }

    #[test]
    fn a_short_name_is_known_in_any_case(name in vec(prop_oneof![any::<u8>(), 0x3E_u8..0x62], 0..40)) {
        let lower = names::LowerName::of(&name).map(|lower| lower.bytes().to_vec());
        prop_assert_eq!(lower, (name.len() <= names::NAME_MAX).then(|| name.to_ascii_lowercase()));
    }

    #[test]
    fn both_decoders_agree_on_blocks_that_look_like_some(blocks in vec(block(), 1..10)) {
        compare(&blocks)?;
    }

    #[test]
    fn both_decoders_agree_on_any_bytes(blocks in vec(vec(any::<u8>(), 0..40), 1..10)) {
        compare(&blocks)?;
    }

    #[test]
    fn every_string_comes_back_from_huffman_code(plain in vec(any::<u8>(), 0..300)) {
        let mut coded = Vec::new();
        huffman::encode(&plain, &mut coded);
        prop_assert_eq!(coded.len(), huffman::encoded_length(&plain));
        let mut out = b"before".to_vec();
        prop_assert!(huffman::decode(&coded, &mut out).is_ok());
        prop_assert_eq!(out, [b"before", &plain[..]].concat());
        prop_assert_eq!(naive::huffman(&coded), Some(plain));
    }

    #[test]
    fn any_bytes_are_the_same_huffman_code_bit_by_bit(
        coded in vec(prop_oneof![3 => any::<u8>(), 1 => Just(0xFF_u8), 1 => 0xF0_u8..0xFF], 0..40),
    ) {
        let mut out = Vec::new();
        let result = huffman::decode(&coded, &mut out);
        prop_assert_eq!(result.is_ok().then_some(out), naive::huffman(&coded));
    }

    #[test]
    fn a_list_is_cut_where_it_passes_its_limit_and_nowhere_else(
        blocks in vec((block(), 0_usize..4000), 1..10),
    ) {
        let (mut decoder, mut naive) = (Decoder::default(), NaiveDecoder::default());
        for (block, list_max) in &blocks {
            let mut out = FieldBlock::default();
            let result = decoder.decode(block, *list_max, &mut out);
            let Some(all) = naive.decode(block) else {
                prop_assert!(result.is_err());
                break;
            };
            let mut sum = 0;
            let fitting: Vec<_> = all.iter().take_while(|(name, value)| {
                sum += name.len() + value.len() + 32;
                sum <= *list_max
            }).cloned().collect();
            prop_assert!(result.is_ok());
            prop_assert_eq!(out.is_too_large(), fitting.len() < all.len());
            prop_assert_eq!(owned(&out), fitting);
        }
    }
}

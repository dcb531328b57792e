//! The examples of RFC 7541 Appendix C.

use super::*;

/// Decodes one block after another.
fn check(blocks: &[(&str, &[(&str, &str)])]) {
    let mut decoder = Decoder::default();
    for (hex, fields) in blocks {
        let digits: Vec<_> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        let block: Vec<_> = digits.chunks(2).map(byte).collect();
        let wanted: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(decode_next(&mut decoder, &block), Ok(wanted), "{hex}");
    }
}

const FIRST_REQUEST: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
const SECOND_REQUEST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
    ("cache-control", "no-cache"),
];
const THIRD_REQUEST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];
const FIRST_ANSWER: &[(&str, &str)] = &[
    (":status", "302"),
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("location", "https://www.example.com"),
];
const SECOND_ANSWER: &[(&str, &str)] = &[
    (":status", "307"),
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("location", "https://www.example.com"),
];
const THIRD_ANSWER: &[(&str, &str)] = &[
    (":status", "200"),
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
    ("location", "https://www.example.com"),
    ("content-encoding", "gzip"),
    ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
];

#[test]
fn single_fields_are_read() {
    check(&[
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", &[("custom-key", "custom-header")]),
        ("be", &[("custom-key", "custom-header")]),
    ]);
    check(&[("040c2f73616d706c652f70617468", &[(":path", "/sample/path")])]);
    check(&[("100870617373776f726406736563726574", &[("password", "secret")])]);
    check(&[("82", &[(":method", "GET")])]);
}

#[test]
fn requests_in_plain_strings_are_read() {
    check(&[
        ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST_REQUEST),
        ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND_REQUEST),
        ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD_REQUEST),
    ]);
}

#[test]
fn requests_in_huffman_code_are_read() {
    check(&[
        ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST_REQUEST),
        ("8286 84be 5886 a8eb 1064 9cbf", SECOND_REQUEST),
        ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD_REQUEST),
    ]);
}

/// The table has 256 bytes, which the first block says, unlike the example, where it is a setting.
#[test]
fn answers_in_plain_strings_are_read_with_a_table_that_overflows() {
    check(&[
        (
            "3fe101
             4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120
             474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            FIRST_ANSWER,
        ),
        ("4803 3330 37c1 c0bf", SECOND_ANSWER),
        (
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738
             666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33
             3630 303b 2076 6572 7369 6f6e 3d31",
            THIRD_ANSWER,
        ),
    ]);
}

/// The same.
#[test]
fn answers_in_huffman_code_are_read_with_a_table_that_overflows() {
    check(&[
        (
            "3fe101
             4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718
             63c7 8f0b 97c8 e9ae 82ae 43d3",
            FIRST_ANSWER,
        ),
        ("4883 640e ffc1 c0bf", SECOND_ANSWER),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7
             b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            THIRD_ANSWER,
        ),
    ]);
}

#[test]
fn huffman_code_is_written_as_in_the_examples() {
    let mut coded = Vec::new();
    huffman::encode(b"www.example.com", &mut coded);
    assert_eq!(coded, [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]);
    coded.clear();
    huffman::encode(b"Mon, 21 Oct 2013 20:13:21 GMT", &mut coded);
    assert_eq!(coded.len(), huffman::encoded_length(b"Mon, 21 Oct 2013 20:13:21 GMT"));
    assert_eq!(coded[..8], [0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44]);
}

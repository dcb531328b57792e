//! Tests of path normalization against the steps of RFC 3986 5.2.4 written out, and of the ambiguity test case by case.

use proptest::prelude::*;

use super::*;

fn normal(raw: &str) -> String {
    normalize_path(raw.as_bytes(), &mut String::new()).to_owned()
}

#[test]
fn one_spelling_for_each_path() {
    for (raw, expected) in [
        ("/", "/"),
        ("", "/"),
        ("*", "*"),
        ("/a/b", "/a/b"),
        ("/%61%7e%2D", "/a~-"),
        ("/%2f%3a", "/%2F%3A"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/café", "/caf%C3%A9"),
        ("/a b\"<>[]{}|^`#?", "/a%20b%22%3C%3E%5B%5D%7B%7D%7C%5E%60%23%3F"),
        ("/a/./b/../c", "/a/c"),
        ("/a/%2E%2e/b", "/b"),
        ("/a/.%2e", "/"),
        ("/a/b/..", "/a/"),
        ("/a/b/.", "/a/b/"),
        ("/../../x", "/x"),
        ("/a//../b", "/a/b"),
        ("//a//", "//a//"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/%", "/%25"),
        ("/%zz%4", "/%25zz%254"),
        ("/!$&'()*+,;=:@", "/!$&'()*+,;=:@"),
    ] {
        assert_eq!(normal(raw), expected, "{raw}");
    }
}

#[test]
fn a_normal_path_is_not_copied() {
    for raw in ["/", "/a/b.c", "/a%2Fb//c", "/.well-known/x", "/..."] {
        let mut scratch = String::new();
        assert_eq!(normalize_path(raw.as_bytes(), &mut scratch).as_ptr(), raw.as_ptr(), "{raw}");
    }
}

#[test]
fn ambiguous_paths_are_told_apart() {
    use AmbiguousPath::*;
    for (raw, unsafe_, strict) in [
        ("/a/b;v=1", None, None),
        ("/a\\b", Some(Backslash), Some(Backslash)),
        ("/a%5cb", Some(Backslash), Some(Backslash)),
        ("/a%00", Some(Null), Some(Null)),
        ("/a/..;/b", Some(DotsWithParameter), Some(DotsWithParameter)),
        ("/a/..%3Bx", Some(DotsWithParameter), Some(DotsWithParameter)),
        ("/a/%2e.;x/b", Some(DotsWithParameter), Some(EscapedDots)),
        ("/a/v..;x", None, None),
        ("/..%2Fx", Some(EscapedSlashBesideDots), Some(EscapedSlash)),
        ("/a%2f..", Some(EscapedSlashBesideDots), Some(EscapedSlash)),
        ("/a%2F%2e/b", Some(EscapedSlashBesideDots), Some(EscapedSlash)),
        ("/a%2Fb/..", None, Some(EscapedSlash)),
        ("/a%2F...", None, Some(EscapedSlash)),
        ("/a/../b", None, None),
        ("/a/%2E%2e/b", None, Some(EscapedDots)),
        ("/a/.%2E", None, Some(EscapedDots)),
        ("/a/%2E/b", None, None),
        ("/a//b", None, Some(EmptySegment)),
        ("//", None, Some(EmptySegment)),
        ("/.well-known", None, None),
    ] {
        assert_eq!(judge_path(raw.as_bytes(), AmbiguousPaths::RejectUnsafe).err(), unsafe_, "{raw}");
        assert_eq!(judge_path(raw.as_bytes(), AmbiguousPaths::Reject).err(), strict, "{raw}");
        assert_eq!(judge_path(raw.as_bytes(), AmbiguousPaths::Allow), Ok(()), "{raw}");
        assert_eq!(read_path(raw.as_bytes(), AmbiguousPaths::RejectUnsafe, &mut String::new()).err(), unsafe_, "{raw}");
    }
}

#[test]
fn hosts_lose_case_port_and_one_dot() {
    for (authority, expected) in [
        ("a.test", "a.test"),
        ("A.Test:8080", "a.test"),
        ("a.test.", "a.test"),
        ("a.test.:443", "a.test"),
        ("a.test..", "a.test."),
        ("[::1]:80", "[::1]"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("a.test:", "a.test"),
        ("", ""),
    ] {
        assert_eq!(normalize_host(authority.as_bytes()), expected, "{authority}");
    }
    assert!(matches!(normalize_host(b"a.test:1"), Cow::Borrowed(_)));
}

/// RFC 3986 5.2.4, its rewriting steps one by one, for paths that begin with a slash.
fn remove_dot_segments(path: &str) -> String {
    let mut input = path.to_owned();
    let mut output = String::new();
    while !input.is_empty() {
        if input.starts_with("/./") {
            input.replace_range(..2, "");
        } else if input == "/." {
            input = "/".to_owned();
        } else if input.starts_with("/../") {
            input.replace_range(..3, "");
            output.truncate(output.rfind('/').unwrap_or(0));
        } else if input == "/.." {
            input = "/".to_owned();
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |slash| slash + 1);
            output.push_str(&input[..end]);
            input.replace_range(..end, "");
        }
    }
    output
}

/// Decoding and escaping as the RFC words it, byte by byte, without dot segments.
fn respell(raw: &[u8]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < raw.len() {
        let digits = raw.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let value = digits
            .filter(|two| raw[at] == b'%' && two.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        let byte = value.unwrap_or(raw[at]);
        at += if value.is_some() { 3 } else { 1 };
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let stands = value.is_none() && b"!$&'()*+,;=:@/".contains(&byte);
        if unreserved || stands { out.push(char::from(byte)) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}

fn raw_path() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"/".to_vec()),
        2 => Just(b".".to_vec()),
        1 => Just(b"%2e".to_vec()),
        1 => Just(b"%2F".to_vec()),
        1 => Just(b"%c3".to_vec()),
        1 => Just(b"%41".to_vec()),
        1 => Just(b"%".to_vec()),
        2 => any::<u8>().prop_map(|byte| vec![byte]),
        2 => "[a-c]{1,2}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| [b"/".to_vec(), pieces.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn normalizing_is_what_the_rfc_says_and_is_done_once(raw in raw_path()) {
        let mut scratch = String::new();
        let path = normalize_path(&raw, &mut scratch).to_owned();
        prop_assert_eq!(&path, &remove_dot_segments(&respell(&raw)));
        prop_assert!(path.is_ascii() && path.starts_with('/'));
        let mut again = String::new();
        prop_assert_eq!(normalize_path(path.as_bytes(), &mut again).as_ptr(), path.as_ptr());
        prop_assert_eq!(read_path(&raw, AmbiguousPaths::Allow, &mut again), Ok(path.as_str()));
    }

    #[test]
    fn what_the_strict_policy_passes_the_others_pass_too(raw in raw_path()) {
        if judge_path(&raw, AmbiguousPaths::Reject).is_ok() {
            prop_assert_eq!(judge_path(&raw, AmbiguousPaths::RejectUnsafe), Ok(()));
        }
        for policy in [AmbiguousPaths::Reject, AmbiguousPaths::RejectUnsafe, AmbiguousPaths::Allow] {
            let read = read_path(&raw, policy, &mut scratch()).map(str::to_owned).err();
            prop_assert_eq!(read, judge_path(&raw, policy).err());
        }
    }
}

fn scratch() -> String {
    String::new()
}

//! Whatever a rule file holds, it is loaded or its errors are drawn: no panic, no overflow of the stack, no endless loop.

use pointsman::operator::check::{Style, render};
use pointsman::pure::config::load_text;
use pointsman::pure::config::vocabulary::all_names;
use proptest::prelude::*;

fn survives(text: &str) {
    if let Err(errors) = load_text(text) {
        assert!(!errors.problems.is_empty());
        for problem in &errors.problems {
            assert!(!problem.message().is_empty() && problem.is_error());
        }
        assert!(!render(&errors.problems, Style::Plain).is_empty());
    }
}

/// Pieces of rule files, right and wrong.
fn piece() -> impl Strategy<Value = String> {
    let names = all_names();
    prop_oneof![
        8 => proptest::sample::select(names.clone()).prop_map(str::to_owned),
        4 => proptest::sample::select(names).prop_map(|name| format!("{name}=")),
        6 => proptest::sample::select(vec![
            " ", " ", " ", "\n", "\n", ";", "{", "}", "{", "}", "=", "\"", "\"\"\"", "#", "##", "#\"", "\"#", "/*", "*/", "//",
            "/-", "\\", "(", ")", "#true", "#null", "#inf", "-", ".", "0x", "\u{feff}", "\r\n", "\u{85}", "$1", "{id}",
        ]).prop_map(str::to_owned),
        6 => proptest::sample::select(vec![
            "127.0.0.1:80", "[::]:0", "*:80", "unix:/x", "a:1", "10.0.0.0/8", "/a/{x}", "/{*rest}", "^/(a|b)$", "^(", "GET",
            "a.test", "*.a.test", "*", "image/*", "10s", "64KiB", "off", "GET http://a.test/", "https://{host}/$1", "ü", "",
            "header:X", "websocket", "h2c", "X-A", "Content-Length",
        ]).prop_map(|text| format!("\"{text}\"")),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => "\\PC{0,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn any_text_is_survived(text in "\\PC*") {
        survives(&text);
    }

    #[test]
    fn any_order_of_pieces_is_survived(pieces in proptest::collection::vec(piece(), 0..60)) {
        survives(&pieces.concat());
        survives(&pieces.join(" "));
    }

    #[test]
    fn any_repetition_is_survived(part in proptest::collection::vec(piece(), 1..4), times in 1_usize..400) {
        survives(&part.join(" ").repeat(times));
    }
}

/// A file that is right, cut and changed anywhere.
#[test]
fn every_damage_to_a_good_file_is_survived() {
    let text = r##"
listen "127.0.0.1:8443" { tls { certificate "a.crt" key="a.key" }; limits { idle-timeout "5s" } }
pool "a" { server "s1" "127.0.0.1:1" weight=2; scheduler "wlc" ties="first"; retry on="connect 503" }
rule "r" host="*.a.test" path="/u/{id}" use="a" { not { method "GET" }; set-request-header "X" "{id}$$" }
rule path-regex=#"^/(\d+)$"# redirect="https://a.test/$1" status=307
expect "GET http://x.a.test/u/1" use="a" { header "A" "ü" }
"##;
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
        let (front, back) = text.split_at(at);
        survives(front);
        survives(back);
        let mut rest = back.chars();
        rest.next();
        for insert in ["", "\"", "{", "}", "#", "\\", "/*", "=", " "] {
            survives(&format!("{front}{insert}{}", rest.as_str()));
        }
    }
}

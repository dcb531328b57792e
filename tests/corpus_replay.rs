//! Runs the fuzz targets without a fuzzer: on every file of their corpus, and on mutations of those files.
//!
//! What must hold stands in the targets; here is only where the inputs come from.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pointsman::pure::config::vocabulary::all_names;
use proptest::prelude::*;
use proptest::sample::Index;

#[path = "../fuzz/src/codec.rs"]
mod codec;

#[path = "../fuzz/src/feedback.rs"]
mod feedback;

#[path = "../fuzz/src/forwarding.rs"]
mod forwarding;

#[path = "../fuzz/src/http2.rs"]
mod http2;
#[path = "../fuzz/src/proxy_protocol.rs"]
mod proxy_protocol;

#[path = "../fuzz/src/rules.rs"]
mod rules;

/// The inputs, each with the name of its file.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    let mut inputs: Vec<_> = entries.map(read).collect();
    inputs.sort();
    inputs
}

/// Every file of a corpus passes, and the corpus shows both what is accepted and what is not.
fn replay(target: &str, run: impl Fn(&[u8]) -> bool) {
    let (mut accepted, mut refused, mut failed) = (0, 0, Vec::new());
    for (name, input) in corpus(target) {
        match catch_unwind(AssertUnwindSafe(|| run(&input))) {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(_) => failed.push(name),
        }
    }
    assert!(failed.is_empty(), "{target} fails with {failed:?}");
    assert!(accepted >= 5 && refused >= 5, "{target} accepts {accepted} inputs and refuses {refused}");
}

#[test]
fn the_corpus_passes() {
    replay("request_head", codec::request_head);
    replay("response_head", codec::response_head);
    replay("chunked_body", codec::chunked_body);
    replay("forwarded_head", forwarding::forwarded_head);
    replay("proxy_protocol", proxy_protocol::proxy_protocol);
    replay("h2_frames", http2::h2_frames);
    replay("h2_head", http2::h2_head);
    replay("hpack", http2::hpack);
    replay("report", feedback::report);
    replay("rule_file", rules::rule_file);
}

/// The fuzzer can't guess the words of the language, so they are given to it.
#[test]
fn the_dictionary_of_rule_files_has_every_name_of_the_language() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/rule_file.dict");
    let text = fs::read_to_string(path).unwrap();
    let words: Vec<_> = text.lines().collect();
    let mut missing: Vec<_> = all_names().into_iter().map(|name| format!("\"{name}\"")).collect();
    missing.retain(|name| !words.contains(&name.as_str()));
    assert!(missing.is_empty(), "missing in fuzz/rule_file.dict:\n{}", missing.join("\n"));
}

/// One change to an input.
#[derive(Clone, Debug)]
enum Mutation {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index, usize),
    /// A part of the other input goes in.
    Splice(Index, Index, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = prop_oneof![prop::sample::select(&b"\r\n\t :;,\0/#0159afx\x7f\x80\xff"[..]), any::<u8>()];
    prop_oneof![
        (any::<Index>(), byte.clone()).prop_map(|(place, byte)| Mutation::Replace(place, byte)),
        (any::<Index>(), byte).prop_map(|(place, byte)| Mutation::Insert(place, byte)),
        (any::<Index>(), 1_usize..8).prop_map(|(place, count)| Mutation::Remove(place, count)),
        (any::<Index>(), any::<Index>(), 1_usize..64).prop_map(|(to, from, count)| Mutation::Splice(to, from, count)),
    ]
}

fn mutate(mut input: Vec<u8>, other: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let place = |index: &Index| index.index(input.len() + 1);
        match mutation {
            Mutation::Replace(index, byte) => {
                let place = place(index);
                input.splice(place..(place + 1).min(input.len()), [*byte]);
            }
            Mutation::Insert(index, byte) => input.insert(place(index), *byte),
            Mutation::Remove(index, count) => {
                let place = place(index);
                input.drain(place..(place + count).min(input.len()));
            }
            Mutation::Splice(to, from, count) => {
                let from = from.index(other.len() + 1);
                let part = &other[from..(from + count).min(other.len())];
                let place = place(to);
                input.splice(place..place, part.iter().copied());
            }
        }
    }
    input
}

/// Inputs near those of a corpus.
fn near(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let inputs: Vec<_> = corpus(target).into_iter().map(|(_, input)| input).collect();
    let inputs = prop::sample::select(inputs);
    (inputs.clone(), inputs, prop::collection::vec(mutation(), 0..6))
        .prop_map(|(input, other, mutations)| mutate(input, &other, &mutations))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn request_heads_near_the_corpus_pass(input in near("request_head")) {
        codec::request_head(&input);
    }

    #[test]
    fn response_heads_near_the_corpus_pass(input in near("response_head")) {
        codec::response_head(&input);
    }

    #[test]
    fn chunked_bodies_near_the_corpus_pass(input in near("chunked_body")) {
        codec::chunked_body(&input);
    }

    #[test]
    fn forwarded_heads_near_the_corpus_pass(input in near("forwarded_head")) {
        forwarding::forwarded_head(&input);
    }

    #[test]
    fn proxy_headers_near_the_corpus_pass(input in near("proxy_protocol")) {
        proxy_protocol::proxy_protocol(&input);
    }

    #[test]
    fn h2_frames_near_the_corpus_pass(input in near("h2_frames")) {
        http2::h2_frames(&input);
    }

    #[test]
    fn compressed_heads_near_the_corpus_pass(input in near("hpack")) {
        http2::hpack(&input);
    }

    #[test]
    fn h2_heads_near_the_corpus_pass(input in near("h2_head")) {
        http2::h2_head(&input);
    }

    #[test]
    fn reports_near_the_corpus_pass(input in near("report")) {
        feedback::report(&input);
    }

    #[test]
    fn any_bytes_pass(input in prop::collection::vec(any::<u8>(), 0..200)) {
        codec::request_head(&input);
        codec::response_head(&input);
        codec::chunked_body(&input);
        forwarding::forwarded_head(&input);
        proxy_protocol::proxy_protocol(&input);
        http2::h2_frames(&input);
        http2::h2_head(&input);
        http2::hpack(&input);
        rules::rule_file(&input);
        feedback::report(&input);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rule_files_near_the_corpus_pass(input in near("rule_file")) {
        rules::rule_file(&input);
    }
}

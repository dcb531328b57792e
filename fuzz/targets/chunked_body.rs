//! Hands the fuzzer's inputs to [`pointsman_fuzz::codec::chunked_body`], which says what must hold for them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::codec::chunked_body(input);
});

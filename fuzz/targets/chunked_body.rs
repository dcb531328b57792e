//! Fuzzes [`pointsman_fuzz::codec::chunked_body`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pointsman_fuzz::codec::chunked_body(input));

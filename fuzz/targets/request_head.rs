//! Fuzzes the parser of request heads: any bytes, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::codec::request_head(input);
});

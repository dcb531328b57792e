//! Fuzzes the parser of response heads: any bytes, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::codec::response_head(input);
});

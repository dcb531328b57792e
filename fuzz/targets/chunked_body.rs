//! Fuzzes the decoder of chunked bodies: any bytes, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::codec::chunked_body(input);
});

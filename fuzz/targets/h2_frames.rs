//! Fuzzes both sides of an HTTP/2 connection: any bytes, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::http2::h2_frames(input);
});

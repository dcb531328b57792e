//! Fuzzes the reader of HTTP/2 frames and of the names in heads: any bytes behind a preface, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::http2::h2_frames(input);
});

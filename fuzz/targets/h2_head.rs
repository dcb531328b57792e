//! Fuzzes heads and trailers between HTTP/2 and HTTP/1.1: any that HTTP/2 can carry.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::http2::h2_head(input);
});

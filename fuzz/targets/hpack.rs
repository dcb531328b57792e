//! Fuzzes compressed heads of HTTP/2: any bytes, as any number of blocks.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::http2::hpack(input);
});

//! Fuzzes the reader of PROXY headers: any bytes, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::proxy_protocol::proxy_protocol(input);
});

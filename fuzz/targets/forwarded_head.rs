//! Fuzzes [`pointsman_fuzz::forwarding::forwarded_head`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pointsman_fuzz::forwarding::forwarded_head(input));

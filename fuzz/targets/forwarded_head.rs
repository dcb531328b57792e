//! Fuzzes heads as they are forwarded: any head, under any circumstances and rules.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::forwarding::forwarded_head(input);
});

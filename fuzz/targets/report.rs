//! Fuzzes the datagrams of feedback: any bytes, and any content that was rightly signed.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::feedback::report(input);
});

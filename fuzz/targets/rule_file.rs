//! Fuzzes the rule language: any text.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pointsman_fuzz::rules::rule_file(input);
});

//! Fuzzes [`pointsman_fuzz::rules::rule_file`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pointsman_fuzz::rules::rule_file(input));

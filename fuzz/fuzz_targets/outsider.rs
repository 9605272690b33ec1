//! `cargo +nightly fuzz run outsider`: see `crates/fuzzing/src/outsider.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| denrei_fuzzing::outsider(data));

//! `cargo +nightly fuzz run insider`: see `crates/fuzzing/src/insider.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| denrei_fuzzing::insider(data));

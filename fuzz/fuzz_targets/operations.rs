//! `cargo +nightly fuzz run operations`: see `crates/fuzzing/src/operations.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| denrei_fuzzing::operations(data));

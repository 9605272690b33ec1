//! `cargo +nightly fuzz run decode`: see `crates/fuzzing/src/decode.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| denrei_fuzzing::decode(data));

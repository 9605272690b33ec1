//! `cargo +nightly fuzz run handle_datagram`: see `crates/fuzzing/src/handle_datagram.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| denrei_fuzzing::handle_datagram(data));

//! The bodies of the fuzz targets, as plain functions.
//!
//! Inputs → outputs: arbitrary octets → nothing, or a panic that says what is broken. `fuzz/` feeds
//! them from libFuzzer; `tests/replay.rs` feeds them the committed corpus with every ordinary test
//! run, on the stable toolchain.

#![forbid(unsafe_code)]

mod decode;

pub use decode::decode;

/// A target: its name, which is also that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[("decode", decode)];

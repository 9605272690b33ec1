//! The bodies of the fuzz targets, as plain functions.
//!
//! Inputs → outputs: arbitrary octets → nothing, or a panic that says what is broken. `fuzz/` feeds
//! them from libFuzzer; `tests/replay.rs` feeds them the committed corpus with every ordinary test
//! run, on the stable toolchain.

#![forbid(unsafe_code)]

mod decode;
mod handle_datagram;
mod input;
mod operations;
mod oracle;
mod world;

pub use decode::decode;
pub use handle_datagram::handle_datagram;
pub use operations::operations;

/// A target: its name, which is also that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] =
    &[("decode", decode), ("handle_datagram", handle_datagram), ("operations", operations)];

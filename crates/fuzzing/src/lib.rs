//! The bodies of the fuzz targets, as plain functions.
//!
//! Inputs → outputs: arbitrary octets → nothing, or a panic that says what is broken. `fuzz/` feeds
//! them from libFuzzer; `tests/replay.rs` feeds them the committed corpus with every ordinary test
//! run, on the stable toolchain.

#![forbid(unsafe_code)]

mod decode;
mod handle_datagram;
mod input;
mod insider;
mod operations;
mod oracle;
mod outsider;
mod world;

pub use decode::decode;
pub use handle_datagram::handle_datagram;
pub use insider::insider;
pub use operations::operations;
pub use outsider::outsider;

/// A target: its name, which is also that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("decode", decode),
    ("handle_datagram", handle_datagram),
    ("insider", insider),
    ("operations", operations),
    ("outsider", outsider),
];

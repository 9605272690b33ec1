//! What the processes of the end-to-end tests and the tests themselves have in common.
//!
//! Inputs → outputs: a [`Plan`] → the content of every message, the same in all processes;
//! [`Order`]s and [`Report`]s → lines of JSON on the standard input and output of `e2e-node`.
//! The tests (`tests/e2e`) start those processes, in network namespaces or on loopback, and do to
//! them and their links what clusters do.

#![forbid(unsafe_code)]

mod content;
mod orders;
mod process;
mod reports;
pub mod roles;

pub use content::{Plan, Random, Sizes};
pub use orders::{Drive, Order, Settings, Stream};
pub use process::{Process, SOON};
pub use reports::{Flow, Latency, Report, Resources, Session};

//! The C interface: what `include/denrei/denrei.h` declares.
//!
//! Inputs → outputs: C calls → calls of [`denrei::Node`]; results through pointers, errors as a
//! [`denrei_code`] and a text. Nothing unwinds into C: a panic becomes `DENREI_INTERNAL`.
//!
//! The header is made from these files by cbindgen; comments here are comments there.

#![warn(missing_docs)]
#![allow(non_camel_case_types, reason = "the names are those of C")]
#![deny(unsafe_op_in_unsafe_fn)]

mod cast;
mod cast_state;
mod collective;
mod config;
mod counters;
mod errno;
mod error;
mod event;
mod flow;
mod group;
mod group_event;
mod group_state;
mod incoming;
mod membership;
pub mod mtcp;
mod node;
mod pipe_signal;
mod queue;
mod recv;
mod relay;
mod send;
mod steer;
pub mod suci;
mod version;

pub use cast::*;
pub use cast_state::*;
pub use collective::*;
pub use config::*;
pub use counters::*;
pub use error::{denrei_code, denrei_error_message};
pub use event::*;
pub use flow::*;
pub use group::*;
pub use incoming::*;
pub use membership::*;
pub use node::*;
pub use queue::*;
pub use recv::*;
pub use relay::*;
pub use send::*;
pub use steer::*;
pub use version::*;

//! Protocol layers as threads (L1–L8): rings, buffer pools, and a runtime that runs a stack of
//! layers in one thread, in one each, or in any grouping. Usable by itself.
//!
//! [`ring()`] hands owned values from one thread to another without a lock (L3).

pub mod ring;
mod sync;

pub use ring::{Consumer, Gauge, Producer, QueueCounters, ring};

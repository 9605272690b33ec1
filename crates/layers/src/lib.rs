//! Protocol layers as threads (L1–L8): rings, buffer pools, and a runtime that runs a stack of
//! layers in one thread, in one each, or in any grouping. Usable by itself.
//!
//! [`ring()`] hands owned values from one thread to another without a lock (L3). [`Pool`]
//! gives out buffers that any thread may free (L4), and [`Pdu`]s that describe them (L7). [`Builder`]
//! stacks [`Layer`]s and runs them, grouped into threads as one likes (L1, L6).

#[cfg(not(loom))]
pub mod pin;
#[cfg(not(loom))]
pub mod pool;
pub mod ring;
#[cfg(not(loom))]
pub mod stack;
#[cfg(not(loom))]
pub mod stacks;
mod sync;
pub mod wake;

// Of the pool, what is lock-free is model-checked; its memory is not loom's to follow.
#[cfg(loom)]
#[path = "pool/returns.rs"]
mod returns;

#[cfg(not(loom))]
pub use pool::{Pdu, Pool, PoolConfig, PoolError, flush_frees};
pub use ring::{Consumer, Gauge, Producer, QueueCounters, ring};
#[cfg(not(loom))]
pub use stack::{Builder, Grouping, Idle, Layer, Outlet, Pinning, Port, Shutdown, Stack, StackError};

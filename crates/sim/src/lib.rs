//! The deterministic network: virtual hosts, links and clock around denrei's sans-IO core.
//!
//! Inputs → outputs: a seed → a run that is the same to the byte wherever it runs. Three things
//! are built on [`World`]: the [`oracle`] that knows what endpoints promise, the random
//! [`scenario`]s that try to make them break it, and the [`plan`]s that measure.
//!
//! No clock, thread, socket or randomness of the machine is used.

#![forbid(unsafe_code)]

pub mod content;
pub mod digest;
pub mod net;
pub mod oracle;
pub mod plan;
pub mod rng;
pub mod scenario;
pub mod world;

pub use net::faults::{Burst, FaultCounts, Faults};
pub use net::link::LinkSpec;
pub use net::topology::{HostId, SwitchId};
pub use world::{Application, HostSpec, Stuck, Trace, World};

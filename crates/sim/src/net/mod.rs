//! The simulated network: links with queues and faults, switches in a tree, the event queue.

pub mod faults;
pub mod link;
pub(crate) mod queue;
pub mod topology;

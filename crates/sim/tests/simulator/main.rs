//! Endpoints on virtual hosts: what happens to them, and what they promise whatever happens.

mod determinism;
mod faults;
mod groups;
mod many_peers;
mod plans;
mod rig;
mod seeds;
mod situations;

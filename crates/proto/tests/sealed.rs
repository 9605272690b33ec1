//! The behaviours of the other files between endpoints that have a cluster key.

#[path = "pace.rs"]
mod pace;
#[path = "pair.rs"]
mod pair;

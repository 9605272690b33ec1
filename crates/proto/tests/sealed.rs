//! The behaviours of the other files between endpoints that have a cluster key.

#![expect(clippy::duplicate_mod, reason = "each file brings its own copy of the helpers")]

#[path = "ends.rs"]
mod ends;
#[path = "marks.rs"]
mod marks;
#[path = "pace.rs"]
mod pace;
#[path = "pair.rs"]
mod pair;
#[path = "proof.rs"]
mod proof;
#[path = "shards.rs"]
mod shards;

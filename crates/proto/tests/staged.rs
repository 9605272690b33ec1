//! The behaviours of the other files between endpoints whose packets are sealed and opened elsewhere,
//! as on other cores: all that arrive together are opened before the first is handled.

#![expect(clippy::duplicate_mod, reason = "each file brings its own copy of the helpers")]

#[path = "ends.rs"]
mod ends;
#[path = "marks.rs"]
mod marks;
#[path = "pace.rs"]
mod pace;
#[path = "pair.rs"]
mod pair;
#[path = "shards.rs"]
mod shards;

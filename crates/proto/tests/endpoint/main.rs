//! Endpoints over a link in memory: how they open, what they say, how they end, and who gets in.

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod host;
mod longer;
mod marks;
mod net;
mod pace;
mod pair;
mod proof;
mod room;
mod secrets;
mod shards;
mod size;
mod stops;
mod ways;

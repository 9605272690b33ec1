//! Nodes over real sockets on this host. What counts or breaks something of its whole process has a program of its own
//! beside this one.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod book;
mod calling_back;
mod collective;
mod computing;
mod endings;
mod futures;
mod group;
mod messages;
mod priorities;
mod relay;
mod sealed;
mod settings;
mod shards;
mod status;
mod waiting;

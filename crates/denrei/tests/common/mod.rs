//! What the tests of Nodes share.
#![allow(dead_code, reason = "each test program uses some of it")]

pub mod cable;

use denrei::{Drive, Node};
use std::time::{Duration, Instant};

/// The drive of a Node that works in the background: what `DENREI_DRIVE` says, or one thread.
pub fn background() -> Drive {
    if std::env::var_os(denrei::environment::DRIVE).is_some() { Drive::default() } else { Drive::Thread }
}

/// Stays in calls until `done`, in which nothing more comes: in inline drive a Node acknowledges and repeats in no
/// others, and what its last message was repeated with arrives after that.
pub fn attend(node: &Node, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until, "nobody says that it is done");
        assert_eq!(node.recv_timeout(Duration::from_millis(20)).unwrap(), None);
    }
}

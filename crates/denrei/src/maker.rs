//! Which process made something. A child that it forked has a copy, but none of its threads, and what those had in
//! hand stays locked; the sockets, the keys and the numbers of packets are the parent's.
//!
//! Inputs → outputs: the process that looks → whether it is the maker.

use std::fmt;

/// The process that made something; for libraries over this one, which have threads and locks of their own.
#[derive(Clone, Copy, Debug)]
pub struct Maker(u32);

impl Maker {
    /// The one that makes it now.
    pub fn this_process() -> Self {
        Self(std::process::id())
    }

    /// Whether it is the one that asks, and has not forked that one.
    pub fn is_this_process(self) -> bool {
        self.0 == std::process::id()
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.0)
    }
}

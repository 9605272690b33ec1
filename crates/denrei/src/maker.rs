//! Which process made something. A child that it forked has a copy, but none of its threads, and what those had in
//! hand stays locked; the sockets, the keys and the numbers of packets are the parent's.
//!
//! Inputs → outputs: the process that looks → whether it is the maker.

/// The process that made something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker(u32);

impl Maker {
    pub fn this_process() -> Self {
        Self(std::process::id())
    }

    pub fn is_this_process(self) -> bool {
        self.0 == std::process::id()
    }
}

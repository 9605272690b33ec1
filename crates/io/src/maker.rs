//! Which process made something. A child that it forked has a copy, but none of its threads, and what those had in
//! hand stays locked; the sockets, the keys and the numbers of packets are the parent's.
//!
//! Inputs → outputs: the system's word of a fork → whether who looks is the maker. To ask the system for its number
//! each time would be a fifth of a small message.

use core::ffi::c_int;
use std::fmt;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

unsafe extern "C" {
    /// POSIX's; the `libc` crate has it for other systems.
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// Forks between the process in which something was made first and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that made something; for libraries over this one, which have threads and locks of their own.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    process: u32,
    generation: u32,
}

impl Maker {
    /// The one that makes it now.
    pub fn this_process() -> Self {
        static WATCH: Once = Once::new();
        // SAFETY: the function does nothing but add to an atomic; with a library that is unloaded it is forgotten.
        WATCH.call_once(|| unsafe {
            pthread_atfork(None, None, Some(forked));
        });
        Self { process: std::process::id(), generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// Whether it is the one that asks, and has not forked that one.
    #[inline]
    pub fn is_this_process(self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }
}

impl Default for Maker {
    fn default() -> Self {
        Self::this_process()
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)
    }
}

unsafe extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

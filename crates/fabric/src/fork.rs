//! Which process an endpoint belongs to. A child that was forked has a copy of it, but none of its threads, and its
//! sockets, keys and numbers of packets are the parent's; [`denrei::Maker`] asks the system for each answer, which
//! would be a fifth of a small message here.
//!
//! Inputs → outputs: the system's word of a fork → whether this is the process that opened something.

use core::ffi::c_int;
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

/// Forks between the process that loaded this library and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that opened something.
#[derive(Clone, Copy, Debug)]
pub struct Opener(u32);

impl Default for Opener {
    fn default() -> Self {
        Self::this_process()
    }
}

impl Opener {
    /// The one that opens it now.
    pub fn this_process() -> Self {
        static WATCH: Once = Once::new();
        // SAFETY: the function does nothing but add to an atomic, and stays mapped (`-z nodelete`).
        WATCH.call_once(|| unsafe {
            pthread_atfork(None, None, Some(forked));
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether it is the one that asks, and has not forked that one.
    pub fn is_this_process(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

unsafe extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

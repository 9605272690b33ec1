//! Writing to a pipe that nobody reads any more is an error of the call that does so, and does not end the program: in
//! programs in C the signal does, unless they turn it off.
//!
//! Inputs → outputs: a thread that writes → the same without SIGPIPE, until it is through; one that came is taken.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::mem::MaybeUninit;

/// While one exists, the thread that made it gets no SIGPIPE.
pub(crate) struct NoPipeSignal {
    /// What the thread held back before; `None`: the system does not say, and holds nothing back for us.
    before: Option<SigSet>,
}

fn sigpipe() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGPIPE);
    set
}

/// Whether a SIGPIPE waits for this thread.
fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the call makes it a set where it succeeds, and it is not looked at otherwise.
    let pending = unsafe {
        let is_told = libc::sigpending(pending.as_mut_ptr()) == 0;
        is_told.then(|| SigSet::from_sigset_t_unchecked(pending.assume_init()))
    };
    pending.is_some_and(|pending| pending.contains(Signal::SIGPIPE))
}

impl NoPipeSignal {
    pub fn begin() -> Self {
        Self { before: sigpipe().thread_swap_mask(SigmaskHow::SIG_BLOCK).ok() }
    }
}

impl Drop for NoPipeSignal {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // Who held it back himself has his own ways with it.
        if !before.contains(Signal::SIGPIPE) && is_pending() {
            let _ = sigpipe().wait();
        }
        let _ = before.thread_set_mask();
    }
}

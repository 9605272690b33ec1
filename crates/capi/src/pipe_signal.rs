//! Writing to a pipe that nobody reads any more is an error of the call that does so, and does not end the program: in
//! programs in C the signal does, unless they turn it off.
//!
//! Inputs → outputs: a thread that writes → the same without SIGPIPE, until it is through; one that came is taken.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// While one exists, the thread that made it gets no SIGPIPE.
pub(crate) struct NoPipeSignal {
    /// The thread's mask before.
    mask: libc::sigset_t,
}

fn sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call makes it an empty set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

impl NoPipeSignal {
    pub fn begin() -> Self {
        let mut mask = sigpipe();
        // SAFETY: both are sets of signals of ours.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, &raw mut mask) };
        Self { mask }
    }
}

impl Drop for NoPipeSignal {
    fn drop(&mut self) {
        // SAFETY: all of them are sets of signals of ours; one that is pending is not waited for.
        unsafe {
            let (set, mut pending, mut taken) = (sigpipe(), sigpipe(), 0);
            // Who held it back himself has his own ways with it.
            if libc::sigismember(&raw const self.mask, libc::SIGPIPE) == 0
                && libc::sigpending(&raw mut pending) == 0
                && libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
            {
                libc::sigwait(&raw const set, &raw mut taken);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, null_mut());
        }
    }
}

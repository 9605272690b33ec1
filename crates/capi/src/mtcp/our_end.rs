//! The end of a pair of stream sockets that a thread of ours has. A child of `fork` must not have it too: the other end
//! would learn of neither its end nor its break before that child is gone, and who waits there would wait as long.
//!
//! Inputs → outputs: a pair → the program's end, and ours, which children close as they begin.

use denrei::Maker;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors beyond this stay open in children.
const MAX_FD: usize = 1 << 16;

/// A bit per descriptor: a child that has just been forked may take no lock.
static OURS: [AtomicU64; MAX_FD / 64] = [const { AtomicU64::new(0) }; MAX_FD / 64];

fn word_and_bit(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OURS.get(fd / 64)?, 1 << (fd % 64)))
}

/// Our end of a pair.
pub(super) struct OurEnd {
    stream: ManuallyDrop<UnixStream>,
    maker: Maker,
}

impl OurEnd {
    /// The program's end, and ours.
    pub fn pair() -> std::io::Result<(UnixStream, Self)> {
        let (outer, inner) = UnixStream::pair()?;
        Ok((outer, Self::new(inner)))
    }

    pub fn try_clone(&self) -> std::io::Result<Self> {
        self.stream.try_clone().map(Self::new)
    }

    fn new(stream: UnixStream) -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: what is registered takes nothing and stays where it is. If there is no room for it, children keep
            // our ends.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
        });
        if let Some((word, bit)) = word_and_bit(stream.as_raw_fd()) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self { stream: ManuallyDrop::new(stream), maker: Maker::this_process() }
    }
}

impl std::ops::Deref for OurEnd {
    type Target = UnixStream;

    fn deref(&self) -> &UnixStream {
        &self.stream
    }
}

impl Drop for OurEnd {
    fn drop(&mut self) {
        // A child has closed it as it began, and its number may be that of anything by now.
        if !self.maker.is_this_process() {
            return;
        }
        // Before it is closed: its number is another's then.
        if let Some((word, bit)) = word_and_bit(self.stream.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        // SAFETY: nobody uses it after this.
        unsafe { ManuallyDrop::drop(&mut self.stream) };
    }
}

/// In a child: the threads that have these are not there.
extern "C" fn close_all() {
    for (at, word) in OURS.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            // SAFETY: nobody in this process speaks through it, as its thread is the parent's.
            unsafe { libc::close((at * 64) as RawFd + bits.trailing_zeros() as RawFd) };
            bits &= bits - 1;
        }
    }
}

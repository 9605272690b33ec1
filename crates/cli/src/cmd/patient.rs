//! Standard input and output that wait: whoever else has the same description, such as a `node` or an `ssh` that the
//! shell has given it to, may have set it non-blocking, and then "nothing yet" and "full for now" are errors.
//!
//! Inputs → outputs: a stream → the same, which blocks.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

/// A stream of the kernel's that blocks, whatever mode its description is in.
pub struct Patient<T>(pub T);

impl Patient<File> {
    /// What a standard stream is, without the standard library's opinion that one which is not open for what is asked
    /// of it has ended, or takes everything.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn of(stream: impl AsFd) -> io::Result<Self> {
        Ok(Self(stream.as_fd().try_clone_to_owned()?.into()))
    }
}

impl<T: AsFd> Patient<T> {
    /// Does `step` until it is not refused for the moment.
    fn until_done<R>(
        &mut self,
        ready: PollFlags,
        mut step: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match step(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            match poll(&mut [PollFd::new(self.0.as_fd(), ready)], PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<T: Read + AsFd> Read for Patient<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.until_done(PollFlags::POLLIN, |source| source.read(into))
    }
}

impl<T: Write + AsFd> Write for Patient<T> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.until_done(PollFlags::POLLOUT, |sink| sink.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_done(PollFlags::POLLOUT, Write::flush)
    }
}

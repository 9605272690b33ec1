//! Sleeping until a socket is readable or writable, another thread wakes us, or time is up.
//!
//! Inputs → outputs: descriptors and a timeout → [`Wake`]. Linux: `ppoll`, an eventfd and a timerfd
//! ([`Alarm`]); elsewhere `poll` (whole milliseconds, rounded up) and a pair of stream sockets.

use crate::alarm::Alarm;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most descriptors of one wait; the readiness set has as many bits.
pub const MAX_WAIT_FDS: usize = 64;

/// Entries of a wait before those of the readable descriptors: bell, writable, alarm.
const OWN_ENTRIES: usize = 3;

/// Whether any of `fds` is readable, or has an error to report, now. No wait.
pub(crate) fn any_readable(fds: impl IntoIterator<Item = RawFd>) -> io::Result<bool> {
    let mut entries = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MAX_WAIT_FDS];
    let mut count = 0;
    for (entry, fd) in entries.iter_mut().zip(fds) {
        entry.fd = fd;
        count += 1;
    }
    platform::poll(&mut entries[..count], Some(Duration::ZERO))
}

/// Why a wait ended. Nothing set: the timeout has passed (or a signal came).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wake {
    /// Bit i: the i-th descriptor is readable or has an error to report.
    pub readable: u64,
    /// The descriptor given for writing is writable.
    pub writable: bool,
    /// A [`Waker`] was used.
    pub woken: bool,
}

impl Wake {
    /// Whether nothing happened before the timeout.
    pub fn timed_out(&self) -> bool {
        *self == Self::default()
    }
}

/// Sleeps until there is something to do.
#[derive(Debug)]
pub struct Waiter {
    /// Read end of the bell.
    bell: File,
    /// Held by one sleeper; another that sleeps at the same time goes without.
    alarm: Mutex<Alarm>,
    shared: Arc<Shared>,
}

/// Ends a [`Waiter`]'s sleep from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Write end of the bell.
    ring: File,
    /// The bell has been rung and not been heard yet: ringing again would be a wasted system call.
    rung: AtomicBool,
}

/// Room for the descriptors of a poll, of which only those that are asked about are written.
struct Entries([MaybeUninit<libc::pollfd>; MAX_WAIT_FDS + OWN_ENTRIES]);

impl Entries {
    fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; MAX_WAIT_FDS + OWN_ENTRIES])
    }

    /// Entries of one's own, at most [`OWN_ENTRIES`], and behind them those to be read.
    fn fill<const OWN: usize>(
        &mut self,
        own: [(RawFd, libc::c_short); OWN],
        readable: impl IntoIterator<Item = RawFd>,
    ) -> &mut [libc::pollfd] {
        const { assert!(OWN <= OWN_ENTRIES) };
        let readable = readable.into_iter().take(MAX_WAIT_FDS).map(|fd| (fd, libc::POLLIN));
        let mut count = 0;
        for (entry, (fd, events)) in self.0.iter_mut().zip(own.into_iter().chain(readable)) {
            entry.write(libc::pollfd { fd, events, revents: 0 });
            count += 1;
        }
        // SAFETY: the first `count` entries are initialised, and MaybeUninit<T> has T's layout.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), count) }
    }
}

/// Bit i: the i-th entry is readable or has an error to report.
fn with_something(entries: &[libc::pollfd]) -> u64 {
    let something = entries.iter().enumerate().filter(|(_, entry)| entry.revents != 0);
    something.fold(0, |set, (index, _)| set | 1 << index)
}

/// Which of `fds` (at most [`MAX_WAIT_FDS`], more are ignored) are readable or have an error to report, bit i
/// for the i-th. Does not sleep.
///
/// # Errors
/// When the kernel is out of memory.
pub(crate) fn readable_now(fds: impl IntoIterator<Item = RawFd>) -> io::Result<u64> {
    let mut entries = Entries::new();
    let entries = entries.fill([], fds);
    Ok(if platform::poll(entries, Some(Duration::ZERO))? { with_something(entries) } else { 0 })
}

impl Waiter {
    /// A waiter with its own bell.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let (bell, ring) = platform::bell()?;
        let shared = Arc::new(Shared { ring: ring.into(), rung: AtomicBool::new(false) });
        Ok(Self { bell: bell.into(), alarm: Mutex::new(Alarm::new()), shared })
    }

    /// A handle that ends a sleep from any thread.
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    /// Sleeps until one of `readable` (at most `MAX_WAIT_FDS`, more are ignored) is readable,
    /// `writable` is writable, a waker is used, or `timeout` has passed (`None`: no limit, so only
    /// for callers that hold a [`Waker`] elsewhere). A use of a waker before the call counts.
    ///
    /// # Errors
    /// When a descriptor is not open, or the kernel is out of memory.
    pub fn wait(
        &self,
        readable: impl IntoIterator<Item = RawFd>,
        writable: Option<RawFd>,
        timeout: Option<Duration>,
    ) -> io::Result<Wake> {
        // A negative descriptor is skipped by poll.
        let own = [
            (self.bell.as_raw_fd(), libc::POLLIN),
            (writable.unwrap_or(-1), libc::POLLOUT),
            (-1, libc::POLLIN),
        ];
        let mut entries = Entries::new();
        let entries = entries.fill(own, readable);
        if self.poll(entries, timeout)? { self.read(entries) } else { Ok(Wake::default()) }
    }

    /// Polls until something happens but the alarm, which may ring too early; whether it did.
    fn poll(&self, entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<bool> {
        let limit = timeout.filter(|timeout| !timeout.is_zero());
        let Some((limit, mut alarm)) = limit.zip(self.alarm.try_lock().ok()) else {
            return platform::poll(entries, timeout);
        };
        let mut now = Instant::now();
        let Some(until) = now.checked_add(limit) else { return platform::poll(entries, timeout) };
        while now < until {
            let Some(fd) = alarm.ring_at(now, until) else {
                return platform::poll(entries, Some(until - now));
            };
            entries[2].fd = fd;
            if !platform::poll(entries, None)? {
                return Ok(false);
            }
            if entries.iter().any(|entry| entry.fd != fd && entry.revents != 0) {
                return Ok(true);
            }
            now = Instant::now();
        }
        Ok(false)
    }

    /// Reads poll's answer: bell, writable, alarm, then the readable ones.
    fn read(&self, entries: &[libc::pollfd]) -> io::Result<Wake> {
        if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "waiting on a descriptor that is not open",
            ));
        }
        Ok(Wake {
            readable: with_something(&entries[OWN_ENTRIES..]),
            writable: entries[1].revents != 0,
            woken: entries[0].revents != 0 && self.hear(),
        })
    }

    /// Empties the bell; whether it had been rung. What was done before the wake is visible to us
    /// afterwards. [`wait`](Self::wait) does this by itself; it is for those who wait on the
    /// [descriptor](AsFd) in a loop of their own.
    pub fn hear(&self) -> bool {
        let mut sink = [0; 64];
        // Empty already is fine: the flag below is what counts.
        let _ = (&self.bell).read(&mut sink);
        self.shared.rung.swap(false, Ordering::AcqRel)
    }
}

/// The bell: readable from a wake until it is [heard](Waiter::hear).
impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Waker {
    /// Ends the current sleep, or the next one if nobody sleeps. Costs a system call only for the
    /// first wake of each sleep.
    pub fn wake(&self) {
        if !self.shared.rung.swap(true, Ordering::AcqRel) {
            // It can only fail when the bell is full, and then it is ringing.
            let _ = (&self.shared.ring).write(&1u64.to_ne_bytes());
        }
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use super::{Duration, OwnedFd, io};
    use std::os::fd::FromRawFd;

    /// An eventfd: read end, write end.
    pub(super) fn bell() -> io::Result<(OwnedFd, OwnedFd)> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else owns it.
        let bell = unsafe { OwnedFd::from_raw_fd(fd) };
        let ring = bell.try_clone()?;
        Ok((bell, ring))
    }

    /// Returns whether anything happened.
    pub(super) fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<bool> {
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `entries` is exclusively borrowed and its length is passed; `limit` is null or
        // points to a timespec that lives through the call; a null mask changes no signals.
        let ready = unsafe {
            libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, limit, std::ptr::null())
        };
        super::happened(ready)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::{Duration, OwnedFd, io};
    use std::os::unix::net::UnixStream;

    /// A pair of stream sockets: read end, write end.
    pub(super) fn bell() -> io::Result<(OwnedFd, OwnedFd)> {
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        Ok((bell.into(), ring.into()))
    }

    /// Returns whether anything happened.
    pub(super) fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<bool> {
        let millis = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: `entries` is exclusively borrowed and its length is passed.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) };
        super::happened(ready)
    }
}

/// Reads poll's return value. An interrupted wait is a short one: callers look at their clock anyway.
fn happened(ready: i32) -> io::Result<bool> {
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Instant;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn a_wake_from_another_thread_ends_the_sleep() {
        let waiter = Waiter::new().unwrap();
        let waker = waiter.waker();
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let wake = waiter.wait([], None, LONG).unwrap();
        thread.join().unwrap();
        assert_eq!(wake, Wake { woken: true, ..Wake::default() });
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn wakes_before_the_sleep_count_once() {
        let waiter = Waiter::new().unwrap();
        let waker = waiter.waker();
        (0..3).for_each(|_| waker.wake());
        assert!(waiter.wait([], None, LONG).unwrap().woken);
        assert!(waiter.wait([], None, Some(Duration::from_millis(1))).unwrap().timed_out());
        waker.wake();
        assert!(waiter.wait([], None, LONG).unwrap().woken);
    }

    #[test]
    fn the_readable_socket_is_named() {
        let waiter = Waiter::new().unwrap();
        let sockets: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let fds = || sockets.iter().map(AsRawFd::as_raw_fd);
        sockets[0].send_to(b"x", sockets[2].local_addr().unwrap()).unwrap();
        let wake = waiter.wait(fds(), None, LONG).unwrap();
        assert_eq!(wake, Wake { readable: 0b100, ..Wake::default() });
        let wake = waiter.wait([], Some(sockets[0].as_raw_fd()), LONG).unwrap();
        assert!(wake.writable && !wake.woken);
    }

    #[test]
    fn short_timeouts_are_kept_and_closed_descriptors_refused() {
        let waiter = Waiter::new().unwrap();
        let start = Instant::now();
        assert!(waiter.wait([], None, Some(Duration::from_micros(500))).unwrap().timed_out());
        assert!(start.elapsed() >= Duration::from_micros(500));
        let error = waiter.wait([RawFd::MAX], None, LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

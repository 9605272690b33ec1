//! A timer that outlasts the waits it is for.
//!
//! Inputs → outputs: when a wait has to end → a descriptor that is readable from then on, or earlier:
//! whoever waits looks at the clock and asks again. Linux: a timerfd; elsewhere there is none.
//!
//! A timeout given to `ppoll` sets the processor's timer before each sleep and takes it back after it,
//! which in a virtual machine means leaving it twice. Deadlines move on with every packet, and hardly
//! ever one passes. So here the timer that is set stays set, until little of it is left: where nobody sleeps so
//! long, it never rings. (Two processes that send 118 octets back and forth over
//! loopback on one core, 1 ms away from a deadline: 20 µs a round trip with a timeout, 5.2 with this,
//! 5.0 without a deadline.)

use std::os::fd::RawFd;
use std::time::Instant;

pub(crate) use platform::Alarm;

/// A sleep may be longer than asked for by this share of it: the same deadline, worked out anew from another
/// reading of the clock, is a microsecond earlier as often as later.
const SLACK: u32 = 64;

/// A timer that would ring after this share of the sleep is set anew before it: that costs less than to be woken in
/// vain and to set it then.
const SOON: u32 = 4;

impl Alarm {
    /// The descriptor that ends a sleep at `until` or before, or a [`SLACK`]th later. `None`: there is no
    /// timer to be had, and the sleep needs a timeout.
    pub fn ring_at(&mut self, now: Instant, until: Instant) -> Option<RawFd> {
        let left = until.saturating_duration_since(now);
        let stays = self.set_for.is_some_and(|set_for| {
            let rings_after = set_for.saturating_duration_since(now);
            left / SOON < rings_after && rings_after <= left + left / SLACK
        });
        if !stays {
            // Less than nothing is left: the shortest time there is, as 0 would take the timer back.
            self.set(left.max(std::time::Duration::from_nanos(1)))?;
            self.set_for = Some(until);
        }
        self.descriptor()
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use super::{Instant, RawFd};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::time::Duration;

    /// See the module.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        /// None if the process was out of descriptors.
        timer: Option<OwnedFd>,
        /// The end of the wait for which the timer was set last.
        pub(super) set_for: Option<Instant>,
    }

    impl Alarm {
        /// An alarm that is not set.
        pub fn new() -> Self {
            Self { timer: timer(), set_for: None }
        }

        pub(super) fn descriptor(&self) -> Option<RawFd> {
            self.timer.as_ref().map(AsRawFd::as_raw_fd)
        }

        /// Sets the timer anew; if it has rung it does no longer.
        pub(super) fn set(&mut self, after: Duration) -> Option<()> {
            let it_value = libc::timespec {
                tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: after.subsec_nanos().into(),
            };
            let it_interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let value = libc::itimerspec { it_interval, it_value };
            // SAFETY: `value` lives through the call; the old value is not asked for.
            let done = unsafe {
                libc::timerfd_settime(self.descriptor()?, 0, &raw const value, std::ptr::null_mut())
            };
            (done == 0).then_some(())
        }
    }

    fn timer() -> Option<OwnedFd> {
        // SAFETY: takes no pointers.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        // SAFETY: the descriptor was just made and nobody else owns it.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::{Instant, RawFd};
    use std::time::Duration;

    /// None.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        pub(super) set_for: Option<Instant>,
    }

    impl Alarm {
        pub fn new() -> Self {
            Self { set_for: None }
        }

        pub(super) fn descriptor(&self) -> Option<RawFd> {
            None
        }

        pub(super) fn set(&mut self, _after: Duration) -> Option<()> {
            None
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rings(fd: RawFd) -> bool {
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, exclusively borrowed.
        unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
    }

    #[test]
    fn it_is_set_anew_when_it_has_rung_or_would_ring_too_late_or_soon() {
        let mut alarm = Alarm::new();
        let (now, ms) = (Instant::now(), Duration::from_millis(1));
        let fd = alarm.ring_at(now, now + 1_000_000 * ms).unwrap();
        assert!(alarm.ring_at(now, now + 2_000_000 * ms).is_some() && !rings(fd));
        assert_eq!(alarm.set_for, Some(now + 1_000_000 * ms), "the earlier one stays");
        assert!(alarm.ring_at(now, now + 4_100_000 * ms).is_some());
        assert_eq!(alarm.set_for, Some(now + 4_100_000 * ms), "unless it would ring long before");
        assert!(alarm.ring_at(now, now + 1_000_000 * ms).is_some());
        assert!(alarm.ring_at(now, now + 990_000 * ms).is_some());
        assert_eq!(alarm.set_for, Some(now + 1_000_000 * ms), "a little later is no reason to set it anew");
        assert_eq!(alarm.ring_at(now, now), Some(fd));
        std::thread::sleep(ms);
        assert!(rings(fd), "an earlier one replaces it");
        assert!(alarm.ring_at(Instant::now(), now + 1_000_000 * ms).is_some());
        assert!(!rings(fd), "what has rung is silent when it is set again");
    }
}

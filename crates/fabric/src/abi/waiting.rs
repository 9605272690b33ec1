//! What queues and counters that are waited for have in common.

use crate::ffi::*;
use core::ffi::c_int;
use std::time::{Duration, Instant};

/// What one may sleep on, where that is left to us.
pub(super) fn chosen(wait_obj: c_int) -> c_int {
    if wait_obj == FI_WAIT_UNSPEC { FI_WAIT_FD } else { wait_obj }
}

/// When a timeout of libfabric's, in ms, is over; negative: never.
pub(super) fn deadline(timeout: c_int) -> Option<Instant> {
    u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms))
}

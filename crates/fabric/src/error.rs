//! libfabric's error numbers, and which one stands for what happened in the transport.

use crate::ffi;
use crate::log::{self, Level, Subsystem};
use core::ffi::c_int;
use denrei::{BindError, LostReason, SendError};

/// A positive error number, as in `fi_errno.h`; functions return it negated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

impl Errno {
    pub const AGAIN: Self = Self(ffi::EAGAIN);
    pub const BUSY: Self = Self(ffi::EBUSY);
    pub const INVALID: Self = Self(ffi::EINVAL);
    pub const NO_DATA: Self = Self(ffi::ENODATA);
    pub const NO_MESSAGE: Self = Self(ffi::ENOMSG);
    pub const NO_SYSTEM: Self = Self(ffi::ENOSYS);
    pub const NOT_SUPPORTED: Self = Self(ffi::EOPNOTSUPP);
    pub const NO_OPTION: Self = Self(ffi::ENOPROTOOPT);
    pub const TOO_LARGE: Self = Self(ffi::EMSGSIZE);
    pub const CANCELED: Self = Self(ffi::ECANCELED);
    pub const TRUNCATED: Self = Self(ffi::FI_ETRUNC);
    pub const NO_KEY: Self = Self(ffi::FI_ENOKEY);
    pub const NO_CQ: Self = Self(ffi::FI_ENOCQ);
    pub const NO_AV: Self = Self(ffi::FI_ENOAV);
    pub const BAD_FLAGS: Self = Self(ffi::FI_EBADFLAGS);
    pub const BAD_STATE: Self = Self(ffi::FI_EOPBADSTATE);
    pub const TOO_SMALL: Self = Self(ffi::FI_ETOOSMALL);
    pub const AVAILABLE: Self = Self(ffi::FI_EAVAIL);
    pub const OTHER: Self = Self(ffi::FI_EOTHER);
    pub const RESET: Self = Self(ffi::ECONNRESET);

    /// What a lost session means for the operations that were under way on it.
    pub fn of_loss(reason: &LostReason) -> Self {
        Self(match reason {
            LostReason::NoAnswer | LostReason::TimedOut => ffi::ETIMEDOUT,
            LostReason::Closed
            | LostReason::Ended { .. }
            | LostReason::Restarted
            | LostReason::Forgotten
            | LostReason::Gone => ffi::ECONNRESET,
            LostReason::Aborted => ffi::ECONNABORTED,
            _ => ffi::EIO,
        })
    }

    /// Why a Node could not be opened; said in the log.
    pub fn of_bind(error: &BindError) -> Self {
        log::say(Level::Warn, Subsystem::EndpointControl, || error.to_string());
        match error {
            BindError::Socket { source, .. } => Self(source.raw_os_error().unwrap_or(ffi::EIO)),
            _ => Self(ffi::EADDRNOTAVAIL),
        }
    }

    /// Why a message was not taken.
    pub fn of_send(error: &SendError) -> Self {
        match error {
            SendError::WouldBlock { .. } => Self::AGAIN,
            SendError::TooLarge { .. } => Self::TOO_LARGE,
            SendError::PeerLost { reason, .. } => Self::of_loss(reason),
            _ => Self::RESET,
        }
    }
}

/// Whether a peer has gone in order: it has closed, or its process has ended as it should.
pub fn is_orderly(reason: &LostReason) -> bool {
    matches!(reason, LostReason::Closed | LostReason::Ended { code: 0 | 4, .. })
}

/// The return value of a function that says nothing but whether it worked.
pub fn status(result: Result<(), Errno>) -> c_int {
    result.map_or_else(|error| -error.0, |()| 0)
}

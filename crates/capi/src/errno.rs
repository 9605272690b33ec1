//! Failures as `-1` and errno, for the interfaces that are older than codes.

use crate::error::denrei_code::{DENREI_INVALID, DENREI_OK};
use crate::error::{Failure, call};
use std::ffi::c_int;

/// What a call fails with: the number for errno and the text.
#[derive(Clone, Debug)]
pub(crate) struct Refusal(c_int, String);

impl Refusal {
    pub fn new(errno: c_int, message: impl ToString) -> Self {
        Self(errno, message.to_string())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(libc::EINVAL, failure.into_message())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
    }
}

/// Runs a call; `failed` is what it returns if it fails.
pub(crate) fn run<T>(failed: T, work: impl FnOnce() -> Result<T, Refusal>) -> T {
    let mut result = None;
    let mut number = libc::EIO;
    let code = call(|| match work() {
        Ok(value) => {
            result = Some(value);
            Ok(())
        }
        Err(Refusal(errno, message)) => {
            number = errno;
            Err(Failure::new(DENREI_INVALID, message))
        }
    });
    if code != DENREI_OK {
        nix::errno::Errno::set_raw(number);
    }
    result.unwrap_or(failed)
}

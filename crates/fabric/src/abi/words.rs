//! What error numbers say.

use crate::ffi::*;
use core::ffi::{c_char, c_int};

/// What an error number says, also copied to the caller.
///
/// # Safety
/// `text` is null or has room for `len` characters.
pub(super) unsafe fn describe(errno: c_int, text: *mut c_char, len: usize) -> *const c_char {
    let words = match errno {
        FI_ETRUNC => c"the message was longer than the buffer",
        FI_ENOKEY => c"no memory region of that key allows it there",
        ETIMEDOUT => c"the peer is silent: its host, its process or the network is down",
        ECONNRESET => c"the peer has ended the session",
        ECONNABORTED => c"the session was ended by this side",
        ECANCELED => c"cancelled",
        ENOMSG => c"there is no such message",
        EOPNOTSUPP => c"not supported by the peer",
        EINVAL => c"the peer refuses the request",
        _ => c"failed in the transport",
    };
    if !text.is_null() && len > 0 {
        let bytes = words.to_bytes();
        let count = bytes.len().min(len - 1);
        // SAFETY: as the caller promises.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), text.cast(), count);
            *text.add(count) = 0;
        }
    }
    words.as_ptr()
}

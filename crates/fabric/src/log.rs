//! libfabric's log and parameters, through the library that has loaded us.
//!
//! Inputs → outputs: what happened → `fi_log` at its level, if libfabric is there and listens;
//! parameters → `fi_param_define`, so that `fi_info -e` shows them. We do not link libfabric (its old
//! symbol versions would bind): its functions are looked up in the copy that is loaded already.

use crate::ffi::fi_provider;
use core::ffi::{c_char, c_int, c_void};
use denrei::LostReason;
use std::ffi::{CStr, CString};
use std::net::SocketAddr;
use std::sync::OnceLock;

/// libfabric's levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Level {
    Warn = 0,
    Info = 2,
}

/// libfabric's subsystems, as far as we have something to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Subsystem {
    Core = 0,
    EndpointControl = 3,
    EndpointData = 4,
}

type LogEnabled = unsafe extern "C" fn(*const fi_provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(*const fi_provider, c_int, c_int, *const c_char, c_int, *const c_char, ...);
type ParamDefine =
    unsafe extern "C" fn(*const fi_provider, *const c_char, c_int, *const c_char, ...) -> c_int;

/// libfabric's functions.
struct Functions {
    provider: *const fi_provider,
    enabled: Option<LogEnabled>,
    log: Option<Log>,
    define: Option<ParamDefine>,
}

// SAFETY: the provider is a static of ours, and libfabric's functions may be called by any thread.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Looks libfabric's functions up; `provider` is what they shall call us.
pub fn begin(provider: *const fi_provider) {
    FUNCTIONS.get_or_init(|| {
        // SAFETY: the names are C strings. NOLOAD gives the copy that has loaded us, or null. It is
        // never closed: it outlives us anyway.
        let library =
            unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        // A program may carry libfabric's symbols itself, under another file name.
        let library = if library.is_null() { libc::RTLD_DEFAULT } else { library };
        let find = |name: &CStr| {
            // SAFETY: the handle is a library's or RTLD_DEFAULT, the name a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        // SAFETY: functions of these names have these types in every version of libfabric.
        unsafe {
            Functions {
                provider,
                enabled: find(c"fi_log_enabled").map(|f| core::mem::transmute::<*mut c_void, LogEnabled>(f)),
                log: find(c"fi_log").map(|f| core::mem::transmute::<*mut c_void, Log>(f)),
                define: find(c"fi_param_define").map(|f| core::mem::transmute::<*mut c_void, ParamDefine>(f)),
            }
        }
    });
}

/// Tells libfabric of a parameter; names are without `FI_DENREI_`, in small letters. Its value is
/// read from the environment, where libfabric would look as well.
pub fn define(name: &CStr, help: &CStr) {
    const FI_PARAM_STRING: c_int = 0;
    if let Some(functions) = FUNCTIONS.get()
        && let Some(define) = functions.define
    {
        // SAFETY: C strings; the help has no format specifications of its own but goes through "%s".
        unsafe { define(functions.provider, name.as_ptr(), FI_PARAM_STRING, c"%s".as_ptr(), help.as_ptr()) };
    }
}

/// Says something, if somebody listens.
pub fn say(level: Level, subsystem: Subsystem, text: impl FnOnce() -> String) {
    let Some(functions) = FUNCTIONS.get() else { return };
    let (Some(enabled), Some(log)) = (functions.enabled, functions.log) else { return };
    // SAFETY: plain numbers and our provider.
    if unsafe { enabled(functions.provider, level as c_int, subsystem as c_int) } == 0 {
        return;
    }
    let Ok(text) = CString::new(text()) else { return };
    // SAFETY: C strings, and a format that takes one.
    unsafe {
        log(
            functions.provider,
            level as c_int,
            subsystem as c_int,
            c"denrei".as_ptr(),
            0,
            c"%s\n".as_ptr(),
            text.as_ptr(),
        );
    }
}

/// A session is over, in order or not.
pub fn peer_lost(address: SocketAddr, reason: &LostReason, in_order: bool) {
    let level = if in_order { Level::Info } else { Level::Warn };
    say(level, Subsystem::EndpointData, || format!("peer {address} is lost: {reason}"));
}

/// A receive waits that may want what a peer sends next, which is held back.
pub fn held_back(limit: usize, stretch: usize) {
    say(Level::Warn, Subsystem::EndpointData, || {
        format!(
            "a receive waits, and a peer that it may wait for has sent {stretch} times FI_DENREI_UNEXPECTED_BYTES \
             ({limit}), divided by those that send, that nobody has asked for: it may send on when some of it is \
             received. If that never happens, raise FI_DENREI_UNEXPECTED_BYTES"
        )
    });
}

/// A peer sent what no provider of ours sends.
pub fn malformed(address: SocketAddr) {
    say(Level::Warn, Subsystem::EndpointData, || {
        format!(
            "{address} sent a message that is not of this provider: is another program using that address?"
        )
    });
}

/// A peer refused a one-sided request.
pub fn refused(address: SocketAddr, errno: u32) {
    say(Level::Warn, Subsystem::EndpointData, || {
        format!("{address} refuses a one-sided request: error {errno}")
    });
}

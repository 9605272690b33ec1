//! libfabric's calls, an object a file: pointers in, safe calls below, numbers out.
//!
//! What all of it relies on is libfabric's own contract: an object's pointer is one that we gave and
//! that was not closed; pointers to attributes, buffers and results are valid for the call (buffers
//! of operations until they are reported); calls that change an object are not made while others use
//! it. What a caller may pass as null is checked. Nothing unwinds into the caller: a panic, which
//! only a broken invariant can cause, is reported and becomes an error.

// As many arguments as libfabric's functions have.
#![allow(clippy::too_many_arguments)]

/// Defines operations of an endpoint, as libfabric calls them: the endpoint, arguments, what is done.
macro_rules! calls {
    ($(fn $name:ident($ep:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        unsafe extern "C" fn $name($ep: *mut fid_ep $(, $argument: $type)*) -> libc::ssize_t {
            // SAFETY: libfabric's contract, as said before the calls.
            crate::abi::operation(|| unsafe {
                let $ep = crate::abi::object::<Ep, _>($ep)?;
                $body
            })
        }
    )*};
}

/// Defines how an object is closed that others may be opened on: after those.
macro_rules! closed_last {
    ($object:ty) => {
        unsafe extern "C" fn close(fid: *mut crate::ffi::fid) -> core::ffi::c_int {
            // SAFETY: an object of ours, by libfabric's contract.
            crate::abi::call(|| unsafe {
                crate::abi::object::<$object, _>(fid)?.children.check_none()?;
                crate::abi::take_back::<$object, _>(fid).map(drop)
            })
        }
    };
}

/// Defines what an object says of how it is waited for; `$alarm` is what wakes whoever does.
macro_rules! waited_for {
    ($object:ty, $it:ident => $alarm:expr) => {
        unsafe extern "C" fn control(
            fid: *mut crate::ffi::fid,
            command: core::ffi::c_int,
            arg: *mut core::ffi::c_void,
        ) -> core::ffi::c_int {
            crate::abi::call(|| {
                // SAFETY: an object of ours, by libfabric's contract.
                let $it = unsafe { crate::abi::object::<$object, _>(fid)? };
                if arg.is_null() {
                    return Err(Errno::INVALID);
                }
                let said = match command {
                    FI_GETWAIT => $alarm.descriptor().ok_or(Errno::NO_SYSTEM)?.as_raw_fd(),
                    FI_GETWAITOBJ => $it.wait_obj,
                    _ => return Err(Errno::NO_SYSTEM),
                };
                // SAFETY: what the command says that it points to.
                unsafe { *arg.cast::<core::ffi::c_int>() = said };
                Ok(())
            })
        }
    };
}

mod address;
mod atomic;
mod av;
mod cntr;
mod collective;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod getinfo;
mod mr;
mod msg;
mod refuse;
mod rma;
mod service;
mod waiting;
mod words;

use crate::error::Errno;
use crate::ffi::{self, fi_provider, fi_version, fid};
use crate::log::{self, Level, Subsystem};
use crate::memory::Memory;
use core::ffi::{c_int, c_void};
use libc::{iovec, ssize_t};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

/// The newest interface that we know: a provider with an older one than the program's is skipped.
const FI_VERSION: u32 = fi_version(2, 9);
/// Our own version.
const PROVIDER_VERSION: u32 = fi_version(0, 1);

struct Provider(core::cell::UnsafeCell<fi_provider>);

// SAFETY: libfabric alone writes to it, to the room that is its own.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(core::cell::UnsafeCell::new(fi_provider {
    version: PROVIDER_VERSION,
    fi_version: FI_VERSION,
    context: [core::ptr::null_mut(); 4],
    name: c"denrei".as_ptr(),
    getinfo: getinfo::getinfo,
    fabric: fabric::fabric,
    cleanup,
}));

/// libfabric's way in: the provider.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    static BEGIN: Once = Once::new();
    let provider = PROVIDER.0.get();
    guard((), || {
        BEGIN.call_once(|| {
            log::begin(provider);
            for parameter in crate::settings::PARAMETERS {
                log::define(parameter.name, parameter.help);
            }
        });
    });
    provider
}

/// libfabric lets go of us. Endpoints that were not closed keep their threads, and the library stays
/// mapped (`-z nodelete`).
extern "C" fn cleanup() {}

/// Runs a call; a panic in it becomes `failed`.
fn guard<T>(failed: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        log::say(Level::Warn, Subsystem::Core, || "a call failed in an unforeseen way; see above".to_owned());
        failed
    })
}

/// Refuses flags that promise what nothing here does, or that nobody knows.
fn check_flags(flags: u64, known: u64) -> Result<(), Errno> {
    if flags & !known == 0 { Ok(()) } else { Err(Errno::BAD_FLAGS) }
}

/// A call that returns 0 or an error.
fn call(run: impl FnOnce() -> Result<(), Errno>) -> c_int {
    guard(-ffi::FI_EOTHER, || crate::error::status(run()))
}

/// A call that returns a number or an error.
fn count(run: impl FnOnce() -> Result<usize, Errno>) -> ssize_t {
    guard(-ffi::FI_EOTHER as ssize_t, || match run() {
        Ok(number) => number as ssize_t,
        Err(errno) => -errno.0 as ssize_t,
    })
}

/// An operation: returns 0 or an error.
fn operation(run: impl FnOnce() -> Result<(), Errno>) -> ssize_t {
    count(|| run().map(|()| 0))
}

/// A new object's head.
fn head(class: usize, context: *mut c_void, ops: &'static ffi::fi_ops) -> fid {
    fid { fclass: class, context, ops }
}

/// Hands an object to the caller.
///
/// # Safety
/// `out` is valid for writing a pointer.
unsafe fn hand_out<O, F>(object: O, out: *mut *mut F) -> Result<(), Errno> {
    if out.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises; an object begins with what its pointer points to.
    unsafe { *out = Box::into_raw(Box::new(object)).cast() };
    Ok(())
}

/// An object by any pointer to its beginning.
///
/// # Safety
/// The pointer is one that [`hand_out`] gave for an `O` and that was not taken back.
unsafe fn object<'a, O, F>(pointer: *mut F) -> Result<&'a O, Errno> {
    // SAFETY: as the caller promises.
    unsafe { pointer.cast::<O>().as_ref() }.ok_or(Errno::INVALID)
}

/// Takes an object back, to be dropped.
///
/// # Safety
/// As for [`object`], and nobody uses it any more.
unsafe fn take_back<O, F>(pointer: *mut F) -> Result<Box<O>, Errno> {
    if pointer.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { Box::from_raw(pointer.cast::<O>()) })
}

/// The class of an object, whatever it is.
///
/// # Safety
/// The pointer is null or that of a live object of ours.
unsafe fn class(pointer: *mut fid) -> usize {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.map_or(0, |fid| fid.fclass)
}

/// Objects that were opened on another one, which cannot be closed before they are.
#[derive(Clone, Debug, Default)]
struct Children(Arc<()>);

impl Children {
    fn check_none(&self) -> Result<(), Errno> {
        if Arc::strong_count(&self.0) > 1 { Err(Errno::BUSY) } else { Ok(()) }
    }
}

/// The buffers of a vector.
///
/// # Safety
/// `iov` points to `count` vectors, and they to memory that stays valid as long as an operation's.
unsafe fn memory(iov: *const iovec, count: usize) -> Result<Memory, Errno> {
    if count == 0 {
        return Ok(Memory::default());
    }
    if iov.is_null() || count > getinfo::IOV_LIMIT {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    unsafe {
        let parts = core::slice::from_raw_parts(iov, count);
        memory_of(parts.iter().map(|part| (part.iov_base.cast::<u8>(), part.iov_len)))
    }
}

/// One buffer.
///
/// # Safety
/// `buffer` points to `len` bytes that stay valid as long as an operation's.
unsafe fn buffer(buffer: *const c_void, len: usize) -> Result<Memory, Errno> {
    // SAFETY: as the caller promises.
    unsafe { memory_of([(buffer.cast_mut().cast::<u8>(), len)]) }
}

/// Buffers, none of which may be nowhere, nor all be larger than a message.
///
/// # Safety
/// Each is memory of so many bytes that stay valid as long as an operation's, or null.
unsafe fn memory_of(
    parts: impl IntoIterator<Item = (*mut u8, usize), IntoIter: Clone>,
) -> Result<Memory, Errno> {
    let parts = parts.into_iter();
    if parts.clone().any(|(start, len)| start.is_null() && len > 0) {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    let memory = unsafe { Memory::new(parts) };
    if memory.len() > getinfo::MAX_MESSAGE { Err(Errno::TOO_LARGE) } else { Ok(memory) }
}

/// Bytes to copy now.
///
/// # Safety
/// `buffer` points to `len` bytes, or is null, or `len` is 0.
unsafe fn bytes<'a>(buffer: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    if len == 0 {
        return Ok(&[]);
    }
    if buffer.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), len) })
}

//! The completion queue object.

use super::domain::Domain;
use super::refuse::PLAIN;
use super::waiting::{chosen, deadline};
use super::words::describe;
use super::{Children, call, check_flags, count, guard, hand_out, head, object};
use crate::engine::completion::{Completion, CompletionQueue};
use crate::error::Errno;
use crate::ffi::*;
use core::ffi::{c_char, c_int, c_void};
use libc::ssize_t;
use std::os::fd::AsRawFd;
use std::sync::Arc;

#[repr(C)]
pub(super) struct Cq {
    head: fid_cq,
    pub(super) queue: Arc<CompletionQueue>,
    format: c_int,
    wait_obj: c_int,
    /// Whether error entries of this caller have room for the source.
    knows_source: bool,
    pub(super) children: Children,
    _domain: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), control: Some(control), ..PLAIN };
static OPS: fi_ops_cq = fi_ops_cq {
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
    ..fi_ops_cq::NONE
};

impl Cq {
    /// The queue, if it may be used: it is not a forked child's copy.
    fn ready(&self) -> Result<&CompletionQueue, Errno> {
        self.queue.alarm().check_own().map(|()| &*self.queue)
    }

    pub(super) fn has_something(&self) -> Result<bool, Errno> {
        let queue = self.ready()?;
        queue.sources.work();
        Ok(!queue.is_empty())
    }

    /// Whether threads may sleep on it.
    pub(super) fn is_waitable(&self) -> bool {
        self.wait_obj != FI_WAIT_NONE
    }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: libfabric's contract.
        let (domain, attr) = unsafe { (object::<Domain, _>(domain)?, attr.as_mut()) };
        let (mut size, mut format, mut wait_obj) = (0, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
        if let Some(attr) = attr {
            // Whose core interrupts are for is a hint.
            check_flags(attr.flags, FI_AFFINITY)?;
            if attr.format == FI_CQ_FORMAT_UNSPEC {
                attr.format = FI_CQ_FORMAT_CONTEXT;
            }
            if !(FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED).contains(&attr.format) {
                return Err(Errno::NO_SYSTEM);
            }
            if !matches!(attr.wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD) {
                return Err(Errno::NO_SYSTEM);
            }
            (size, format, wait_obj) = (attr.size, attr.format, chosen(attr.wait_obj));
        }
        let cq = Cq {
            head: fid_cq { fid: head(FI_CLASS_CQ, context, &FID_OPS), ops: &OPS },
            queue: Arc::new(CompletionQueue::new(size, wait_obj != FI_WAIT_NONE)?),
            format,
            wait_obj,
            knows_source: domain.api_version >= fi_version(1, 20),
            children: Children::default(),
            _domain: domain.children(),
        };
        // SAFETY: the caller's.
        unsafe { hand_out(cq, out) }
    })
}

closed_last!(Cq);
waited_for!(Cq, cq => cq.queue.alarm());

/// Bytes of an entry in a format.
const fn entry_bytes(format: c_int) -> usize {
    match format {
        FI_CQ_FORMAT_CONTEXT => 8,
        FI_CQ_FORMAT_MSG => 24,
        FI_CQ_FORMAT_DATA => 40,
        _ => size_of::<fi_cq_tagged_entry>(),
    }
}

/// Writes an entry in a format: each is the beginning of the next.
///
/// # Safety
/// So many bytes of room are there.
unsafe fn write_entry(format: c_int, entry: &Completion, out: *mut u8) {
    let whole = fi_cq_tagged_entry {
        op_context: entry.context as *mut c_void,
        flags: entry.flags,
        len: entry.len,
        buf: entry.buffer as *mut c_void,
        data: entry.data,
        tag: entry.tag,
    };
    // SAFETY: as the caller promises.
    unsafe { core::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), out, entry_bytes(format)) };
}

unsafe extern "C" fn read(cq: *mut fid_cq, out: *mut c_void, most: usize) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { readfrom(cq, out, most, core::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(cq: *mut fid_cq, out: *mut c_void, most: usize, sources: *mut u64) -> ssize_t {
    // SAFETY: a queue of ours, by libfabric's contract; room for `most` entries and sources.
    count(|| unsafe { take(object::<Cq, _>(cq)?, out, most, sources) })
}

/// # Safety
/// `out` has room for `most` entries, and so has `sources`, or is null.
unsafe fn take(cq: &Cq, out: *mut c_void, most: usize, sources: *mut u64) -> Result<usize, Errno> {
    let (queue, bytes) = (cq.ready()?, entry_bytes(cq.format));
    // Asking for nothing is a way to make progress.
    if most == 0 || out.is_null() {
        queue.sources.work();
        return if queue.is_empty() { Err(Errno::AGAIN) } else { Ok(0) };
    }
    queue.read(most, |index, entry| {
        // SAFETY: `index` is below `most`.
        unsafe {
            write_entry(cq.format, entry, out.cast::<u8>().add(index * bytes));
            if !sources.is_null() {
                *sources.add(index) = entry.source;
            }
        }
    })
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, out: *mut fi_cq_err_entry, _flags: u64) -> ssize_t {
    count(|| {
        // SAFETY: libfabric's contract. The last field is written only for callers that have it.
        unsafe {
            let cq = object::<Cq, _>(cq)?;
            if out.is_null() {
                return Err(Errno::INVALID);
            }
            let entry = cq.ready()?.read_failure()?;
            let (errno, missing) = entry.error.unwrap_or((Errno::OTHER, 0));
            (*out).op_context = entry.context as *mut c_void;
            (*out).flags = entry.flags;
            (*out).len = entry.len;
            (*out).buf = entry.buffer as *mut c_void;
            (*out).data = entry.data;
            (*out).tag = entry.tag;
            (*out).olen = missing;
            (*out).err = errno.0;
            (*out).prov_errno = errno.0;
            (*out).err_data_size = 0;
            if cq.knows_source {
                (*out).src_addr = entry.source;
            }
        }
        Ok(1)
    })
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    out: *mut c_void,
    most: usize,
    cond: *const c_void,
    timeout: c_int,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { sreadfrom(cq, out, most, core::ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    out: *mut c_void,
    most: usize,
    sources: *mut u64,
    _cond: *const c_void,
    timeout: c_int,
) -> ssize_t {
    count(|| {
        // SAFETY: libfabric's contract.
        unsafe {
            let cq = object::<Cq, _>(cq)?;
            if !cq.is_waitable() {
                return Err(Errno::NO_SYSTEM);
            }
            let deadline = deadline(timeout);
            loop {
                match take(cq, out, most, sources) {
                    Err(Errno::AGAIN) => cq.queue.wait(deadline)?,
                    result => return result,
                }
            }
        }
    })
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    call(|| {
        // SAFETY: a queue of ours, by libfabric's contract.
        unsafe { object::<Cq, _>(cq)?.ready()?.wake() };
        Ok(())
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    errno: c_int,
    _: *const c_void,
    text: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: room for `len` characters, or null.
    guard(core::ptr::null(), || unsafe { describe(errno, text, len) })
}

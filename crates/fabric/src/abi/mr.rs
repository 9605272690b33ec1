//! Memory regions.

use super::cntr::Cntr;
use super::domain::Domain;
use super::refuse::PLAIN;
use super::{Children, call, check_flags, class, hand_out, head, memory, object, take_back};
use crate::engine::region_table::{RegionTable, Registered};
use crate::error::Errno;
use crate::ffi::*;
use crate::memory::{Access, Region};
use core::ffi::{c_int, c_void};
use libc::iovec;
use parking_lot::Mutex;
use std::sync::Arc;

#[repr(C)]
struct Mr {
    head: fid_mr,
    registered: Arc<Registered>,
    table: Arc<RegionTable>,
    bound: Mutex<Vec<Children>>,
    _domain: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), bind: Some(bind), control: Some(control), ..PLAIN };
pub(super) static OPS: fi_ops_mr =
    fi_ops_mr { reg: Some(reg), regv: Some(regv), regattr: Some(regattr), ..fi_ops_mr::NONE };

/// What a region may be for; what this side does with it needs none.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// What is registered, and how.
struct Wish {
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// # Safety
/// The domain is ours, the vectors and the memory they name are valid, `out` is writable.
unsafe fn register(domain: *mut fid, wish: &Wish, out: *mut *mut fid_mr) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe {
        if class(domain) != FI_CLASS_DOMAIN || wish.iov.is_null() || wish.count == 0 {
            return Err(Errno::INVALID);
        }
        let domain = object::<Domain, _>(domain)?;
        check_flags(wish.flags, FI_RMA_EVENT)?;
        // The offset is reserved (fi_mr(3)).
        if wish.access & !ACCESS != 0 || wish.offset != 0 {
            return Err(Errno::INVALID);
        }
        let allowed =
            Access { reads: wish.access & FI_REMOTE_READ != 0, writes: wish.access & FI_REMOTE_WRITE != 0 };
        let (first, len) = ((*wish.iov).iov_base, (*wish.iov).iov_len);
        // Null in the scalable mode: everything there is, addressed by where it lies.
        let region = if first.is_null() && wish.count == 1 && len > 0 {
            Region::from_zero(len, allowed)
        } else {
            let first_address = if domain.is_basic { first as u64 } else { 0 };
            Region::new(memory(wish.iov, wish.count)?, first_address, allowed)
        };
        let registered = Arc::new(Registered { region: Arc::new(region), counters: Mutex::default() });
        let wished_key = (!domain.is_basic).then_some(wish.key);
        let key = domain.regions.insert(wished_key, Arc::clone(&registered))?;
        let mr = Mr {
            head: fid_mr {
                fid: head(FI_CLASS_MR, wish.context, &FID_OPS),
                mem_desc: core::ptr::null_mut(),
                key,
            },
            registered,
            table: Arc::clone(&domain.regions),
            bound: Mutex::default(),
            _domain: domain.children(),
        };
        hand_out(mr, out).inspect_err(|_| domain.regions.remove(key))
    }
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    start: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let iov = iovec { iov_base: start.cast_mut(), iov_len: len };
        // SAFETY: libfabric's contract.
        unsafe { register(domain, &Wish { iov: &iov, count: 1, access, offset, key, flags, context }, out) }
    })
}

unsafe extern "C" fn regv(
    domain: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract.
    call(|| unsafe { register(domain, &Wish { iov, count, access, offset, key, flags, context }, out) })
}

unsafe extern "C" fn regattr(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    out: *mut *mut fid_mr,
) -> c_int {
    call(|| {
        // SAFETY: libfabric's contract; only fields that every version has are read.
        unsafe {
            let attr = attr.as_ref().ok_or(Errno::INVALID)?;
            let wish = Wish {
                iov: attr.mr_iov,
                count: attr.iov_count,
                access: attr.access,
                offset: attr.offset,
                key: attr.requested_key,
                flags,
                context: attr.context,
            };
            register(domain, &wish, out)
        }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    call(|| {
        // SAFETY: a region of ours, by libfabric's contract.
        let mr = unsafe { take_back::<Mr, _>(fid)? };
        mr.table.remove(mr.head.key);
        Ok(())
    })
}

/// A counter counts what peers do with the region; an endpoint may be bound, and changes nothing.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    call(|| {
        // SAFETY: objects of ours, by libfabric's contract.
        unsafe {
            let mr = object::<Mr, _>(fid)?;
            match class(other) {
                FI_CLASS_CNTR => {
                    check_flags(flags, FI_REMOTE_READ | FI_REMOTE_WRITE)?;
                    let cntr = object::<Cntr, _>(other)?;
                    mr.table.add_counter(&cntr.counter);
                    mr.registered.counters.lock().push((flags, Arc::clone(&cntr.counter)));
                    mr.bound.lock().push(cntr.children.clone());
                }
                FI_CLASS_EP => {}
                _ => return Err(Errno::INVALID),
            }
        }
        Ok(())
    })
}

/// Enabling and refreshing are nothing to do.
unsafe extern "C" fn control(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    match command {
        FI_ENABLE | FI_REFRESH => 0,
        _ => -ENOSYS,
    }
}

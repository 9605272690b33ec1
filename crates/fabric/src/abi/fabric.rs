//! The fabric object: what domains and event queues are opened on.

use super::refuse::{self, PLAIN};
use super::{Children, call, class, hand_out, head, object};
use crate::error::Errno;
use crate::ffi::*;
use core::ffi::{c_int, c_void};

#[repr(C)]
pub(super) struct Fabric {
    head: fid_fabric,
    children: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), ..PLAIN };
static OPS: fi_ops_fabric = fi_ops_fabric {
    domain: Some(super::domain::domain),
    passive_ep: Some(refuse::passive_ep),
    eq_open: Some(super::eq::open),
    wait_open: Some(refuse::wait_open),
    trywait: Some(trywait),
    domain2: Some(super::domain::domain2),
    ..fi_ops_fabric::NONE
};

impl Fabric {
    pub(super) fn children(&self) -> Children {
        self.children.clone()
    }

    pub(super) fn api_version(&self) -> u32 {
        self.head.api_version
    }
}

pub(super) unsafe extern "C" fn fabric(
    attr: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: null or valid, by libfabric's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::INVALID)?;
        // SAFETY: null or a C string.
        let name = (!attr.name.is_null()).then(|| unsafe { core::ffi::CStr::from_ptr(attr.name) });
        if name.is_some_and(|name| name != c"denrei") {
            return Err(Errno::INVALID);
        }
        let head = fid_fabric {
            fid: head(FI_CLASS_FABRIC, context, &FID_OPS),
            ops: &OPS,
            api_version: attr.api_version,
        };
        // SAFETY: the caller's.
        unsafe { hand_out(Fabric { head, children: Children::default() }, out) }
    })
}

closed_last!(Fabric);

/// Whether the caller may sleep on the descriptors of these objects: not while there is something.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    call(|| {
        if fids.is_null() || count < 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: `count` pointers to objects of ours, by libfabric's contract.
        let fids = unsafe { core::slice::from_raw_parts(fids, count as usize) };
        for &fid in fids {
            // SAFETY: as above; the class says what it is.
            let has_something = unsafe {
                match class(fid) {
                    FI_CLASS_CQ => object::<super::cq::Cq, _>(fid)?.has_something()?,
                    FI_CLASS_EQ => object::<super::eq::Eq, _>(fid)?.has_something()?,
                    FI_CLASS_CNTR => object::<super::cntr::Cntr, _>(fid)?.work()?,
                    _ => return Err(Errno::INVALID),
                }
            };
            if has_something {
                return Err(Errno::AGAIN);
            }
        }
        Ok(())
    })
}

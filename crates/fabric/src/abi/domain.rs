//! The domain object: what endpoints, queues, vectors and regions are opened on.

use super::fabric::Fabric;
use super::refuse::{self, PLAIN};
use super::{Children, call, hand_out, head, object};
use crate::engine::atomics;
use crate::engine::header::{AtomicKind, AtomicMode};
use crate::engine::region_table::RegionTable;
use crate::error::Errno;
use crate::ffi::*;
use crate::keeper::Keeps;
use crate::settings::Settings;
use core::ffi::{c_int, c_void};
use std::sync::Arc;

#[repr(C)]
pub(super) struct Domain {
    head: fid_domain,
    pub(super) regions: Arc<RegionTable>,
    /// Regions get keys of our choice, and are addressed by where they lie.
    pub(super) is_basic: bool,
    /// What an endpoint's keeper does.
    pub(super) keeps: Keeps,
    pub(super) api_version: u32,
    pub(super) addr_format: u32,
    children: Children,
    _fabric: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), bind: Some(bind), ..PLAIN };
static OPS: fi_ops_domain = fi_ops_domain {
    av_open: Some(super::av::open),
    cq_open: Some(super::cq::open),
    endpoint: Some(super::ep::open),
    scalable_ep: Some(refuse::scalable_ep),
    cntr_open: Some(super::cntr::open),
    poll_open: Some(refuse::poll_open),
    stx_ctx: Some(refuse::stx_ctx),
    srx_ctx: Some(refuse::srx_ctx),
    query_atomic: Some(query_atomic),
    query_collective: Some(refuse::query_collective),
    endpoint2: Some(super::ep::open2),
    ..fi_ops_domain::NONE
};

impl Domain {
    pub(super) fn children(&self) -> Children {
        self.children.clone()
    }
}

pub(super) unsafe extern "C" fn domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { domain2(fabric, info, out, 0, context) }
}

pub(super) unsafe extern "C" fn domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    call(|| {
        if flags != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // SAFETY: libfabric's contract: a fabric of ours, and an info with its attributes.
        let (fabric, attr, addr_format) = unsafe {
            let info = info.as_ref().ok_or(Errno::INVALID)?;
            let attr = info.domain_attr.as_ref().ok_or(Errno::INVALID)?;
            (object::<Fabric, _>(fabric)?, attr, info.addr_format)
        };
        // SAFETY: as above.
        let wants_progress = unsafe { super::getinfo::wants_progress(info) };
        let domain = Domain {
            head: fid_domain {
                fid: head(FI_CLASS_DOMAIN, context, &FID_OPS),
                ops: &OPS,
                mr: &super::mr::OPS,
            },
            regions: Arc::default(),
            is_basic: attr.mr_mode & (FI_MR_BASIC | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY) != 0,
            keeps: match Settings::from_environment().progress_thread {
                _ if wants_progress => Keeps::Driving,
                Some(true) => Keeps::Driving,
                Some(false) => Keeps::Alive,
                None => Keeps::StandingIn,
            },
            api_version: fabric.api_version(),
            addr_format,
            children: Children::default(),
            _fabric: fabric.children(),
        };
        // SAFETY: the caller's.
        unsafe { hand_out(domain, out) }
    })
}

closed_last!(Domain);

/// An event queue may be bound: there is nothing that it would be told of, registrations (FI_REG_MR) neither.
unsafe extern "C" fn bind(_: *mut fid, other: *mut fid, flags: u64) -> c_int {
    call(|| {
        super::check_flags(flags, 0)?;
        // SAFETY: an object of ours, by libfabric's contract.
        if unsafe { super::class(other) } == FI_CLASS_EQ { Ok(()) } else { Err(Errno::INVALID) }
    })
}

/// What libfabric calls an atomic operation, as the engine does.
pub(super) fn atomic_kind(
    datatype: c_int,
    op: c_int,
    mode: AtomicMode,
) -> Result<(AtomicKind, usize), Errno> {
    let (Ok(datatype), Ok(op)) = (u8::try_from(datatype), u8::try_from(op)) else {
        return Err(Errno::NOT_SUPPORTED);
    };
    let kind = AtomicKind { datatype, op, mode };
    let bytes = atomics::element_bytes(kind).ok_or(Errno::NOT_SUPPORTED)?;
    Ok((kind, bytes))
}

unsafe extern "C" fn query_atomic(
    _: *mut fid_domain,
    datatype: c_int,
    op: c_int,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    call(|| {
        let mode = match flags {
            0 => AtomicMode::Write,
            FI_FETCH_ATOMIC => AtomicMode::Fetch,
            FI_COMPARE_ATOMIC => AtomicMode::Compare,
            _ => return Err(Errno::BAD_FLAGS),
        };
        let (_, bytes) = atomic_kind(datatype, op, mode)?;
        // SAFETY: null or valid, by libfabric's contract.
        let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVALID)?;
        *attr =
            fi_atomic_attr { count: Settings::from_environment().limits.eager_bytes / bytes, size: bytes };
        Ok(())
    })
}

//! The counter object.

use super::domain::Domain;
use super::refuse::PLAIN;
use super::waiting::deadline;
use super::{Children, call, guard, hand_out, head, object};
use crate::engine::counter::Counter;
use crate::error::Errno;
use crate::ffi::*;
use core::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

#[repr(C)]
pub(super) struct Cntr {
    head: fid_cntr,
    pub(super) counter: Arc<Counter>,
    wait_obj: c_int,
    pub(super) children: Children,
    _domain: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), control: Some(control), ..PLAIN };
static OPS: fi_ops_cntr = fi_ops_cntr {
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
    ..fi_ops_cntr::NONE
};

impl Cntr {
    /// The counter, if it may be used: it is not a forked child's copy.
    fn ready(&self) -> Result<&Counter, Errno> {
        self.counter.alarm().check_own().map(|()| &*self.counter)
    }

    /// Makes progress. A counter never keeps anybody from sleeping.
    pub(super) fn work(&self) -> Result<bool, Errno> {
        self.ready()?.sources.work();
        Ok(false)
    }

    /// Whether threads may sleep on its descriptor.
    pub(super) fn is_waitable(&self) -> bool {
        self.wait_obj == FI_WAIT_FD
    }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: libfabric's contract.
        let (domain, attr) = unsafe { (object::<Domain, _>(domain)?, attr.as_ref()) };
        let mut wait_obj = FI_WAIT_UNSPEC;
        if let Some(attr) = attr {
            let known = matches!(attr.wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD);
            super::check_flags(attr.flags, 0)?;
            // Counting bytes, as 2.x may, is not offered.
            if !known || attr.events != 0 {
                return Err(Errno::NO_SYSTEM);
            }
            wait_obj = attr.wait_obj;
        }
        let cntr = Cntr {
            head: fid_cntr { fid: head(FI_CLASS_CNTR, context, &FID_OPS), ops: &OPS },
            counter: Arc::new(Counter::new(wait_obj == FI_WAIT_FD)?),
            wait_obj,
            children: Children::default(),
            _domain: domain.children(),
        };
        // SAFETY: the caller's.
        unsafe { hand_out(cntr, out) }
    })
}

closed_last!(Cntr);
waited_for!(Cntr, cntr => cntr.counter.alarm());

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: a counter of ours, by libfabric's contract.
    guard(0, || unsafe { object::<Cntr, _>(cntr) }.and_then(Cntr::ready).map_or(0, Counter::read))
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: as above.
    guard(0, || unsafe { object::<Cntr, _>(cntr) }.and_then(Cntr::ready).map_or(0, Counter::read_errors))
}

/// Defines a call that changes a counter.
macro_rules! change {
    ($name:ident, $counter:ident, $value:ident => $change:expr) => {
        unsafe extern "C" fn $name(cntr: *mut fid_cntr, $value: u64) -> c_int {
            call(|| {
                // SAFETY: a counter of ours, by libfabric's contract.
                let $counter = unsafe { object::<Cntr, _>(cntr)? }.ready()?;
                $change;
                Ok(())
            })
        }
    };
}

change!(add, counter, value => counter.add(value, 0));
change!(set, counter, value => counter.set(value));
change!(adderr, counter, value => counter.add(0, value));
change!(seterr, counter, value => counter.set_errors(value));

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    call(|| {
        // SAFETY: a counter of ours, by libfabric's contract.
        let cntr = unsafe { object::<Cntr, _>(cntr)? };
        if cntr.wait_obj == FI_WAIT_NONE {
            return Err(Errno::NO_SYSTEM);
        }
        cntr.ready()?.wait(threshold, deadline(timeout))
    })
}

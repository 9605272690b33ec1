//! Calls that there is nothing behind: libfabric calls through its tables without looking, so each
//! says that it is not supported. `fi_getinfo` offers none of them.

use crate::ffi::{self, fid};
use core::ffi::{c_char, c_int, c_void};
use libc::ssize_t;

/// Defines functions that return an error of a type and look at nothing.
macro_rules! refuse {
    ($result:ty: $($name:ident($($type:ty),*);)*) => {$(
        pub(super) unsafe extern "C" fn $name($(_: $type),*) -> $result {
            -ffi::ENOSYS as $result
        }
    )*};
}

refuse! { c_int:
    bind(*mut fid, *mut fid, u64);
    control(*mut fid, c_int, *mut c_void);
    ops_open(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void);
    passive_ep(*mut ffi::fid_fabric, *mut ffi::fi_info, *mut *mut c_void, *mut c_void);
    wait_open(*mut ffi::fid_fabric, *mut c_void, *mut *mut c_void);
    scalable_ep(*mut ffi::fid_domain, *mut ffi::fi_info, *mut *mut ffi::fid_ep, *mut c_void);
    poll_open(*mut ffi::fid_domain, *mut c_void, *mut *mut c_void);
    stx_ctx(*mut ffi::fid_domain, *mut c_void, *mut *mut c_void, *mut c_void);
    srx_ctx(*mut ffi::fid_domain, *mut c_void, *mut *mut ffi::fid_ep, *mut c_void);
    query_collective(*mut ffi::fid_domain, c_int, *mut c_void, u64);
    av_set(*mut ffi::fid_av, *mut c_void, *mut *mut c_void, *mut c_void);
    endpoint_context(*mut ffi::fid_ep, c_int, *mut c_void, *mut *mut ffi::fid_ep, *mut c_void);
    setname(*mut fid, *mut c_void, usize);
    getpeer(*mut ffi::fid_ep, *mut c_void, *mut usize);
    connect(*mut ffi::fid_ep, *const c_void, *const c_void, usize);
    listen(*mut c_void);
    accept(*mut ffi::fid_ep, *const c_void, usize);
    reject(*mut c_void, *mut fid, *const c_void, usize);
    shutdown(*mut ffi::fid_ep, u64);
    join(*mut ffi::fid_ep, *const c_void, u64, *mut *mut c_void, *mut c_void);
}

refuse! { ssize_t:
    barrier(*mut ffi::fid_ep, u64, *mut c_void);
    broadcast(*mut ffi::fid_ep, *mut c_void, usize, *mut c_void, u64, u64, c_int, u64, *mut c_void);
    exchange(
        *mut ffi::fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64,
        *mut c_void
    );
    reduce_all(
        *mut ffi::fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64,
        *mut c_void
    );
    reduce(
        *mut ffi::fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, c_int,
        u64, *mut c_void
    );
    rooted(
        *mut ffi::fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64,
        *mut c_void
    );
    message(*mut ffi::fid_ep, *const c_void, *mut ffi::fi_ioc, *mut *mut c_void, usize, u64);
    barrier2(*mut ffi::fid_ep, u64, u64, *mut c_void);
}

/// Collective operations of libfabric's own: MPIs bring theirs, and groups are `libdenrei-mpi.so`'s.
pub(super) static COLLECTIVE: ffi::fi_ops_collective = ffi::fi_ops_collective {
    barrier: Some(barrier),
    broadcast: Some(broadcast),
    alltoall: Some(exchange),
    allreduce: Some(reduce_all),
    allgather: Some(exchange),
    reduce_scatter: Some(reduce_all),
    reduce: Some(reduce),
    scatter: Some(rooted),
    gather: Some(rooted),
    msg: Some(message),
    barrier2: Some(barrier2),
    ..ffi::fi_ops_collective::NONE
};

/// What objects without further talents answer.
pub(super) const PLAIN: ffi::fi_ops =
    ffi::fi_ops { bind: Some(bind), control: Some(control), ops_open: Some(ops_open), ..ffi::fi_ops::NONE };

//! Flags, classes and numbers.

use core::ffi::c_int;

pub const fn fi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

// Capabilities and operation flags.
pub const FI_MSG: u64 = 1 << 1;
pub const FI_RMA: u64 = 1 << 2;
pub const FI_TAGGED: u64 = 1 << 3;
pub const FI_ATOMIC: u64 = 1 << 4;
pub const FI_READ: u64 = 1 << 8;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_MULTI_RECV: u64 = 1 << 16;
pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub const FI_MORE: u64 = 1 << 18;
pub const FI_PEEK: u64 = 1 << 19;
pub const FI_COMPLETION: u64 = 1 << 24;
pub const FI_EVENT: u64 = FI_COMPLETION;
pub const FI_INJECT: u64 = 1 << 25;
pub const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub const FI_MATCH_COMPLETE: u64 = 1 << 31;
pub const FI_AFFINITY: u64 = 1 << 29;
pub const FI_RESCAN: u64 = 1 << 35;
pub const FI_LOCAL_COMM: u64 = 1 << 51;
pub const FI_REMOTE_COMM: u64 = 1 << 52;
pub const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
pub const FI_NUMERICHOST: u64 = 1 << 55;
pub const FI_RMA_EVENT: u64 = 1 << 56;
pub const FI_SOURCE: u64 = 1 << 57;
pub const FI_DIRECTED_RECV: u64 = 1 << 59;
/// libfabric's layered providers ask with this flag: they have no business with this one.
pub const OFI_CORE_PROV_ONLY: u64 = 1 << 59;
/// Others of libfabric's own, that say who asks: internal, hidden ones as well, for offloading.
pub const OFI_GETINFO: u64 = (1 << 58) | (1 << 60) | (1 << 61);
pub const FI_CLAIM: u64 = 1 << 59;
pub const FI_DISCARD: u64 = 1 << 58;
pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
pub const FI_FETCH_ATOMIC: u64 = 1 << 58;
pub const FI_COMPARE_ATOMIC: u64 = 1 << 59;
pub const FI_SYNC_ERR: u64 = 1 << 58;
pub const FI_SYMMETRIC: u64 = 1 << 59;

// Mode bits.
pub const FI_CONTEXT: u64 = 1 << 59;

// Ordering.
pub const FI_ORDER_RAR: u64 = 1 << 0;
pub const FI_ORDER_RAW: u64 = 1 << 1;
pub const FI_ORDER_WAW: u64 = 1 << 4;
pub const FI_ORDER_SAS: u64 = 1 << 8;
pub const FI_ORDER_ATOMIC_RAR: u64 = 1 << 36;
pub const FI_ORDER_ATOMIC_RAW: u64 = 1 << 37;
pub const FI_ORDER_ATOMIC_WAR: u64 = 1 << 38;
pub const FI_ORDER_ATOMIC_WAW: u64 = 1 << 39;

pub const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;

// Address formats.
pub const FI_FORMAT_UNSPEC: u32 = 0;
pub const FI_SOCKADDR: u32 = 1;
pub const FI_SOCKADDR_IN: u32 = 2;
pub const FI_SOCKADDR_IN6: u32 = 3;

// Enumerations.
pub const FI_EP_UNSPEC: c_int = 0;
pub const FI_EP_RDM: c_int = 3;
pub const FI_AV_UNSPEC: c_int = 0;
pub const FI_AV_MAP: c_int = 1;
pub const FI_AV_TABLE: c_int = 2;
pub const FI_PROGRESS_UNSPEC: c_int = 0;
pub const FI_PROGRESS_AUTO: c_int = 1;
pub const FI_PROGRESS_MANUAL: c_int = 2;
pub const FI_THREAD_UNSPEC: c_int = 0;
pub const FI_THREAD_SAFE: c_int = 1;
pub const FI_THREAD_ENDPOINT: c_int = 5;
pub const FI_RM_ENABLED: c_int = 2;
pub const FI_MR_UNSPEC: c_int = 0;
pub const FI_MR_BASIC: c_int = 1;
pub const FI_MR_SCALABLE: c_int = 2;
pub const FI_MR_LOCAL: c_int = 1 << 2;
pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub const FI_MR_ALLOCATED: c_int = 1 << 5;
pub const FI_MR_PROV_KEY: c_int = 1 << 6;
/// Beyond libfabric's own numbers, which are below 2^31: vendors may choose.
pub const FI_PROTO_DENREI: u32 = (1 << 31) | 0xd1;

// Object classes.
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;

// Wait objects.
pub const FI_WAIT_NONE: c_int = 0;
pub const FI_WAIT_UNSPEC: c_int = 1;
pub const FI_WAIT_FD: c_int = 3;
pub const FI_WAIT_YIELD: c_int = 5;

// Completion formats.
pub const FI_CQ_FORMAT_UNSPEC: c_int = 0;
pub const FI_CQ_FORMAT_CONTEXT: c_int = 1;
pub const FI_CQ_FORMAT_MSG: c_int = 2;
pub const FI_CQ_FORMAT_DATA: c_int = 3;
pub const FI_CQ_FORMAT_TAGGED: c_int = 4;

// Event queue.
pub const FI_MR_COMPLETE: u32 = 4;
pub const FI_AV_COMPLETE: u32 = 5;

// Control commands.
pub const FI_GETOPSFLAG: c_int = 2;
pub const FI_SETOPSFLAG: c_int = 3;
pub const FI_ALIAS: c_int = 4;
pub const FI_GETWAIT: c_int = 5;
pub const FI_ENABLE: c_int = 6;
pub const FI_REFRESH: c_int = 14;
pub const FI_GETWAITOBJ: c_int = 16;

// Endpoint options.
pub const FI_OPT_ENDPOINT: c_int = 0;
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub const FI_OPT_CM_DATA_SIZE: c_int = 1;

// Errors that `libc` numbers.
pub use libc::{
    EADDRNOTAVAIL, EAGAIN, EBUSY, ECANCELED, ECONNABORTED, ECONNREFUSED, ECONNRESET, EFAULT, EHOSTDOWN,
    EINVAL, EIO, EMSGSIZE, ENODATA, ENOMEM, ENOMSG, ENOPROTOOPT, ENOSPC, ENOSYS, EOPNOTSUPP, ETIMEDOUT,
};
// Errors of libfabric's own.
pub const FI_EOTHER: c_int = 256;
pub const FI_ETOOSMALL: c_int = 257;
pub const FI_EOPBADSTATE: c_int = 258;
pub const FI_EAVAIL: c_int = 259;
pub const FI_EBADFLAGS: c_int = 260;
pub const FI_ENOEQ: c_int = 261;
pub const FI_EDOMAIN: c_int = 262;
pub const FI_ENOCQ: c_int = 263;
pub const FI_ETRUNC: c_int = 265;
pub const FI_ENOKEY: c_int = 266;
pub const FI_ENOAV: c_int = 267;
pub const FI_EOVERRUN: c_int = 268;

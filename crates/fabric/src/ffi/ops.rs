//! Tables of functions: what libfabric's inline calls go through.
//!
//! `size` is how much of a table there is: functions of later versions, which lie behind, are not
//! called. A function that is `None` must not be called either.

use super::*;
use core::ffi::{c_char, c_int, c_void};
use libc::{iovec, ssize_t};

#[repr(C)]
pub struct fi_ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(*mut fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
    pub control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
    pub ops_open:
        Option<unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int>,
    pub tostr: Option<unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int>,
    pub ops_set:
        Option<unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int>,
}

impl fi_ops {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        close: None,
        bind: None,
        control: None,
        ops_open: None,
        tostr: None,
        ops_set: None,
    };
}

#[repr(C)]
pub struct fi_ops_fabric {
    pub size: usize,
    pub domain: Option<
        unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int,
    >,
    pub passive_ep:
        Option<unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut c_void, *mut c_void) -> c_int>,
    pub eq_open: Option<
        unsafe extern "C" fn(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int,
    >,
    pub wait_open: Option<unsafe extern "C" fn(*mut fid_fabric, *mut c_void, *mut *mut c_void) -> c_int>,
    pub trywait: Option<unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int>,
    pub domain2: Option<
        unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int,
    >,
}

impl fi_ops_fabric {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        domain: None,
        passive_ep: None,
        eq_open: None,
        wait_open: None,
        trywait: None,
        domain2: None,
    };
}

#[repr(C)]
pub struct fi_ops_domain {
    pub size: usize,
    pub av_open: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int,
    >,
    pub cq_open: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int,
    >,
    pub endpoint:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int>,
    pub scalable_ep:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int>,
    pub cntr_open: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int,
    >,
    pub poll_open: Option<unsafe extern "C" fn(*mut fid_domain, *mut c_void, *mut *mut c_void) -> c_int>,
    pub stx_ctx:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int>,
    pub srx_ctx:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int>,
    pub query_atomic:
        Option<unsafe extern "C" fn(*mut fid_domain, c_int, c_int, *mut fi_atomic_attr, u64) -> c_int>,
    pub query_collective: Option<unsafe extern "C" fn(*mut fid_domain, c_int, *mut c_void, u64) -> c_int>,
    pub endpoint2: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int,
    >,
}

impl fi_ops_domain {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        av_open: None,
        cq_open: None,
        endpoint: None,
        scalable_ep: None,
        cntr_open: None,
        poll_open: None,
        stx_ctx: None,
        srx_ctx: None,
        query_atomic: None,
        query_collective: None,
        endpoint2: None,
    };
}

#[repr(C)]
pub struct fi_ops_mr {
    pub size: usize,
    pub reg: Option<
        unsafe extern "C" fn(
            *mut fid,
            *const c_void,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut fid_mr,
            *mut c_void,
        ) -> c_int,
    >,
    pub regv: Option<
        unsafe extern "C" fn(
            *mut fid,
            *const iovec,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut fid_mr,
            *mut c_void,
        ) -> c_int,
    >,
    pub regattr: Option<unsafe extern "C" fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int>,
}

impl fi_ops_mr {
    pub const NONE: Self = Self { size: size_of::<Self>(), reg: None, regv: None, regattr: None };
}

#[repr(C)]
pub struct fi_ops_av {
    pub size: usize,
    pub insert:
        Option<unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int>,
    pub insertsvc: Option<
        unsafe extern "C" fn(*mut fid_av, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int,
    >,
    pub insertsym: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            *const c_char,
            usize,
            *const c_char,
            usize,
            *mut u64,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
    pub remove: Option<unsafe extern "C" fn(*mut fid_av, *mut u64, usize, u64) -> c_int>,
    pub lookup: Option<unsafe extern "C" fn(*mut fid_av, u64, *mut c_void, *mut usize) -> c_int>,
    pub straddr:
        Option<unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char>,
    pub av_set:
        Option<unsafe extern "C" fn(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int>,
}

impl fi_ops_av {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        insert: None,
        insertsvc: None,
        insertsym: None,
        remove: None,
        lookup: None,
        straddr: None,
        av_set: None,
    };
}

#[repr(C)]
pub struct fi_ops_cq {
    pub size: usize,
    pub read: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> ssize_t>,
    pub readfrom: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *mut u64) -> ssize_t>,
    pub readerr: Option<unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> ssize_t>,
    pub sread: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> ssize_t>,
    pub sreadfrom: Option<
        unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> ssize_t,
    >,
    pub signal: Option<unsafe extern "C" fn(*mut fid_cq) -> c_int>,
    pub strerror:
        Option<unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char>,
}

impl fi_ops_cq {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        read: None,
        readfrom: None,
        readerr: None,
        sread: None,
        sreadfrom: None,
        signal: None,
        strerror: None,
    };
}

#[repr(C)]
pub struct fi_ops_cntr {
    pub size: usize,
    pub read: Option<unsafe extern "C" fn(*mut fid_cntr) -> u64>,
    pub readerr: Option<unsafe extern "C" fn(*mut fid_cntr) -> u64>,
    pub add: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    pub set: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    pub wait: Option<unsafe extern "C" fn(*mut fid_cntr, u64, c_int) -> c_int>,
    pub adderr: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
    pub seterr: Option<unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int>,
}

impl fi_ops_cntr {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        read: None,
        readerr: None,
        add: None,
        set: None,
        wait: None,
        adderr: None,
        seterr: None,
    };
}

#[repr(C)]
pub struct fi_ops_eq {
    pub size: usize,
    pub read: Option<unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> ssize_t>,
    pub readerr: Option<unsafe extern "C" fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> ssize_t>,
    pub write: Option<unsafe extern "C" fn(*mut fid_eq, u32, *const c_void, usize, u64) -> ssize_t>,
    pub sread: Option<unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> ssize_t>,
    pub strerror:
        Option<unsafe extern "C" fn(*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char>,
}

impl fi_ops_eq {
    pub const NONE: Self =
        Self { size: size_of::<Self>(), read: None, readerr: None, write: None, sread: None, strerror: None };
}

#[repr(C)]
pub struct fi_ops_ep {
    pub size: usize,
    pub cancel: Option<unsafe extern "C" fn(*mut fid, *mut c_void) -> ssize_t>,
    pub getopt: Option<unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int>,
    pub setopt: Option<unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int>,
    pub tx_ctx:
        Option<unsafe extern "C" fn(*mut fid_ep, c_int, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int>,
    pub rx_ctx:
        Option<unsafe extern "C" fn(*mut fid_ep, c_int, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int>,
    pub rx_size_left: Option<unsafe extern "C" fn(*mut fid_ep) -> ssize_t>,
    pub tx_size_left: Option<unsafe extern "C" fn(*mut fid_ep) -> ssize_t>,
}

impl fi_ops_ep {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        cancel: None,
        getopt: None,
        setopt: None,
        tx_ctx: None,
        rx_ctx: None,
        rx_size_left: None,
        tx_size_left: None,
    };
}

#[repr(C)]
pub struct fi_ops_cm {
    pub size: usize,
    pub setname: Option<unsafe extern "C" fn(*mut fid, *mut c_void, usize) -> c_int>,
    pub getname: Option<unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int>,
    pub getpeer: Option<unsafe extern "C" fn(*mut fid_ep, *mut c_void, *mut usize) -> c_int>,
    pub connect: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int>,
    pub listen: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub accept: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize) -> c_int>,
    pub reject: Option<unsafe extern "C" fn(*mut c_void, *mut fid, *const c_void, usize) -> c_int>,
    pub shutdown: Option<unsafe extern "C" fn(*mut fid_ep, u64) -> c_int>,
    pub join:
        Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int>,
}

impl fi_ops_cm {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        setname: None,
        getname: None,
        getpeer: None,
        connect: None,
        listen: None,
        accept: None,
        reject: None,
        shutdown: None,
        join: None,
    };
}

#[repr(C)]
pub struct fi_ops_msg {
    pub size: usize,
    pub recv: Option<
        unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> ssize_t,
    >,
    pub recvv: Option<
        unsafe extern "C" fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> ssize_t,
    >,
    pub recvmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t>,
    pub send: Option<
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, *mut c_void) -> ssize_t,
    >,
    pub sendv: Option<
        unsafe extern "C" fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> ssize_t,
    >,
    pub sendmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t>,
    pub inject: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64) -> ssize_t>,
    pub senddata: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub injectdata: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, u64) -> ssize_t>,
}

impl fi_ops_msg {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        recv: None,
        recvv: None,
        recvmsg: None,
        send: None,
        sendv: None,
        sendmsg: None,
        inject: None,
        senddata: None,
        injectdata: None,
    };
}

#[repr(C)]
pub struct fi_ops_tagged {
    pub size: usize,
    pub recv: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *mut c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub recvv: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub recvmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t>,
    pub send: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub sendv: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub sendmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t>,
    pub inject: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, u64) -> ssize_t>,
    pub senddata: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub injectdata: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, u64, u64) -> ssize_t>,
}

impl fi_ops_tagged {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        recv: None,
        recvv: None,
        recvmsg: None,
        send: None,
        sendv: None,
        sendmsg: None,
        inject: None,
        senddata: None,
        injectdata: None,
    };
}

#[repr(C)]
pub struct fi_ops_rma {
    pub size: usize,
    pub read: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *mut c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub readv: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub readmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t>,
    pub write: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub writev: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub writemsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t>,
    pub inject: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, u64, u64) -> ssize_t>,
    pub writedata: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub injectdata:
        Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, u64, u64, u64) -> ssize_t>,
}

impl fi_ops_rma {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        read: None,
        readv: None,
        readmsg: None,
        write: None,
        writev: None,
        writemsg: None,
        inject: None,
        writedata: None,
        injectdata: None,
    };
}

#[repr(C)]
pub struct fi_ops_atomic {
    pub size: usize,
    pub write: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            c_int,
            c_int,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub writev: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const fi_ioc,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            u64,
            c_int,
            c_int,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub writemsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_atomic, u64) -> ssize_t>,
    pub inject: Option<
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, u64, u64, c_int, c_int) -> ssize_t,
    >,
    pub readwrite: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            *mut c_void,
            *mut c_void,
            u64,
            u64,
            u64,
            c_int,
            c_int,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub readwritev: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const fi_ioc,
            *mut *mut c_void,
            usize,
            *mut fi_ioc,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            u64,
            c_int,
            c_int,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub readwritemsg: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const fi_msg_atomic,
            *mut fi_ioc,
            *mut *mut c_void,
            usize,
            u64,
        ) -> ssize_t,
    >,
    pub compwrite: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const c_void,
            usize,
            *mut c_void,
            *const c_void,
            *mut c_void,
            *mut c_void,
            *mut c_void,
            u64,
            u64,
            u64,
            c_int,
            c_int,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub compwritev: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const fi_ioc,
            *mut *mut c_void,
            usize,
            *const fi_ioc,
            *mut *mut c_void,
            usize,
            *mut fi_ioc,
            *mut *mut c_void,
            usize,
            u64,
            u64,
            u64,
            c_int,
            c_int,
            *mut c_void,
        ) -> ssize_t,
    >,
    pub compwritemsg: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const fi_msg_atomic,
            *const fi_ioc,
            *mut *mut c_void,
            usize,
            *mut fi_ioc,
            *mut *mut c_void,
            usize,
            u64,
        ) -> ssize_t,
    >,
    pub writevalid: Option<unsafe extern "C" fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int>,
    pub readwritevalid: Option<unsafe extern "C" fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int>,
    pub compwritevalid: Option<unsafe extern "C" fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int>,
}

impl fi_ops_atomic {
    pub const NONE: Self = Self {
        size: size_of::<Self>(),
        write: None,
        writev: None,
        writemsg: None,
        inject: None,
        readwrite: None,
        readwritev: None,
        readwritemsg: None,
        compwrite: None,
        compwritev: None,
        compwritemsg: None,
        writevalid: None,
        readwritevalid: None,
        compwritevalid: None,
    };
}

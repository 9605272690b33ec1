//! Tables of functions: what libfabric's inline calls go through.
//!
//! `size` is how much of a table there is: functions of later versions, which lie behind, are not
//! called. A function that is `None` must not be called either.

use super::*;
use core::ffi::{c_char, c_int, c_void};
use libc::{iovec, ssize_t};

/// Defines tables: their names, and of each function its name and type.
macro_rules! tables {
    ($($name:ident { $($function:ident($($argument:ty),*) -> $result:ty;)* })*) => {$(
        #[repr(C)]
        pub struct $name {
            pub size: usize,
            $(pub $function: Option<unsafe extern "C" fn($($argument),*) -> $result>,)*
        }

        impl $name {
            /// Of full size, with nothing in it.
            pub const NONE: Self = Self { size: size_of::<Self>(), $($function: None,)* };
        }
    )*};
}

tables! {
    fi_ops {
        close(*mut fid) -> c_int;
        bind(*mut fid, *mut fid, u64) -> c_int;
        control(*mut fid, c_int, *mut c_void) -> c_int;
        ops_open(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
        tostr(*const fid, *mut c_char, usize) -> c_int;
        ops_set(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
    }

    fi_ops_fabric {
        domain(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int;
        passive_ep(*mut fid_fabric, *mut fi_info, *mut *mut c_void, *mut c_void) -> c_int;
        eq_open(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int;
        wait_open(*mut fid_fabric, *mut c_void, *mut *mut c_void) -> c_int;
        trywait(*mut fid_fabric, *mut *mut fid, c_int) -> c_int;
        domain2(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int;
    }

    fi_ops_domain {
        av_open(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int;
        cq_open(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int;
        endpoint(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
        scalable_ep(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
        cntr_open(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int;
        poll_open(*mut fid_domain, *mut c_void, *mut *mut c_void) -> c_int;
        stx_ctx(*mut fid_domain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
        srx_ctx(*mut fid_domain, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int;
        query_atomic(*mut fid_domain, c_int, c_int, *mut fi_atomic_attr, u64) -> c_int;
        query_collective(*mut fid_domain, c_int, *mut c_void, u64) -> c_int;
        endpoint2(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int;
    }

    fi_ops_mr {
        reg(*mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
        regv(*mut fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
        regattr(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int;
    }

    fi_ops_av {
        insert(*mut fid_av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int;
        insertsvc(*mut fid_av, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int;
        insertsym(
            *mut fid_av, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void
        ) -> c_int;
        remove(*mut fid_av, *mut u64, usize, u64) -> c_int;
        lookup(*mut fid_av, u64, *mut c_void, *mut usize) -> c_int;
        straddr(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char;
        av_set(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
    }

    fi_ops_cq {
        read(*mut fid_cq, *mut c_void, usize) -> ssize_t;
        readfrom(*mut fid_cq, *mut c_void, usize, *mut u64) -> ssize_t;
        readerr(*mut fid_cq, *mut fi_cq_err_entry, u64) -> ssize_t;
        sread(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> ssize_t;
        sreadfrom(*mut fid_cq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> ssize_t;
        signal(*mut fid_cq) -> c_int;
        strerror(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }

    fi_ops_cntr {
        read(*mut fid_cntr) -> u64;
        readerr(*mut fid_cntr) -> u64;
        add(*mut fid_cntr, u64) -> c_int;
        set(*mut fid_cntr, u64) -> c_int;
        wait(*mut fid_cntr, u64, c_int) -> c_int;
        adderr(*mut fid_cntr, u64) -> c_int;
        seterr(*mut fid_cntr, u64) -> c_int;
    }

    fi_ops_eq {
        read(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> ssize_t;
        readerr(*mut fid_eq, *mut fi_eq_err_entry, u64) -> ssize_t;
        write(*mut fid_eq, u32, *const c_void, usize, u64) -> ssize_t;
        sread(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> ssize_t;
        strerror(*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }

    fi_ops_ep {
        cancel(*mut fid, *mut c_void) -> ssize_t;
        getopt(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int;
        setopt(*mut fid, c_int, c_int, *const c_void, usize) -> c_int;
        tx_ctx(*mut fid_ep, c_int, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int;
        rx_ctx(*mut fid_ep, c_int, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int;
        rx_size_left(*mut fid_ep) -> ssize_t;
        tx_size_left(*mut fid_ep) -> ssize_t;
    }

    fi_ops_cm {
        setname(*mut fid, *mut c_void, usize) -> c_int;
        getname(*mut fid, *mut c_void, *mut usize) -> c_int;
        getpeer(*mut fid_ep, *mut c_void, *mut usize) -> c_int;
        connect(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int;
        listen(*mut c_void) -> c_int;
        accept(*mut fid_ep, *const c_void, usize) -> c_int;
        reject(*mut c_void, *mut fid, *const c_void, usize) -> c_int;
        shutdown(*mut fid_ep, u64) -> c_int;
        join(*mut fid_ep, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int;
    }

    fi_ops_msg {
        recv(*mut fid_ep, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> ssize_t;
        recvv(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> ssize_t;
        recvmsg(*mut fid_ep, *const fi_msg, u64) -> ssize_t;
        send(*mut fid_ep, *const c_void, usize, *mut c_void, u64, *mut c_void) -> ssize_t;
        sendv(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> ssize_t;
        sendmsg(*mut fid_ep, *const fi_msg, u64) -> ssize_t;
        inject(*mut fid_ep, *const c_void, usize, u64) -> ssize_t;
        senddata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> ssize_t;
        injectdata(*mut fid_ep, *const c_void, usize, u64, u64) -> ssize_t;
    }

    fi_ops_tagged {
        recv(*mut fid_ep, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> ssize_t;
        recvv(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> ssize_t;
        recvmsg(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t;
        send(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> ssize_t;
        sendv(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, u64, *mut c_void) -> ssize_t;
        sendmsg(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t;
        inject(*mut fid_ep, *const c_void, usize, u64, u64) -> ssize_t;
        senddata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> ssize_t;
        injectdata(*mut fid_ep, *const c_void, usize, u64, u64, u64) -> ssize_t;
    }

    fi_ops_rma {
        read(*mut fid_ep, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> ssize_t;
        readv(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> ssize_t;
        readmsg(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t;
        write(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> ssize_t;
        writev(*mut fid_ep, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> ssize_t;
        writemsg(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t;
        inject(*mut fid_ep, *const c_void, usize, u64, u64, u64) -> ssize_t;
        writedata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, u64, *mut c_void) -> ssize_t;
        injectdata(*mut fid_ep, *const c_void, usize, u64, u64, u64, u64) -> ssize_t;
    }

    fi_ops_atomic {
        write(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void
        ) -> ssize_t;
        writev(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void
        ) -> ssize_t;
        writemsg(*mut fid_ep, *const fi_msg_atomic, u64) -> ssize_t;
        inject(*mut fid_ep, *const c_void, usize, u64, u64, u64, c_int, c_int) -> ssize_t;
        readwrite(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64,
            c_int, c_int, *mut c_void
        ) -> ssize_t;
        readwritev(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize,
            u64, u64, u64, c_int, c_int, *mut c_void
        ) -> ssize_t;
        readwritemsg(*mut fid_ep, *const fi_msg_atomic, *mut fi_ioc, *mut *mut c_void, usize, u64) -> ssize_t;
        compwrite(
            *mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void,
            *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void
        ) -> ssize_t;
        compwritev(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *const fi_ioc, *mut *mut c_void, usize,
            *mut fi_ioc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void
        ) -> ssize_t;
        compwritemsg(
            *mut fid_ep, *const fi_msg_atomic, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc,
            *mut *mut c_void, usize, u64
        ) -> ssize_t;
        writevalid(*mut fid_ep, c_int, c_int, *mut usize) -> c_int;
        readwritevalid(*mut fid_ep, c_int, c_int, *mut usize) -> c_int;
        compwritevalid(*mut fid_ep, c_int, c_int, *mut usize) -> c_int;
    }

    fi_ops_collective {
        barrier(*mut fid_ep, u64, *mut c_void) -> ssize_t;
        broadcast(*mut fid_ep, *mut c_void, usize, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> ssize_t;
        alltoall(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64,
            *mut c_void
        ) -> ssize_t;
        allreduce(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64,
            *mut c_void
        ) -> ssize_t;
        allgather(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64,
            *mut c_void
        ) -> ssize_t;
        reduce_scatter(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64,
            *mut c_void
        ) -> ssize_t;
        reduce(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, c_int,
            u64, *mut c_void
        ) -> ssize_t;
        scatter(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64,
            *mut c_void
        ) -> ssize_t;
        gather(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64,
            *mut c_void
        ) -> ssize_t;
        msg(*mut fid_ep, *const c_void, *mut fi_ioc, *mut *mut c_void, usize, u64) -> ssize_t;
        barrier2(*mut fid_ep, u64, u64, *mut c_void) -> ssize_t;
    }
}

//! Atomic operations on peers' memory.

use super::domain::atomic_kind;
use super::ep::Ep;
use super::getinfo::TX_OP_FLAGS;
use super::{call, check_flags, object};
use crate::engine::atomics;
use crate::engine::header::{AtomicMode, Stretch, Stretches};
use crate::engine::{OneSided, Report};
use crate::error::Errno;
use crate::ffi::*;
use crate::memory::Memory;
use core::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

pub(super) static OPS: fi_ops_atomic = fi_ops_atomic {
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
    ..fi_ops_atomic::NONE
};

/// Vectors of elements.
#[derive(Clone, Copy)]
struct Vectors {
    first: *const fi_ioc,
    count: usize,
}

impl Vectors {
    const NONE: Self = Self { first: core::ptr::null(), count: 0 };

    fn one(ioc: &fi_ioc) -> Self {
        Self { first: ioc, count: 1 }
    }

    /// Their memory; elements have `element` bytes.
    ///
    /// # Safety
    /// They are as many as is said, and what they name is valid as long as an operation's.
    unsafe fn memory(self, element: usize) -> Result<Memory, Errno> {
        if self.count == 0 {
            return Ok(Memory::default());
        }
        if self.first.is_null() || self.count > super::getinfo::IOV_LIMIT {
            return Err(Errno::INVALID);
        }
        // SAFETY: as the caller promises.
        unsafe {
            let vectors = core::slice::from_raw_parts(self.first, self.count);
            let parts = vectors.iter().map(|v| (v.addr.cast::<u8>(), v.count.saturating_mul(element)));
            super::memory_of(parts)
        }
    }
}

/// An atomic operation as libfabric passes it.
struct Atomic {
    operands: Vectors,
    comparands: Vectors,
    result: Vectors,
    to: u64,
    /// In elements.
    there: Vec<(u64, usize, u64)>,
    datatype: c_int,
    op: c_int,
    data: Option<u64>,
    context: *mut c_void,
    flags: u64,
    mode: AtomicMode,
    injected: bool,
}

impl Ep {
    /// # Safety
    /// The vectors are valid, and what they name is as long as an operation's.
    unsafe fn atomic(&self, atomic: Atomic) -> Result<(), Errno> {
        check_flags(atomic.flags, TX_OP_FLAGS)?;
        let (kind, element) = atomic_kind(atomic.datatype, atomic.op, atomic.mode)?;
        let stretch = |&(address, count, key): &(u64, usize, u64)| Stretch {
            address,
            len: count.saturating_mul(element) as u64,
            key,
        };
        let stretches: Stretches = atomic.there.iter().map(stretch).collect();
        let len = stretches.iter().fold(0u64, |sum, stretch| sum.saturating_add(stretch.len));
        // As many elements as there are, from one to what the call for it says (fi_atomic(3)).
        if len == 0 {
            return Err(Errno::INVALID);
        }
        if len > self.inject_bytes as u64 {
            return Err(Errno::TOO_LARGE);
        }
        let mut operands = Vec::new();
        // SAFETY: as the caller promises.
        let result = unsafe {
            if atomics::has_operands(kind) {
                atomic.operands.memory(element)?.append_to(&mut operands);
                atomic.comparands.memory(element)?.append_to(&mut operands);
            }
            atomic.result.memory(element)?
        };
        let expected = match (atomics::has_operands(kind), atomic.mode) {
            (false, _) => 0,
            (true, AtomicMode::Compare) => 2 * len,
            (true, _) => len,
        };
        if operands.len() as u64 != expected
            || (atomic.mode != AtomicMode::Write && result.len() as u64 != len)
        {
            return Err(Errno::INVALID);
        }
        let direction = if atomic.mode == AtomicMode::Write { FI_WRITE } else { FI_READ };
        let report = if atomic.injected {
            Report { context: 0, flags: FI_ATOMIC | direction, wanted: false }
        } else {
            self.report(atomic.context, FI_ATOMIC | direction, atomic.flags)
        };
        let wanted = OneSided { to: atomic.to, stretches, data: atomic.data, report };
        let result = (atomic.mode != AtomicMode::Write).then_some(result);
        self.one_sided(|engine| engine.atomic(wanted, kind, &operands, result))
    }
}

/// # Safety
/// The message's remote vectors are as many as it says.
unsafe fn of_message(
    msg: *const fi_msg_atomic,
    comparands: Vectors,
    result: Vectors,
    flags: u64,
    mode: AtomicMode,
) -> Result<Atomic, Errno> {
    // SAFETY: as the caller promises.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::INVALID)?;
    if msg.rma_iov.is_null() || msg.rma_iov_count > super::getinfo::RMA_IOV_LIMIT {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    let there = unsafe { core::slice::from_raw_parts(msg.rma_iov, msg.rma_iov_count) };
    Ok(Atomic {
        operands: Vectors { first: msg.msg_iov, count: msg.iov_count },
        comparands,
        result,
        to: msg.addr,
        there: there.iter().map(|ioc| (ioc.addr, ioc.count, ioc.key)).collect(),
        datatype: msg.datatype,
        op: msg.op,
        data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data),
        context: msg.context,
        flags,
        mode,
        injected: false,
    })
}

/// Where at which peer, and what to do there.
struct There {
    to: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
}

impl Ep {
    /// Begins an operation with as many elements there as here.
    ///
    /// # Safety
    /// As for [`atomic`](Self::atomic).
    unsafe fn begin_atomic(
        &self,
        there: There,
        vectors: [Vectors; 3],
        mode: AtomicMode,
        context: *mut c_void,
        injected: bool,
    ) -> Result<(), Errno> {
        let [operands, comparands, result] = vectors;
        // Those of the result, where an operation has no operands.
        let counted = if mode == AtomicMode::Write { operands } else { result };
        if counted.first.is_null() || counted.count > super::getinfo::IOV_LIMIT {
            return Err(Errno::INVALID);
        }
        // SAFETY: as the caller promises.
        let counted = unsafe { core::slice::from_raw_parts(counted.first, counted.count) };
        let count = counted.iter().fold(0usize, |sum, ioc| sum.saturating_add(ioc.count));
        let There { to, address, key, datatype, op } = there;
        let (there, flags) = (vec![(address, count, key)], self.tx_flags.load(Ordering::Relaxed));
        let data = None;
        // SAFETY: as the caller promises.
        unsafe {
            self.atomic(Atomic {
                operands,
                comparands,
                result,
                to,
                there,
                datatype,
                op,
                data,
                context,
                flags,
                mode,
                injected,
            })
        }
    }

    /// How many elements an operation has at most.
    fn most_elements(&self, datatype: c_int, op: c_int, mode: AtomicMode) -> Result<usize, Errno> {
        let (_, element) = atomic_kind(datatype, op, mode)?;
        Ok(self.inject_bytes / element)
    }
}

fn vector(buf: *const c_void, count: usize) -> fi_ioc {
    fi_ioc { addr: buf.cast_mut(), count }
}

// SAFETY of all that follows: libfabric's contract. Endpoints are ours, vectors as many as is said,
// and buffers valid until the operation is reported.

calls! {
    fn write(
        ep, buf: *const c_void, count: usize, _desc: *mut c_void, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void
    ) {
        let operands = vector(buf, count);
        let vectors = [Vectors::one(&operands), Vectors::NONE, Vectors::NONE];
        ep.begin_atomic(There { to, address, key, datatype, op }, vectors, AtomicMode::Write, context, false)
    }
    fn writev(
        ep, iov: *const fi_ioc, _desc: *mut *mut c_void, count: usize, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void
    ) {
        let vectors = [Vectors { first: iov, count }, Vectors::NONE, Vectors::NONE];
        ep.begin_atomic(There { to, address, key, datatype, op }, vectors, AtomicMode::Write, context, false)
    }
    fn writemsg(ep, msg: *const fi_msg_atomic, flags: u64) {
        ep.atomic(of_message(msg, Vectors::NONE, Vectors::NONE, flags, AtomicMode::Write)?)
    }
    fn inject(
        ep, buf: *const c_void, count: usize, to: u64, address: u64, key: u64, datatype: c_int, op: c_int
    ) {
        let operands = vector(buf, count);
        let vectors = [Vectors::one(&operands), Vectors::NONE, Vectors::NONE];
        let there = There { to, address, key, datatype, op };
        ep.begin_atomic(there, vectors, AtomicMode::Write, core::ptr::null_mut(), true)
    }
    fn readwrite(
        ep, buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void,
        _result_desc: *mut c_void, to: u64, address: u64, key: u64, datatype: c_int, op: c_int,
        context: *mut c_void
    ) {
        let (operands, result) = (vector(buf, count), vector(result, count));
        let vectors = [Vectors::one(&operands), Vectors::NONE, Vectors::one(&result)];
        ep.begin_atomic(There { to, address, key, datatype, op }, vectors, AtomicMode::Fetch, context, false)
    }
    fn readwritev(
        ep, iov: *const fi_ioc, _desc: *mut *mut c_void, count: usize, result: *mut fi_ioc,
        _result_desc: *mut *mut c_void, result_count: usize, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void
    ) {
        let result = Vectors { first: result, count: result_count };
        let vectors = [Vectors { first: iov, count }, Vectors::NONE, result];
        ep.begin_atomic(There { to, address, key, datatype, op }, vectors, AtomicMode::Fetch, context, false)
    }
    fn readwritemsg(
        ep, msg: *const fi_msg_atomic, result: *mut fi_ioc, _desc: *mut *mut c_void, result_count: usize,
        flags: u64
    ) {
        let result = Vectors { first: result, count: result_count };
        ep.atomic(of_message(msg, Vectors::NONE, result, flags, AtomicMode::Fetch)?)
    }
    fn compwrite(
        ep, buf: *const c_void, count: usize, _desc: *mut c_void, compare: *const c_void,
        _compare_desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, to: u64, address: u64,
        key: u64, datatype: c_int, op: c_int, context: *mut c_void
    ) {
        let [operands, comparands, result] = [buf, compare, result.cast_const()].map(|buf| vector(buf, count));
        let vectors = [Vectors::one(&operands), Vectors::one(&comparands), Vectors::one(&result)];
        ep.begin_atomic(There { to, address, key, datatype, op }, vectors, AtomicMode::Compare, context, false)
    }
    fn compwritev(
        ep, iov: *const fi_ioc, _desc: *mut *mut c_void, count: usize, compare: *const fi_ioc,
        _compare_desc: *mut *mut c_void, compare_count: usize, result: *mut fi_ioc,
        _result_desc: *mut *mut c_void, result_count: usize, to: u64, address: u64, key: u64,
        datatype: c_int, op: c_int, context: *mut c_void
    ) {
        let comparands = Vectors { first: compare, count: compare_count };
        let result = Vectors { first: result, count: result_count };
        let vectors = [Vectors { first: iov, count }, comparands, result];
        ep.begin_atomic(There { to, address, key, datatype, op }, vectors, AtomicMode::Compare, context, false)
    }
    fn compwritemsg(
        ep, msg: *const fi_msg_atomic, compare: *const fi_ioc, _compare_desc: *mut *mut c_void,
        compare_count: usize, result: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize,
        flags: u64
    ) {
        let comparands = Vectors { first: compare, count: compare_count };
        let result = Vectors { first: result, count: result_count };
        ep.atomic(of_message(msg, comparands, result, flags, AtomicMode::Compare)?)
    }
}

/// Defines the calls that ask how many elements an operation has at most.
macro_rules! valid {
    ($($name:ident => $mode:expr),*) => {$(
        unsafe extern "C" fn $name(ep: *mut fid_ep, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
            // SAFETY: libfabric's contract, as said before the calls.
            call(|| unsafe {
                let most = object::<Ep, _>(ep)?.most_elements(datatype, op, $mode)?;
                *count.as_mut().ok_or(Errno::INVALID)? = most;
                Ok(())
            })
        }
    )*};
}

valid!(writevalid => AtomicMode::Write, readwritevalid => AtomicMode::Fetch, compwritevalid => AtomicMode::Compare);

//! Reading and writing peers' memory.

use super::ep::Ep;
use super::getinfo::TX_OP_FLAGS;
use super::{buffer, bytes, check_flags, memory};
use crate::engine::header::{Stretch, Stretches};
use crate::engine::{Engine, OneSided, Payload, Report};
use crate::error::Errno;
use crate::ffi::*;
use crate::memory::Memory;
use core::ffi::c_void;
use libc::iovec;
use std::sync::atomic::Ordering;

pub(super) static OPS: fi_ops_rma = fi_ops_rma {
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
    ..fi_ops_rma::NONE
};

/// Where at which peer.
struct There {
    to: u64,
    stretches: Stretches,
    data: Option<u64>,
}

impl There {
    fn at(to: u64, address: u64, len: usize, key: u64, data: Option<u64>) -> Self {
        Self { to, stretches: [Stretch { address, len: len as u64, key }].into_iter().collect(), data }
    }

    /// # Safety
    /// The message's remote vectors are as many as it says.
    unsafe fn of(msg: &fi_msg_rma, data: Option<u64>) -> Result<Self, Errno> {
        if msg.rma_iov.is_null() || msg.rma_iov_count > super::getinfo::RMA_IOV_LIMIT {
            return Err(Errno::INVALID);
        }
        // SAFETY: as the caller promises.
        let vectors = unsafe { core::slice::from_raw_parts(msg.rma_iov, msg.rma_iov_count) };
        let stretch = |v: &fi_rma_iov| Stretch { address: v.addr, len: v.len as u64, key: v.key };
        Ok(Self { to: msg.addr, stretches: vectors.iter().map(stretch).collect(), data })
    }
}

impl Ep {
    /// Begins a one-sided operation; asked to try again, it lets what is under way go on.
    pub(super) fn one_sided(
        &self,
        begin: impl FnOnce(&mut Engine) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let endpoint = self.ready()?;
        let mut engine = endpoint.engine();
        begin(&mut engine).inspect_err(|errno| {
            if *errno == Errno::AGAIN {
                engine.progress();
            }
        })?;
        let waits = engine.has_deferred();
        drop(engine);
        if waits {
            endpoint.deferred();
        }
        Ok(())
    }

    fn write_there(
        &self,
        there: There,
        posted: Memory,
        context: *mut c_void,
        flags: u64,
    ) -> Result<(), Errno> {
        check_flags(flags, TX_OP_FLAGS)?;
        let There { to, stretches, data } = there;
        let report = self.report(context, FI_RMA | FI_WRITE, flags);
        let wanted = OneSided { to, stretches, data, report };
        if flags & FI_INJECT == 0 {
            return self.one_sided(|engine| engine.write(wanted, Payload::Posted(posted)));
        }
        if posted.len() > self.inject_bytes {
            return Err(Errno::TOO_LARGE);
        }
        let copied = posted.into_bytes();
        self.one_sided(|engine| engine.write(wanted, Payload::Copied(&copied)))
    }

    fn inject_there(&self, there: There, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.len() > self.inject_bytes {
            return Err(Errno::TOO_LARGE);
        }
        let There { to, stretches, data } = there;
        let report = Report { context: 0, flags: FI_RMA | FI_WRITE, wanted: false };
        self.one_sided(|engine| {
            engine.write(OneSided { to, stretches, data, report }, Payload::Copied(bytes))
        })
    }

    fn read_there(
        &self,
        there: There,
        posted: Memory,
        context: *mut c_void,
        flags: u64,
    ) -> Result<(), Errno> {
        check_flags(flags, TX_OP_FLAGS)?;
        let There { to, stretches, .. } = there;
        let report = self.report(context, FI_RMA | FI_READ, flags);
        self.one_sided(|engine| engine.read(OneSided { to, stretches, data: None, report }, posted))
    }

    fn default_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }
}

// SAFETY of all that follows: libfabric's contract. Endpoints are ours, buffers as long as is said,
// and valid until the operation is reported.

calls! {
    fn read(
        ep, buf: *mut c_void, len: usize, _desc: *mut c_void, from: u64, address: u64, key: u64,
        context: *mut c_void
    ) {
        let there = There::at(from, address, len, key, None);
        ep.read_there(there, buffer(buf, len)?, context, ep.default_flags())
    }
    fn readv(
        ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, from: u64, address: u64, key: u64,
        context: *mut c_void
    ) {
        let memory = memory(iov, count)?;
        let there = There::at(from, address, memory.len(), key, None);
        ep.read_there(there, memory, context, ep.default_flags())
    }
    fn readmsg(ep, msg: *const fi_msg_rma, flags: u64) {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        ep.read_there(There::of(msg, None)?, memory(msg.msg_iov, msg.iov_count)?, msg.context, flags)
    }
    fn write(
        ep, buf: *const c_void, len: usize, _desc: *mut c_void, to: u64, address: u64, key: u64,
        context: *mut c_void
    ) {
        let there = There::at(to, address, len, key, None);
        ep.write_there(there, buffer(buf, len)?, context, ep.default_flags())
    }
    fn writev(
        ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64, address: u64, key: u64,
        context: *mut c_void
    ) {
        let memory = memory(iov, count)?;
        let there = There::at(to, address, memory.len(), key, None);
        ep.write_there(there, memory, context, ep.default_flags())
    }
    fn writemsg(ep, msg: *const fi_msg_rma, flags: u64) {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        ep.write_there(There::of(msg, data)?, memory(msg.msg_iov, msg.iov_count)?, msg.context, flags)
    }
    fn inject(ep, buf: *const c_void, len: usize, to: u64, address: u64, key: u64) {
        ep.inject_there(There::at(to, address, len, key, None), bytes(buf, len)?)
    }
    fn writedata(
        ep, buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64, address: u64,
        key: u64, context: *mut c_void
    ) {
        let there = There::at(to, address, len, key, Some(data));
        ep.write_there(there, buffer(buf, len)?, context, ep.default_flags())
    }
    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64, address: u64, key: u64) {
        ep.inject_there(There::at(to, address, len, key, Some(data)), bytes(buf, len)?)
    }
}

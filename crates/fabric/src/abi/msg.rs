//! Sending and receiving messages, tagged and not.

use super::ep::Ep;
use super::getinfo::{RX_OP_FLAGS, TX_OP_FLAGS};
use super::{buffer, bytes, check_flags, memory};
use crate::engine::{Payload, Receive, Send, Take, Until};
use crate::error::Errno;
use crate::ffi::*;
use crate::memory::Memory;
use core::ffi::c_void;
use libc::iovec;
use std::sync::atomic::Ordering;

pub(super) static MSG_OPS: fi_ops_msg = fi_ops_msg {
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
    ..fi_ops_msg::NONE
};
pub(super) static TAGGED_OPS: fi_ops_tagged = fi_ops_tagged {
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
    ..fi_ops_tagged::NONE
};

/// What a receive may be told.
const RECEIVE_FLAGS: u64 = RX_OP_FLAGS | FI_PEEK | FI_CLAIM | FI_DISCARD | FI_TRANSMIT_COMPLETE;

/// To whom, and as what.
#[derive(Clone, Copy)]
struct Envelope {
    to: u64,
    tag: Option<u64>,
    data: Option<u64>,
}

impl Ep {
    fn send_message(
        &self,
        envelope: Envelope,
        posted: Memory,
        context: *mut c_void,
        flags: u64,
    ) -> Result<(), Errno> {
        check_flags(flags, TX_OP_FLAGS | FI_MATCH_COMPLETE)?;
        let Envelope { to, tag, data } = envelope;
        let copied;
        let payload = if flags & FI_INJECT != 0 {
            if posted.len() > self.inject_bytes {
                return Err(Errno::TOO_LARGE);
            }
            copied = posted.into_bytes();
            Payload::Copied(&copied)
        } else {
            Payload::Posted(posted)
        };
        let kind = FI_SEND | if tag.is_some() { FI_TAGGED } else { FI_MSG };
        let report = Some(self.report(context, kind, flags));
        let until = match flags {
            _ if flags & FI_MATCH_COMPLETE != 0 => Until::Matched,
            // Either is said by the peer's acknowledgement.
            _ if flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE) != 0 => Until::Delivered,
            _ => Until::Free,
        };
        self.begin(Send { to, tag, data, payload, report, until })
    }

    fn inject_message(&self, envelope: Envelope, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.len() > self.inject_bytes {
            return Err(Errno::TOO_LARGE);
        }
        let Envelope { to, tag, data } = envelope;
        let kind = FI_SEND | if tag.is_some() { FI_TAGGED } else { FI_MSG };
        let report = Some(crate::engine::Report { context: 0, flags: kind, wanted: false });
        self.begin(Send { to, tag, data, payload: Payload::Copied(bytes), report, until: Until::Free })
    }

    fn begin(&self, send: Send<'_>) -> Result<(), Errno> {
        let endpoint = self.ready()?;
        let mut engine = endpoint.engine();
        match engine.send(send) {
            Ok(true) => {
                drop(engine);
                endpoint.deferred();
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(errno) => {
                // Whoever tries again at once must not wait for ever.
                if errno == Errno::AGAIN {
                    engine.progress();
                }
                Err(errno)
            }
        }
    }

    fn receive_message(
        &self,
        tag: Option<(u64, u64)>,
        from: u64,
        memory: Memory,
        context: *mut c_void,
        flags: u64,
    ) -> Result<(), Errno> {
        check_flags(flags, RECEIVE_FLAGS)?;
        let looks = flags & (FI_PEEK | FI_CLAIM) != 0;
        if (flags & FI_DISCARD != 0 && !looks) || (flags & FI_MULTI_RECV != 0 && looks) {
            return Err(Errno::BAD_FLAGS);
        }
        let tagged = tag.is_some();
        let (tag, ignore) = tag.unwrap_or((0, u64::MAX));
        let mut engine = self.ready()?.engine();
        let multi =
            (flags & FI_MULTI_RECV != 0 && !tagged).then(|| self.min_multi_recv.load(Ordering::Relaxed));
        let receive =
            Receive { memory, context: context as usize, wanted: self.reports_receive(flags), multi };
        if flags & FI_CLAIM != 0 && flags & FI_PEEK == 0 {
            return match flags & FI_DISCARD {
                0 => engine.receive_claimed(tagged, receive),
                _ => {
                    let anything = engine.pattern(FI_ADDR_UNSPEC, 0, u64::MAX)?;
                    engine.look(tagged, &anything, Take::Discard, context as usize)
                }
            };
        }
        // Without that capability the source is nothing that a caller has to set.
        let from = if self.caps & FI_DIRECTED_RECV != 0 { from } else { FI_ADDR_UNSPEC };
        let pattern = engine.pattern(from, tag, ignore)?;
        if flags & FI_PEEK == 0 {
            return engine.receive(tagged, pattern, receive);
        }
        let take = match (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0) {
            (_, true) => Take::PeekAndDiscard,
            (true, false) => Take::PeekAndClaim,
            (false, false) => Take::Peek,
        };
        let mut looked = engine.look(tagged, &pattern, take, context as usize);
        if looked == Err(Errno::NO_MESSAGE) {
            engine.progress();
            looked = engine.look(tagged, &pattern, take, context as usize);
        }
        // Not all programs take it as the call's result (fi_tagged(3) has it as a completion).
        if let Err(errno) = looked {
            engine.found_nothing(tagged, tag, context as usize, errno);
        }
        Ok(())
    }

    fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }
}

/// Remote completion data, if the flags say that there is some.
fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & FI_REMOTE_CQ_DATA != 0).then_some(data)
}

// SAFETY of all that follows: libfabric's contract. Endpoints are ours, buffers as long as is said,
// and valid until the operation is reported.

calls! {
    fn recv(ep, buf: *mut c_void, len: usize, _desc: *mut c_void, from: u64, context: *mut c_void) {
        ep.receive_message(None, from, buffer(buf, len)?, context, ep.rx_flags())
    }
    fn recvv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, from: u64, context: *mut c_void) {
        ep.receive_message(None, from, memory(iov, count)?, context, ep.rx_flags())
    }
    fn recvmsg(ep, msg: *const fi_msg, flags: u64) {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        ep.receive_message(None, msg.addr, memory(msg.msg_iov, msg.iov_count)?, msg.context, flags)
    }
    fn send(ep, buf: *const c_void, len: usize, _desc: *mut c_void, to: u64, context: *mut c_void) {
        ep.send_message(Envelope { to, tag: None, data: None }, buffer(buf, len)?, context, ep.tx_flags())
    }
    fn sendv(ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64, context: *mut c_void) {
        ep.send_message(Envelope { to, tag: None, data: None }, memory(iov, count)?, context, ep.tx_flags())
    }
    fn sendmsg(ep, msg: *const fi_msg, flags: u64) {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        let envelope = Envelope { to: msg.addr, tag: None, data: data_of(flags, msg.data) };
        ep.send_message(envelope, memory(msg.msg_iov, msg.iov_count)?, msg.context, flags)
    }
    fn inject(ep, buf: *const c_void, len: usize, to: u64) {
        ep.inject_message(Envelope { to, tag: None, data: None }, bytes(buf, len)?)
    }
    fn senddata(
        ep, buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64, context: *mut c_void
    ) {
        let envelope = Envelope { to, tag: None, data: Some(data) };
        ep.send_message(envelope, buffer(buf, len)?, context, ep.tx_flags())
    }
    fn injectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64) {
        ep.inject_message(Envelope { to, tag: None, data: Some(data) }, bytes(buf, len)?)
    }
    fn trecv(
        ep, buf: *mut c_void, len: usize, _desc: *mut c_void, from: u64, tag: u64, ignore: u64,
        context: *mut c_void
    ) {
        ep.receive_message(Some((tag, ignore)), from, buffer(buf, len)?, context, ep.rx_flags())
    }
    fn trecvv(
        ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, from: u64, tag: u64, ignore: u64,
        context: *mut c_void
    ) {
        ep.receive_message(Some((tag, ignore)), from, memory(iov, count)?, context, ep.rx_flags())
    }
    fn trecvmsg(ep, msg: *const fi_msg_tagged, flags: u64) {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        check_flags(flags, RECEIVE_FLAGS & !FI_MULTI_RECV)?;
        let tag = Some((msg.tag, msg.ignore));
        // Who only looks needs no buffer.
        let posted = if flags & (FI_PEEK | FI_DISCARD) != 0 {
            Memory::default()
        } else {
            memory(msg.msg_iov, msg.iov_count)?
        };
        ep.receive_message(tag, msg.addr, posted, msg.context, flags)
    }
    fn tsend(
        ep, buf: *const c_void, len: usize, _desc: *mut c_void, to: u64, tag: u64, context: *mut c_void
    ) {
        ep.send_message(Envelope { to, tag: Some(tag), data: None }, buffer(buf, len)?, context, ep.tx_flags())
    }
    fn tsendv(
        ep, iov: *const iovec, _desc: *mut *mut c_void, count: usize, to: u64, tag: u64,
        context: *mut c_void
    ) {
        ep.send_message(
            Envelope { to, tag: Some(tag), data: None },
            memory(iov, count)?,
            context,
            ep.tx_flags(),
        )
    }
    fn tsendmsg(ep, msg: *const fi_msg_tagged, flags: u64) {
        let msg = msg.as_ref().ok_or(Errno::INVALID)?;
        let envelope = Envelope { to: msg.addr, tag: Some(msg.tag), data: data_of(flags, msg.data) };
        ep.send_message(envelope, memory(msg.msg_iov, msg.iov_count)?, msg.context, flags)
    }
    fn tinject(ep, buf: *const c_void, len: usize, to: u64, tag: u64) {
        ep.inject_message(Envelope { to, tag: Some(tag), data: None }, bytes(buf, len)?)
    }
    fn tsenddata(
        ep, buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, to: u64, tag: u64,
        context: *mut c_void
    ) {
        let envelope = Envelope { to, tag: Some(tag), data: Some(data) };
        ep.send_message(envelope, buffer(buf, len)?, context, ep.tx_flags())
    }
    fn tinjectdata(ep, buf: *const c_void, len: usize, data: u64, to: u64, tag: u64) {
        let envelope = Envelope { to, tag: Some(tag), data: Some(data) };
        ep.inject_message(envelope, bytes(buf, len)?)
    }
}

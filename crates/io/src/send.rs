//! Sending: one system call per transmit where the host allows it.
//!
//! Inputs → outputs: [`Transmit`] + [`TransmitBuf`] → [`SendOutcome`]. A train goes out by
//! `UDP_SEGMENT`; where the path refuses that, segment by segment (by one `sendmmsg`), at once, so
//! that nothing is lost by finding out. A refused datagram is a lost datagram, never an error.
//!
//! The kernel reports an ICMP message about an earlier datagram by failing the next call on a
//! connected socket; such a call is repeated once.

use crate::outcome::{DropKind, Flushed, SendOutcome, may_be_missing_gso, may_be_pending};
use crate::pieces::{cursor, recycle};
use crate::plain::{self, canonical, mapped};
use crate::queue::SendQueue;
use crate::socket::UdpSocket;
use denrei_wire::datagram::{MAX_DATAGRAM_BYTES, MAX_SEGMENTS};
use denrei_wire::{Ecn, Transmit, TransmitBuf};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};

/// Single datagrams up to this size are copied together and go by `send`/`sendto`: that is cheaper
/// than the message header and the list of stretches that `sendmsg` has the kernel copy.
const COPY_UP_TO_BYTES: usize = 2_048;
/// Paths remembered as refusing offload; with more, offload is switched off for all.
const MAX_GSO_DISABLED_PATHS: usize = 32;

/// One system call about to be made, as a [`SendHook`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendAttempt {
    /// Target (of the first datagram, when several are flushed from the queue).
    pub to: SocketAddr,
    /// Datagrams in this call.
    pub datagrams: usize,
    /// Whether the kernel is asked to cut the train (`UDP_SEGMENT`).
    pub offload: bool,
}

/// Decides for each send call whether to fail it: `Some(errno)` is what the kernel is taken to have
/// said, and no call is made. For tests of how a program copes with hosts that refuse.
pub type SendHook = Box<dyn FnMut(&SendAttempt) -> Option<i32> + Send>;

/// On which paths segmentation offload works.
#[derive(Debug)]
pub(crate) struct GsoPaths {
    enabled: bool,
    off: Vec<IpAddr>,
}

impl GsoPaths {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, off: Vec::new() }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn disabled_paths(&self) -> usize {
        self.off.len()
    }

    fn works_to(&self, ip: IpAddr) -> bool {
        self.enabled && !self.off.contains(&ip)
    }

    /// Switches offload off for `ip`, or for all once the table is full.
    fn disable(&mut self, ip: IpAddr) {
        if self.off.len() < MAX_GSO_DISABLED_PATHS {
            self.off.push(ip);
        } else {
            self.enabled = false;
        }
    }
}

/// Where a transmit goes, worked out once.
struct Target {
    lane: usize,
    to: SocketAddr,
    /// Address in the socket's family; `None` on a connected lane.
    name: Option<SocketAddr>,
    /// ECN codepoint, if it is not the socket's constant.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // the portable backend sends the constant
    ecn: Option<Ecn>,
}

/// Consecutive bytes of a transmit that one call can send.
#[derive(Clone, Copy)]
struct Chunk {
    start: usize,
    len: usize,
    /// Bytes per datagram.
    segment: usize,
}

impl Chunk {
    fn datagrams(self) -> usize {
        self.len.div_ceil(self.segment).max(1)
    }
}

/// Why a chunk was not sent to its end.
struct Stop {
    /// Bytes of the chunk that were sent.
    sent: usize,
    error: io::Error,
}

impl UdpSocket {
    /// Sends one transmit. Never blocks; see [`SendOutcome`].
    pub fn send(&mut self, transmit: &Transmit, buf: &TransmitBuf) -> SendOutcome {
        self.send_from(transmit, buf, 0)
    }

    /// Sends one transmit from byte `skip` on, which [`SendOutcome::WouldBlock`] named. What is in
    /// the queue goes first.
    pub fn send_from(&mut self, transmit: &Transmit, buf: &TransmitBuf, skip: usize) -> SendOutcome {
        debug_assert_eq!(transmit.len, buf.len(), "a buffer holds exactly one transmit");
        if !self.queue.is_empty() && self.flush().waiting > 0 {
            return SendOutcome::WouldBlock { sent: skip };
        }
        let target = self.target(transmit);
        if transmit.len <= COPY_UP_TO_BYTES && transmit.segments() == 1 && target.ecn.is_none() {
            return self.send_small(&target, buf);
        }
        let mut slices = recycle(std::mem::take(&mut self.slices));
        let outcome = self.send_train(&target, transmit, buf, skip, &mut slices);
        self.slices = recycle(slices);
        outcome
    }

    /// Queues a copy of a small transmit, to be sent with others by one call, in order. Flushes by
    /// itself when the queue is full; what is too large for it is sent at once. `Sent` means taken
    /// over, `WouldBlock` that nothing was taken over.
    pub fn queue(&mut self, transmit: &Transmit, buf: &TransmitBuf) -> SendOutcome {
        if !SendQueue::can_ever_fit(transmit) {
            return self.send(transmit, buf);
        }
        if !self.queue.fits(transmit) && self.flush().waiting > 0 && !self.queue.fits(transmit) {
            return SendOutcome::WouldBlock { sent: 0 };
        }
        let name = mapped(transmit.to, self.local.is_ipv6()).into();
        self.queue.push(transmit, buf, &name);
        SendOutcome::Sent
    }

    /// Sends what is queued. Targets that the host refuses cost the others nothing.
    pub fn flush(&mut self) -> Flushed {
        let mut flushed = Flushed::default();
        // Every round takes at least one datagram off the bounded queue, or ends the loop.
        while !self.queue.is_empty() {
            match self.send_queued() {
                Ok(count) => {
                    flushed.sent += count;
                    self.queue.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    flushed.waiting = self.queue.waiting().len();
                    break;
                }
                Err(_) => {
                    flushed.dropped += 1;
                    self.counters.send_dropped += 1;
                    self.queue.advance(1);
                }
            }
        }
        flushed
    }

    /// Sets or removes the hook that may fail send calls.
    pub fn set_send_hook(&mut self, hook: Option<SendHook>) {
        self.hook = hook;
    }

    /// Whether trains to `peer` go out in one call.
    pub fn gso_to(&self, peer: SocketAddr) -> bool {
        self.gso.works_to(canonical(peer).ip())
    }

    /// Sends one small datagram: the path of every ping-pong.
    fn send_small(&mut self, target: &Target, buf: &TransmitBuf) -> SendOutcome {
        let mut pieces = buf.pieces();
        let attempt = SendAttempt { to: target.to, datagrams: 1, offload: false };
        let result = if pieces.len() <= 1 {
            let datagram = pieces.next().unwrap_or_default();
            self.attempt(target.lane, attempt, |socket| {
                plain::send(&socket.lanes[target.lane].socket, target.name, datagram)
            })
        } else {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            pieces.for_each(|piece| scratch.extend_from_slice(piece));
            let result = self.attempt(target.lane, attempt, |socket| {
                plain::send(&socket.lanes[target.lane].socket, target.name, &scratch)
            });
            self.scratch = scratch;
            result
        };
        match result {
            Ok(bytes) => {
                self.count_sent(1, bytes);
                SendOutcome::Sent
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::WouldBlock { sent: 0 },
            Err(error) => {
                self.counters.send_dropped += 1;
                SendOutcome::Dropped { kind: DropKind::of(&error) }
            }
        }
    }

    fn send_train<'a>(
        &mut self,
        target: &Target,
        transmit: &Transmit,
        buf: &'a TransmitBuf,
        skip: usize,
        slices: &mut Vec<IoSlice<'a>>,
    ) -> SendOutcome {
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        let most = segment * (MAX_DATAGRAM_BYTES / segment).clamp(1, MAX_SEGMENTS);
        let mut sent = skip;
        // A chunk is at least one datagram, so there are at most as many rounds as datagrams.
        loop {
            let chunk = Chunk { start: sent, len: (transmit.len - sent).min(most), segment };
            if let Err(stop) = self.send_chunk(target, buf, chunk, slices) {
                sent += stop.sent;
                if stop.error.kind() == io::ErrorKind::WouldBlock {
                    return SendOutcome::WouldBlock { sent };
                }
                self.counters.send_dropped += ((transmit.len - sent).div_ceil(segment)).max(1) as u64;
                return SendOutcome::Dropped { kind: DropKind::of(&stop.error) };
            }
            sent += chunk.len;
            if sent >= transmit.len {
                return SendOutcome::Sent;
            }
        }
    }

    fn target(&self, transmit: &Transmit) -> Target {
        let connected = |lane: &crate::lanes::Lane| lane.peer == Some(transmit.to);
        let lane = self.lanes[1..].iter().position(connected).map_or(0, |index| index + 1);
        let name = (lane == 0).then(|| mapped(transmit.to, self.local.is_ipv6()));
        Target { lane, to: transmit.to, name, ecn: self.unusual_ecn(transmit.ecn) }
    }

    /// `ecn` if it has to be told with each datagram.
    fn unusual_ecn(&self, ecn: Ecn) -> Option<Ecn> {
        (self.config.ecn && ecn != Ecn::Ect0).then_some(ecn)
    }

    fn send_chunk<'a>(
        &mut self,
        target: &Target,
        buf: &'a TransmitBuf,
        chunk: Chunk,
        slices: &mut Vec<IoSlice<'a>>,
    ) -> Result<(), Stop> {
        let offload = chunk.len > chunk.segment;
        if offload && !self.gso.works_to(target.to.ip()) {
            return self.send_each(target, buf, chunk, slices);
        }
        slices.clear();
        cursor(buf, chunk.start).take(chunk.len, slices);
        let attempt = SendAttempt { to: target.to, datagrams: chunk.datagrams(), offload };
        let segment = if offload { chunk.segment } else { 0 };
        match self.attempt(target.lane, attempt, |socket| socket.call_one(target, slices, segment)) {
            Ok(_) => {
                self.count_sent(chunk.datagrams(), chunk.len);
                self.counters.sent_trains += u64::from(offload);
                Ok(())
            }
            Err(error) if offload && may_be_missing_gso(&error) => {
                self.counters.gso_fallbacks += 1;
                let result = self.send_each(target, buf, chunk, slices);
                // Only if the datagrams as such are fine is offload to blame.
                if !matches!(&result, Err(stop) if stop.sent == 0) {
                    self.disable_gso(target.to, &error);
                }
                result
            }
            Err(error) => Err(Stop { sent: 0, error }),
        }
    }

    /// Sends a chunk datagram by datagram.
    fn send_each<'a>(
        &mut self,
        target: &Target,
        buf: &'a TransmitBuf,
        chunk: Chunk,
        slices: &mut Vec<IoSlice<'a>>,
    ) -> Result<(), Stop> {
        let count = chunk.datagrams();
        let mut ends = [0; MAX_SEGMENTS + 1];
        let mut walk = cursor(buf, chunk.start);
        slices.clear();
        for end in &mut ends[1..=count] {
            walk.take(chunk.segment, slices);
            *end = slices.len();
        }
        let mut done = 0;
        while done < count {
            let attempt = SendAttempt { to: target.to, datagrams: count - done, offload: false };
            let ends = &ends[done..=count];
            let sent = (done * chunk.segment).min(chunk.len);
            match self.attempt(target.lane, attempt, |socket| socket.call_each(target, slices, ends)) {
                Ok(more) => {
                    done += more;
                    self.count_sent(more, (done * chunk.segment).min(chunk.len) - sent);
                }
                Err(error) => return Err(Stop { sent, error }),
            }
        }
        Ok(())
    }

    /// Makes one call, or what the hook says, and repeats it if the failure may be an old one's.
    fn attempt(
        &mut self,
        lane: usize,
        attempt: SendAttempt,
        mut call: impl FnMut(&mut Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut tries = if lane == 0 { 1 } else { 2 };
        loop {
            tries -= 1;
            self.counters.send_calls += 1;
            let injected = self.hook.as_mut().and_then(|hook| hook(&attempt));
            let result = match injected {
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => call(self),
            };
            match result {
                Ok(sent) => {
                    self.blocked = None;
                    return Ok(sent);
                }
                Err(error) if tries > 0 && may_be_pending(&error) => {}
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.blocked = Some(lane);
                        self.counters.send_would_block += 1;
                    }
                    return Err(error);
                }
            }
        }
    }

    fn count_sent(&mut self, datagrams: usize, bytes: usize) {
        self.counters.sent_datagrams += datagrams as u64;
        self.counters.sent_bytes += bytes as u64;
    }

    fn disable_gso(&mut self, peer: SocketAddr, error: &io::Error) {
        if self.counters.gso_disabled == 0 {
            let warning = format!(
                "segmentation offload fails on the path to {}: {error}; sending datagrams one by one there. \
                 If this is not expected, update the network driver or check `ethtool -k` for tx-udp-segmentation",
                peer.ip()
            );
            tracing::warn!("{warning}");
            self.warnings.push(warning);
        }
        self.counters.gso_disabled += 1;
        self.gso.disable(peer.ip());
    }
}

/// The system calls of the batched backend.
#[cfg(target_os = "linux")]
mod calls {
    use super::{SendAttempt, Target, UdpSocket, canonical, plain, recycle};
    use crate::cmsg::Control;
    use crate::mmsg::{self, Outgoing};
    use denrei_wire::Ecn;
    use socket2::SockAddr;
    use std::io::{self, IoSlice};
    use std::net::SocketAddr;
    use std::os::fd::AsFd;

    impl UdpSocket {
        /// Sends one datagram, or a train of `segment` > 0 bytes each.
        pub(super) fn call_one(
            &mut self,
            target: &Target,
            slices: &[IoSlice<'_>],
            segment: usize,
        ) -> io::Result<usize> {
            let socket = &self.lanes[target.lane].socket;
            if !self.batched {
                return plain::send_gathered(socket, target.name, slices, &mut self.scratch);
            }
            let mut control = ecn_control(target.ecn, target.to);
            if segment > 0 {
                // A segment of a train is shorter than a train, which is below 64 KiB.
                control = control.segment(segment as u16);
            }
            let name = target.name.map(SockAddr::from);
            mmsg::send(socket.as_fd(), &Outgoing { name: name.as_ref(), slices, control: &control })
        }

        /// Sends the datagrams whose stretches are delimited by `ends`; returns how many it sent.
        pub(super) fn call_each(
            &mut self,
            target: &Target,
            slices: &[IoSlice<'_>],
            ends: &[usize],
        ) -> io::Result<usize> {
            if !self.batched {
                return self.call_one(target, &slices[ends[0]..ends[1]], 0).map(|_| 1);
            }
            let control = ecn_control(target.ecn, target.to);
            let name = target.name.map(SockAddr::from);
            let messages = ends.windows(2).map(|pair| Outgoing {
                name: name.as_ref(),
                slices: &slices[pair[0]..pair[1]],
                control: &control,
            });
            mmsg::send_many(self.lanes[target.lane].socket.as_fd(), messages)
        }

        /// Sends waiting datagrams that share their control messages by one call.
        pub(super) fn send_queued(&mut self) -> io::Result<usize> {
            let queue = std::mem::take(&mut self.queue);
            let mut slices = recycle(std::mem::take(&mut self.slices));
            let waiting = queue.waiting();
            let kind = |ecn, ipv4| self.unusual_ecn(ecn).map(|ecn| (ecn, ipv4));
            let first = kind(waiting[0].ecn, waiting[0].ipv4);
            let count = if self.batched {
                waiting.iter().take_while(|queued| kind(queued.ecn, queued.ipv4) == first).count()
            } else {
                1
            };
            let waiting = &waiting[..count];
            slices.extend(waiting.iter().map(|queued| IoSlice::new(queue.bytes_of(queued))));
            let to = waiting[0].name.as_socket().unwrap_or(self.local);
            let attempt = SendAttempt { to: canonical(to), datagrams: count, offload: false };
            let control = ecn_control(first.map(|(ecn, _)| ecn), attempt.to);
            let result = self.attempt(0, attempt, |socket| {
                let main = &socket.lanes[0].socket;
                if !socket.batched {
                    return plain::send(main, Some(to), queue.bytes_of(&waiting[0])).map(|_| 1);
                }
                let messages = waiting.iter().zip(slices.chunks(1)).map(|(queued, slices)| Outgoing {
                    name: Some(&queued.name),
                    slices,
                    control: &control,
                });
                mmsg::send_many(main.as_fd(), messages)
            });
            if let Ok(sent) = result {
                let bytes = slices[..sent].iter().map(|slice| slice.len()).sum();
                self.count_sent(sent, bytes);
            }
            self.slices = recycle(slices);
            self.queue = queue;
            result
        }
    }

    fn ecn_control(ecn: Option<Ecn>, to: SocketAddr) -> Control {
        ecn.map_or(Control::NONE, |ecn| Control::NONE.ecn(ecn, canonical(to).is_ipv4()))
    }
}

/// The system calls where there is only the portable backend.
#[cfg(not(target_os = "linux"))]
mod calls {
    use super::{SendAttempt, Target, UdpSocket, canonical, plain};
    use std::io::{self, IoSlice};

    impl UdpSocket {
        /// Sends one datagram.
        pub(super) fn call_one(
            &mut self,
            target: &Target,
            slices: &[IoSlice<'_>],
            _segment: usize,
        ) -> io::Result<usize> {
            plain::send_gathered(&self.lanes[target.lane].socket, target.name, slices, &mut self.scratch)
        }

        /// Sends the first of the datagrams whose stretches are delimited by `ends`.
        pub(super) fn call_each(
            &mut self,
            target: &Target,
            slices: &[IoSlice<'_>],
            ends: &[usize],
        ) -> io::Result<usize> {
            self.call_one(target, &slices[ends[0]..ends[1]], 0).map(|_| 1)
        }

        /// Sends the first waiting datagram.
        pub(super) fn send_queued(&mut self) -> io::Result<usize> {
            let queue = std::mem::take(&mut self.queue);
            let first = &queue.waiting()[0];
            let bytes = queue.bytes_of(first);
            let to = first.name.as_socket().unwrap_or(self.local);
            let attempt = SendAttempt { to: canonical(to), datagrams: 1, offload: false };
            let result =
                self.attempt(0, attempt, |socket| plain::send(&socket.lanes[0].socket, Some(to), bytes));
            let result = result.map(|_| self.count_sent(1, bytes.len())).map(|()| 1);
            self.queue = queue;
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offload_is_switched_off_path_by_path_and_then_for_all() {
        let mut paths = GsoPaths::new(true);
        let ip = |last: usize| IpAddr::from([10, 0, 0, last as u8]);
        for last in 0..MAX_GSO_DISABLED_PATHS {
            assert!(paths.works_to(ip(last)));
            paths.disable(ip(last));
            assert!(!paths.works_to(ip(last)));
        }
        assert!(paths.enabled() && paths.works_to(ip(200)));
        paths.disable(ip(200));
        assert!(!paths.enabled() && !paths.works_to(ip(201)));
        assert_eq!(paths.disabled_paths(), MAX_GSO_DISABLED_PATHS);
    }
}

//! An adapter that damages what is sent, to see whether its user copes, on real sockets.
//!
//! Inputs → outputs: transmits, [`Faults`] and a seed → datagrams to the inner I/O, some dropped,
//! repeated, swapped with a later one or with a bit flipped. The same seed and the same sends give
//! the same faults. Only sending is damaged: wrap both ends for both directions. How a *host*
//! refuses is played by [`SendHook`](crate::SendHook) instead.

use crate::buffers::RecvBuffers;
use crate::outcome::SendOutcome;
use crate::socket::DatagramIo;
use denrei_wire::{DatagramMeta, Transmit, TransmitBuf};
use std::io;
use std::net::SocketAddr;

/// Probabilities (0.0..=1.0) per datagram, each drawn on its own.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Faults {
    /// Not sent.
    pub drop: f64,
    /// Sent twice.
    pub duplicate: f64,
    /// Sent after the next datagram, or with the next receive call if there is none.
    pub reorder: f64,
    /// Sent with one bit flipped.
    pub corrupt: f64,
}

/// How often each fault happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Datagrams not sent.
    pub dropped: u64,
    /// Datagrams sent twice.
    pub duplicated: u64,
    /// Datagrams held back.
    pub reordered: u64,
    /// Datagrams with a bit flipped.
    pub corrupted: u64,
}

/// I/O that damages what is sent through it.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
    random: SplitMix64,
    held: Option<(Transmit, Vec<u8>)>,
    counters: FaultCounters,
    /// Reused from datagram to datagram.
    buf: TransmitBuf,
}

impl<S: DatagramIo> Faulty<S> {
    /// Wraps `inner`; `seed` determines which datagrams are hit.
    pub fn new(inner: S, faults: Faults, seed: u64) -> Self {
        Self {
            inner,
            faults,
            random: SplitMix64(seed),
            held: None,
            counters: FaultCounters::default(),
            buf: TransmitBuf::new(1),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &FaultCounters {
        &self.counters
    }

    /// Changes the probabilities; all zero heals the path.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The I/O inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The I/O inside, mutably.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    fn send_datagram(&mut self, transmit: Transmit, mut datagram: Vec<u8>) -> SendOutcome {
        if self.random.hits(self.faults.drop) {
            self.counters.dropped += 1;
            return SendOutcome::Sent;
        }
        if !datagram.is_empty() && self.random.hits(self.faults.corrupt) {
            self.counters.corrupted += 1;
            let bit = self.random.next() as usize % (datagram.len() * 8);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        if self.held.is_none() && self.random.hits(self.faults.reorder) {
            self.counters.reordered += 1;
            self.held = Some((transmit, datagram));
            return SendOutcome::Sent;
        }
        let outcome = self.pass(&transmit, &datagram);
        if outcome == SendOutcome::Sent {
            if self.random.hits(self.faults.duplicate) {
                self.counters.duplicated += 1;
                // A copy that does not get through is as good as none.
                let _ = self.pass(&transmit, &datagram);
            }
            self.release();
        }
        outcome
    }

    /// Sends the datagram held back; what the host refuses now was lost on the network.
    fn release(&mut self) {
        if let Some((transmit, datagram)) = self.held.take() {
            let _ = self.pass(&transmit, &datagram);
        }
    }

    fn pass(&mut self, transmit: &Transmit, datagram: &[u8]) -> SendOutcome {
        self.buf.clear();
        self.buf.put(datagram);
        self.inner.send_from(transmit, &self.buf, 0)
    }
}

impl<S: DatagramIo> DatagramIo for Faulty<S> {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send_from(&mut self, transmit: &Transmit, buf: &TransmitBuf, skip: usize) -> SendOutcome {
        let bytes = buf.contiguous();
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        let mut sent = skip;
        loop {
            let end = (sent + segment).min(bytes.len());
            let one = Transmit { len: end - sent, segment_size: None, ..*transmit };
            match self.send_datagram(one, bytes[sent..end].to_vec()) {
                SendOutcome::Sent => sent = end,
                SendOutcome::WouldBlock { .. } => return SendOutcome::WouldBlock { sent },
                dropped => return dropped,
            }
            if sent == bytes.len() {
                return SendOutcome::Sent;
            }
        }
    }

    fn recv(
        &mut self,
        buffers: &mut RecvBuffers,
        handle: impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.release();
        self.inner.recv(buffers, handle)
    }
}

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014). Seedable, and good
/// enough to pick victims.
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True with the given probability; draws in any case, so that one fault's rate does not change
    /// which datagrams another one hits.
    fn hits(&mut self, probability: f64) -> bool {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        unit < probability
    }
}

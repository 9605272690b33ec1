//! A process that receives payloads where they belong, as a Node does where they are large.
//!
//! Inputs → outputs: datagrams from one source, as the kernel would join them to a train → the same datagrams,
//! handled by way of memory that the endpoint has lent, if it has.

use denrei_proto::Endpoint;
use denrei_wire::datagram::MAX_TRAIN_BYTES;
use denrei_wire::{DatagramMeta, Instant};

/// Datagrams from this size on are followed by others that land, bytes: most that are filled.
pub(super) const LANDED_FROM_BYTES: usize = 1_000;

/// Datagrams of one source, one behind the other.
#[derive(Default)]
pub(super) struct Train {
    bytes: Vec<u8>,
    datagrams: usize,
    /// Octets of each datagram but the last, which may be shorter.
    segment: usize,
    stage: Vec<u8>,
    spare: Vec<u8>,
}

impl Train {
    /// Appends a datagram of the same source, if the kernel would have.
    pub fn append(&mut self, datagram: &[u8]) -> bool {
        if self.datagrams == 0 {
            self.segment = datagram.len();
        }
        let even =
            self.bytes.len() == self.datagrams * self.segment && (1..=self.segment).contains(&datagram.len());
        let fits = self.datagrams == 0 || (even && self.bytes.len() + datagram.len() <= MAX_TRAIN_BYTES);
        if fits {
            self.datagrams += 1;
            self.bytes.extend_from_slice(datagram);
        }
        fits
    }

    /// Has the endpoint handle the train, which is then empty; how many datagrams had memory lent to them.
    pub fn handle(&mut self, now: Instant, meta: &DatagramMeta, endpoint: &mut Endpoint) -> usize {
        let (len, segment) = (self.bytes.len(), self.segment.max(1));
        let mut landed = 0;
        let mut lent = endpoint.lend(&meta.from);
        if let Some(mut landing) = lent.as_mut().and_then(|lent| lent.landing()) {
            landed = self.datagrams;
            self.stage.resize(MAX_TRAIN_BYTES, 0);
            let mut rest = &self.bytes[..];
            for stretch in landing.stretches(&mut self.stage) {
                let (here, behind) = rest.split_at(stretch.len().min(rest.len()));
                stretch[..here.len()].copy_from_slice(here);
                rest = behind;
            }
            landing.deliver(&mut self.stage, len, segment, &mut self.spare, |datagram| {
                endpoint.handle_datagram(now, meta, datagram);
            });
        } else if len == 0 {
            endpoint.handle_datagram(now, meta, &mut []);
        } else {
            self.bytes.chunks_mut(segment).for_each(|datagram| endpoint.handle_datagram(now, meta, datagram));
        }
        if let Some(lent) = lent {
            endpoint.take_back(now, lent);
        }
        self.bytes.clear();
        self.datagrams = 0;
        landed
    }
}

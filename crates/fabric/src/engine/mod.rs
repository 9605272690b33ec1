//! What an endpoint does, without libfabric's structures: matching, rendezvous, one-sided operations.
//!
//! Inputs → outputs: the application's operations, and what the [`port`] brings → messages to peers,
//! memory filled, completions. Everything happens in the thread that calls, under the endpoint's
//! lock. What is on the wire is in `spec/fabric.md`.
//!
//! | file | decides |
//! |---|---|
//! | `port` | which session, the way to oneself |
//! | `matching` | which receive a message is for |
//! | `send`, `receive` | eager or offered; unexpected messages; peek, claim, cancel |
//! | `unexpected` | how much of them is held for whom |
//! | `origin`, `target`, `atomics` | the two sides of one-sided operations |
//! | `bulk` | offers and those who wait for them |
//! | `watch` | whose end is noticed, and what fails then |
//! | `sweep` | who is forgotten |
//! | `completion`, `counter`, `address`, `region_table` | what the other objects hold |

pub mod address;
pub mod atomics;
mod bulk;
pub mod completion;
pub mod counter;
pub mod header;
pub mod matching;
mod origin;
pub mod port;
mod receive;
pub mod region_table;
mod send;
pub mod sources;
mod sweep;
mod target;
mod unexpected;
mod watch;

pub use origin::OneSided;
pub use receive::{Receive, Take};
pub use send::{Payload, Send, Until};

use crate::error::{Errno, is_orderly};
use crate::ffi;
use address::AddressVector;
use bulk::Bulks;
use completion::{Completion, CompletionQueue};
use counter::Counter;
use denrei::{LostReason, Node};
use matching::PeerIndex;
use port::{Arrival, Port};
use receive::Receiving;
use region_table::RegionTable;
use send::Sending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Sizes that the engine works with.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Messages up to this size are sent at once, larger ones are offered but for the first of a row; bytes.
    pub eager_bytes: usize,
    /// Unexpected bytes above which no more messages are taken in, unless a receive waits for them.
    pub unexpected_bytes: usize,
    /// Bytes sent at once to one peer and not acknowledged, above which it has to be waited.
    pub unacknowledged_bytes: usize,
    /// How long closing waits for what was sent to be acknowledged.
    pub linger: Duration,
    /// Receives from any source stay posted when a peer is lost.
    pub keeps_any_source: bool,
}

/// What an operation is reported as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The application's pointer.
    pub context: usize,
    /// libfabric's flags: what kind of operation it was.
    pub flags: u64,
    /// Whether success is reported to the queue.
    pub wanted: bool,
}

/// Where operations are reported.
#[derive(Debug, Default)]
pub struct Sinks {
    pub transmit: Option<Arc<CompletionQueue>>,
    pub receive: Option<Arc<CompletionQueue>>,
    /// Counters, and the kinds of operations that each counts.
    pub counters: Vec<(u64, Arc<Counter>)>,
}

impl Sinks {
    /// An operation of this side's initiative is done.
    pub fn transmitted(&self, report: &Report, result: Result<(), Errno>) {
        self.count(report.flags, result.is_ok());
        if let (Some(queue), true) = (&self.transmit, report.wanted || result.is_err()) {
            queue.push(Completion {
                context: report.context,
                flags: report.flags,
                len: 0,
                buffer: 0,
                data: 0,
                tag: 0,
                source: ffi::FI_ADDR_UNSPEC,
                error: result.err().map(|error| (error, 0)),
            });
        }
    }

    /// Whether there is room for a report.
    ///
    /// # Errors
    /// `AGAIN`: the application has to read first.
    pub fn check_room_for(&self, report: &Report) -> Result<(), Errno> {
        let is_full = report.wanted && self.transmit.as_ref().is_some_and(|queue| queue.is_full());
        if is_full { Err(Errno::AGAIN) } else { Ok(()) }
    }

    /// A message was received, or not; `wanted`: whether success is reported to the queue.
    pub fn received(&self, completion: Completion, wanted: bool) {
        self.count(completion.flags, completion.error.is_none());
        if let (Some(queue), true) = (&self.receive, wanted || completion.error.is_some()) {
            queue.push(completion);
        }
    }

    /// Counts an operation of this kind.
    pub fn count(&self, flags: u64, good: bool) {
        const KINDS: u64 = ffi::FI_SEND
            | ffi::FI_RECV
            | ffi::FI_READ
            | ffi::FI_WRITE
            | ffi::FI_REMOTE_READ
            | ffi::FI_REMOTE_WRITE;
        for (counted, counter) in &self.counters {
            if counted & flags & KINDS != 0 {
                counter.add(good as u64, !good as u64);
            }
        }
    }
}

/// Peers and the application's numbers for them, as of a version of the address vector.
#[derive(Debug, Default)]
struct Known {
    version: u64,
    peers: Vec<Option<PeerIndex>>,
    numbers: Vec<Option<u64>>,
}

/// Remembers `value` at a small index.
fn remember<T: Copy>(values: &mut Vec<Option<T>>, index: usize, value: T) {
    if index >= values.len() {
        values.resize(index + 1, None);
    }
    values[index] = Some(value);
}

/// What an endpoint does.
#[derive(Debug)]
pub struct Engine {
    port: Port,
    limits: Limits,
    pub sinks: Sinks,
    addresses: Arc<AddressVector>,
    known: Known,
    regions: Arc<RegionTable>,
    sending: Sending,
    receiving: Receiving,
    watch: watch::Watch,
    sweep: sweep::Sweep,
    bulks: Bulks,
    origin: origin::Origin,
    target: target::Target,
    arrivals: Vec<Arrival>,
    /// Not zero: others share this process's core.
    pub turns: Arc<AtomicU32>,
}

impl Engine {
    /// The engine of an endpoint that uses `node`.
    pub fn new(node: Node, addresses: Arc<AddressVector>, regions: Arc<RegionTable>, limits: Limits) -> Self {
        Self {
            port: Port::new(node),
            limits,
            sinks: Sinks::default(),
            addresses,
            known: Known::default(),
            regions,
            sending: Sending::default(),
            receiving: Receiving::default(),
            watch: watch::Watch::default(),
            sweep: sweep::Sweep::default(),
            bulks: Bulks::default(),
            origin: origin::Origin::default(),
            target: target::Target::default(),
            arrivals: Vec::new(),
            turns: Arc::default(),
        }
    }

    /// What is known of the address vector as it is now.
    fn known(&mut self) -> &mut Known {
        let version = self.addresses.version();
        if version != self.known.version {
            self.known = Known { version, ..Known::default() };
        }
        &mut self.known
    }

    /// The peer that the application calls `number`.
    fn peer(&mut self, number: u64) -> Result<PeerIndex, Errno> {
        if let Some(Some(peer)) = self.known().peers.get(number as usize) {
            return Ok(*peer);
        }
        let address = self.addresses.address(number).ok_or(Errno(ffi::EADDRNOTAVAIL))?;
        let peer = self.port.index(address);
        // The vector has an address of this number: so it is small.
        remember(&mut self.known.peers, number as usize, peer);
        Ok(peer)
    }

    /// What the application calls a peer.
    fn number_of(&mut self, peer: PeerIndex) -> u64 {
        if let Some(Some(number)) = self.known().numbers.get(peer as usize) {
            return *number;
        }
        let number = self.addresses.number(self.port.address(peer)).unwrap_or(ffi::FI_ADDR_UNSPEC);
        remember(&mut self.known.numbers, peer as usize, number);
        number
    }

    /// Does what is due; whether anything came.
    pub fn progress(&mut self) -> bool {
        self.burst_ends();
        self.forget_the_gone();
        let (is_full, receiving, target) = (self.is_full(), &self.receiving, &self.target);
        let limit = self.limits.unexpected_bytes;
        let takes = |peer: PeerIndex, channel| match channel {
            header::MATCHED => !is_full && receiving.takes(peer, limit),
            header::REQUESTS => !is_full && target.may_ask(peer),
            _ => true,
        };
        let is_news = self.port.work(&mut self.arrivals, takes);
        self.receiving.forget_looks();
        if !is_news {
            self.watch_everybody();
            return false;
        }
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for arrival in arrivals.drain(..) {
            self.handle(arrival);
        }
        self.arrivals = arrivals;
        self.serve_waiting();
        self.answer_done();
        self.port.send_queued();
        true
    }

    /// Something long is queued for a peer: it takes several round trips, each of them a turn of all who
    /// share the cores.
    fn queued_long(&mut self, peer: PeerIndex) {
        if self.turns.load(Ordering::Relaxed) > 0 {
            self.port.take_turns(peer);
        }
    }

    fn handle(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Message { key, data, is_over } => match key.channel {
                // Numbers of messages are a successor's now.
                _ if is_over && (key.channel != header::MATCHED || header::is_bulk(&data)) => {}
                header::MATCHED => self.on_matched(key.peer, data),
                header::BULK => self.on_bulk(key, data),
                header::REQUESTS => self.on_request_in_turn(key.peer, key.number, data),
                header::ANSWERS => self.on_answer(key.peer, &data),
                _ => {}
            },
            Arrival::Offered(key) => self.on_offered(key),
            Arrival::Acknowledged(key) => self.on_acknowledged(key),
            Arrival::Lost { peer, reason, is_last } => self.on_lost(peer, &reason, is_last),
        }
    }

    /// A session is over: what was under way on it fails, and what waits for its messages, if there are no more.
    fn on_lost(&mut self, peer: PeerIndex, reason: &LostReason, is_last: bool) {
        let errno = Errno::of_loss(reason);
        let in_order = is_orderly(reason);
        self.fail_sends(peer, errno, in_order);
        self.fail_bulks(peer, errno);
        self.fail_requests(peer, errno);
        self.target.forget(peer);
        if !is_last {
            return;
        }
        crate::log::peer_lost(self.port.address(peer), reason, in_order);
        self.forget_offers(peer);
        // One that went in order owes nothing; receives may wait for its successor.
        if !in_order {
            self.on_broken(peer, errno, *reason != LostReason::NoAnswer);
        }
    }

    /// Sends what was queued and waits a while for it to be acknowledged. A peer whose large message was
    /// taken may be sending parts of it again whose first copies came after all, and would take the end of
    /// the session for the message's: it is asked for acknowledgements until those are behind it. One has
    /// heard ours when it answers the first time, and has sent what it sends again when it answers the second.
    pub fn flush(&mut self) {
        const ROUNDS: usize = 2;
        self.progress();
        let deadline = Instant::now() + self.limits.linger;
        let givers: Vec<PeerIndex> = self.port.givers().collect();
        for _ in 0..ROUNDS {
            for peer in &givers {
                // What is done anyway, said once more.
                self.answer(*peer, &header::Answer::DoneBelow(self.target.done_below(*peer)));
            }
            self.port.flush(deadline);
        }
    }

    /// Ends all sessions: nobody touches the application's buffers after this.
    pub fn end_sessions(&mut self) {
        self.port.end_sessions();
    }

    /// The peers' addresses, from now on.
    pub fn set_addresses(&mut self, addresses: Arc<AddressVector>) {
        self.addresses = addresses;
        self.known = Known::default();
    }

    /// Every message leaves at once: nobody is there to send what waits for company.
    pub fn send_at_once(&mut self) {
        self.sending.at_once = true;
    }

    /// Whether nothing more may be reported until the application reads.
    fn is_full(&self) -> bool {
        self.sinks.receive.as_ref().is_some_and(|queue| queue.is_full())
    }

    /// Whether something waits that the endpoint has sent to its own address.
    pub fn has_word_for_itself(&self) -> bool {
        self.port.has_word_for_itself()
    }

    /// Whether something may wait that is not taken.
    pub fn is_holding_back(&self) -> bool {
        let limit = self.limits.unexpected_bytes;
        self.receiving.is_holding_back(limit) || self.is_full() || self.target.is_holding_back()
    }
}

#[cfg(test)]
pub(crate) mod tests;

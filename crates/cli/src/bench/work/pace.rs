//! One receiver that sets the pace, one or more senders that send as fast as they are let (R9).
//!
//! Inputs → outputs: a [`Job`] with a [`Pace`] → a [`Report`] per process. Member 0 receives: it sets
//! rate and burst of each sender when that greets, or lets the Node learn them; then it takes
//! messages, and may compute after each, which is what makes a receiver slow. Nothing is received
//! meanwhile, so what comes has to wait in the socket's buffer or is lost, as in R9.

use super::arrivals::{Receiver, Timed};
use super::gather::jain;
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{
    Answer, GatherReport, Job, Pace, PaceLane, PaceReport, PacketReport, Report, Told,
};
use crate::bench::limits::Until;
use crate::bench::transport::{PATIENCE, packet_counts, secrets};
use crate::cmd::key::KeyArgs;
use crate::orders::answer;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use denrei::{ChannelId, Config, CongestionAlgorithm, Message, Node, PeerId, Rate, SendError};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Arrivals are counted in bins of this length, nanoseconds.
const BIN_NS: u64 = 1_000_000;

/// The largest UDP payload of an Ethernet: messages of 1,400 bytes then travel one in a packet.
const PACKET_BYTES: u16 = 1472;

/// A pause of RTIMER divided by this ends a burst: a sender leaves one of a quarter at least.
const PAUSE_SHARE: u64 = 8;

/// Where so many messages came without a pause there are no bursts to wait for.
const MOST_IN_A_BURST: u64 = 100;

/// Least queue of a sender, bytes.
const LEAST_QUEUE_BYTES: u64 = 64 * 1024;

/// What senders greet with, and what the receiver starts them with.
const SIGN: &[u8] = b"go ahead";

/// A member of a run, with its port open.
pub struct PaceEndpoint {
    side: Side,
    job: Job,
    pace: Pace,
}

/// Which part it has.
enum Side {
    Sender(Node),
    Receiver(Box<dyn Receiver>),
}

impl PaceEndpoint {
    /// Opens a free port.
    pub fn open(job: &Job, keys: &KeyArgs) -> Result<Self> {
        let pace = job.pace.clone().context("a run at a set rate has no rate")?;
        let config = config(job, keys, &pace)?;
        let node = |config| {
            Node::bind((job.bind, 0), config).with_context(|| format!("cannot open a Node at {}", job.bind))
        };
        let side = match job.index {
            0 if pace.timed => Side::Receiver(Box::new(Timed::open(job.bind, &config)?)),
            0 => Side::Receiver(Box::new(node(config)?)),
            _ => Side::Sender(node(config)?),
        };
        Ok(Self { side, job: job.clone(), pace })
    }

    /// Where the others reach it.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.side {
            Side::Sender(node) => node.local_addr(),
            Side::Receiver(receiver) => receiver.local_addr(),
        }
    }

    /// Does a member's part, reports, and stays until all are done.
    pub fn run(self, addresses: &[SocketAddr], until: &Until<'_>) -> Result<()> {
        let Self { side, job, pace } = self;
        let report = |report| answer(&Answer::Report(Box::new(report)));
        match side {
            Side::Sender(node) => {
                let receiver = *addresses.first().context("the receiver has no address")?;
                report(send(&node, &job, &pace, receiver, until)?)?;
                while until.reached()?.is_none() {
                    node.recv_timeout(PATIENCE)?;
                }
            }
            Side::Receiver(mut receiver) => {
                report(receive(&mut *receiver, &job, &pace, until)?)?;
                while until.reached()?.is_none() {
                    receiver.next(PATIENCE)?;
                }
            }
        }
        Ok(())
    }
}

/// The settings of a side.
fn config(job: &Job, keys: &KeyArgs, pace: &Pace) -> Result<Config> {
    let mut config = secrets(job.transport, keys)?;
    if !pace.trains {
        config.socket.gso = false;
        config.socket.gro = false;
        config.protocol.max_datagram_bytes = PACKET_BYTES;
    }
    // As in R9: what the receiver sets, or learns and sets, is the only limit.
    config.protocol.congestion = CongestionAlgorithm::RateOnly;
    match pace.fixed {
        Some((_, burst)) => config.protocol.send_buffer_bytes = (2 * burst).max(LEAST_QUEUE_BYTES),
        None => config.protocol.learn_rates = true,
    }
    if let Some(bytes) = pace.buffer_bytes.filter(|_| job.index == 0) {
        config.socket.recv_buffer_bytes = bytes;
    }
    Ok(config)
}

/// A sender.
fn send(node: &Node, job: &Job, pace: &Pace, receiver: SocketAddr, until: &Until<'_>) -> Result<Report> {
    let peer = node.connect(receiver)?;
    let channel = ChannelId { peer, channel: 0 };
    node.send(channel, SIGN)?;
    while node.recv_timeout(PATIENCE)?.is_none() {
        until.check()?;
    }
    let message = Bytes::from(vec![0x5a; job.size]);
    let send_ms = *pace.send_ms.get(job.index - 1).context("this sender has no time")?;
    let meter = Meter::start();
    let settled_ns = meter.start_ns + pace.settle_ms * 1_000_000;
    let end_ns = meter.start_ns + send_ms * 1_000_000;
    let mut report = Report { start_ns: meter.start_ns, ..Report::default() };
    let mut packets = PacketReport::default();
    let mut settled = false;
    loop {
        let now = now_ns();
        if !settled && now >= settled_ns {
            (settled, packets.first) = (true, packet_counts(node));
        }
        if now >= end_ns {
            break;
        }
        match node.send_timeout(channel, message.clone(), Duration::from_nanos(end_ns - now)) {
            Ok(_) => report.messages += 1,
            Err(SendError::WouldBlock { .. }) => {}
            Err(error) => return Err(error).context("cannot send"),
        }
    }
    packets.all = packet_counts(node);
    let flow = node.flow(peer).context("the receiver is lost")?;
    report.told = Some(Told {
        rate: flow.rate.bytes_per_s,
        burst: flow.rate.burst_bytes,
        srtt_ns: flow.srtt_ns.unwrap_or(0),
    });
    report.packets = Some(packets);
    (report.end_ns, report.cpu_ns) = (now_ns(), meter.cpu_ns());
    if pace.send_ms.iter().any(|other| *other > send_ms) {
        // The others shall have what this one leaves, at once.
        node.abort(peer, 0, "done")?;
    }
    Ok(report)
}

/// The receiver.
fn receive(receiver: &mut dyn Receiver, job: &Job, pace: &Pace, until: &Until<'_>) -> Result<Report> {
    let lanes = greet(receiver, job, pace, until)?;
    let longest_ms = pace.send_ms.iter().max().copied().unwrap_or(0);
    let meter = Meter::start();
    let end_ns = meter.start_ns + longest_ms * 1_000_000;
    let mut seen = Seen {
        start_ns: meter.start_ns,
        settled_ns: meter.start_ns + pace.settle_ms * 1_000_000,
        pause_ns: pace.fixed.map(|(rate, burst)| burst * 1_000_000_000 / rate.max(1) / PAUSE_SHARE),
        lanes: vec![Lane::default(); lanes.len()],
        bins: vec![0; longest_ms as usize],
    };
    loop {
        let now = now_ns();
        if now >= end_ns {
            break;
        }
        let patience = PATIENCE.min(Duration::from_nanos(end_ns - now));
        if let Some((at_ns, message)) = receiver.next(patience)? {
            let lane = *lanes.get(&message.channel.peer).context("a stranger sends")?;
            seen.note(at_ns, lane, &message);
            compute(pace);
        } else {
            until.check()?;
        }
    }
    let cpu_ns = meter.cpu_ns();
    Ok(Report { start_ns: meter.start_ns, end_ns, cpu_ns, ..seen.report(receiver, &lanes) })
}

/// Waits for all senders, sets their pace, and starts them.
fn greet(
    receiver: &mut dyn Receiver,
    job: &Job,
    pace: &Pace,
    until: &Until<'_>,
) -> Result<HashMap<PeerId, usize>> {
    let mut lanes = HashMap::new();
    while lanes.len() < job.members - 1 {
        let Some((_, message)) = receiver.next(PATIENCE)? else {
            until.check()?;
            continue;
        };
        let peer = message.channel.peer;
        if lanes.insert(peer, lanes.len()).is_some() {
            bail!("a sender has begun before it was told");
        }
        if let Some((bytes_per_s, burst_bytes)) = pace.fixed {
            receiver.set_rate(peer, Rate { bytes_per_s, burst_bytes })?;
        }
    }
    for peer in lanes.keys() {
        receiver.say(*peer, SIGN)?;
    }
    Ok(lanes)
}

/// What makes this receiver slow.
fn compute(pace: &Pace) {
    if pace.read_ns > 0 {
        let until_ns = now_ns() + pace.read_ns;
        while now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }
}

/// What has come in.
struct Seen {
    start_ns: u64,
    settled_ns: u64,
    /// A pause that ends a burst.
    pause_ns: Option<u64>,
    lanes: Vec<Lane>,
    bins: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// Up to the beginning of the last burst.
    measured: PaceLane,
    /// Up to now.
    running: PaceLane,
    first_ns: u64,
    /// Messages since the run has settled, until a burst began.
    waited_for_burst: u64,
    /// Bytes of the burst that goes on, and when its last came.
    burst: u64,
    last_ns: u64,
    /// Of the bursts that are over.
    bursts: Vec<u64>,
}

impl Seen {
    fn note(&mut self, now: u64, lane: usize, message: &Message) {
        let bytes = message.data.len() as u64;
        if let Some(bin) = self.bins.get_mut((now.saturating_sub(self.start_ns) / BIN_NS) as usize) {
            *bin += bytes;
        }
        let settled = now >= self.settled_ns;
        self.lanes[lane].note(now, bytes, settled, self.pause_ns);
    }

    fn report(self, receiver: &dyn Receiver, lanes: &HashMap<PeerId, usize>) -> Report {
        let mut measured: Vec<PaceLane> = self.lanes.into_iter().map(Lane::measured).collect();
        for (peer, lane) in lanes {
            let set = receiver.rate_set(*peer);
            measured[*lane].set = set.map_or((0, 0), |rate| (rate.bytes_per_s, rate.burst_bytes));
        }
        let shares: Vec<u64> = measured.iter().map(|lane| lane.bytes).collect();
        let messages = measured.iter().map(|lane| lane.messages).sum();
        Report {
            messages,
            gather: Some(GatherReport {
                idle_ns: 0,
                stream_messages: messages,
                stream_ns: measured.iter().map(|lane| lane.time_ns).max().unwrap_or(0),
                jain: if messages > 0 { jain(&shares) } else { 0.0 },
            }),
            pace: Some(PaceReport { lanes: measured, bins: self.bins, bin_ns: BIN_NS }),
            ..Report::default()
        }
    }
}

impl Lane {
    fn note(&mut self, now: u64, bytes: u64, settled: bool, pause_ns: Option<u64>) {
        let begins = pause_ns.is_some_and(|pause_ns| self.add_to_burst(now, bytes, pause_ns));
        if !settled {
            return;
        }
        if self.first_ns == 0 {
            // Time counts from here, at the beginning of a burst if there are bursts.
            if pause_ns.is_none() || begins || self.waited_for_burst > MOST_IN_A_BURST {
                self.first_ns = now;
                self.running = PaceLane { messages: 1, bytes, ..PaceLane::default() };
            }
            self.waited_for_burst += 1;
            return;
        }
        self.running.time_ns = now - self.first_ns;
        if begins {
            // Whole bursts and the pauses after them.
            self.measured = self.running.clone();
        }
        self.running.messages += 1;
        self.running.bytes += bytes;
    }

    /// Whether this message begins a burst.
    fn add_to_burst(&mut self, now: u64, bytes: u64, pause_ns: u64) -> bool {
        let begins = now - self.last_ns > pause_ns;
        if begins && self.burst > 0 {
            self.bursts.push(self.burst);
            self.burst = 0;
        }
        self.burst += bytes;
        self.last_ns = now;
        begins
    }

    /// With the bursts, if any was over.
    fn measured(mut self) -> PaceLane {
        // Without pauses there are no whole bursts.
        let is_mostly_whole = self.measured.bytes * 2 > self.running.bytes;
        let whole = if is_mostly_whole { self.measured } else { self.running };
        self.bursts.sort_unstable();
        let at = self.bursts.len() * 99 / 100;
        PaceLane {
            largest_burst: self.bursts.last().copied().unwrap_or(0),
            burst_p99: self.bursts.get(at).copied().unwrap_or(0),
            ..whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_whole_bursts_and_their_pauses() {
        let mut lane = Lane::default();
        // Three messages of 100 bytes every µs, and the last burst cut off.
        for burst in 0..50u64 {
            for packet in 0..if burst == 49 { 1 } else { 3 } {
                lane.note(1_000 + burst * 1_000 + packet, 100, burst >= 9, Some(500));
            }
        }
        let measured = lane.measured();
        assert_eq!((measured.bytes, measured.time_ns), (40 * 300, 40_000));
    }

    #[test]
    fn without_pauses_everything_counts() {
        let mut lane = Lane::default();
        for packet in 0..1_000 {
            lane.note(packet * 10, 100, true, Some(500));
        }
        let measured = lane.measured();
        assert!(measured.bytes >= 89_000 && measured.time_ns > 8_900, "{measured:?}");
    }

    #[test]
    fn a_pause_ends_a_burst() {
        let mut lane = Lane::default();
        for burst in 0..200u64 {
            for packet in 0..if burst == 7 { 9 } else { 3 } {
                lane.add_to_burst(1_000 + burst * 1_000 + packet, 100, 500);
            }
        }
        let measured = lane.measured();
        assert_eq!((measured.largest_burst, measured.burst_p99), (900, 300));
    }
}

//! One remote incarnation: the orchestrator that holds a session's flow of control.
//!
//! Inputs → outputs: packets, time and the application's calls → packets, events and deadlines.
//! The sub-machines (ack, loss, rtt, congestion, pacing, mtu, outbox, inbox) take plain inputs and return decisions;
//! only the files of this folder see more than one of them: `begin` how a session begins, `receive` what a packet
//! changes, `recovery` what an acknowledgement does, `transmit` what goes out, `pace` what the receiver lets go, `timers`
//! what time changes, `status` what is asked, `close` how a session ends. Source: `spec/protocol.md` §§5–10.

mod begin;
mod close;
mod pace;
mod receive;
mod recovery;
mod status;
mod timers;
mod transmit;

use crate::ack::ReceivedPackets;
use crate::blocks::Blocks;
use crate::config::Config;
use crate::congestion::Controller;
use crate::event::{ChannelId, Event, FlowState, LostReason, MessageId, PeerCounters, PeerId, Phase};
use crate::events::Events;
use crate::inbox::Inbox;
use crate::loss::SentPackets;
use crate::marking::Marking;
use crate::mtu::MtuSearch;
use crate::outbox::Outbox;
use crate::pacing::Pacer;
use crate::rate::{Allowed, Rate};
use crate::rtt::Rtt;
use crate::seal::Protection;
use crate::sent::{Control, SentPacket};
pub(crate) use begin::Beginning;
use close::Closing;
use core::net::{IpAddr, SocketAddr};
use denrei_wire::frame::OwnedFeedback;
use denrei_wire::{Incarnation, Instant, Parameters, Token, Way};
use pace::{SenderRate, Told};
pub(crate) use receive::Incoming;
use status::Statuses;
use std::collections::VecDeque;

/// Frames that are not repeated and wait for a packet: one per group, and then some.
const MAX_WAITING_ONCE: usize = 64;

/// What a peer's methods may touch beyond the peer; `blocks` is memory for small messages.
pub(crate) struct Context<'a> {
    pub config: &'a Config,
    pub now: Instant,
    /// The earliest time at which the datagram that is handled may have come.
    pub came: Instant,
    pub events: &'a mut Events<Event>,
    pub notes: &'a mut Notes,
    pub blocks: &'a mut Blocks,
}

/// A FEEDBACK that has come, for the endpoint's groups.
#[derive(Debug)]
pub(crate) struct GroupReport {
    pub from: PeerId,
    pub frame: OwnedFeedback,
}

/// What one packet told of the pace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaceNote {
    /// Octets of the packet if it held data, else 0.
    pub data: u64,
    /// GRANT_REQUEST: sent and wanted.
    pub request: Option<(u32, u32)>,
    /// Packets missing right before it.
    pub missing: u64,
    /// What is missing was sent after the packet before, or about as early: when that came.
    pub heard_before: Instant,
    /// It came marked with congestion (CE).
    pub marked: bool,
}

bitflags::bitflags! {
    /// What may have become of a session.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct News: u8 {
        /// Offers wait that the endpoint may accept by itself.
        const OFFERS = 1 << 0;
        /// The initiator has shown that it heard our answer: it is who it says.
        const PROVEN = 1 << 1;
        /// The session is over.
        const LOST = 1 << 2;
        /// One side sends, or wants, no more messages.
        const HALF_CLOSED = 1 << 3;
        /// The peer may have been started again, and only a handshake can tell.
        const INQUIRE = 1 << 4;
        /// Such a handshake was answered, by the incarnation that lives at the address now.
        const INQUIRY_ANSWERED = 1 << 5;
        /// The peer has set how fast this side may send.
        const RATE = 1 << 6;
    }
}

/// What the endpoint has to do for a peer after a call.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Channels that have something to take.
    pub ready: Vec<u16>,
    /// What has become of the session.
    pub news: News,
    /// Peers that have not answered several probes: whether their hosts say that nobody is there is worth hearing.
    pub silent: Vec<Way>,
    /// Members of groups have reported.
    pub reports: Vec<GroupReport>,
    /// What a packet told of the pace.
    pub pace: Option<PaceNote>,
    /// Empty between calls: kept so that handling a loss does not allocate.
    pub lost_packets: Vec<SentPacket>,
    /// FIRSTs that would have brought what an unproven peer may not.
    pub limited: u64,
}

/// Silent peers that are kept for the driver, which hears of the others with their next probes.
const MAX_SILENT: usize = 32;

impl Notes {
    /// A peer does not answer.
    pub fn note_silent(&mut self, way: Way) {
        if self.silent.len() < MAX_SILENT && !self.silent.contains(&way) {
            self.silent.push(way);
        }
    }

    /// Whether there is nothing to do beside channels and the pace, as after most packets.
    pub fn is_nothing_left(&self) -> bool {
        self.news.is_empty() && self.reports.is_empty()
    }
}

/// One remote incarnation.
#[derive(Debug)]
pub(crate) struct Peer {
    pub id: PeerId,
    pub addr: SocketAddr,
    /// Which of this host's addresses it has spoken to; `None`: the system chooses.
    pub local: Option<IpAddr>,
    pub phase: Phase,
    /// By what the peer addresses us.
    pub local_token: Token,
    /// By what we address it, once it has spoken.
    pub remote_token: Option<Token>,
    pub remote_incarnation: Option<Incarnation>,
    /// Our own incarnation, for FIRST and ANSWER.
    incarnation: Incarnation,
    protection: Protection,
    /// This side sent the FIRST that holds.
    initiated: bool,
    /// The application knows of this peer: events are for it.
    pub visible: bool,
    remote: Parameters,
    parameters_heard: bool,

    sent: SentPackets,
    rtt: Rtt,
    congestion: Box<dyn Controller>,
    pacer: Pacer,
    /// The packet that last asked for an acknowledgement at once, and the cost of those sent since.
    asked: (u64, u64),
    /// How fast this side sends, if the peer or `rate_request` says.
    rate: Option<Box<SenderRate>>,
    /// What the receiver lets this side send.
    allowed: Allowed,
    /// What this side lets the peer send, if it has told.
    told: Option<Box<Told>>,
    /// Octets of data packets that came.
    data_received: u64,
    /// Its share of what this side can receive.
    pub weight: u32,
    mtu: MtuSearch,
    outbox: Outbox,
    control: VecDeque<Control>,
    /// Frames for the next packets that are not repeated, one after the other.
    once: Vec<Vec<u8>>,
    /// Made with the first question, from either side.
    statuses: Option<Box<Statuses>>,
    marking: Marking,
    /// The packet that empties the queue asks for its acknowledgement at once.
    hurried: bool,
    /// What is under way goes to others at the same time, and they take their turns at it.
    takes_turns: bool,
    /// Packets that may leave although the window is full.
    probes_left: u8,
    probe_timeouts: u32,
    /// Something has been under way since then of which nothing was acknowledged, or a probe asked.
    unacknowledged_since: Instant,
    paced_until: Option<Instant>,

    received: ReceivedPackets,
    inbox: Inbox,
    /// When the peer was last heard.
    heard_at: Instant,
    /// Since when it owes a sign of life.
    unanswered_since: Option<Instant>,

    /// When somebody last said, for the peer, that it does not know the session, or is not there.
    doubted_at: Option<Instant>,
    /// Inquiries that the same incarnation has answered since then, while the session was silent.
    answered_elsewhere: u8,
    /// How often since then its host has said that nobody is at its port.
    refusals: u8,
    /// What has been said against the attempt to open, by somebody who may have no right to.
    suspicion: Option<Box<LostReason>>,
    closing: Closing,
    pub counters: PeerCounters,
    /// When the last recovery began; what was sent before and is lost belongs to it.
    recovery_began: Option<Instant>,
}

impl Peer {
    /// Where it is, and from where it is spoken to.
    pub fn way(&self) -> Way {
        Way { to: self.addr, from: self.local }
    }

    /// Whether the session still lives.
    pub fn is_alive(&self) -> bool {
        self.phase != Phase::Over
    }

    /// Whether the other side is known to be who it says and to hear us.
    pub fn is_proven(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Closing)
    }

    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    pub fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Octets of data packets that came.
    pub fn data_received(&self) -> u64 {
        self.data_received
    }

    /// Largest message the peer takes, as far as it has told.
    pub fn max_message(&self) -> u64 {
        self.remote.max_message
    }

    /// Channel numbers are below this on both sides.
    pub fn max_channels(&self, config: &Config) -> u16 {
        config.max_channels.min(self.remote.max_channels)
    }

    /// Puts a control frame on the list, once.
    pub fn want(&mut self, control: Control) {
        if !self.control.contains(&control) {
            self.control.push_back(control);
        }
    }

    /// Says something that is not repeated, with the next packet. Of much that waits, the oldest is
    /// dropped: what is not repeated is overtaken by what follows.
    pub fn say_once(&mut self, frame: &[u8]) {
        if self.once.len() == MAX_WAITING_ONCE {
            self.once.remove(0);
        }
        self.once.push(frame.to_vec());
    }

    /// What is queued now goes to others at the same time: delay is no sign of a queue until it is through.
    pub fn take_turns(&mut self) {
        self.takes_turns = true;
    }

    /// Smoothed round-trip time.
    pub fn smoothed_rtt(&self) -> core::time::Duration {
        self.rtt.smoothed()
    }

    /// Largest datagram the path is known to carry.
    pub fn datagram_bytes(&self) -> u16 {
        self.mtu.current()
    }

    /// The application waits for what is under way: asks for the acknowledgement now, rather than
    /// when the receiver would send it by itself.
    pub fn hurry(&mut self) {
        if !self.is_alive() || self.outbox.queued_messages() == 0 {
            return;
        }
        self.hurried = true;
        if !self.outbox.has_turn() {
            self.want(Control::Ping);
        }
    }

    /// Sends again what has been under way for longer than a round trip; how many packets.
    pub fn retransmit(&mut self, now: Instant) -> u64 {
        let late = self.sent.sent_before(now, self.rtt.smoothed());
        self.repeat_oldest(now, late);
        late as u64
    }

    /// The application has taken a message from `channel`: whether the sender is to be told.
    pub fn on_taken(&mut self, config: &Config, channel: u16, memory_left: bool) -> bool {
        self.counters.messages_received += 1;
        if !self.is_alive() {
            return false;
        }
        self.report_delivery(channel);
        if memory_left {
            self.renew_credit(config, channel);
        }
        !self.control.is_empty()
    }

    /// Tells the sender what was handed over, if it asked and there is news.
    pub fn report_delivery(&mut self, channel: u16) {
        if !self.closing.read_closed && self.inbox.get_mut(channel).is_some_and(|state| state.owes_report()) {
            self.want(Control::Delivered { channel });
        }
    }

    /// Grants a channel more credit if that is worth a frame.
    pub fn renew_credit(&mut self, config: &Config, channel: u16) {
        let renewed =
            |state: &mut crate::recv_channel::RecvChannel| state.renew_credit(config.channel_credit_bytes);
        if self.is_alive() && self.inbox.get_mut(channel).is_some_and(renewed) {
            self.want(Control::Credit { channel });
        }
    }

    /// What may be under way, as far as the path goes, bytes.
    pub fn window_bytes(&self) -> u64 {
        self.congestion.window()
    }

    /// The flow state that the application sees (S8).
    pub fn flow(&self) -> FlowState {
        let nanos = |duration: core::time::Duration| denrei_wire::duration_nanos(duration);
        let measured = self.rtt.measured();
        FlowState {
            peer: self.id,
            addr: self.addr,
            incarnation: self.remote_incarnation,
            phase: self.phase,
            srtt_ns: measured.map(nanos),
            min_rtt_ns: measured.map(|_| nanos(self.rtt.min())),
            rtt_var_ns: nanos(self.rtt.variation()),
            window_bytes: self.window_bytes(),
            in_flight_bytes: self.sent.cost_in_flight(),
            credit_bytes: self.outbox.credit(),
            rate: self.sender_rate(),
            rate_set: self.rate_set(),
            weight: self.weight,
            rate_requested: requested_rate(&self.remote),
            queued_messages: self.outbox.queued_messages(),
            queued_bytes: self.outbox.queued_bytes(),
            unread_bytes: self.inbox.held_bytes(),
            datagram_bytes: self.mtu.current(),
            relays: self.remote.relays,
            counters: self.counters,
        }
    }

    fn message_id(&self, channel: u16, number: u64) -> MessageId {
        MessageId { channel: ChannelId { peer: self.id, channel }, number }
    }

    /// Messages of which it is not known that they arrived.
    fn unacknowledged(&self) -> Vec<MessageId> {
        self.outbox.unacknowledged().map(|(channel, number)| self.message_id(channel, number)).collect()
    }
}

/// What a peer asks for in its PARAMETERS.
fn requested_rate(parameters: &Parameters) -> Rate {
    let most = |value: u64| value.min(crate::rate::MAX_RATE);
    Rate { bytes_per_s: most(parameters.rate_req), burst_bytes: most(parameters.burst_req) }
}

//! How a session begins: from this side, from the other, and anew.
//!
//! Inputs → outputs: who introduces itself to whom → a session of which nothing is known but that.
//! Source: `spec/protocol.md` §7.

use super::Peer;
use super::close::Closing;
use super::pace::SenderRate;
use crate::ack::ReceivedPackets;
use crate::buffer_pool::BufferPool;
use crate::config::{Config, MIN_CHANNEL_CREDIT_BYTES};
use crate::congestion;
use crate::event::{PeerCounters, PeerId, Phase};
use crate::inbox::Inbox;
use crate::loss::SentPackets;
use crate::marking::Marking;
use crate::mtu::MtuSearch;
use crate::outbox::Outbox;
use crate::pacing::Pacer;
use crate::rate::{Allowed, DEFAULT_WEIGHT};
use crate::rtt::Rtt;
use crate::seal::Protection;
use crate::sent::Control;
use denrei_wire::packet::Opening;
use denrei_wire::{Instant, Parameters, Token, Way};
use std::collections::VecDeque;

/// How the session begins.
pub(crate) struct Beginning {
    pub id: PeerId,
    pub way: Way,
    /// How this side introduces itself.
    pub own: Opening,
    pub protection: Protection,
    pub now: Instant,
    pub pool: BufferPool,
    /// What the packet numbers that are left out follow from.
    pub skips: u64,
}

impl Peer {
    /// A session that this side opens.
    pub fn opening(beginning: Beginning, config: &Config) -> Self {
        let Beginning { id, way, own, protection, now, pool, skips } = beginning;
        let mtu = MtuSearch::new(config.min_datagram_bytes, config.max_datagram_bytes);
        let mut peer = Self {
            id,
            addr: way.to,
            local: way.from,
            phase: Phase::Opening,
            local_token: own.own_token,
            remote_token: None,
            remote_incarnation: None,
            incarnation: own.incarnation,
            protection,
            initiated: true,
            visible: true,
            remote: assumed_parameters(config),
            parameters_heard: false,
            sent: SentPackets::new(skips),
            rtt: Rtt::new(config.initial_rtt, config.max_ack_delay, config.failure_timeout),
            congestion: congestion::controller(config.congestion, mtu.current() as u64),
            pacer: Pacer::default(),
            asked: (0, 0),
            rate: SenderRate::requested(now, config),
            allowed: Allowed::default(),
            told: None,
            data_received: 0,
            weight: DEFAULT_WEIGHT,
            mtu,
            outbox: Outbox::new(MIN_CHANNEL_CREDIT_BYTES, config),
            control: VecDeque::new(),
            once: Vec::new(),
            statuses: None,
            marking: Marking::new(config.ecn),
            hurried: false,
            takes_turns: false,
            probes_left: 0,
            probe_timeouts: 0,
            unacknowledged_since: Instant::ZERO,
            paced_until: None,
            received: ReceivedPackets::default(),
            inbox: Inbox::new(pool),
            heard_at: now,
            unanswered_since: None,
            doubted_at: None,
            answered_elsewhere: 0,
            refusals: 0,
            suspicion: None,
            closing: Closing::default(),
            counters: PeerCounters::default(),
            recovery_began: None,
        };
        peer.want(Control::Parameters);
        peer
    }

    /// A session that the other side opens.
    pub fn answering(beginning: Beginning, config: &Config, remote: Opening) -> Self {
        let mut peer = Self::opening(beginning, config);
        peer.initiated = false;
        peer.visible = false;
        peer.phase = Phase::Answering;
        peer.remote_token = Some(remote.own_token);
        peer.remote_incarnation = Some(remote.incarnation);
        peer
    }

    /// The application wants a peer whose initiative has not been proven. It may be seconds old, and whoever
    /// took it gone: time to answer counts from now.
    pub fn adopt(&mut self, now: Instant) -> PeerId {
        self.visible = true;
        self.unanswered_since = self.unanswered_since.map(|_| now);
        self.id
    }

    /// A handshake that asks nothing but which incarnation is at an address now.
    pub fn inquiring(beginning: Beginning, config: &Config) -> Self {
        let mut peer = Self::opening(beginning, config);
        peer.visible = false;
        peer
    }

    /// Both sides opened at once and the other side's FIRST prevails: begins anew as responder.
    /// Nothing has been acknowledged yet, so everything is sent again.
    ///
    /// `own_token` replaces the one by which the given-up attempt could still be addressed.
    pub fn yield_to(&mut self, config: &Config, own_token: Token, remote: Opening, protection: Protection) {
        self.begin_anew(config, own_token, protection);
        self.initiated = false;
        self.phase = Phase::Answering;
        self.remote_token = Some(remote.own_token);
        self.remote_incarnation = Some(remote.incarnation);
    }

    /// The initiator we answered does not exist (any more), or the responder wants a cookie shown:
    /// opens the session from this side.
    pub fn reopen(&mut self, config: &Config, own_token: Token, protection: Protection) {
        self.begin_anew(config, own_token, protection);
        self.initiated = true;
        self.phase = Phase::Opening;
        self.remote_token = None;
        self.remote_incarnation = None;
    }

    fn begin_anew(&mut self, config: &Config, own_token: Token, protection: Protection) {
        self.local_token = own_token;
        self.protection = protection;
        self.sent.take_oldest(usize::MAX, |_| ());
        self.received = ReceivedPackets::default();
        self.inbox.clear();
        self.outbox.restart(MIN_CHANNEL_CREDIT_BYTES);
        self.remote = assumed_parameters(config);
        self.parameters_heard = false;
        self.control.clear();
        self.probe_timeouts = 0;
        self.marking.begin_anew();
        self.want(Control::Parameters);
        self.restart_status();
        if self.closing.read_closed {
            self.want(Control::CloseRead);
        }
        self.restart_pace(config);
        self.closing.begin_anew();
    }
}

/// What may be assumed of a peer that has not told its parameters (`spec/protocol.md` §7).
fn assumed_parameters(config: &Config) -> Parameters {
    Parameters {
        channel_credit: MIN_CHANNEL_CREDIT_BYTES,
        max_message: u64::MAX,
        max_datagram: config.max_datagram_bytes,
        max_channels: u16::MAX,
        ack_delay_us: config.max_ack_delay.as_micros() as u32,
        rate_req: u64::MAX,
        burst_req: 0,
        relays: 0,
    }
}

//! The application's calls, made through the oracle so that it knows of them. An endpoint's answer
//! is checked as its events are.

use super::ledger::{Fate, Sent, SessionNo};
use super::{OfferAnswer, Oracle, turns_away};
use crate::content::Name;
use crate::net::topology::HostId;
use core::time::Duration;
use denrei_proto::{
    ChannelId, Completion, ConnectError, Endpoint, FlowState, MAX_RATE, MAX_WEIGHT, PeerError, PeerId, Rate,
    SendError,
};
use denrei_wire::Instant;

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// To whom.
    pub to: HostId,
    /// On which channel.
    pub channel: u16,
    /// How large.
    pub bytes: usize,
    /// What to report.
    pub completion: Completion,
    /// How long it is worth anything; `None`: for ever.
    pub lifetime: Option<Duration>,
}

/// One of the ways to end a session or a half of it (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// `close_write`.
    Write,
    /// `close_read`.
    Read,
    /// `close`.
    Orderly,
    /// `abort` with this code.
    Abort(u16),
}

/// What an application says that waits for what it has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urge {
    /// `hurry`.
    Hurry,
    /// `take_turns`.
    TakeTurns,
    /// `retransmit`.
    Retransmit,
}

impl Oracle {
    /// Opens a session, or names the one there is.
    pub fn connect(
        &mut self,
        now: Instant,
        host: HostId,
        endpoint: &mut Endpoint,
        to: HostId,
    ) -> Option<PeerId> {
        let life = self.life_on(host);
        match endpoint.connect(now, to.addr()) {
            Ok(peer) => {
                let session = self.session_of(life, peer, endpoint)?;
                if self.sessions[session].lost.is_some() {
                    let label = self.label(session);
                    self.fail(format!("{label}: connect names a lost peer"));
                }
                Some(peer)
            }
            Err(ConnectError::TooManyPeers { .. }) if turns_away(&self.lives[life].config) => None,
            Err(error) => {
                self.fail(format!("host {}: connect to host {} was refused: {error}", host.0, to.0));
                None
            }
        }
    }

    /// Sends a message, opening a session if there is none. Whether it was taken.
    pub fn send(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, order: Order) -> bool {
        let life = self.life_on(host);
        let Some(peer) = self.connect(now, host, endpoint, order.to) else { return false };
        let Some(session) = self.known_session(life, peer) else { return false };
        let Order { channel, bytes, completion, .. } = order;
        let number = self.sessions[session].sent.get(&channel).map_or(0, Vec::len) as u64;
        let data = Name { session: session as u32, channel, number }.bytes(bytes);
        let to = ChannelId { peer, channel };
        let result = match order.lifetime {
            None => endpoint.send(to, data, completion),
            Some(lifetime) => endpoint.send_before(now, to, data, completion, now + lifetime),
        };
        match result {
            Ok(id) => {
                if (id.channel, id.number) != (ChannelId { peer, channel }, number) {
                    let label = self.label(session);
                    self.fail(format!("{label}: message {number} of channel {channel} was named {id:?}"));
                }
                let mortal = order.lifetime.is_some();
                let sent = Sent { bytes: bytes as u64, completion, fate: Fate::Open, mortal };
                self.sessions[session].sent.entry(channel).or_default().push(sent);
                self.totals.sent += 1;
                true
            }
            Err(error) => {
                self.check_send_error(session, order, &error);
                false
            }
        }
    }

    fn check_send_error(&mut self, session: SessionNo, order: Order, error: &SendError) {
        let state = &self.sessions[session];
        let own = &self.lives[state.life].config;
        let remotes =
            || self.lives.iter().filter(|life| life.host == state.remote_host).map(|life| &life.config);
        let plausible = match error {
            SendError::WouldBlock { queued_bytes, .. } => {
                *queued_bytes > 0 && *queued_bytes + order.bytes as u64 > own.send_buffer_bytes
            }
            SendError::TooLarge { max, .. } => {
                order.bytes as u64 > *max && remotes().any(|config| config.max_message_bytes == *max)
            }
            SendError::NoSuchChannel { .. } => {
                let remote = remotes().map(|config| config.max_channels).min();
                order.channel >= own.max_channels.min(remote.unwrap_or(u16::MAX))
            }
            SendError::WriteClosed(_) => state.closed_write,
            SendError::PeerDoneReading(_) => state.peer_done_reading,
            _ => false,
        };
        self.totals.would_block += matches!(error, SendError::WouldBlock { .. }) as u64;
        if !plausible {
            let label = self.label(session);
            self.fail(format!("{label}: {order:?} was refused for a reason that is not true: {error}"));
        }
    }

    /// Ends the session with `to`, or a half of it, if there is one.
    pub fn close(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, to: HostId, how: Closing) {
        let Some((session, peer)) = self.live_session(host, endpoint, to) else { return };
        self.note_hindered();
        let state = &mut self.sessions[session];
        state.closed_write |= how != Closing::Read;
        state.done_reading |= how == Closing::Read;
        state.ended |= matches!(how, Closing::Orderly | Closing::Abort(_));
        let result = match how {
            Closing::Write => endpoint.close_write(now, peer),
            Closing::Read => endpoint.close_read(now, peer),
            Closing::Orderly => endpoint.close(now, peer),
            Closing::Abort(code) => endpoint.abort(now, peer, code, "told to"),
        };
        self.check_peer_result(session, result);
    }

    /// Asks `to` for its status, if there is a session with it.
    pub fn request_status(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, to: HostId) {
        let Some((session, peer)) = self.live_session(host, endpoint, to) else { return };
        let result = endpoint.request_status(now, peer);
        if let Ok(request) = result {
            self.sessions[session].status_asked.push(request);
            self.sessions[session].status_newest = Some(request);
        }
        self.check_peer_result(session, result);
    }

    /// Sets how fast `from` may send, if there is a session with it.
    pub fn set_rate(
        &mut self,
        now: Instant,
        host: HostId,
        endpoint: &mut Endpoint,
        from: HostId,
        rate: Rate,
    ) {
        let Some((session, peer)) = self.live_session(host, endpoint, from) else { return };
        self.note_hindered();
        match endpoint.set_rate(now, peer, rate) {
            Err(PeerError::BadRate { .. }) if rate.bytes_per_s.max(rate.burst_bytes) > MAX_RATE => {}
            result => self.check_peer_result(session, result),
        }
        self.sessions[session].set_rate = true;
    }

    /// Lets all go on whom the application slowed down, or who slow themselves down as long as they are told nothing.
    pub fn lift_rates(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        let life = self.life_on(host);
        let peers: Vec<_> = endpoint.peers().collect();
        for peer in peers {
            let set = self.known_session(life, peer).is_some_and(|session| self.sessions[session].set_rate);
            let slow = |flow: FlowState| match flow.rate_set {
                Some(rate) => set && rate != Rate::UNLIMITED,
                None => !flow.rate_requested.is_unlimited(),
            };
            if endpoint.flow(peer).is_some_and(slow) {
                // One that is lost needs no rate.
                let _ = endpoint.set_rate(now, peer, Rate::UNLIMITED);
            }
        }
    }

    /// Sets the share of `from`, if there is a session with it.
    pub fn set_weight(
        &mut self,
        now: Instant,
        host: HostId,
        endpoint: &mut Endpoint,
        from: HostId,
        weight: u32,
    ) {
        let Some((session, peer)) = self.live_session(host, endpoint, from) else { return };
        match endpoint.set_weight(now, peer, weight) {
            Err(PeerError::BadWeight(_)) if !(1..=MAX_WEIGHT).contains(&weight) => {}
            result => self.check_peer_result(session, result),
        }
    }

    /// Asks for what was sent to `to` to arrive, if there is a session with it.
    pub fn urge(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, to: HostId, how: Urge) {
        let Some((session, peer)) = self.live_session(host, endpoint, to) else { return };
        let result = match how {
            Urge::Hurry => endpoint.hurry(now, peer),
            Urge::TakeTurns => endpoint.take_turns(now, peer),
            Urge::Retransmit => endpoint.retransmit(now, peer).map(drop),
        };
        self.check_peer_result(session, result);
        let flushed = endpoint.is_flushed(peer);
        let queued = endpoint.queue_len(peer);
        if flushed != Ok(queued == Some(0)) {
            let label = self.label(session);
            self.fail(format!("{label}: {queued:?} messages are queued, and flushed: {flushed:?}"));
        }
    }

    /// Sets the priority of a channel to `to`, if there is a session with it.
    pub fn set_priority(
        &mut self,
        host: HostId,
        endpoint: &mut Endpoint,
        to: HostId,
        channel: u16,
        priority: u8,
    ) {
        let Some((session, peer)) = self.live_session(host, endpoint, to) else { return };
        let exists = channel < self.lives[self.sessions[session].life].config.max_channels;
        let result = endpoint.set_priority(ChannelId { peer, channel }, priority);
        match result {
            Err(PeerError::NoSuchChannel { .. }) if !exists => {}
            Err(PeerError::BadPriority(_)) if priority > 7 => {}
            result => self.check_peer_result(session, result),
        }
    }

    /// Takes up to `count` messages, from all channels, or from one of one peer.
    pub fn read(
        &mut self,
        now: Instant,
        host: HostId,
        endpoint: &mut Endpoint,
        from: Option<(HostId, u16)>,
        count: usize,
    ) {
        for _ in 0..count {
            let seen = endpoint.peek();
            let message = match from {
                None => endpoint.recv(now),
                Some((from, channel)) => endpoint
                    .peer_at(from.addr())
                    .and_then(|peer| endpoint.recv_from(now, ChannelId { peer, channel })),
            };
            let taken = message.as_ref().map(|message| (message.channel, message.data.len()));
            if from.is_none() && taken != seen {
                self.fail(format!("host {}: {seen:?} was to be seen, and {taken:?} was taken", host.0));
            }
            let Some(message) = message else { return };
            self.on_message(host, endpoint, &message);
        }
    }

    /// Takes up to `count` messages of channels with odd numbers, or with even ones.
    pub fn read_half(
        &mut self,
        now: Instant,
        host: HostId,
        endpoint: &mut Endpoint,
        odd: bool,
        count: usize,
    ) {
        for _ in 0..count {
            let wanted = |id: ChannelId| (id.channel % 2 == 1) == odd;
            let Some(message) = endpoint.recv_where(now, wanted) else { return };
            self.on_message(host, endpoint, &message);
        }
    }

    /// Makes the process on `host` read all that arrives, or nothing by itself.
    pub fn set_reading(&mut self, host: HostId, reading: bool) {
        let life = self.life_on(host);
        self.lives[life].reading = reading;
    }

    /// Sets how offers to `host` are answered, and answers those that wait.
    pub fn set_offers(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, answer: OfferAnswer) {
        let life = self.life_on(host);
        self.lives[life].offers = answer;
        if answer != OfferAnswer::Wait {
            // Those of peers at another endpoint of the process are answered there.
            let is_here = |offer: &mut (ChannelId, u64, u64)| endpoint.flow(offer.0.peer).is_some();
            let here: Vec<_> = self.lives[life].unanswered.extract_if(.., is_here).collect();
            for offer in here {
                self.answer_offer(now, endpoint, life, offer);
            }
        }
    }

    fn live_session(&mut self, host: HostId, endpoint: &Endpoint, to: HostId) -> Option<(SessionNo, PeerId)> {
        let peer = endpoint.peer_at(to.addr())?;
        let life = self.life_on(host);
        let mut session = self.known_session(life, peer);
        if self.groups.are_used() {
            // Groups open sessions by themselves.
            session = self.session_of(life, peer, endpoint);
        }
        if session.is_none() {
            self.fail(format!("host {}: {peer} is in the address table, but was never announced", host.0));
        }
        Some((session?, peer))
    }

    fn check_peer_result<T>(&mut self, session: SessionNo, result: Result<T, PeerError>) {
        if let Err(error) = result {
            let label = self.label(session);
            self.fail(format!("{label}: a call was refused though the peer is there: {error}"));
        }
    }
}

//! What can be seen: each peer's flow state (S8), counters.

use crate::error::denrei_code::DENREI_UNKNOWN_PEER;
use crate::error::{Failure, call, denrei_code, own, place, put};
use crate::node::{denrei_node, denrei_peer, write_text};
use denrei::{FlowState, PeerId, Phase, Rate};
use std::ffi::c_char;

/// Where a session is in its life.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_phase {
    /// FIRST sent, no answer yet.
    DENREI_PHASE_OPENING = 0,
    /// FIRST received and answered; the answer has not been confirmed.
    DENREI_PHASE_ANSWERING = 1,
    /// Open in both directions.
    DENREI_PHASE_OPEN = 2,
    /// Closing in order.
    DENREI_PHASE_CLOSING = 3,
    /// Over; kept until the application has read what it received.
    DENREI_PHASE_OVER = 4,
}

use denrei_phase::*;

/// A peer's flow state, as of now.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_flow_state {
    /// The peer.
    pub peer: denrei_peer,
    /// Which start of its process it is, 0 before it was heard.
    pub incarnation: u64,
    /// Where the session is in its life.
    pub phase: denrei_phase,
    /// Smoothed round-trip time, ns; 0 before the first sample.
    pub srtt_ns: u64,
    /// Smallest round-trip time seen, ns; 0 before the first sample.
    pub min_rtt_ns: u64,
    /// Mean deviation of the round-trip time, ns.
    pub rtt_var_ns: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Sent, neither acknowledged nor known lost, bytes.
    pub in_flight_bytes: u64,
    /// Bytes that may be sent unasked on channel 0 before its credit is used up.
    pub credit_bytes: u64,
    /// Messages that are not acknowledged.
    pub queued_messages: u64,
    /// Bytes of messages that are not acknowledged.
    pub queued_bytes: u64,
    /// Received bytes that the application has not taken.
    pub unread_bytes: u64,
    /// Largest datagram the path is known to carry, bytes.
    pub datagram_bytes: u16,
    /// Packets sent since the session began.
    pub packets_sent: u64,
    /// Packets received and processed.
    pub packets_received: u64,
    /// Bytes sent, UDP payload.
    pub bytes_sent: u64,
    /// Bytes received, UDP payload.
    pub bytes_received: u64,
    /// Messages taken from the application.
    pub messages_sent: u64,
    /// Messages handed to the application.
    pub messages_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Fragments and messages sent again.
    pub retransmissions: u64,
    /// Tail probes and timeouts fired.
    pub probes: u64,
    /// Packets received twice.
    pub duplicates: u64,
    /// Packets that came back marked with congestion.
    pub ecn_marks: u64,
    /// Recoveries started: losses of what was sent after the recovery before had begun.
    pub recoveries: u64,
    /// Packets dropped because the peer sent more than it was told it may, and requests that say so.
    pub excess: u64,
    /// How fast this side sends to the peer: what the peer has set, or what this side asked for.
    pub rate: denrei_rate,
    /// How fast the peer may send, as set by this side; without a limit if it was never told.
    pub rate_set: denrei_rate,
    /// Whether `rate_set` was told.
    pub has_rate_set: bool,
    /// How fast the peer would send by itself.
    pub rate_requested: denrei_rate,
    /// The peer's share of what this side can receive (denrei_set_weight).
    pub weight: u32,
}

/// How fast one side may send: a mean, and what may come in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_rate {
    /// Mean rate, bytes/s; 0 is no data at all, 1 PiB/s (2 to the power of 50) no limit.
    pub bytes_per_s: u64,
    /// Bytes that may come in a row; 0 is no limit whatever the rate is, unless that is 0.
    pub burst_bytes: u64,
}

impl From<Rate> for denrei_rate {
    fn from(rate: Rate) -> Self {
        Self { bytes_per_s: rate.bytes_per_s, burst_bytes: rate.burst_bytes }
    }
}

impl From<FlowState> for denrei_flow_state {
    fn from(flow: FlowState) -> Self {
        Self {
            peer: flow.peer.as_u64(),
            incarnation: flow.incarnation.map_or(0, |incarnation| incarnation.0),
            phase: match flow.phase {
                Phase::Opening => DENREI_PHASE_OPENING,
                Phase::Answering => DENREI_PHASE_ANSWERING,
                Phase::Open => DENREI_PHASE_OPEN,
                Phase::Closing => DENREI_PHASE_CLOSING,
                _ => DENREI_PHASE_OVER,
            },
            srtt_ns: flow.srtt_ns.unwrap_or(0),
            min_rtt_ns: flow.min_rtt_ns.unwrap_or(0),
            rtt_var_ns: flow.rtt_var_ns,
            window_bytes: flow.window_bytes,
            in_flight_bytes: flow.in_flight_bytes,
            credit_bytes: flow.credit_bytes,
            queued_messages: flow.queued_messages,
            queued_bytes: flow.queued_bytes,
            unread_bytes: flow.unread_bytes,
            datagram_bytes: flow.datagram_bytes,
            packets_sent: flow.counters.packets_sent,
            packets_received: flow.counters.packets_received,
            bytes_sent: flow.counters.bytes_sent,
            bytes_received: flow.counters.bytes_received,
            messages_sent: flow.counters.messages_sent,
            messages_received: flow.counters.messages_received,
            packets_lost: flow.counters.packets_lost,
            retransmissions: flow.counters.retransmissions,
            probes: flow.counters.probes,
            duplicates: flow.counters.duplicates,
            ecn_marks: flow.counters.ecn_marks,
            recoveries: flow.counters.recoveries,
            excess: flow.counters.excess,
            rate: flow.rate.into(),
            rate_set: flow.rate_set.unwrap_or(Rate::UNLIMITED).into(),
            has_rate_set: flow.rate_set.is_some(),
            rate_requested: flow.rate_requested.into(),
            weight: flow.weight,
        }
    }
}

fn unknown(peer: denrei_peer) -> Failure {
    let peer = PeerId::from_u64(peer);
    Failure::new(DENREI_UNKNOWN_PEER, format!("{peer} is not, or no longer, in the address table"))
}

/// A peer's flow state.
///
/// # Safety
/// `node` is a node, `flow` a place for a denrei_flow_state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_flow(
    node: *const denrei_node,
    peer: denrei_peer,
    flow: *mut denrei_flow_state,
) -> denrei_code {
    call(|| {
        let place = place("flow", flow)?;
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let state = node.node.flow(PeerId::from_u64(peer)).ok_or_else(|| unknown(peer))?;
        // SAFETY: by the contract.
        unsafe { place.put(state.into()) };
        Ok(())
    })
}

/// The address table: writes the flow states of up to `room` peers to `flows`, and to `count` how
/// many there are, which may be more. `flows` may be NULL if `room` is 0.
///
/// # Safety
/// `node` is a node, `flows` has `room` places, `count` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_peers(
    node: *const denrei_node,
    flows: *mut denrei_flow_state,
    room: usize,
    count: *mut usize,
) -> denrei_code {
    call(|| {
        let place = place("count", count)?;
        if flows.is_null() && room > 0 {
            return Err(Failure::null("flows"));
        }
        // SAFETY: by the contract.
        let all = unsafe { own("node", node) }?.node.peers();
        // SAFETY: by the contract.
        unsafe { place.put(all.len()) };
        for (index, state) in all.into_iter().take(room).enumerate() {
            // SAFETY: index < room.
            unsafe { flows.add(index).write(state.into()) };
        }
        Ok(())
    })
}

/// Writes a peer's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
///
/// # Safety
/// `node` is a node, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_peer_address(
    node: *const denrei_node,
    peer: denrei_peer,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let state = node.node.flow(PeerId::from_u64(peer)).ok_or_else(|| unknown(peer))?;
        // SAFETY: by the contract.
        unsafe { write_text(&state.addr.to_string(), buffer, length) }
    })
}

/// Asks a peer for its state now; DENREI_EVENT_STATUS brings it, with the number put into `request`
/// unless that is NULL. A request takes the place of one before it that has no answer yet.
///
/// # Safety
/// `node` is a node, `request` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_request_status(
    node: *const denrei_node,
    peer: denrei_peer,
    request: *mut u32,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let asked = unsafe { own("node", node) }?.node.request_status(PeerId::from_u64(peer))?;
        // SAFETY: by the contract.
        unsafe { put(request, asked) };
        Ok(())
    })
}

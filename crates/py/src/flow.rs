//! A peer's flow state (S8).

use denrei::{FlowState as State, PeerCounters, Rate};
use pyo3::prelude::*;

/// What is known of the way to a peer, as of the moment it was asked for.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct FlowState {
    /// Its address, such as "192.0.2.7:7411".
    addr: String,
    /// Which start of its process it is; `None` before it was heard.
    incarnation: Option<u64>,
    /// "opening", "answering", "open", "closing" or "over".
    phase: String,
    /// Smoothed round-trip time, seconds; `None` before the first sample.
    srtt: Option<f64>,
    /// Smallest round-trip time seen, seconds.
    min_rtt: Option<f64>,
    /// Mean deviation of the round-trip time, seconds.
    rtt_var: f64,
    /// Congestion window, bytes.
    window_bytes: u64,
    /// Sent, neither acknowledged nor known lost, bytes.
    in_flight_bytes: u64,
    /// Bytes that may be sent unasked on channel 0.
    credit_bytes: u64,
    /// Messages that are not acknowledged.
    queued_messages: u64,
    /// Bytes of messages that are not acknowledged.
    queued_bytes: u64,
    /// Received bytes that were not taken yet.
    unread_bytes: u64,
    /// Largest datagram the path is known to carry, bytes.
    datagram_bytes: u16,
    /// Packets sent since the session began.
    packets_sent: u64,
    /// Packets received.
    packets_received: u64,
    /// Bytes sent, UDP payload.
    bytes_sent: u64,
    /// Bytes received, UDP payload.
    bytes_received: u64,
    /// Messages taken from the application.
    messages_sent: u64,
    /// Messages handed to the application.
    messages_received: u64,
    /// Packets declared lost.
    packets_lost: u64,
    /// Recoveries started: losses of what was sent after the recovery before had begun.
    recoveries: u64,
    /// Fragments and messages sent again.
    retransmissions: u64,
    /// Tail probes and timeouts fired.
    probes: u64,
    /// Packets dropped because the peer sent more than it was told it may, and requests that say so.
    excess: u64,
    /// Packets received twice.
    duplicates: u64,
    /// Packets that came back marked with congestion.
    ecn_marks: u64,
    /// How fast this side sends to the peer: bytes per second, and bytes in a row (0: no limit).
    rate: (u64, u64),
    /// How fast the peer may send, as set by this side; `None` if it was never told.
    rate_set: Option<(u64, u64)>,
    /// How fast the peer would send by itself.
    rate_requested: (u64, u64),
    /// The peer's share of what this side can receive (`Peer.set_weight`).
    weight: u32,
}

impl From<State> for FlowState {
    fn from(state: State) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let pair = |rate: Rate| (rate.bytes_per_s, rate.burst_bytes);
        let PeerCounters {
            packets_sent,
            packets_received,
            bytes_sent,
            bytes_received,
            messages_sent,
            messages_received,
            packets_lost,
            recoveries,
            retransmissions,
            probes,
            excess,
            duplicates,
            ecn_marks,
        } = state.counters;
        Self {
            addr: state.addr.to_string(),
            incarnation: state.incarnation.map(|incarnation| incarnation.0),
            phase: format!("{:?}", state.phase).to_lowercase(),
            srtt: state.srtt_ns.map(seconds),
            min_rtt: state.min_rtt_ns.map(seconds),
            rtt_var: seconds(state.rtt_var_ns),
            window_bytes: state.window_bytes,
            in_flight_bytes: state.in_flight_bytes,
            credit_bytes: state.credit_bytes,
            queued_messages: state.queued_messages,
            queued_bytes: state.queued_bytes,
            unread_bytes: state.unread_bytes,
            datagram_bytes: state.datagram_bytes,
            packets_sent,
            packets_received,
            bytes_sent,
            bytes_received,
            messages_sent,
            messages_received,
            packets_lost,
            recoveries,
            retransmissions,
            probes,
            excess,
            duplicates,
            ecn_marks,
            rate: pair(state.rate),
            rate_set: state.rate_set.map(pair),
            rate_requested: pair(state.rate_requested),
            weight: state.weight,
        }
    }
}

#[pymethods]
impl FlowState {
    fn __repr__(&self) -> String {
        let srtt = self.srtt.map_or("unknown".to_owned(), |srtt| format!("{:.1} us", srtt * 1e6));
        format!(
            "<denrei.FlowState {} {}: round trip {srtt}, {} messages queued>",
            self.addr, self.phase, self.queued_messages
        )
    }
}

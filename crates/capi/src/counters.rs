//! What a node counts, and what its port can do.

use crate::error::{array_of, call, denrei_code, own, place};
use crate::node::denrei_node;
use denrei::{Capabilities, EndpointCounters, IoCounters};
use std::ffi::c_char;

/// What happened on a node's port that belongs to no peer, and its system calls.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_counters {
    /// Datagrams handled, good or bad.
    pub datagrams: u64,
    /// No packet of this protocol.
    pub malformed: u64,
    /// Checksum or authentication failed.
    pub corrupted: u64,
    /// A token nobody has, or from the wrong address.
    pub unknown_session: u64,
    /// Another version of the protocol.
    pub foreign_version: u64,
    /// Sessions turned away because there are as many peers, or as many that have not shown that they are at
    /// their address, as there may be. They come again.
    pub refused_sessions: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received.
    pub recv_calls: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Times that several peers together sent more than arrived, and were told limits from then on.
    pub crowds: u64,
    /// Answers to strangers not sent because too many were waiting.
    pub suppressed_replies: u64,
    /// Openings made with another cluster key, forged, or damaged.
    pub strange_keys: u64,
    /// Peers with the cluster key whose identity is not allowed.
    pub strangers: u64,
    /// Plain packets, which a node with a cluster key does not take.
    pub unsealed: u64,
    /// Openings that only a node with a cluster key can read.
    pub sealed_unread: u64,
    /// Openings dropped because their source or their session had brought too much.
    pub limited: u64,
    /// Those who were asked to prove their address first.
    pub retries: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams that the host refused to send.
    pub send_dropped: u64,
    /// Times that more was sent than arrived, and rates were learnt from then on.
    pub overruns: u64,
    /// Packets of groups that had come before.
    pub repeated_group_packets: u64,
    /// Datagrams received and handed on.
    pub datagrams_received: u64,
    /// Trains sent in one call by segmentation offload.
    pub sent_trains: u64,
    /// Send calls that found the send buffer full.
    pub send_would_block: u64,
    /// Trains that offload refused and that were sent segment by segment.
    pub gso_fallbacks: u64,
    /// Times that offload was switched off for a path, until it is tried again.
    pub gso_disabled: u64,
    /// Receive calls that brought a train of several datagrams.
    pub recv_trains: u64,
    /// Times a socket was switched to trains or to lone datagrams.
    pub gro_switches: u64,
    /// Receive calls that found nothing.
    pub recv_would_block: u64,
    /// Errors reported by receive calls, such as a peer's "port unreachable".
    pub recv_errors: u64,
    /// Datagrams or trains larger than the buffer; what was cut is discarded.
    pub recv_truncated: u64,
    /// Connected sockets opened.
    pub peers_connected: u64,
    /// Connected sockets closed.
    pub peers_disconnected: u64,
    /// Datagrams received into the memory of the message that they were expected to carry a part of.
    pub recv_landed: u64,
    /// Events that were dropped because the application took none while 65,536 newer ones came, or 1,048,576 offers and
    /// what it asked for as completions of messages.
    pub dropped_events: u64,
}

/// Makes a value of one type from all fields of two others: one that is not named does not compile.
macro_rules! joined {
    ($into:ident, $first:ident { $($field:ident),* }, $second:ident { $($from:ident => $to:ident),* }) => {
        impl $into {
            fn new(first: $first, second: $second) -> Self {
                let $first { $($field),* } = first;
                let $second { $($from: $to),* } = second;
                Self { $($field,)* $($to),* }
            }
        }
    };
}

joined!(
    denrei_counters,
    EndpointCounters {
        datagrams,
        malformed,
        corrupted,
        unknown_session,
        foreign_version,
        refused_sessions,
        crowds,
        overruns,
        suppressed_replies,
        strange_keys,
        strangers,
        unsealed,
        repeated_group_packets,
        sealed_unread,
        limited,
        retries,
        dropped_events
    },
    IoCounters {
        send_calls => send_calls,
        recv_calls => recv_calls,
        sent_datagrams => datagrams_sent,
        sent_bytes => bytes_sent,
        sent_trains => sent_trains,
        send_would_block => send_would_block,
        send_dropped => send_dropped,
        gso_fallbacks => gso_fallbacks,
        gso_disabled => gso_disabled,
        recv_datagrams => datagrams_received,
        recv_bytes => bytes_received,
        recv_trains => recv_trains,
        gro_switches => gro_switches,
        recv_would_block => recv_would_block,
        recv_errors => recv_errors,
        recv_truncated => recv_truncated,
        peers_connected => peers_connected,
        peers_disconnected => peers_disconnected,
        recv_landed => recv_landed
    }
);

/// A node's counters.
///
/// # Safety
/// `node` is a node, `counters` a place for a denrei_counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_counters(
    node: *const denrei_node,
    counters: *mut denrei_counters,
) -> denrei_code {
    call(|| {
        let place = place("counters", counters)?;
        // SAFETY: by the contract.
        let node = &unsafe { own("node", node) }?.node;
        // SAFETY: by the contract.
        unsafe { place.put(denrei_counters::new(node.counters(), node.io_counters())) };
        Ok(())
    })
}

/// What a node's port can do on this host.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_capabilities {
    /// How system calls are made: "batched" or "plain".
    pub backend: [c_char; 16],
    /// Trains of datagrams are sent in one call.
    pub gso: bool,
    /// Trains of datagrams are received in one call.
    pub gro: bool,
    /// Marks of congestion are sent and read.
    pub ecn: bool,
    /// Paths on which `gso` was found not to work although the kernel announced it.
    pub gso_disabled_paths: usize,
    /// Usable receive buffer, bytes.
    pub recv_buffer_bytes: usize,
    /// Usable send buffer, bytes.
    pub send_buffer_bytes: usize,
    /// Most datagrams in a train that is sent.
    pub max_segments: usize,
}

impl From<Capabilities> for denrei_capabilities {
    fn from(capabilities: Capabilities) -> Self {
        let Capabilities {
            backend,
            gso,
            gso_disabled_paths,
            gro,
            ecn,
            recv_buffer_bytes,
            send_buffer_bytes,
            max_segments,
        } = capabilities;
        Self {
            backend: array_of(backend),
            gso,
            gro,
            ecn,
            gso_disabled_paths,
            recv_buffer_bytes,
            send_buffer_bytes,
            max_segments,
        }
    }
}

/// What a node's port can do.
///
/// # Safety
/// `node` is a node, `capabilities` a place for a denrei_capabilities.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_capabilities(
    node: *const denrei_node,
    capabilities: *mut denrei_capabilities,
) -> denrei_code {
    call(|| {
        let place = place("capabilities", capabilities)?;
        // SAFETY: by the contract.
        let found = unsafe { own("node", node) }?.node.capabilities();
        // SAFETY: by the contract.
        unsafe { place.put(found.into()) };
        Ok(())
    })
}

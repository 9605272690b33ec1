//! The sans-IO core of denrei: no sockets, no clock, no threads, no randomness but a seed.
//!
//! Inputs → outputs: datagrams, time and the application's calls → datagrams, deadlines, messages
//! and events. The one type to drive is [`Endpoint`].

#![forbid(unsafe_code)]

mod ack;
mod blocks;
mod buffer_pool;
mod channel_map;
mod config;
mod congestion;
mod doorkeeper;
mod doubted;
mod endpoint;
mod event;
mod events;
pub mod group;
mod inbox;
mod lending;
mod loss;
mod marking;
mod mtu;
mod outbox;
mod pacing;
mod peer;
mod pending;
mod placement;
mod ranges;
mod rate;
mod reassembly;
mod recv_channel;
mod rtt;
pub mod seal;
mod send_channel;
mod sent;
mod slots;
mod timer_queue;

pub use config::{
    Config, ConfigError, CongestionAlgorithm, MESSAGE_COST_BYTES, MIN_CHANNEL_CREDIT_BYTES, MIN_CHANNELS,
    OfferPolicy,
};
pub use doorkeeper::{Doorkeeper, Refusal};
pub use endpoint::{Endpoint, Place};
pub use event::{
    ChannelId, Completion, ConnectError, EndpointCounters, Event, FlowState, LostReason, Message, MessageId,
    NoMore, PeerCounters, PeerError, PeerId, Phase, SendError,
};
pub use lending::Lent;
pub use placement::{AcceptInto, Placement};
pub use rate::{DEFAULT_WEIGHT, HostCapacity, HostLimit, HostRecord, MAX_RATE, MAX_WEIGHT, Rate};

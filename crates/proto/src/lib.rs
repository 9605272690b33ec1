//! The sans-IO core of denrei: no sockets, no clock, no threads, no randomness but a seed.
//!
//! Inputs → outputs: datagrams, time and the application's calls → datagrams, deadlines, messages
//! and events. The one type to drive is [`Endpoint`].

#![forbid(unsafe_code)]

mod ack;
mod config;
mod congestion;
mod event;
mod loss;
mod mtu;
mod pacing;
mod ranges;
mod rtt;

pub use config::{
    Config, ConfigError, CongestionAlgorithm, MESSAGE_COST_BYTES, MIN_CHANNEL_CREDIT_BYTES, OfferPolicy,
};
pub use event::{
    ChannelId, Completion, ConnectError, EndpointCounters, Event, FlowState, LostReason, Message, MessageId,
    PeerCounters, PeerError, PeerId, Phase, SendError,
};

//! Every setting of an endpoint, with defaults that are right for a LAN and safe on the internet.
//!
//! Inputs → outputs: a plain [`Config`] → the same, checked, or a [`ConfigError`] that says what
//! to change.

use crate::doorkeeper::Doorkeeper;
use crate::rate::{MAX_RATE, Rate};
use crate::seal::{ClusterKey, Identity, PublicIdentity};
use core::time::Duration;
use thiserror::Error;

/// Settings of an endpoint. Construct with `Config::default()` and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Credit each channel starts with and is kept at while the application keeps up (S5), bytes.
    /// Bounds what one unread channel may hold in memory. 64 KiB ..= 1 TiB.
    pub channel_credit_bytes: u64,
    /// Received, unread bytes over all peers above which no credit is renewed and no further
    /// offer is accepted by itself. At least `channel_credit_bytes`. Peers that hold it all and do not complete
    /// their messages leave each other one a share all the same: an eighth of it, or less the more they are.
    pub receive_memory_bytes: u64,
    /// Largest message this endpoint takes, bytes. What a peer sent before it had heard of this is taken
    /// up to 65,472 bytes all the same.
    pub max_message_bytes: u64,
    /// Messages larger than this are offered and sent when the receiver accepts. Must leave room
    /// below the channel credit.
    pub offer_above_bytes: u64,
    /// The only channel whose messages are offered because of that; those of others are if they cost more
    /// than the receiver's channel credit. `None`: no channel is an exception.
    pub offering_channel: Option<u16>,
    /// Who answers offers.
    pub offers: OfferPolicy,
    /// Unacknowledged and unsent bytes per peer above which `send` reports that it would block. A message of any size
    /// is taken when no more than half of this is queued, or a large one would wait for as long as others send small
    /// ones; and each channel may queue 16 KiB, or an eighth of this if that is less, whatever the others have queued,
    /// so that a full one holds up no other.
    pub send_buffer_bytes: u64,
    /// Channels per peer and direction; channel numbers must be below. 16 ..= 65,535.
    pub max_channels: u16,
    /// Peers at a time; further FIRSTs are not answered. 1 ..= 2^24 − 1.
    pub max_peers: u32,
    /// A peer that has been silent for this long, though it was spoken to, is lost.
    pub failure_timeout: Duration,
    /// An otherwise silent peer is asked for a sign of life this often; `None`: never, and a dead
    /// peer is noticed only when there is something to send.
    pub keepalive: Option<Duration>,
    /// How long a FIRST is repeated before the peer counts as not there.
    pub connect_timeout: Duration,
    /// Longest time an acknowledgement is held back in the hope that it can ride on data; where the application
    /// answered the last message, ten times as long, up to 10 ms.
    pub max_ack_delay: Duration,
    /// Round-trip time assumed before the first measurement: a first packet that is lost is sent again after
    /// three times this.
    pub initial_rtt: Duration,
    /// Largest datagram to send, bytes of UDP payload; the path is probed up to it (RFC 8899).
    /// `min_datagram_bytes` ..= 65,507.
    pub max_datagram_bytes: u16,
    /// Datagram that every path is expected to carry, and where probing starts. One that does not is found out
    /// within six probe timeouts and gets smaller ones, down to 576. 576 ..= 1,472.
    pub min_datagram_bytes: u16,
    /// Octets of data packets that may be sent to a receiver before it has answered, beyond the one
    /// that reaches this. Many may open at once, and their receiver has had no word in it.
    pub first_flight_bytes: u64,
    /// Rate and burst to send with until a receiver sets others (R4); told to every peer. Both or neither: a
    /// rate that is a limit needs a burst, and the other way round.
    pub rate_request: Rate,
    /// Learn how fast, and how much in a row, this endpoint can receive, and set rate and burst of its
    /// peers accordingly (R11–R13), in place of grants: for receivers that are slower than the network,
    /// and for senders without a congestion window. Without it, senders that lose packets slow down by
    /// themselves, and only a crowd is told what to do; it is off because a receiver cannot tell loss by
    /// chance on a long path from its own.
    pub learn_rates: bool,
    /// Which congestion controller peers get.
    pub congestion: CongestionAlgorithm,
    /// Mark packets ECN-capable and react to marks (RFC 3168).
    pub ecn: bool,
    /// The secret that the cluster shares. With it every packet is sealed, and who does not have it
    /// is not heard (`spec/protocol.md` §12); without it nothing is protected.
    pub cluster_key: Option<ClusterKey>,
    /// This Node's own secret. With it peers have to show an identity that is [`allowed`](Self::allowed),
    /// besides the cluster key.
    pub identity: Option<Identity>,
    /// The identities to speak with; each needs this Node's on its own list.
    pub allowed: Vec<PublicIdentity>,
    /// Handshakes a second that one source address (IPv6: one /64) may make this Node compute, once
    /// it has a cluster key; FIRSTs beyond are dropped and counted. At least 1.
    pub max_handshakes_per_s: u32,
    /// Packets sealed with one key before the next one takes over. 16 ..= 2^22: far below what
    /// AES-128-GCM allows (RFC 9001 §6.6); small values are for tests.
    pub rekey_after_packets: u64,
    /// Relays that what this endpoint opens has come through, told to every peer: for those who forward, so that what
    /// goes round in a circle is noticed (`spec/protocol.md` §13.2).
    pub relays: u8,
    /// Who says whether a peer that has opened a session is let in, before anything of it is acknowledged; `None`:
    /// everybody is who has the key, and is allowed.
    pub doorkeeper: Option<Doorkeeper>,
}

/// Who answers the offer of a large message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OfferPolicy {
    /// The endpoint accepts by itself while receive memory lasts, smallest message first.
    #[default]
    Automatic,
    /// The application gets `Event::Offered` and answers with `accept` or `refuse`.
    Ask,
}

/// The controller that sets a peer's congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CongestionAlgorithm {
    /// Window steered by delay and ECN marks, for clusters (Swift, DCTCP).
    #[default]
    Delay,
    /// CUBIC (RFC 9438), for paths shared with TCP over a distance.
    Cubic,
    /// No window: the rate, the burst and the credit that the receiver sets are the only limits
    /// (R1–R4). For paths whose capacity is reserved, and for measuring what a rate does.
    RateOnly,
}

/// Sixty-four who open at once fill half of a shallow switch buffer (64 KiB) with it, and lose none; a
/// larger first flight would win a round trip on an empty path only.
const FIRST_FLIGHT_BYTES: u64 = 512;

/// Least channel credit: what a sender may assume before it has heard from the receiver
/// (`spec/protocol.md` §6), bytes.
pub const MIN_CHANNEL_CREDIT_BYTES: u64 = 64 * 1024;

/// Least `max_channels`: what a sender may assume before it has heard from the receiver.
pub const MIN_CHANNELS: u16 = 16;

/// What a message costs beyond its payload when charged against credit: bounds the memory that
/// empty messages take, bytes (`spec/protocol.md` §6).
pub const MESSAGE_COST_BYTES: u64 = 64;

/// Largest message that may come from a sender that has not heard `max_message_bytes` yet.
pub(crate) const TAKEN_AT_FIRST_BYTES: u64 = MIN_CHANNEL_CREDIT_BYTES - MESSAGE_COST_BYTES;

/// What every path has to carry, octets of UDP payload (`spec/protocol.md` §9).
pub(crate) const LEAST_DATAGRAM_BYTES: u16 = 576;

/// Most packets a key seals. RFC 9001 §6.6 allows AES-128-GCM 2^23 of full size.
pub const MAX_PACKETS_PER_KEY: u64 = 1 << 22;

impl Default for Config {
    fn default() -> Self {
        Self {
            channel_credit_bytes: 4 << 20,
            receive_memory_bytes: 1 << 30,
            max_message_bytes: 16 << 30,
            offer_above_bytes: 1 << 20,
            offering_channel: None,
            offers: OfferPolicy::Automatic,
            send_buffer_bytes: 8 << 20,
            max_channels: 1024,
            max_peers: 65_536,
            failure_timeout: Duration::from_secs(20),
            keepalive: Some(Duration::from_secs(5)),
            connect_timeout: Duration::from_secs(20),
            max_ack_delay: Duration::from_millis(1),
            initial_rtt: Duration::from_millis(10),
            max_datagram_bytes: denrei_wire::datagram::MAX_DATAGRAM_BYTES as u16,
            min_datagram_bytes: 1200,
            first_flight_bytes: FIRST_FLIGHT_BYTES,
            rate_request: Rate::UNLIMITED,
            learn_rates: false,
            congestion: CongestionAlgorithm::Delay,
            ecn: true,
            cluster_key: None,
            identity: None,
            allowed: Vec::new(),
            max_handshakes_per_s: 10_000,
            rekey_after_packets: MAX_PACKETS_PER_KEY,
            relays: 0,
            doorkeeper: None,
        }
    }
}

/// A setting that cannot work.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
#[error("{setting} is {value}, but has to be {expected}")]
pub struct ConfigError {
    /// Name of the field.
    pub setting: &'static str,
    /// What it was set to.
    pub value: String,
    /// What is possible.
    pub expected: String,
}

fn require(
    holds: bool,
    setting: &'static str,
    value: impl ToString,
    expected: impl ToString,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError { setting, value: value.to_string(), expected: expected.to_string() })
}

impl Config {
    /// The settings of each of `count` endpoints that are one process ([`Place`](crate::Place)): they share its memory for
    /// what is received, and what a source may ask of it.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn share_of(&self, count: u32) -> Self {
        let mut share = self.clone();
        share.receive_memory_bytes /= u64::from(count);
        share.max_handshakes_per_s = share.max_handshakes_per_s.div_ceil(count);
        share
    }

    /// Checks that the settings are possible, each by itself and together.
    ///
    /// # Errors
    /// The first setting that is not, with what it would have to be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let credit = self.channel_credit_bytes;
        require(
            (MIN_CHANNEL_CREDIT_BYTES..=1 << 40).contains(&credit),
            "channel_credit_bytes",
            credit,
            "between 65536 (64 KiB) and 1099511627776 (1 TiB)",
        )?;
        require(
            self.receive_memory_bytes >= credit,
            "receive_memory_bytes",
            self.receive_memory_bytes,
            format_args!("at least channel_credit_bytes ({credit})"),
        )?;
        require(self.max_message_bytes > 0, "max_message_bytes", self.max_message_bytes, "at least 1")?;
        let most_unasked = credit - MESSAGE_COST_BYTES;
        require(
            self.offer_above_bytes <= most_unasked,
            "offer_above_bytes",
            self.offer_above_bytes,
            format_args!("at most {most_unasked} (channel_credit_bytes less {MESSAGE_COST_BYTES})"),
        )?;
        require(self.send_buffer_bytes > 0, "send_buffer_bytes", self.send_buffer_bytes, "at least 1")?;
        require(
            self.max_channels >= MIN_CHANNELS,
            "max_channels",
            self.max_channels,
            format_args!("at least {MIN_CHANNELS}"),
        )?;
        require(
            (1..1 << denrei_wire::Token::SLOT_BITS).contains(&self.max_peers),
            "max_peers",
            self.max_peers,
            "between 1 and 16777215",
        )?;
        if let Some((field, value)) = self.rate_request.impossible_field() {
            let setting =
                if field == "bytes_per_s" { "rate_request_bytes_per_s" } else { "rate_request_burst_bytes" };
            require(false, setting, value, format_args!("at most {MAX_RATE} (1 PiB)"))?;
        }
        self.validate_rate_request()?;
        self.validate_times()?;
        self.validate_sizes()?;
        self.validate_secrets()
    }

    /// A rate without a burst, or a burst without a rate, would set no limit, and say nothing of it.
    fn validate_rate_request(&self) -> Result<(), ConfigError> {
        let Rate { bytes_per_s, burst_bytes } = self.rate_request;
        require(
            burst_bytes > 0 || bytes_per_s == 0 || bytes_per_s == MAX_RATE,
            "rate_request_burst_bytes",
            burst_bytes,
            format_args!(
                "set too where rate_request_bytes_per_s is ({bytes_per_s}): the bytes that may \
                 leave in a row; 0 lifts the limit whatever the rate is"
            ),
        )?;
        require(
            burst_bytes == 0 || bytes_per_s < MAX_RATE,
            "rate_request_bytes_per_s",
            bytes_per_s,
            format_args!(
                "set too where rate_request_burst_bytes is ({burst_bytes}): below {MAX_RATE} \
                 (1 PiB), which is no limit"
            ),
        )
    }

    fn validate_secrets(&self) -> Result<(), ConfigError> {
        require(
            self.identity.is_none() || self.cluster_key.is_some(),
            "cluster_key",
            "not set",
            "set where identity is: identities are shown to those alone who have the cluster key",
        )?;
        require(
            self.identity.is_some() != self.allowed.is_empty(),
            "allowed",
            if self.allowed.is_empty() { "empty" } else { "not empty" },
            if self.identity.is_some() {
                "the identities to speak with: with an identity of its own a Node speaks with no others"
            } else {
                "empty, or identity set: a peer with an identity speaks with those alone that have one"
            },
        )?;
        require(
            self.max_handshakes_per_s > 0,
            "max_handshakes_per_s",
            self.max_handshakes_per_s,
            "at least 1",
        )?;
        require(
            (16..=MAX_PACKETS_PER_KEY).contains(&self.rekey_after_packets),
            "rekey_after_packets",
            self.rekey_after_packets,
            format_args!("between 16 and {MAX_PACKETS_PER_KEY}"),
        )
    }

    fn validate_times(&self) -> Result<(), ConfigError> {
        let ms = Duration::from_millis;
        let show = |duration: Duration| format!("{duration:?}");
        require(
            self.failure_timeout >= ms(10),
            "failure_timeout",
            show(self.failure_timeout),
            "at least 10ms, and several round trips",
        )?;
        if let Some(keepalive) = self.keepalive {
            require(
                keepalive >= ms(1) && keepalive <= self.failure_timeout / 2,
                "keepalive",
                show(keepalive),
                format_args!("between 1ms and half of failure_timeout ({:?})", self.failure_timeout / 2),
            )?;
        }
        require(
            self.connect_timeout >= ms(10),
            "connect_timeout",
            show(self.connect_timeout),
            "at least 10ms",
        )?;
        require(
            self.max_ack_delay <= ms(50) && self.max_ack_delay * 4 <= self.failure_timeout,
            "max_ack_delay",
            show(self.max_ack_delay),
            "at most 50ms and a quarter of failure_timeout",
        )?;
        require(
            (Duration::from_micros(1)..=Duration::from_secs(3)).contains(&self.initial_rtt),
            "initial_rtt",
            show(self.initial_rtt),
            "between 1µs and 3s",
        )
    }

    fn validate_sizes(&self) -> Result<(), ConfigError> {
        let (min, max) = (self.min_datagram_bytes, self.max_datagram_bytes);
        let base = LEAST_DATAGRAM_BYTES..=1472;
        require(base.contains(&min), "min_datagram_bytes", min, "between 576 and 1472")?;
        require(
            max >= min && max as usize <= denrei_wire::datagram::MAX_DATAGRAM_BYTES,
            "max_datagram_bytes",
            max,
            format_args!("between min_datagram_bytes ({min}) and 65507"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn errors_say_what_to_change() {
        assert!(Config { keepalive: Some(Duration::MAX), ..Config::default() }.validate().is_err());
        let config = Config { keepalive: Some(Duration::from_secs(15)), ..Config::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "keepalive is 15s, but has to be between 1ms and half of failure_timeout (10s)"
        );
        let config = Config { offer_above_bytes: 4 << 20, ..Config::default() };
        assert_eq!(config.validate().unwrap_err().setting, "offer_above_bytes");
        let identity = Some(Identity::from_bytes([1; 32]));
        let config = Config { identity: identity.clone(), ..Config::default() };
        assert_eq!(config.validate().unwrap_err().setting, "cluster_key");
        let cluster_key = Some(ClusterKey::from_bytes([2; 32]));
        let config = Config { identity, cluster_key, ..Config::default() };
        assert_eq!(config.validate().unwrap_err().setting, "allowed");
        let config = Config { min_datagram_bytes: 100, ..Config::default() };
        assert_eq!(config.validate().unwrap_err().setting, "min_datagram_bytes");
    }
}

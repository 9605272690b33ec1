//! Frames that own what they carry, and a strategy that yields every kind of them.

use denrei_wire::EcnCounts;
use denrei_wire::ack;
use denrei_wire::frame::{
    Accept, Credit, Delivered, End, Fragment, Frame, Grant, GrantRequest, MAX_ACK_DELAY_US, MAX_PACE,
    MAX_REASON_BYTES, MIN_CHANNEL_CREDIT_BYTES, MIN_MAX_CHANNELS, MIN_MAX_DATAGRAM_BYTES, Message, Offer,
    Parameters, Rate, Skip, Status, message_flags,
};
use proptest::prelude::*;
use std::ops::RangeInclusive;

/// A frame without borrowed parts.
#[derive(Clone, Debug)]
pub enum Owned {
    Plain(Frame<'static>),
    Ack { ranges: Vec<RangeInclusive<u64>>, delay_us: u16, ecn: Option<EcnCounts> },
    Message { flags: u8, channel: u16, number: u32, payload: Vec<u8> },
    Fragment { flags: u8, channel: u16, number: u32, offset: u64, total: u64, payload: Vec<u8> },
    End { code: u16, reason: String },
}

/// The octets of any frame.
pub fn octets_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    frame.encode(&mut |part| octets.extend_from_slice(part));
    octets
}

impl Owned {
    pub fn octets(&self) -> Vec<u8> {
        match self {
            Self::Ack { ranges, delay_us, ecn } => {
                let mut octets = Vec::new();
                ack::encode(ranges.iter().cloned(), *delay_us, *ecn, &mut |part| octets.extend(part));
                octets
            }
            _ => octets_of(&self.borrow()),
        }
    }

    /// Whether `frame` says the same.
    pub fn matches(&self, frame: &Frame<'_>) -> bool {
        match (self, frame) {
            (Self::Ack { ranges, delay_us, ecn }, Frame::Ack(ack)) => {
                ack.ranges(*ranges[0].end()).eq(ranges.iter().cloned())
                    && (ack.delay_us, ack.ecn) == (*delay_us, *ecn)
            }
            (Self::Ack { .. }, _) => false,
            _ => self.borrow() == *frame,
        }
    }

    fn borrow(&self) -> Frame<'_> {
        match self {
            Self::Plain(frame) => frame.clone(),
            Self::Ack { .. } => unreachable!("handled by the callers"),
            Self::Message { flags, channel, number, payload } => {
                Frame::Message(Message { flags: *flags, channel: *channel, number: *number, payload })
            }
            Self::Fragment { flags, channel, number, offset, total, payload } => Frame::Fragment(Fragment {
                flags: *flags,
                channel: *channel,
                number: *number,
                offset: *offset,
                total: *total,
                payload,
            }),
            Self::End { code, reason } => Frame::End(End { code: *code, reason }),
        }
    }
}

/// Disjoint, not adjacent ranges of packet numbers, newest first, as `ack::encode` takes them.
pub fn any_ranges() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
    let steps = prop::collection::vec((1u64..50, 0u64..50), 1..ack::MAX_ACK_RANGES);
    (10_000u64..1 << 50, steps).prop_map(|(largest, steps)| {
        let mut above = largest + 1;
        let mut ranges = Vec::new();
        for (position, (gap, run)) in steps.into_iter().enumerate() {
            let end = above - if position == 0 { 1 } else { 1 + gap };
            ranges.push(end - run..=end);
            above = end - run;
        }
        ranges
    })
}

fn any_ecn() -> impl Strategy<Value = Option<EcnCounts>> {
    prop::option::of(any::<[u32; 3]>().prop_map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce }))
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 1200..1500)]
}

prop_compose! {
    fn any_parameters()(
        channel_credit in MIN_CHANNEL_CREDIT_BYTES..,
        max_message in 1u64..,
        max_datagram in MIN_MAX_DATAGRAM_BYTES..,
        max_channels in MIN_MAX_CHANNELS..,
        ack_delay_us in 0..=MAX_ACK_DELAY_US,
        (rate_req, burst_req, relays) in any::<(u64, u64, u8)>(),
    ) -> Parameters {
        Parameters {
            channel_credit, max_message, max_datagram, max_channels, ack_delay_us, rate_req, burst_req, relays
        }
    }
}

fn any_message() -> impl Strategy<Value = Owned> {
    (0..=message_flags::REPORT, any::<u16>(), any::<u32>(), any_payload())
        .prop_map(|(flags, channel, number, payload)| Owned::Message { flags, channel, number, payload })
}

fn any_fragment() -> impl Strategy<Value = Owned> {
    let place = (any::<u64>(), any::<u64>());
    let payload = prop::collection::vec(any::<u8>(), 1..1500);
    (0..=message_flags::KNOWN, any::<u16>(), any::<u32>(), place, payload).prop_map(
        |(flags, channel, number, (offset, slack), payload)| {
            let offset = offset.min(u64::MAX - payload.len() as u64);
            let total = (offset + payload.len() as u64).saturating_add(slack);
            Owned::Fragment { flags, channel, number, offset, total, payload }
        },
    )
}

fn any_pace() -> impl Strategy<Value = Frame<'static>> {
    let rate = (any::<u32>(), 0..=MAX_PACE, 0..=MAX_PACE)
        .prop_map(|(serial, rate, burst)| Frame::Rate(Rate { serial, rate, burst }));
    let request =
        any::<(u32, u32)>().prop_map(|(sent, wanted)| Frame::GrantRequest(GrantRequest { sent, wanted }));
    let grant = any::<(u32, Option<u64>)>().prop_map(|(serial, limit)| Frame::Grant(Grant { serial, limit }));
    let skip = any::<(u16, u32, u64)>()
        .prop_map(|(channel, number, charged)| Frame::Skip(Skip { channel, number, charged }));
    prop_oneof![rate, request, grant, skip]
}

/// Any frame that an implementation may send, PADDING apart.
pub fn any_frame() -> impl Strategy<Value = Owned> {
    let plain = |frame| Just(Owned::Plain(frame));
    let ack = (any_ranges(), any::<u16>(), any_ecn()).prop_map(|(ranges, delay_us, ecn)| Owned::Ack {
        ranges,
        delay_us,
        ecn,
    });
    let offer = (0..=message_flags::REPORT, any::<u16>(), any::<u32>(), 1u64..)
        .prop_map(|(flags, channel, number, total)| Frame::Offer(Offer { flags, channel, number, total }));
    let accept = (any::<bool>(), any::<u16>(), any::<u32>(), any::<u64>()).prop_map(
        |(refused, channel, number, limit)| {
            Frame::Accept(Accept { refused, channel, number, limit: if refused { 0 } else { limit } })
        },
    );
    let credit = any::<(u16, u64)>().prop_map(|(channel, limit)| Frame::Credit(Credit { channel, limit }));
    let delivered =
        any::<(u16, u32)>().prop_map(|(channel, next)| Frame::Delivered(Delivered { channel, next }));
    let status = any::<(u32, u64, u32)>().prop_map(|(id, buffered_bytes, buffered_messages)| {
        Frame::Status(Status { id, buffered_bytes, buffered_messages })
    });
    // Any text of at most 42 characters of up to three octets fits.
    let end = (any::<u16>(), "[a-zäあ ]{0,42}")
        .prop_filter("fits", |(_, reason)| reason.len() <= MAX_REASON_BYTES)
        .prop_map(|(code, reason)| Owned::End { code, reason });
    prop_oneof![
        plain(Frame::Ping),
        plain(Frame::CloseWrite),
        plain(Frame::CloseRead),
        any::<u32>().prop_map(|id| Owned::Plain(Frame::StatusRequest(id))),
        offer.prop_map(Owned::Plain),
        accept.prop_map(Owned::Plain),
        credit.prop_map(Owned::Plain),
        delivered.prop_map(Owned::Plain),
        status.prop_map(Owned::Plain),
        any_parameters().prop_map(|p| Owned::Plain(Frame::Parameters(p))),
        any_pace().prop_map(Owned::Plain),
        ack,
        any_message(),
        any_fragment(),
        end,
    ]
}

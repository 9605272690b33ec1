//! Packets that were taken for lost and may arrive all the same.
//!
//! Inputs → outputs: packets taken for lost, and numbers acknowledged → whether the path keeps the order (RFC 8985
//! §6.2), which probe was needless, and how large a datagram has arrived after all.

use crate::sent::SentPacket;
use core::ops::RangeInclusive;
use denrei_wire::Instant;

/// So many are remembered: the newest, which arrive soonest.
const REMEMBERED: usize = 4;

/// After one lost by count has arrived, so many times that packets are lost it is by time alone (RFC 8985 §6.2's
/// RACK.reo_wnd_persist).
pub(crate) const DISORDER: u8 = 16;

/// Steps of patience that such arrivals add (RFC 8985 §6.2's RACK.reo_wnd_mult), at most.
const MOST_PATIENCE: u8 = 7;

/// Why a packet was taken for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Later ones had arrived.
    Overtaken,
    /// A later one had arrived, and it was too late.
    Overdue,
    /// Nothing was heard for so long that a probe repeated it.
    Silence,
}

#[derive(Debug)]
struct Taken {
    number: u64,
    sent_at: Instant,
    /// Octets of the datagram.
    bytes: u16,
    sign: Sign,
}

/// What has arrived though it was taken for lost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late {
    /// When a packet was sent that is among it and that a probe had repeated.
    pub probed_sent_at: Option<Instant>,
    /// Octets of the largest datagram of it, if any has.
    pub largest_bytes: Option<u16>,
}

/// The newest packets of one session that were taken for lost by a sign that may deceive.
#[derive(Debug, Default)]
pub(crate) struct Doubted {
    taken: [Option<Taken>; REMEMBERED],
    /// All of them are below.
    end: u64,
    /// Losses to come for which only time counts.
    disorder: u8,
    /// Steps of patience, and losses to come for which they count.
    patience: (u8, u8),
}

impl Doubted {
    /// A packet is taken for lost.
    pub fn on_taken(&mut self, number: u64, packet: &SentPacket, sign: Sign) {
        self.taken.rotate_right(1);
        self.taken[0] = Some(Taken { number, sent_at: packet.at, bytes: packet.bytes, sign });
        self.end = self.end.max(number + 1);
    }

    /// Packets of these numbers have arrived: adds those that had been taken for lost to `late`.
    #[inline]
    pub fn on_acked(&mut self, range: &RangeInclusive<u64>, late: &mut Late) {
        // Most ranges lie above all of them.
        if *range.start() < self.end {
            self.find(range, late);
        }
    }

    #[cold]
    fn find(&mut self, range: &RangeInclusive<u64>, late: &mut Late) {
        for slot in &mut self.taken {
            let Some(taken) = slot.take_if(|taken| range.contains(&taken.number)) else { continue };
            late.largest_bytes = late.largest_bytes.max(Some(taken.bytes));
            match taken.sign {
                Sign::Overtaken => self.disorder = DISORDER,
                Sign::Overdue => self.patience = ((self.patience.0 + 1).min(MOST_PATIENCE), DISORDER),
                Sign::Silence => late.probed_sent_at = late.probed_sent_at.max(Some(taken.sent_at)),
            }
        }
        self.end = self.taken.iter().flatten().map(|taken| taken.number + 1).max().unwrap_or(0);
    }

    /// Whether packets overtake each other on this path, so that only time tells that one is lost.
    pub fn is_out_of_order(&self) -> bool {
        self.disorder > 0
    }

    /// How much longer than usual to wait for one that others have overtaken, in steps.
    pub fn patience(&self) -> u8 {
        self.patience.0
    }

    /// Packets were lost, once more.
    pub fn on_lost(&mut self) {
        self.patience.1 = self.patience.1.saturating_sub(1);
        if self.patience.1 == 0 {
            self.patience.0 = 0;
        }
        self.disorder = self.disorder.saturating_sub(1);
    }
}

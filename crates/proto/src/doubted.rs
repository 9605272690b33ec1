//! Packets that were taken for lost and may arrive all the same.
//!
//! Inputs → outputs: packets taken for lost, and numbers acknowledged → whether the path keeps the order (RFC 8985
//! §6.2), and which probe was needless.

use core::ops::RangeInclusive;
use denrei_wire::Instant;

/// So many are remembered: the newest, which arrive soonest.
const REMEMBERED: usize = 4;

/// After one lost by count has arrived, so many times that packets are lost it is by time alone (RFC 8985 §6.2's
/// RACK.reo_wnd_persist).
pub(crate) const DISORDER: u8 = 16;

/// Why a packet was taken for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Later ones had arrived.
    Overtaken,
    /// Nothing was heard for so long that a probe repeated it.
    Silence,
}

#[derive(Debug)]
struct Taken {
    number: u64,
    sent_at: Instant,
    sign: Sign,
}

/// The newest packets of one session that were taken for lost by a sign that may deceive.
#[derive(Debug, Default)]
pub(crate) struct Doubted {
    taken: [Option<Taken>; REMEMBERED],
    /// All of them are below.
    end: u64,
    /// Losses to come for which only time counts.
    disorder: u8,
}

impl Doubted {
    /// A packet is taken for lost.
    pub fn on_taken(&mut self, number: u64, sent_at: Instant, sign: Sign) {
        self.taken.rotate_right(1);
        self.taken[0] = Some(Taken { number, sent_at, sign });
        self.end = self.end.max(number + 1);
    }

    /// Packets of these numbers have arrived: when one of them was sent that a probe had repeated.
    #[inline]
    pub fn on_acked(&mut self, range: &RangeInclusive<u64>) -> Option<Instant> {
        // Most ranges lie above all of them.
        if *range.start() < self.end { self.find(range) } else { None }
    }

    #[cold]
    fn find(&mut self, range: &RangeInclusive<u64>) -> Option<Instant> {
        let mut probed = None;
        for slot in &mut self.taken {
            match slot.take_if(|taken| range.contains(&taken.number)) {
                Some(Taken { sign: Sign::Overtaken, .. }) => self.disorder = DISORDER,
                Some(Taken { sent_at, .. }) => probed = probed.max(Some(sent_at)),
                None => {}
            }
        }
        self.end = self.taken.iter().flatten().map(|taken| taken.number + 1).max().unwrap_or(0);
        probed
    }

    /// Whether packets overtake each other on this path, so that only time tells that one is lost.
    pub fn is_out_of_order(&self) -> bool {
        self.disorder > 0
    }

    /// Packets were lost, once more.
    pub fn on_lost(&mut self) {
        self.disorder = self.disorder.saturating_sub(1);
    }
}

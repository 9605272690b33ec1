//! The sending half of acknowledgement: what is under way, what has arrived, what is lost.
//!
//! Inputs → outputs: packets sent and ACK ranges → the packets acknowledged, the packets lost, and
//! the time at which to look again. Source: RFC 9002 §6.1, RFC 8985 (loss by count and by time).
//! A packet that is repeated travels under a new number, so each range of a message belongs to
//! one packet under way at a time.

use crate::doubted::{Doubted, Late, Sign};
use crate::rtt::Rtt;
use crate::sent::SentPacket;
use crate::slots;
use core::ops::RangeInclusive;
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::VecDeque;

/// A packet is lost when one sent this many later has arrived (RFC 9002 §6.1.1).
const PACKET_THRESHOLD: u64 = 3;

/// Numbers from the oldest packet under way to the newest, at most: twice the packets of the largest window. Answers are
/// held up by no window, and a peer that acknowledges nothing could ask without end.
const MAX_SPAN: usize = 1 << 19;

/// Ring slots kept when nothing is under way.
const IDLE_SLOTS: usize = 2;

/// Packets between two numbers that are left out, at least and how much more at most: seldom enough to
/// cost nothing, often enough that whoever acknowledges a window ahead hits one. Receivers rely on the
/// least (`spec/protocol.md` §5.3): what is missing beyond it was lost.
pub(crate) const NUMBERS_PER_SKIP: u64 = 128;
const SKIP_SPREAD: u64 = 1024;

/// Left-out numbers remembered: a liar may be careful and stay some windows behind.
const SKIPS_REMEMBERED: usize = 4;

/// Packets of one session that have been sent and whose fate is unknown.
#[derive(Debug)]
pub(crate) struct SentPackets {
    /// Number of the ring's first slot.
    base: u64,
    ring: VecDeque<Option<SentPacket>>,
    under_way: u64,
    cost_in_flight: u64,
    largest_acked: Option<u64>,
    last_sent_at: Instant,
    loss_time: Option<Instant>,
    doubted: Doubted,
    skips: Skips,
}

/// Numbers that are used for no packet, now and then, so that a receiver which acknowledges what it
/// has not received cannot help telling (RFC 9000 §21.4).
#[derive(Debug)]
struct Skips {
    /// What the distances are made from (splitmix64): the receiver does not know it.
    state: u64,
    /// The next number to leave out.
    next: u64,
    /// The last that were left out, in turn; `u64::MAX` is never sent.
    last: [u64; SKIPS_REMEMBERED],
}

impl Skips {
    fn new(seed: u64) -> Self {
        let mut new = Self { state: seed, next: 0, last: [u64::MAX; SKIPS_REMEMBERED] };
        new.choose();
        new
    }

    /// Whether one of the last that were left out is in `range`.
    fn meet(&self, range: &RangeInclusive<u64>) -> bool {
        // Most ranges lie above all of them.
        *range.start() <= self.last[0] && self.last.iter().any(|skipped| range.contains(skipped))
    }

    /// Decides on the one after `next`.
    fn choose(&mut self) {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.next += NUMBERS_PER_SKIP + (word ^ (word >> 31)) % SKIP_SPREAD;
    }
}

/// What an ACK told.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AckSummary {
    /// Packets newly acknowledged.
    pub packets: u64,
    /// Their cost.
    pub cost: u64,
    /// When the largest newly acknowledged packet was sent, if it is the largest acknowledged.
    pub largest_sent_at: Option<Instant>,
    /// What has arrived though it was taken for lost.
    pub late: Late,
    /// A number that was left out is among them: whoever says so has not looked.
    pub invented: bool,
}

impl SentPackets {
    /// Nothing sent yet. `seed`: what the numbers that are left out follow from, unknown to the receiver.
    pub fn new(seed: u64) -> Self {
        Self {
            base: 0,
            ring: VecDeque::new(),
            under_way: 0,
            cost_in_flight: 0,
            largest_acked: None,
            last_sent_at: Instant::ZERO,
            loss_time: None,
            doubted: Doubted::default(),
            skips: Skips::new(seed),
        }
    }

    /// The number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// Takes note of a packet that wants an acknowledgement.
    pub fn on_sent(&mut self, packet: SentPacket) {
        self.under_way += 1;
        self.cost_in_flight += packet.cost();
        self.last_sent_at = packet.at;
        slots::push(&mut self.ring, Some(packet));
        if self.next_number() >= self.skips.next {
            self.skip();
        }
    }

    /// Leaves a number out.
    #[cold]
    fn skip(&mut self) {
        self.skips.last.rotate_right(1);
        // Packets that want no acknowledgement may have used up numbers far beyond the one that was chosen.
        self.skips.next = self.next_number();
        self.skips.last[0] = self.skips.next;
        self.ring.push_back(None);
        self.skips.choose();
    }

    /// Uses up a number for a packet that wants none.
    pub fn on_sent_unacknowledged(&mut self) {
        if self.ring.is_empty() {
            self.base += 1;
        } else {
            self.ring.push_back(None);
        }
    }

    /// Cost of all packets under way.
    pub fn cost_in_flight(&self) -> u64 {
        self.cost_in_flight
    }

    /// Whether more is under way than any peer leaves unacknowledged that takes part.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.ring.len() > MAX_SPAN
    }

    /// Whether the packet sent last wants an acknowledgement.
    pub fn is_newest_under_way(&self) -> bool {
        let skipped = self.skips.last[0].checked_add(1) == Some(self.next_number());
        self.ring.iter().rev().nth(usize::from(skipped)).is_some_and(Option::is_some)
    }

    /// Whether anything is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Whether the packet of that number may arrive yet and say so.
    pub fn is_under_way(&self, number: u64) -> bool {
        let slot = number.checked_sub(self.base).and_then(|index| self.ring.get(index as usize));
        slot.is_some_and(Option::is_some)
    }

    /// Whether nothing is under way but probes of the path's datagram size.
    pub fn is_all_probing_mtu(&self) -> bool {
        self.under_way > 0 && self.ring.iter().flatten().all(SentPacket::is_mtu_probe)
    }

    /// When the oldest packet under way was sent.
    pub fn oldest_sent_at(&self) -> Option<Instant> {
        self.ring.iter().flatten().next().map(|packet| packet.at)
    }

    /// When the newest packet under way was sent.
    pub fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// When to look for packets that have become too late.
    pub fn loss_time(&self) -> Option<Instant> {
        self.loss_time
    }

    /// Hands each newly acknowledged packet to `acked`.
    pub fn on_ack(
        &mut self,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        mut acked: impl FnMut(&SentPacket),
    ) -> AckSummary {
        let mut summary = AckSummary::default();
        for range in ranges {
            self.doubted.on_acked(&range, &mut summary.late);
            if *range.end() < self.base {
                break;
            }
            summary.invented |= self.skips.meet(&range);
            let newest = (*range.end()).min(self.next_number().saturating_sub(1));
            for number in ((*range.start()).max(self.base)..=newest).rev() {
                let Some(slot) = self.ring.get_mut((number - self.base) as usize) else { continue };
                let Some(packet) = slot else { continue };
                self.under_way -= 1;
                self.cost_in_flight -= packet.cost();
                summary.packets += 1;
                summary.cost += packet.cost();
                if self.largest_acked.is_none_or(|largest| largest < number) {
                    self.largest_acked = Some(number);
                    summary.largest_sent_at = Some(packet.at);
                }
                acked(packet);
                *slot = None;
            }
        }
        self.trim();
        summary
    }

    /// Hands each packet that must be taken for lost to `lost` and sets the next
    /// [`loss_time`](Self::loss_time).
    pub fn detect_lost(&mut self, now: Instant, rtt: &Rtt, mut lost: impl FnMut(SentPacket)) {
        self.loss_time = None;
        if self.is_idle() {
            return;
        }
        let Some(largest_acked) = self.largest_acked else { return };
        let patience = rtt.loss_delay(self.doubted.patience());
        let threshold = if self.doubted.is_out_of_order() { u64::MAX } else { PACKET_THRESHOLD };
        let mut any = false;
        let end = (largest_acked + 1).saturating_sub(self.base).min(self.ring.len() as u64) as usize;
        for index in 0..end {
            let slot = &mut self.ring[index];
            let Some(packet) = slot else { continue };
            let too_late = packet.at + patience;
            let number = self.base + index as u64;
            let counted = largest_acked - number >= threshold;
            if counted || too_late <= now {
                let packet = slot.take().expect("seen above");
                let sign = if counted { Sign::Overtaken } else { Sign::Overdue };
                self.doubted.on_taken(number, &packet, sign);
                self.under_way -= 1;
                self.cost_in_flight -= packet.cost();
                any = true;
                lost(packet);
            } else {
                // Later packets were sent later: this one is due first.
                self.loss_time = Some(too_late);
                break;
            }
        }
        if any {
            self.doubted.on_lost();
        }
        self.trim();
    }

    /// How many of the packets under way were sent longer ago than `patience`.
    pub fn sent_before(&self, now: Instant, patience: Duration) -> usize {
        self.ring.iter().flatten().take_while(|packet| packet.at + patience < now).count()
    }

    /// Takes the oldest packets under way, at most `count`, as if lost: a probe repeats them.
    pub fn take_oldest(&mut self, count: usize, mut lost: impl FnMut(SentPacket)) {
        let under_way = (self.base..).zip(&mut self.ring).filter(|(_, slot)| slot.is_some());
        for (number, slot) in under_way.take(count) {
            let packet = slot.take().expect("filtered");
            self.under_way -= 1;
            self.cost_in_flight -= packet.cost();
            self.doubted.on_taken(number, &packet, Sign::Silence);
            lost(packet);
        }
        self.trim();
    }

    fn trim(&mut self) {
        while let Some(None) = self.ring.front() {
            self.ring.pop_front();
            self.base += 1;
        }
        slots::give_back(&mut self.ring, IDLE_SLOTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doubted::DISORDER;
    use crate::sent::SentFrame;
    use smallvec::SmallVec;

    fn packet(at_ms: u64) -> SentPacket {
        SentPacket::new(Instant::from_nanos(at_ms * 1_000_000), 1400, SmallVec::new())
    }

    fn rtt_of_one_ms() -> Rtt {
        let mut rtt = Rtt::new(Duration::from_millis(10), Duration::from_millis(1), Duration::from_secs(20));
        rtt.sample(Instant::ZERO, 1_000_000, 0);
        rtt
    }

    #[test]
    fn a_probe_of_the_paths_size_leaves_room_in_the_window() {
        let mut sent = SentPackets::new(1);
        let frames = SmallVec::from_iter([SentFrame::MtuProbe { bytes: 8972 }]);
        sent.on_sent(SentPacket::new(Instant::ZERO, 8972, frames));
        assert_eq!(sent.cost_in_flight(), 1024);
        assert!(sent.is_all_probing_mtu());
    }

    #[test]
    fn three_later_arrivals_make_a_packet_lost() {
        let mut sent = SentPackets::new(1);
        for _ in 0..5 {
            sent.on_sent(packet(0));
        }
        let summary = sent.on_ack([3..=3].into_iter(), |_| ());
        assert_eq!((summary.packets, sent.cost_in_flight()), (1, 4 * 1400));
        let mut lost = 0;
        sent.detect_lost(Instant::ZERO, &rtt_of_one_ms(), |_| lost += 1);
        assert_eq!(lost, 1, "only packet 0 is three behind");
        assert_eq!(sent.loss_time(), Some(Instant::from_nanos(1_125_000)));
        sent.detect_lost(Instant::from_nanos(1_125_000), &rtt_of_one_ms(), |_| lost += 1);
        assert_eq!(lost, 3, "1 and 2 are too late, 4 is newer than what arrived");
        assert_eq!(sent.cost_in_flight(), 1400);
    }

    #[test]
    fn where_packets_overtake_each_other_only_time_tells_that_one_is_lost() {
        let (mut sent, rtt) = (SentPackets::new(1), rtt_of_one_ms());
        let lost_at = |sent: &mut SentPackets, at_us: u64| {
            let mut lost = 0;
            sent.detect_lost(Instant::from_nanos(at_us * 1000), &rtt, |_| lost += 1);
            lost
        };
        (0..5).for_each(|_| sent.on_sent(packet(0)));
        sent.on_ack([1..=4].into_iter(), |_| ());
        assert_eq!(lost_at(&mut sent, 0), 1, "three later ones are there");
        sent.on_ack([0..=4].into_iter(), |_| ());
        (0..5).for_each(|_| sent.on_sent(packet(0)));
        sent.on_ack([6..=9].into_iter(), |_| ());
        assert_eq!(lost_at(&mut sent, 1124), 0, "it may be on another way, as the first was");
        assert_eq!(lost_at(&mut sent, 1125), 1);
        for round in 0..DISORDER as u64 {
            let next = sent.next_number();
            (0..5).for_each(|_| sent.on_sent(packet(0)));
            sent.on_ack([next + 1..=next + 4].into_iter(), |_| ());
            let at_once = lost_at(&mut sent, 0);
            assert_eq!(
                at_once,
                (round == DISORDER as u64 - 1) as u32,
                "{round}: no other has come late for long"
            );
            lost_at(&mut sent, 2000);
        }
    }

    /// As where what a packet takes varies by half, in both directions.
    #[test]
    fn where_one_came_after_its_time_the_next_ones_have_more() {
        let (mut sent, rtt) = (SentPackets::new(1), rtt_of_one_ms());
        let mut lost_at = |at_us: u64, late: bool| {
            let first = sent.next_number();
            (0..2).for_each(|_| sent.on_sent(packet(0)));
            sent.on_ack([first + 1..=first + 1].into_iter(), |_| ());
            let mut lost = [0; 2];
            for (lost, at_us) in lost.iter_mut().zip([at_us - 1, at_us]) {
                sent.detect_lost(Instant::from_nanos(at_us * 1000), &rtt, |_| *lost += 1);
            }
            if late {
                sent.on_ack([first..=first].into_iter(), |_| ());
            }
            lost
        };
        assert_eq!(lost_at(1125, true), [0, 1]);
        assert_eq!(lost_at(1250, true), [0, 1]);
        for round in 1..=DISORDER {
            assert_eq!(lost_at(1375, false), [0, 1], "{round}");
        }
        assert_eq!(lost_at(1125, true), [0, 1], "no other has come late for long");
        (2..8).for_each(|eighths| assert_eq!(lost_at(1000 + eighths * 125, true), [0, 1]));
        (0..3).for_each(|_| assert_eq!(lost_at(2000, true), [0, 1], "a round trip is enough"));
    }

    #[test]
    fn whoever_acknowledges_everything_acknowledges_what_was_left_out() {
        let mut sent = SentPackets::new(1);
        let mut numbers = Vec::new();
        while numbers.len() < 5000 {
            numbers.push(sent.next_number());
            sent.on_sent(packet(0));
        }
        let left_out = sent.next_number() - 5000;
        assert!((5000 / 1151..=5000 / 128).contains(&left_out), "{left_out}");
        let received = numbers.iter().rev().map(|number| *number..=*number);
        let honest = sent.on_ack(received, |_| ());
        assert!(!honest.invented && honest.packets == 5000);
        sent.on_sent(packet(0));
        assert!(sent.on_ack([0..=sent.next_number() - 1].into_iter(), |_| ()).invented);
    }

    #[test]
    fn numbers_are_left_out_far_apart_whoever_used_those_between() {
        let mut sent = SentPackets::new(1);
        for _ in 0..5000 {
            sent.on_sent_unacknowledged();
        }
        let mut left_out = Vec::new();
        for _ in 0..5000 {
            let next = sent.next_number() + 1;
            sent.on_sent(packet(0));
            left_out.extend((sent.next_number() > next).then_some(next));
        }
        assert!(left_out.len() > 3);
        assert!(left_out.windows(2).all(|two| two[1] - two[0] >= NUMBERS_PER_SKIP), "{left_out:?}");
    }

    #[test]
    fn numbers_that_want_no_ack_leave_no_trace() {
        let mut sent = SentPackets::new(1);
        for _ in 0..100 {
            sent.on_sent_unacknowledged();
        }
        assert_eq!((sent.next_number(), sent.ring.len()), (100, 0));
        sent.on_sent(packet(0));
        sent.on_sent_unacknowledged();
        sent.on_ack([100..=101].into_iter(), |_| ());
        assert!(sent.is_idle() && sent.ring.is_empty());
        assert_eq!(sent.next_number(), 102);
    }

    #[test]
    fn a_probe_for_what_had_arrived_is_found_out() {
        let mut sent = SentPackets::new(1);
        sent.on_sent(packet(5));
        sent.take_oldest(1, |_| ());
        sent.on_sent(packet(8));
        assert_eq!(sent.on_ack([1..=1].into_iter(), |_| ()).late, Late::default());
        let at = Instant::from_nanos(5_000_000);
        let late = Late { probed_sent_at: Some(at), largest_bytes: Some(1400) };
        assert_eq!(sent.on_ack([0..=1].into_iter(), |_| ()).late, late);
        assert_eq!(sent.on_ack([0..=1].into_iter(), |_| ()).late, Late::default(), "said once");
    }

    #[test]
    fn acks_of_what_was_never_under_way_change_nothing() {
        let mut sent = SentPackets::new(1);
        sent.on_sent(packet(0));
        let summary = sent.on_ack([5..=u64::MAX - 1].into_iter(), |_| ());
        assert_eq!(summary.packets, 0);
        sent.take_oldest(3, |_| ());
        assert_eq!(sent.cost_in_flight(), 0);
    }
}

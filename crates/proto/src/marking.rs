//! Whether packets are marked ECN-capable (RFC 3168, RFC 9000 §13.4.2).
//!
//! Inputs → outputs: the counts that acknowledgements bring, and how many probe timeouts there were in a row →
//! whether what is sent now is marked, and how many packets came marked with congestion.

use core::time::Duration;
use denrei_wire::{Ecn, EcnCounts, Instant};

/// After so many probe timeouts in a row packets go without marks: there are paths that drop what is marked.
const SILENT_TIMEOUTS: u32 = 2;
/// So many acknowledgements in a row that bring no marks mean that the path, or the peer, loses them. One may tell
/// of a probe that went without.
const ACKS_WITHOUT: u8 = 3;
/// For so long nothing is marked then, and twice as long each further time, as a lost trial costs probe timeouts where
/// it is dropped.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const MOST_DOUBLINGS: u8 = 7;

/// The marks of one session.
#[derive(Debug)]
pub(crate) struct Marking {
    /// Packets sent from then on are marked.
    from: Instant,
    /// Times that it came to that.
    pauses: u8,
    acks_without: u8,
    /// What the peer has counted: of all marks, and of congestion.
    counted: u32,
    congested: u32,
}

impl Marking {
    pub fn new(is_wanted: bool) -> Self {
        let from = if is_wanted { Instant::ZERO } else { Instant::FAR_FUTURE };
        Self { from, pauses: 0, acks_without: 0, counted: 0, congested: 0 }
    }

    /// What a packet is marked with after so many probe timeouts in a row.
    #[inline]
    pub fn mark(&self, now: Instant, timeouts: u32) -> Ecn {
        if now >= self.from && timeouts < SILENT_TIMEOUTS { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// Takes note of an acknowledgement's counts; how many packets have newly come with congestion. `sent_at`: of
    /// the largest that it acknowledges, if no larger one was before.
    #[inline]
    pub fn on_ack(&mut self, now: Instant, sent_at: Option<Instant>, counts: Option<EcnCounts>) -> u64 {
        let EcnCounts { ect0, ect1, ce } = counts.unwrap_or_default();
        let counted = ect0.wrapping_add(ect1).wrapping_add(ce);
        if sent_at.is_some_and(|sent_at| sent_at >= self.from) {
            if counted == self.counted {
                self.miss(now);
            } else {
                self.acks_without = 0;
            }
        }
        // Counts that run backwards belong to an ACK that was overtaken.
        let is_newer = |new: u32, old: u32| new.wrapping_sub(old) <= u32::MAX / 2;
        if is_newer(counted, self.counted) {
            self.counted = counted;
        }
        if !is_newer(ce, self.congested) {
            return 0;
        }
        u64::from(ce.wrapping_sub(core::mem::replace(&mut self.congested, ce)))
    }

    /// What was marked, or went without as marks seemed to be dropped, has arrived as if it were not.
    #[cold]
    fn miss(&mut self, now: Instant) {
        self.acks_without += 1;
        if self.acks_without == ACKS_WITHOUT {
            self.acks_without = 0;
            self.from = now + FIRST_PAUSE * (1 << self.pauses);
            self.pauses = (self.pauses + 1).min(MOST_DOUBLINGS);
        }
    }

    /// The session begins anew, and the peer counts from 0.
    pub fn begin_anew(&mut self) {
        (self.counted, self.congested) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn arrived(ect0: u32, ce: u32) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1: 0, ce })
    }

    #[test]
    fn marks_of_congestion_are_told_once_whatever_overtakes() {
        let mut marking = Marking::new(true);
        let mut told = |counts| marking.on_ack(at(1), Some(at(1)), counts);
        assert_eq!(
            [told(arrived(3, 0)), told(arrived(3, 2)), told(arrived(3, 1)), told(arrived(4, 4))],
            [0, 2, 0, 2]
        );
    }

    #[test]
    fn a_path_that_loses_the_marks_gets_none_for_a_time_and_then_longer() {
        let mut marking = Marking::new(true);
        let mut now = at(1);
        for pause in [30, 60, 120] {
            for _ in 0..ACKS_WITHOUT {
                assert_eq!(marking.mark(now, 0), Ecn::Ect0);
                marking.on_ack(now, Some(now), None);
            }
            let again = now + Duration::from_secs(pause);
            marking.on_ack(again, Some(now), None);
            assert_eq!(marking.mark(again, 0), Ecn::Ect0, "what went without tells nothing");
            assert_eq!(marking.mark(Instant::from_nanos(again.as_nanos() - 1), 0), Ecn::NotEct);
            now = again;
        }
        for count in 1..10 {
            marking.on_ack(now, Some(now), arrived(count, 0));
        }
        assert_eq!(marking.mark(now, 0), Ecn::Ect0);
    }

    #[test]
    fn marks_that_are_lost_later_are_noticed_and_a_probe_without_one_is_no_sign() {
        let mut marking = Marking::new(true);
        marking.on_ack(at(1), Some(at(1)), arrived(5, 0));
        assert_eq!(
            [0, 1, 2, 3].map(|timeouts| marking.mark(at(1), timeouts)),
            [Ecn::Ect0, Ecn::Ect0, Ecn::NotEct, Ecn::NotEct]
        );
        for count in 5..50 {
            marking.on_ack(at(1), Some(at(1)), arrived(count, 0));
            marking.on_ack(at(1), Some(at(1)), arrived(count, 0));
        }
        assert_eq!(marking.mark(at(1), 0), Ecn::Ect0);
        for _ in 0..ACKS_WITHOUT {
            marking.on_ack(at(2), Some(at(2)), arrived(49, 0));
        }
        assert_eq!(marking.mark(at(2), 0), Ecn::NotEct);
    }

    #[test]
    fn who_wants_no_marks_never_gets_any() {
        let mut marking = Marking::new(false);
        for _ in 0..9 {
            marking.on_ack(at(1), Some(at(1)), None);
        }
        assert_eq!(marking.mark(at(1_000_000), 0), Ecn::NotEct);
    }
}

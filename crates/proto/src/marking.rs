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
    /// Whatever is sent is marked: nothing speaks against it.
    is_on: bool,
    acks_without: u8,
    /// Times that marks were given up for some time.
    pauses: u8,
    /// Packets sent from then on are marked.
    from: Instant,
    /// When the last went without a mark because of a silence.
    without_at: Instant,
    /// What the peer has counted of marks as they were sent, and of congestion.
    arrived: u32,
    congested: u32,
}

impl Marking {
    pub fn new(is_wanted: bool) -> Self {
        let from = if is_wanted { Instant::ZERO } else { Instant::FAR_FUTURE };
        Self {
            is_on: false,
            acks_without: 0,
            pauses: 0,
            from,
            without_at: Instant::ZERO,
            arrived: 0,
            congested: 0,
        }
    }

    /// Whether everything is marked, which is the rule; if not, [`mark`](Self::mark) tells.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// What a packet that is repeated if it is lost is marked with after so many probe timeouts in a row.
    #[cold]
    pub fn mark(&mut self, now: Instant, timeouts: u32) -> Ecn {
        if now < self.from {
            return Ecn::NotEct;
        }
        if timeouts >= SILENT_TIMEOUTS {
            self.without_at = now;
            return Ecn::NotEct;
        }
        self.is_on = true;
        Ecn::Ect0
    }

    /// A probe timeout has passed, or what is sent next is nothing that is repeated.
    #[inline]
    pub fn look_again(&mut self) {
        self.is_on = false;
    }

    /// Takes note of an acknowledgement's counts; how many packets have newly come with congestion. `sent_at`: of
    /// the largest that it acknowledges, if no larger one was before; `timeouts`: probe timeouts that it ends.
    #[inline]
    pub fn on_ack(
        &mut self,
        now: Instant,
        sent_at: Option<Instant>,
        counts: Option<EcnCounts>,
        timeouts: u32,
    ) -> u64 {
        if let Some(counts) = counts
            && counts.ce == self.congested
            && counts.ect0 != self.arrived
            && self.acks_without == 0
            && timeouts < SILENT_TIMEOUTS
        {
            self.arrived = counts.ect0;
            return 0;
        }
        self.compare(now, sent_at, counts.unwrap_or_default(), timeouts)
    }

    /// The same where more than the number of marks that came as they were sent is to be looked at. What comes after a
    /// silence went without a mark, whatever the peer takes it to be, and what was marked has not come.
    #[cold]
    fn compare(&mut self, now: Instant, sent_at: Option<Instant>, counts: EcnCounts, timeouts: u32) -> u64 {
        let EcnCounts { ect0, ce, .. } = counts;
        if let Some(sent_at) = sent_at.filter(|sent_at| *sent_at >= self.from) {
            let none_came = (ect0, ce) == (self.arrived, self.congested) || (ect0, ce) == (0, 0);
            if none_came || timeouts >= SILENT_TIMEOUTS {
                self.miss(now);
            } else if sent_at > self.without_at {
                self.acks_without = 0;
            }
        }
        // Counts that run backwards belong to an ACK that was overtaken.
        if is_newer(ect0, self.arrived) {
            self.arrived = ect0;
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
            (self.acks_without, self.is_on) = (0, false);
            self.from = now + FIRST_PAUSE * (1 << self.pauses);
            self.pauses = (self.pauses + 1).min(MOST_DOUBLINGS);
        }
    }

    /// The session begins anew, and the peer counts from 0.
    pub fn begin_anew(&mut self) {
        (self.arrived, self.congested, self.is_on) = (0, 0, false);
    }
}

/// Whether a count that runs modulo 2^32 is ahead of another.
#[inline]
fn is_newer(new: u32, old: u32) -> bool {
    new.wrapping_sub(old).wrapping_sub(1) < u32::MAX / 2
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
        let mut told = |counts| marking.on_ack(at(1), Some(at(1)), counts, 0);
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
                marking.on_ack(now, Some(now), None, 0);
            }
            let again = now + Duration::from_secs(pause);
            marking.on_ack(again, Some(now), None, 0);
            assert_eq!(marking.mark(again, 0), Ecn::Ect0, "what went without tells nothing");
            assert_eq!(marking.mark(Instant::from_nanos(again.as_nanos() - 1), 0), Ecn::NotEct);
            now = again;
        }
        for count in 1..10 {
            marking.on_ack(now, Some(now), arrived(count, 0), 0);
        }
        assert_eq!(marking.mark(now, 0), Ecn::Ect0);
    }

    #[test]
    fn marks_that_are_lost_later_are_noticed_and_a_probe_without_one_is_no_sign() {
        let mut marking = Marking::new(true);
        marking.on_ack(at(1), Some(at(1)), arrived(5, 0), 0);
        assert_eq!(
            [0, 1, 2, 3].map(|timeouts| marking.mark(at(1), timeouts)),
            [Ecn::Ect0, Ecn::Ect0, Ecn::NotEct, Ecn::NotEct]
        );
        let later = Instant::from_nanos(at(1).as_nanos() + 1);
        for count in 5..50 {
            // Sent after the probe.
            marking.on_ack(later, Some(later), arrived(count, 0), 0);
            marking.on_ack(later, Some(later), arrived(count, 0), 0);
        }
        assert_eq!(marking.mark(at(1), 0), Ecn::Ect0);
        for _ in 0..ACKS_WITHOUT {
            marking.on_ack(at(2), Some(at(2)), arrived(49, 0), 0);
        }
        assert_eq!(marking.mark(at(2), 0), Ecn::NotEct);
    }

    /// A peer that does not read the marks of lone datagrams takes them to be there.
    #[test]
    fn marks_that_come_only_with_silences_are_given_up_whatever_the_peer_counts() {
        let mut marking = Marking::new(true);
        for silence in 1..=u64::from(ACKS_WITHOUT) {
            let now = at(silence);
            assert_eq!(marking.mark(now, 1), Ecn::Ect0, "{silence}");
            assert_eq!(marking.mark(now, SILENT_TIMEOUTS), Ecn::NotEct);
            let count = 2 * silence as u32;
            marking.on_ack(now, Some(now), arrived(count, 0), SILENT_TIMEOUTS);
            // The second packet of the same probe.
            marking.on_ack(now, Some(now), arrived(count + 1, 0), 0);
        }
        assert_eq!(marking.mark(at(4), 0), Ecn::NotEct);
        let mut marking = Marking::new(true);
        for silence in 1..20 {
            marking.mark(at(silence), SILENT_TIMEOUTS);
            marking.on_ack(at(silence), Some(at(silence)), arrived(2 * silence as u32, 0), SILENT_TIMEOUTS);
            let later = Instant::from_nanos(at(silence).as_nanos() + 1);
            marking.on_ack(later, Some(later), arrived(2 * silence as u32 + 1, 0), 0);
        }
        assert_eq!(marking.mark(at(20), 0), Ecn::Ect0, "what is marked comes between them");
    }

    #[test]
    fn who_wants_no_marks_never_gets_any() {
        let mut marking = Marking::new(false);
        for _ in 0..9 {
            marking.on_ack(at(1), Some(at(1)), None, 0);
        }
        assert_eq!(marking.mark(at(1_000_000), 0), Ecn::NotEct);
    }
}

//! The receiving half of acknowledgement: what has arrived, and when to say so.
//!
//! Inputs → outputs: packet numbers with their arrival times → duplicate or new; whether an ACK
//! is due now, at what time at the latest, and the ACK frame itself.
//! Source: S4, RFC 9000 §13.2. Deviations: the sender asks for an immediate ACK by a flag when it
//! has run out of window, so the receiver may hold back longer than every second packet; and where the
//! application answers messages, or a grant is due, an ACK waits for what it can travel with (ADR 75, 80).

use crate::ranges::RangeSet;
use core::time::Duration;
use denrei_wire::{Ecn, EcnCounts, Instant, TransmitBuf, ack, duration_nanos};

/// An ACK is due after this many packets that want one: one per GSO train or two of usual packets.
/// Seldomer than TCP's, because a sender that waits for it says so.
const ACK_AFTER_PACKETS: u32 = 64;

/// … or after this many bytes, for paths with large packets: two trains.
const ACK_AFTER_BYTES: u64 = 128 * 1024;

/// An application that answered within this time is expected to do so again: the ACK of the next
/// message waits so long for the answer, but no more than [`LONGER_HELD`] times as long as others. One
/// whose sender waits for a grant waits so long for that.
pub(crate) const LONGEST_HELD: Duration = Duration::from_millis(10);
const LONGER_HELD: u64 = 10;

/// Received packets of one session.
#[derive(Debug, Default)]
pub(crate) struct ReceivedPackets {
    seen: RangeSet,
    /// Since when the largest may be here.
    largest_came: Instant,
    /// Packets and bytes that want an ACK and have not got one.
    pending: u32,
    pending_bytes: u64,
    due: bool,
    deadline: Option<Instant>,
    /// By when it would go if it waited for nothing.
    usual: Instant,
    /// Until when the answer to a message would come in time, if one waits for it.
    answer_until: Option<Instant>,
    /// The last one was answered in time.
    answers: bool,
    ecn: Option<EcnCounts>,
}

/// What the arrival of one packet means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub number: u64,
    pub at: Instant,
    /// The earliest time at which it may have come.
    pub came: Instant,
    pub bytes: usize,
    pub ecn: Ecn,
    pub ack_eliciting: bool,
    /// It carried (a part of) a message.
    pub data: bool,
    pub ack_now: bool,
    /// It said that its sender has more to send and may not before it is granted that.
    pub awaits_grant: bool,
}

impl ReceivedPackets {
    /// Whether `number` has been processed before, or is too old to tell.
    pub fn is_duplicate(&self, number: u64) -> bool {
        self.seen.contains(number)
    }

    /// Near which number the next packet is expected, to expand its low 32 bits.
    pub fn expected(&self) -> u64 {
        self.seen.largest().map_or(0, |largest| largest + 1)
    }

    /// Takes note of a packet that is not a duplicate and whose frames have been processed.
    pub fn record(&mut self, arrival: Arrival, max_ack_delay: Duration) {
        let expected = self.expected();
        self.seen.insert(arrival.number);
        if arrival.number >= expected {
            self.largest_came = arrival.came;
        }
        self.count_ecn(arrival.ecn);
        if !arrival.ack_eliciting {
            return;
        }
        if self.pending == 0 {
            self.usual = arrival.at + max_ack_delay;
        }
        self.pending += 1;
        self.pending_bytes += arrival.bytes as u64;
        // Out of order: the sender wants to know of the gap, or of its end, at once.
        let out_of_order = arrival.number != expected;
        if arrival.ack_now
            || out_of_order
            || self.pending >= ACK_AFTER_PACKETS
            || self.pending_bytes >= ACK_AFTER_BYTES
        {
            self.due = true;
        }
        let answered_until = held_until(arrival.at, max_ack_delay);
        if arrival.data {
            self.answer_until.get_or_insert(answered_until);
        }
        self.deadline = Some(if arrival.awaits_grant {
            // Of the whole train: it ends with this packet.
            held_until(arrival.came, max_ack_delay)
        } else {
            let answered = arrival.data && self.answers;
            // What may have waited for this process has waited enough, unless the answer to it is near.
            let deadline = if answered { answered_until } else { arrival.came + max_ack_delay };
            self.deadline.map_or(deadline, |earlier| earlier.min(deadline))
        });
    }

    /// A message goes to the peer: an answer, if one has come from it since the last.
    pub fn on_message_sent(&mut self, now: Instant) {
        if let Some(until) = self.answer_until.take() {
            self.answers = now <= until;
        }
    }

    /// Whether an ACK has to go out now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due || self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether an ACK would tell the sender something, and so may ride on whatever is sent.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// When an ACK has to go out at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the state has grown so much that the sender's own ACKs are wanted to prune it.
    pub fn wants_pruning(&self) -> bool {
        self.seen.len() > REORDER_ALLOWANCE as usize
    }

    /// Octets the ACK frame will take.
    pub fn encoded_len(&self) -> usize {
        ack::encoded_len(self.seen.len().clamp(1, ack::MAX_ACK_RANGES), self.ecn)
    }

    /// Writes the ACK frame; the largest number acknowledged. `None` if nothing has arrived.
    pub fn write(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<u64> {
        let largest = self.seen.largest()?;
        let delay = (now.nanos_since(self.largest_came) / 1000).min(u16::MAX as u64) as u16;
        // It has waited in vain, for as long as it may or until its sender asked for it; unless this goes with the answer.
        self.answers &= now < self.usual;
        ack::encode(self.seen.newest_first(), delay, self.ecn, &mut |bytes| out.put(bytes));
        self.pending = 0;
        self.pending_bytes = 0;
        self.due = false;
        self.deadline = None;
        Some(largest)
    }

    /// The peer has seen our ACK up to `largest`: what lies well below need not be reported again.
    pub fn on_ack_acked(&mut self, largest: u64) {
        self.seen.raise_floor(largest.saturating_sub(REORDER_ALLOWANCE));
    }

    fn count_ecn(&mut self, ecn: Ecn) {
        if ecn == Ecn::NotEct {
            return;
        }
        let counts = self.ecn.get_or_insert_default();
        let counter = match ecn {
            Ecn::Ce => &mut counts.ce,
            Ecn::Ect1 => &mut counts.ect1,
            Ecn::Ect0 | Ecn::NotEct => &mut counts.ect0,
        };
        *counter = counter.wrapping_add(1);
    }
}

/// Until when the ACK of what came `at` a time waits for what it can travel with, where others wait for
/// `max_ack_delay`.
fn held_until(at: Instant, max_ack_delay: Duration) -> Instant {
    let max_ack_delay_ns = duration_nanos(max_ack_delay);
    let longer = max_ack_delay_ns.saturating_mul(LONGER_HELD);
    let held_ns = longer.min(duration_nanos(LONGEST_HELD)).max(max_ack_delay_ns);
    Instant::from_nanos(at.as_nanos().saturating_add(held_ns))
}

/// Packets below an acknowledged ACK that may still arrive late and be taken. The sender has taken
/// those further below for lost. So small that the ranges among them never want pruning: two idle
/// peers would ask each other for it for ever.
const REORDER_ALLOWANCE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_wire::frame::{Frame, Frames};

    fn arrival(number: u64) -> Arrival {
        Arrival {
            number,
            at: Instant::ZERO,
            came: Instant::ZERO,
            bytes: 100,
            ecn: Ecn::NotEct,
            ack_eliciting: true,
            data: true,
            ack_now: false,
            awaits_grant: false,
        }
    }

    const DELAY: Duration = Duration::from_millis(1);

    #[test]
    fn an_ack_is_held_back_until_the_deadline_or_the_last_packet_of_a_train() {
        let mut received = ReceivedPackets::default();
        received.record(arrival(0), DELAY);
        assert!(!received.is_due(Instant::ZERO));
        assert!(received.is_due(Instant::ZERO + DELAY));
        for number in 1..ACK_AFTER_PACKETS as u64 - 1 {
            received.record(arrival(number), DELAY);
        }
        assert!(!received.is_due(Instant::ZERO));
        received.record(arrival(ACK_AFTER_PACKETS as u64 - 1), DELAY);
        assert!(received.is_due(Instant::ZERO));
        assert_eq!(
            received.write(Instant::ZERO, &mut TransmitBuf::new(1)),
            Some(ACK_AFTER_PACKETS as u64 - 1)
        );
        assert!(!received.is_due(Instant::FAR_FUTURE) && !received.is_pending());
    }

    #[test]
    fn gaps_and_requests_are_answered_at_once() {
        let mut received = ReceivedPackets::default();
        received.record(Arrival { ack_now: true, ..arrival(0) }, DELAY);
        assert!(received.is_due(Instant::ZERO));
        received.write(Instant::ZERO, &mut TransmitBuf::new(1));
        received.record(arrival(2), DELAY);
        assert!(received.is_due(Instant::ZERO), "1 is missing");
        assert!(received.is_duplicate(2) && !received.is_duplicate(1));
    }

    /// The process was away for 20 ms: the packet may have come at their beginning, and is acknowledged without a wait.
    #[test]
    fn what_may_have_waited_for_the_process_does_not_wait_any_more() {
        let (mut received, mut out) = (ReceivedPackets::default(), TransmitBuf::new(1));
        received.record(Arrival { at: ms(25), came: ms(5), ..arrival(0) }, DELAY);
        assert!(received.is_due(ms(25)));
        received.write(ms(25), &mut out);
        let Ok(Frame::Ack(ack)) = Frames::new(out.bytes()).next().unwrap() else { panic!("no ACK") };
        assert_eq!(ack.delay_us, 20_000);
        received.record(Arrival { at: ms(26), came: ms(26), ..arrival(1) }, DELAY);
        assert!(!received.is_due(ms(26)) && received.is_due(ms(27)));
        received.write(ms(27), &mut out);
        // Of an application that answers, as servers do that wait for requests in a loop of their own.
        received.on_message_sent(ms(28));
        received.record(Arrival { at: ms(48), came: ms(28), ..arrival(2) }, DELAY);
        assert!(!received.is_due(ms(57)) && received.is_due(ms(58)));
    }

    /// What comes `at_ms`, as the `number`-th packet: until when its ACK waits, ms.
    fn waits_until(received: &mut ReceivedPackets, number: u64, at_ms: u32, data: bool) -> u128 {
        received.record(Arrival { at: ms(at_ms), came: ms(at_ms), data, ..arrival(number) }, DELAY);
        received.deadline().expect("it wants one").saturating_since(Instant::ZERO).as_millis()
    }

    fn ms(count: u32) -> Instant {
        Instant::ZERO + DELAY * count
    }

    #[test]
    fn an_ack_waits_for_an_answer_where_the_last_one_came_in_time() {
        let (mut received, mut out) = (ReceivedPackets::default(), TransmitBuf::new(1));
        assert_eq!(waits_until(&mut received, 0, 0, true), 1);
        received.write(ms(1), &mut out);
        received.on_message_sent(ms(3));
        assert_eq!(waits_until(&mut received, 1, 4, true), 14);
        received.write(ms(9), &mut out);
        received.on_message_sent(ms(9));
        assert_eq!(waits_until(&mut received, 2, 20, false), 21, "nobody answers what is no message");
        assert_eq!(waits_until(&mut received, 3, 20, true), 21);
        received.write(ms(20), &mut out);
        assert_eq!(waits_until(&mut received, 4, 30, true), 40, "nor was it for an answer that it waited");
        received.write(ms(40), &mut out);
        assert_eq!(waits_until(&mut received, 5, 50, true), 51, "in vain");
        received.write(ms(51), &mut out);
        received.on_message_sent(ms(52));
        assert_eq!(waits_until(&mut received, 6, 60, true), 61, "the answer to what came at 20");
    }

    #[test]
    fn an_ack_that_was_asked_for_while_it_waited_has_waited_in_vain() {
        let (mut received, mut out) = (ReceivedPackets::default(), TransmitBuf::new(1));
        waits_until(&mut received, 0, 0, true);
        received.write(ms(0), &mut out);
        received.on_message_sent(ms(0));
        assert_eq!(waits_until(&mut received, 1, 10, true), 20);
        received.record(Arrival { at: ms(12), came: ms(12), ack_now: true, ..arrival(2) }, DELAY);
        received.write(ms(12), &mut out);
        assert_eq!(waits_until(&mut received, 3, 15, true), 16, "it would be probed for again");
        received.on_message_sent(ms(17));
        received.write(ms(17), &mut out);
        assert_eq!(
            waits_until(&mut received, 4, 30, true),
            31,
            "late for what came at 10 is no answer in time"
        );
        received.write(ms(31), &mut out);
        received.on_message_sent(ms(35));
        assert_eq!(waits_until(&mut received, 5, 40, true), 50);
    }

    #[test]
    fn an_ack_waits_for_the_grant_that_its_sender_waits_for() {
        let (mut received, mut out) = (ReceivedPackets::default(), TransmitBuf::new(1));
        assert_eq!(waits_until(&mut received, 0, 0, true), 1);
        received.record(Arrival { at: ms(1), came: ms(1), awaits_grant: true, ..arrival(1) }, DELAY);
        assert_eq!(received.deadline(), Some(ms(11)), "the train's other packets as well");
        assert!(!received.is_due(ms(10)) && received.is_pending());
        received.write(ms(4), &mut out);
        assert!(!received.is_pending(), "it went with the grant");
        assert_eq!(waits_until(&mut received, 2, 4, true), 5, "the next train has not ended");
        received.record(Arrival { at: ms(5), came: ms(5), awaits_grant: true, ..arrival(4) }, DELAY);
        assert!(received.is_due(ms(5)), "3 is missing");
    }

    #[test]
    fn whoever_wants_acks_at_once_gets_them() {
        let mut received = ReceivedPackets::default();
        received.record(arrival(0), Duration::ZERO);
        received.write(Instant::ZERO, &mut TransmitBuf::new(1));
        received.on_message_sent(Instant::ZERO);
        received.record(arrival(1), Duration::ZERO);
        assert!(received.is_due(Instant::ZERO));
    }

    #[test]
    fn packets_that_want_no_ack_get_none() {
        let mut received = ReceivedPackets::default();
        received.record(Arrival { ack_eliciting: false, ..arrival(5) }, DELAY);
        assert!(!received.is_pending() && received.deadline().is_none());
    }
}

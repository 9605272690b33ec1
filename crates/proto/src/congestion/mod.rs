//! Congestion control inside the path; the receiver owns the last hop.
//!
//! Inputs → outputs: acknowledgements with delay and ECN marks, losses → a window. One small
//! interface, a file per controller. All quantities are *cost*: bytes of the datagram, at least
//! [`MIN_PACKET_COST_BYTES`] each, because a small datagram occupies more of the receiver's socket
//! buffer than its bytes (U8).

mod base;
mod ceiling;
mod cubic;
mod delay;
mod rate_only;

pub(crate) use base::Base;

use crate::CongestionAlgorithm;
use denrei_wire::Instant;

/// What Linux charges a socket's receive buffer for a small datagram (its `truesize`), rounded up.
const MIN_PACKET_COST_BYTES: u64 = 1024;

/// What a datagram of so many octets is charged for.
pub(crate) fn packet_cost(octets: u64) -> u64 {
    octets.max(MIN_PACKET_COST_BYTES)
}

/// Packets of the first window (RFC 6928).
const INITIAL_WINDOW_PACKETS: u64 = 10;

/// Packets the window never falls below (RFC 9002 §7.2).
const MIN_WINDOW_PACKETS: u64 = 2;

/// Largest window: what a path of 100 Gb/s and 20 ms holds. Bounds the memory for packets under way.
const MAX_WINDOW_BYTES: u64 = 256 << 20;

/// Delay that is not the path's where several are sent the same at once: they take their turns on their
/// cores, and on the network, and the last of them is no sign of a queue. A window that followed it would
/// be a few packets long with many members on a host.
const TURNS_DELAY_NS: u64 = 4_000_000;

/// What of a round trip is the path's if the receiver is one of several that take their turns; not below
/// the least round trip there was.
pub(crate) fn rtt_without_turns(rtt_ns: u64, min_rtt_ns: u64) -> u64 {
    rtt_ns.saturating_sub(TURNS_DELAY_NS).max(min_rtt_ns)
}

/// An acknowledgement, as controllers see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    pub now: Instant,
    /// Cost newly acknowledged.
    pub cost: u64,
    /// Packets newly acknowledged.
    pub packets: u64,
    /// Of these, packets that came back marked.
    pub marked: u64,
    /// Latest RTT sample without the receiver's own delay, nanoseconds.
    pub rtt_ns: u64,
    /// The same as far as it is known to last and to be the path's, where somebody is late for another reason than a queue.
    pub lasting_rtt_ns: u64,
    /// Smallest recent RTT, nanoseconds.
    pub min_rtt_ns: u64,
    /// Smoothed RTT, nanoseconds.
    pub srtt_ns: u64,
    /// When the newest acknowledged packet was sent.
    pub sent_at: Instant,
    /// Cost that was under way before.
    pub under_way: u64,
    /// Whether the window was what held the sender back.
    pub window_limited: bool,
}

/// A controller of one peer's window.
pub(crate) trait Controller: core::fmt::Debug + Send + Sync {
    /// Packets arrived.
    fn on_ack(&mut self, acked: Acked);
    /// So many packets, the newest sent at `sent_at`, were lost.
    fn on_loss(&mut self, now: Instant, sent_at: Instant, packets: u64);
    /// Nothing has arrived for several probe timeouts: the path is another one now.
    fn on_persistent_loss(&mut self);
    /// It was the peer that did not look: takes that back.
    fn on_absence(&mut self);
    /// The path's datagram size has changed.
    fn set_datagram_bytes(&mut self, bytes: u64);
    /// Cost that may be under way.
    fn window(&self) -> u64;
}

/// Makes the controller that `algorithm` names.
pub(crate) fn controller(algorithm: CongestionAlgorithm, datagram_bytes: u64) -> Box<dyn Controller> {
    match algorithm {
        CongestionAlgorithm::Delay => Box::new(delay::Delay::new(datagram_bytes)),
        CongestionAlgorithm::Cubic => Box::new(cubic::Cubic::new(datagram_bytes)),
        CongestionAlgorithm::RateOnly => Box::new(rate_only::RateOnly),
    }
}

/// Window limits for datagrams of one size.
#[derive(Debug, Clone, Copy)]
struct Limits {
    datagram: u64,
}

impl Limits {
    fn new(datagram_bytes: u64) -> Self {
        Self { datagram: datagram_bytes.max(MIN_PACKET_COST_BYTES) }
    }

    fn initial(self) -> u64 {
        // A path with large datagrams gets the bytes of ten usual ones, but room for four.
        const USUAL_DATAGRAM_BYTES: u64 = 1472;
        (INITIAL_WINDOW_PACKETS * USUAL_DATAGRAM_BYTES).max(self.datagram * 4)
    }

    fn clamp(self, window: u64) -> u64 {
        window.clamp(MIN_WINDOW_PACKETS * self.datagram, MAX_WINDOW_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use denrei_wire::duration_nanos;

    const MS: Duration = Duration::from_millis(1);

    fn acked(now_ms: u64, cost: u64, rtt: Duration) -> Acked {
        let now = Instant::from_nanos(now_ms * 1_000_000);
        Acked {
            now,
            cost,
            packets: cost / 1472,
            marked: 0,
            rtt_ns: duration_nanos(rtt),
            lasting_rtt_ns: duration_nanos(rtt),
            min_rtt_ns: duration_nanos(MS),
            srtt_ns: duration_nanos(rtt),
            sent_at: now,
            under_way: cost,
            window_limited: true,
        }
    }

    #[test]
    fn every_controller_grows_shrinks_and_keeps_its_limits() {
        for algorithm in [CongestionAlgorithm::Delay, CongestionAlgorithm::Cubic] {
            let mut controller = controller(algorithm, 1472);
            let initial = controller.window();
            assert_eq!(initial, 14720);
            for now in 1..20 {
                controller.on_ack(acked(now, controller.window(), MS));
            }
            let grown = controller.window();
            assert!(grown > 10 * initial, "{algorithm:?}: {grown}");
            // A round trip in which half is lost.
            let at = Instant::from_nanos(30_000_000);
            let half = grown / 1472 / 2;
            controller.on_loss(at, at, half);
            controller.on_ack(acked(31, half * 1472, MS));
            let after_loss = controller.window();
            assert!(after_loss < grown && after_loss > grown / 3, "{algorithm:?}: {after_loss} of {grown}");
            controller.on_persistent_loss();
            assert_eq!(controller.window(), 2 * 1472);
        }
    }

    #[test]
    fn without_a_window_only_the_receiver_limits() {
        let mut controller = controller(CongestionAlgorithm::RateOnly, 1472);
        controller.on_loss(Instant::ZERO, Instant::ZERO, 1_000);
        controller.on_persistent_loss();
        assert_eq!(controller.window(), MAX_WINDOW_BYTES);
    }

    #[test]
    fn an_idle_application_does_not_open_the_window() {
        for algorithm in [CongestionAlgorithm::Delay, CongestionAlgorithm::Cubic] {
            let mut controller = controller(algorithm, 1472);
            for now in 1..100 {
                controller.on_ack(Acked { window_limited: false, ..acked(now, 1472, MS) });
            }
            assert_eq!(controller.window(), 14720, "{algorithm:?}");
        }
    }

    /// What CUBIC had estimated before the path was silent says nothing of it now.
    #[test]
    fn after_a_silence_the_window_does_not_leap() {
        let mut controller = controller(CongestionAlgorithm::Cubic, 1472);
        controller.on_ack(acked(1, controller.window(), MS));
        controller.on_loss(Instant::from_nanos(2_000_000), Instant::from_nanos(2_000_000), 1);
        for now in 3..5_000 {
            controller.on_ack(acked(now, controller.window(), MS));
        }
        controller.on_persistent_loss();
        for now in 5_000..5_030 {
            let before = controller.window();
            controller.on_ack(acked(now, before, MS));
            assert!(controller.window() <= 2 * before, "{} after {before}", controller.window());
        }
    }

    #[test]
    fn chance_loss_does_not_close_the_window_of_the_delay_controller() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        for now in 1..500 {
            let packets = controller.window() / 1472;
            let at = Instant::from_nanos(now * 1_000_000);
            controller.on_loss(at, at, packets / 100);
            controller.on_ack(acked(now, packets * 99 / 100 * 1472, MS));
        }
        assert!(controller.window() > 200 * 1472, "{}", controller.window());
    }

    /// Nor does it end the start: what overflows a queue as the window doubles is more.
    #[test]
    fn a_few_lost_do_not_end_the_start_and_more_do() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        // Of so many packets of a round trip one is lost, and one at the least.
        let mut lose_one_in = |of: u64, now: u64| {
            let packets = controller.window() / 1472;
            let at = Instant::from_nanos(now * 1_000_000);
            let lost = packets.div_ceil(of);
            controller.on_loss(at, at, lost);
            controller.on_ack(acked(now, (packets - lost) * 1472, MS));
            controller.window() / 1472
        };
        let grown = (1..9).map(|now| lose_one_in(100, now)).last().unwrap();
        assert!(grown > 1_000, "{grown}");
        let after = lose_one_in(10, 9);
        let next = lose_one_in(1_000_000, 10);
        assert!(next < after + after / 2, "{next} after {after}: it does not double any more");
    }

    /// What made the window small was a burst of many senders, not the path: 10 packets grow to 2,000 in
    /// fewer round trips than one a trip would take, and after the next mark growth is slow again.
    #[test]
    fn a_path_that_stays_calm_is_filled_soon() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        controller.on_ack(Acked { marked: 10, ..acked(1, controller.window(), MS) });
        for now in 2..30 {
            controller.on_ack(acked(now, controller.window(), MS));
        }
        assert!(controller.window() > 2_000 * 1472, "{}", controller.window());
        controller.on_ack(Acked { marked: 10, ..acked(30, controller.window(), MS) });
        controller.on_ack(acked(31, controller.window(), MS));
        let before = controller.window();
        controller.on_ack(acked(32, before, MS));
        assert!(controller.window() <= before + before / 8, "{} after {before}", controller.window());
    }

    #[test]
    fn one_late_sample_is_not_a_queue() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        for now in 1..10 {
            controller.on_ack(acked(now, controller.window(), MS));
        }
        let grown = controller.window();
        let late = Acked { sent_at: Instant::ZERO, ..acked(10, 14720, 50 * MS) };
        controller.on_ack(late);
        controller.on_ack(acked(11, 14720, MS));
        assert!(controller.window() >= grown);
    }

    /// As after a change of routes: what the path took before counts for half a minute yet.
    #[test]
    fn a_path_that_has_become_longer_is_no_queue_for_long() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        let mut take = |rounds: core::ops::Range<u64>| {
            for round in rounds {
                controller.on_ack(acked(round * 20, controller.window(), 20 * MS));
            }
            controller.window()
        };
        assert_eq!(take(1..50), 2 * 1472, "it may be a queue");
        assert!(take(50..150) > 1_000 * 1472);
    }

    /// What a path takes that has become longer is known closely: more is a queue. And no longer than it takes that.
    #[test]
    fn a_path_that_has_become_longer_has_queues_and_may_become_shorter() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        let mut now = 0;
        let mut take = |rounds: u64, ms: u32| {
            for _ in 0..rounds {
                now += u64::from(ms);
                controller.on_ack(acked(now, controller.window(), ms * MS));
            }
            controller.window()
        };
        take(20, 1);
        while take(1, 100) > 2 * 1472 {}
        while take(1, 100) < 100 * 1472 {}
        let grown = take(1, 100);
        assert!(take(30, 200) < grown / 2, "twice that is a queue");
        while take(1, 100) < 100 * 1472 {}
        let grown = take(1, 1);
        assert!(take(100, 30) < grown / 2, "it takes a millisecond again");
    }

    /// As of many that answer at once, again and again: nothing was under way in between.
    #[test]
    fn a_pause_is_no_time_at_the_least_window() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        for burst in 0..4 {
            for round in 1..40 {
                controller.on_ack(acked(burst * 2_000 + round * 20, controller.window(), 20 * MS));
            }
            assert_eq!(controller.window(), 2 * 1472, "{burst}");
        }
    }

    /// It takes its time whatever the window is, and in between a round trip is what the path makes it.
    #[test]
    fn a_process_that_waits_for_its_core_is_not_a_queue() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        let mut now = 0;
        for round in 1..300 {
            let rtt = if round % 20 == 0 { 1 } else { 20 };
            now += rtt;
            controller.on_ack(acked(now, controller.window(), rtt as u32 * MS));
        }
        assert!(controller.window() >= 10 * 14720, "{}", controller.window());
    }

    /// Nor is one that calls only every 50 ms: what it says that it kept is taken off.
    #[test]
    fn a_receiver_that_is_away_is_not_a_queue() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        for now in 1..20 {
            let late =
                Acked { lasting_rtt_ns: duration_nanos(MS), ..acked(now * 50, controller.window(), 50 * MS) };
            controller.on_ack(late);
        }
        assert!(controller.window() >= 1000 * 14720, "{}", controller.window());
    }

    #[test]
    fn what_a_silence_took_comes_back_if_the_peer_was_away() {
        for algorithm in [CongestionAlgorithm::Delay, CongestionAlgorithm::Cubic] {
            let mut controller = controller(algorithm, 1472);
            for now in 1..10 {
                controller.on_ack(acked(now, controller.window(), MS));
            }
            let grown = controller.window();
            controller.on_persistent_loss();
            assert_eq!(controller.window(), 2 * 1472, "{algorithm:?}");
            controller.on_absence();
            assert_eq!(controller.window(), grown, "{algorithm:?}");
            controller.on_ack(acked(3_000, grown, MS));
            assert!(controller.window() > grown, "{algorithm:?}: it doubled before");
        }
    }

    #[test]
    fn the_delay_controller_yields_to_a_growing_queue_and_to_marks() {
        let mut controller = controller(CongestionAlgorithm::Delay, 1472);
        for now in 1..10 {
            controller.on_ack(acked(now, controller.window(), MS));
        }
        let grown = controller.window();
        // As long as the fastest round trip counts, and 300 ms.
        for now in 10..140 {
            controller.on_ack(acked(now * 10, controller.window(), 10 * MS));
        }
        assert!(controller.window() < grown / 4, "{} of {grown}", controller.window());
        let mut marked = super::controller(CongestionAlgorithm::Delay, 1472);
        for now in 1..10 {
            marked.on_ack(acked(now, marked.window(), MS));
        }
        let before = marked.window();
        for now in 10..30 {
            let packets = marked.window() / 1472;
            marked.on_ack(Acked { marked: packets, ..acked(now * 2, marked.window(), MS) });
        }
        assert!(marked.window() < before / 4);
    }
}

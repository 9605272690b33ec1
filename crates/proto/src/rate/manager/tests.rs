//! A host that is slower than its senders, and learns it.

use super::super::{DEFAULT_WEIGHT, RateCredit};
use super::*;
use std::collections::VecDeque;

const PAYLOAD: u64 = 1400;
const DATAGRAM: u64 = PAYLOAD + PACKET_OVERHEAD;
const RTT: Duration = Duration::from_micros(100);
const STEP: Duration = Duration::from_micros(20);
const PROBE_TIMEOUT: Duration = Duration::from_millis(2);

/// Senders with data without end, and a host that takes a datagram each `service` and holds some.
struct Host {
    manager: Manager,
    now: Instant,
    service: Duration,
    holds: usize,
    free_at: Instant,
    /// Who sent what waits, and how many packets of its are missing before that.
    queue: VecDeque<(usize, u64)>,
    senders: Vec<Sender>,
    turn: usize,
    /// One datagram in so many is lost on the way.
    chance: Option<u64>,
    sent: u64,
}

struct Sender {
    peer: u32,
    credit: RateCredit,
    weight: u32,
    /// Most bytes per second that it has to send; a time when it may send the next.
    supply: Option<u64>,
    next_at: Instant,
    sent_at: Instant,
    missing: u64,
    arrived: u64,
    lost: u64,
}

impl Host {
    fn new(service: Duration, holds: usize, weights: &[u32]) -> Self {
        let senders = weights.iter().zip(0..).map(|(&weight, peer)| Sender {
            peer,
            credit: RateCredit::new(Instant::ZERO, Rate::UNLIMITED),
            weight,
            supply: None,
            next_at: Instant::ZERO,
            sent_at: Instant::ZERO,
            missing: 0,
            arrived: 0,
            lost: 0,
        });
        Self {
            manager: Manager::new(Instant::ZERO, holds as u64 * PAYLOAD, RTT, Taken::default()),
            now: Instant::ZERO,
            service,
            holds,
            free_at: Instant::ZERO,
            queue: VecDeque::new(),
            senders: senders.collect(),
            turn: 0,
            chance: None,
            sent: 0,
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let before = self.now;
            self.now += STEP;
            let count = self.senders.len();
            self.turn += 1;
            for sender in 0..count {
                self.send((sender + self.turn) % count);
            }
            while self.free_at <= self.now
                && let Some((sender, missing)) = self.queue.pop_front()
            {
                self.free_at = self.free_at.max(before) + self.service;
                let from = &mut self.senders[sender];
                from.arrived += PAYLOAD;
                let heard = Heard { data: DATAGRAM, missing };
                self.manager.on_packet(self.now, from.peer, from.weight, heard);
            }
            for (peer, rate) in self.manager.look(self.now, Taken::default()) {
                self.senders[peer as usize].credit.set(self.now, rate);
            }
        }
    }

    /// All that may go now, at most as much as a fast link brings in a step.
    fn send(&mut self, sender: usize) {
        let from = &mut self.senders[sender];
        for _ in 0..16 {
            if from.credit.room(self.now) == Some(0) || from.next_at > self.now {
                return self.ask(sender);
            }
            if let Some(supply) = from.supply {
                from.next_at = from.next_at.max(self.now)
                    + Duration::from_nanos(PAYLOAD * 1_000_000_000 / supply.max(1));
            }
            from.credit.spend(PAYLOAD);
            from.sent_at = self.now;
            self.sent += 1;
            let survives = self.chance.is_none_or(|one_in| !hashed(self.sent).is_multiple_of(one_in));
            if survives && self.queue.len() < self.holds {
                self.queue.push_back((sender, core::mem::take(&mut from.missing)));
            } else {
                (from.missing, from.lost) = (from.missing + 1, from.lost + 1);
            }
        }
    }

    /// Who has had no answer, and has no rate left, asks what became of the last that it sent with a packet without data.
    fn ask(&mut self, sender: usize) {
        let from = &mut self.senders[sender];
        let waits = self.queue.iter().any(|(from, _)| *from == sender);
        if from.missing > 0 && !waits && self.now >= from.sent_at + PROBE_TIMEOUT {
            let heard = Heard { data: 0, missing: core::mem::take(&mut from.missing) };
            self.manager.on_packet(self.now, from.peer, from.weight, heard);
        }
    }

    /// Octets that arrived from each in that time.
    fn measure(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.arrived).collect();
        self.run(time);
        self.senders.iter().zip(before).map(|(sender, before)| sender.arrived - before).collect()
    }
}

/// A number that looks like chance (Steele, Lea, Flood 2014).
fn hashed(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 31)
}

/// Jain, Chiu, Hawe 1984.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

const SECOND: Duration = Duration::from_secs(1);
const SERVICE: Duration = Duration::from_micros(100);
/// What such a host takes, octets per second.
const TAKES: f64 = 14_000_000.0;

/// What one sender comes to in 4 s once settled: the share of what the host takes, its burst as a share of what the host
/// holds, and what it loses of 1000 packets.
fn settled(service: Duration, holds: usize) -> (f64, f64, f64) {
    let mut host = Host::new(service, holds, &[DEFAULT_WEIGHT]);
    host.run(SECOND * 4);
    let lost = host.senders[0].lost;
    let taken = host.measure(SECOND * 4)[0] as f64;
    let lost = (host.senders[0].lost - lost) as f64 * 1e3 * PAYLOAD as f64 / taken;
    let burst = host.senders[0].credit.rate().burst_bytes as f64 / (holds as f64 * PAYLOAD as f64);
    let takes = TAKES * SERVICE.as_secs_f64() / service.as_secs_f64();
    (taken / (4.0 * takes), burst, lost)
}

#[test]
fn one_sender_gets_what_the_host_takes_and_the_burst_is_what_it_holds() {
    let (used, burst, lost) = settled(SERVICE, 60);
    assert!(used > 0.95, "{used} of what the host takes");
    assert!((0.85..=1.1).contains(&burst), "{burst} of what the host holds");
    assert!(lost <= 1.0, "{lost} lost per 1000 packets");
}

/// As a network card's queue of 64 KiB at 1 Gbit/s, that holds less than the rate brings in a millisecond.
#[test]
fn a_burst_of_less_than_a_millisecond_is_told() {
    let (used, burst, lost) = settled(SERVICE / 10, 45);
    assert!(used > 0.9, "{used} of what the host takes");
    // While a burst comes the host takes some of it.
    assert!((0.7..=1.3).contains(&burst), "{burst} of what the host holds");
    assert!(lost <= 8.0, "{lost} lost per 1000 packets");
}

#[test]
fn several_share_evenly_or_by_weight() {
    let mut host = Host::new(SERVICE, 200, &[DEFAULT_WEIGHT; 4]);
    host.run(SECOND * 3);
    let shares = host.measure(SECOND * 2);
    assert!(jain(&shares) > 0.98, "{shares:?}");
    let mut host = Host::new(SERVICE, 200, &[100, 300]);
    host.run(SECOND * 3);
    let shares = host.measure(SECOND * 2);
    let share = shares[1] as f64 / shares[0] as f64;
    assert!((2.7..3.3).contains(&share), "{shares:?}");
}

#[test]
fn what_one_does_not_use_the_others_have_and_gets_back() {
    let mut host = Host::new(SERVICE, 200, &[DEFAULT_WEIGHT; 2]);
    host.run(SECOND * 3);
    host.senders[0].supply = Some(1_000_000);
    host.run(SECOND / 10);
    let shares = host.measure(SECOND / 10);
    assert!(shares[1] as f64 > 0.08 * TAKES, "{shares:?}: the first left it almost all");
    host.senders[0].supply = None;
    host.run(SECOND);
    let shares = host.measure(SECOND);
    assert!(jain(&shares) > 0.98, "{shares:?}");
}

#[test]
fn what_is_lost_by_chance_closes_no_rate() {
    for (one_in, least) in [(1_000, 0.93), (100, 0.9), (20, 0.85)] {
        let mut host = Host::new(SERVICE / 10, 200, &[DEFAULT_WEIGHT; 4]);
        host.chance = Some(one_in);
        host.run(SECOND * 3);
        let shares = host.measure(SECOND * 2);
        let used = shares.iter().sum::<u64>() as f64 / (20.0 * TAKES);
        assert!(used > least, "{used} of what the host takes, one in {one_in} is lost");
        assert!(jain(&shares) > 0.98, "{shares:?}");
    }
}

#[test]
fn a_host_that_becomes_slower_is_not_taken_for_chance() {
    let mut host = Host::new(SERVICE / 10, 200, &[DEFAULT_WEIGHT; 4]);
    host.run(SECOND * 3);
    host.service = SERVICE;
    host.run(SECOND * 2);
    let lost = |host: &Host| host.senders.iter().map(|sender| sender.lost).sum::<u64>();
    let before = lost(&host);
    let taken = host.measure(SECOND * 4).iter().sum::<u64>();
    let lost = (lost(&host) - before) as f64 * 1e3 * PAYLOAD as f64 / taken as f64;
    assert!(taken as f64 > 0.95 * 4.0 * TAKES, "{taken}");
    assert!(lost <= 5.0, "{lost} lost per 1000 packets");
}

#[test]
fn a_rate_that_the_application_set_is_left_alone_and_counts() {
    let mut host = Host::new(SERVICE, 200, &[DEFAULT_WEIGHT; 2]);
    let fixed = Rate { bytes_per_s: 2_000_000, burst_bytes: 14_000 };
    host.senders[0].credit.set(Instant::ZERO, fixed);
    host.manager.set_fixed(0, DEFAULT_WEIGHT, true);
    host.run(SECOND * 2);
    let shares = host.measure(SECOND);
    assert_eq!(host.senders[0].credit.rate(), fixed);
    assert!(shares[0] as f64 > 0.9 * 2_000_000.0, "{shares:?}");
    assert!((shares[0] + shares[1]) as f64 > 0.95 * TAKES, "{shares:?}");
}

#[test]
fn one_number_left_out_is_no_loss() {
    let mut manager = Manager::new(Instant::ZERO, 1 << 20, RTT, Taken::default());
    for packet in 1..10_000u64 {
        let missing = packet.is_multiple_of(130) as u64;
        manager.on_packet(Instant::ZERO, 1, DEFAULT_WEIGHT, Heard { data: DATAGRAM, missing });
    }
    assert_eq!(manager.recoveries, 0);
    let lossy = Heard { data: DATAGRAM, missing: 2 };
    manager.on_packet(Instant::ZERO + SECOND, 1, DEFAULT_WEIGHT, lossy);
    assert_eq!(manager.recoveries, 1);
    // A peer may leave out any.
    manager.look(Instant::ZERO + SECOND, Taken::default());
    let all = Heard { data: DATAGRAM, missing: u64::MAX };
    manager.on_packet(Instant::ZERO + SECOND * 2, 1, DEFAULT_WEIGHT, all);
    assert_eq!(manager.recoveries, 1);
}

/// The Nodes that it shared the host with have ended: nobody knows of a limit any more.
#[test]
fn who_was_held_back_for_other_nodes_goes_on_when_they_are_gone() {
    let mut now = Instant::ZERO;
    let mut manager = Manager::of_shared_host(now, 1 << 20, RTT, Taken::default());
    let mut look = |manager: &mut Manager| {
        manager.on_packet(now, 1, DEFAULT_WEIGHT, Heard { data: DATAGRAM, missing: 0 });
        now += LONGEST_INTERVAL;
        manager.look(now, Taken::default())
    };
    let share = |bytes_per_s| Some(Rate { bytes_per_s, burst_bytes: 0 });
    manager.share_host(Instant::ZERO, share(5_000), false, 0);
    let told = look(&mut manager);
    assert!(matches!(*told, [(1, Rate { bytes_per_s: 5_000, .. })]), "{told:?}");
    manager.share_host(Instant::ZERO, None, true, 0);
    assert_eq!(look(&mut manager), [(1, Rate::UNLIMITED)]);
    assert_eq!(look(&mut manager), [], "once");
}

/// Else all of them would send many times what the host takes as soon as the overruns are forgotten.
#[test]
fn what_was_not_tried_for_a_learnt_share_is_not_raised() {
    let mut now = Instant::ZERO;
    let mut manager = Manager::new(now, 1 << 20, RTT, Taken::default());
    let mut look = |manager: &mut Manager| {
        for _ in 0..100 {
            manager.on_packet(now, 1, DEFAULT_WEIGHT, Heard { data: DATAGRAM, missing: 0 });
        }
        now += LONGEST_INTERVAL;
        manager.look(now, Taken::default())
    };
    let share = 100 * PAYLOAD * 5;
    manager.share_host(Instant::ZERO, Some(Rate { bytes_per_s: share, burst_bytes: 0 }), true, 0);
    (0..50).for_each(|_| drop(look(&mut manager)));
    manager.share_host(Instant::ZERO, None, true, 0);
    let told = look(&mut manager);
    assert!(told.iter().all(|(_, rate)| rate.bytes_per_s <= share * 2), "{share}: {told:?}");
}

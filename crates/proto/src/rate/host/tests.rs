//! Shares computed by hand, and several Nodes behind one queue that learn together what it takes.

use super::*;
use crate::rate::{Heard, Manager, RateCredit, Taken};
use std::collections::VecDeque;

fn record(weight: u64, bytes_per_s: u64, held_back: bool) -> HostRecord {
    HostRecord { weight, senders: weight.div_ceil(100), bytes_per_s, held_back, ..HostRecord::default() }
}

/// The rate that is the share of a host which takes so much.
fn share(capacity: u64, own: HostRecord, others: &[HostRecord]) -> u64 {
    let rate = Rate { bytes_per_s: capacity, burst_bytes: 0 };
    host_share(Some(HostLimit { rate, is_learnt: false }), own, others).expect("there is a limit").bytes_per_s
}

#[test]
fn no_weight_is_too_much() {
    let greedy = record(u64::MAX, u64::MAX, true);
    for own in [record(100, 500, true), record(0, 0, false), greedy] {
        assert!(share(1_000, own, &[greedy, greedy]) <= 1_000);
    }
}

#[test]
fn shares_computed_by_hand() {
    let one = record(100, 500, true);
    assert_eq!(host_share(None, one, &[one]), None, "nobody knows of a limit");
    assert_eq!(share(1_000, one, &[]), 1_000);
    assert_eq!(share(1_000, one, &[one]), 500);
    assert_eq!(share(1_000, one, &[record(300, 750, true)]), 250);
    let modest = record(100, 80, false);
    assert_eq!(share(1_000, one, &[modest]), 900, "what another leaves");
    assert_eq!(share(1_000, modest, &[one]), 500, "may have its own back at once");
    let idle = record(0, 0, false);
    assert_eq!(share(8_000, idle, &[one]), 500, "to begin with");
    assert_eq!(share(8_000, one, &[idle]), 8_000, "idle ones take nothing");
    assert_eq!(share(8_000, idle, &[]), 1_000, "nobody sends yet");
}

#[test]
fn bursts_of_all_are_together_what_fits() {
    let rate = Rate { bytes_per_s: 1_000, burst_bytes: 600 };
    let limit = Some(HostLimit { rate, is_learnt: true });
    let burst = |own, others: &[HostRecord]| host_share(limit, own, others).unwrap().burst_bytes;
    let (one, two) = (record(100, 500, true), record(200, 500, true));
    assert_eq!((burst(one, &[two]), burst(two, &[one])), (200, 400));
    assert_eq!(burst(record(0, 0, false), &[one, two]), 150, "to begin with");
    assert_eq!(burst(one, &[record(0, 0, false)]), 600);
}

#[test]
fn who_wants_all_they_can_get_get_together_what_the_host_takes() {
    let records = [record(100, 700, true), record(50, 20, true), record(900, 1, true)];
    let sum: u64 = (0..records.len())
        .map(|own| {
            let mut others = records.to_vec();
            let own = others.remove(own);
            share(1_000, own, &others)
        })
        .sum();
    assert!((990..=1_010).contains(&sum), "{sum}");
}

#[test]
fn the_limit_is_the_less_of_what_was_set_and_what_was_learnt() {
    let learnt = Rate { bytes_per_s: 5_000_000, burst_bytes: 60_000 };
    let leader = HostRecord { name: 1, learnt: Some(learnt), ..record(100, 500, true) };
    let limit = |stated, records: &[HostRecord]| {
        let mut capacity = HostCapacity::new(Instant::ZERO, 2, stated, 1 << 20);
        capacity.look(Instant::ZERO, records);
        capacity.limit()
    };
    let own = HostRecord { name: 2, ..record(100, 500, true) };
    assert_eq!(limit(None, &[own]), None, "the first of all knows nothing yet");
    let stated = Rate { bytes_per_s: 1_000, burst_bytes: 0 };
    assert_eq!(limit(Some(1_000), &[own]), Some(HostLimit { rate: stated, is_learnt: false }));
    assert_eq!(limit(None, &[own, leader]), Some(HostLimit { rate: learnt, is_learnt: true }));
    assert_eq!(limit(Some(1 << 30), &[own, leader]), Some(HostLimit { rate: learnt, is_learnt: true }));
    let less = Rate { bytes_per_s: 1_000, ..learnt };
    assert_eq!(limit(Some(1_000), &[own, leader]), Some(HostLimit { rate: less, is_learnt: false }));
}

#[test]
fn whatever_others_say_nothing_overflows() {
    let most = HostRecord {
        weight: u64::MAX,
        senders: u64::MAX,
        bytes_per_s: u64::MAX,
        held_back: true,
        datagram: u64::MAX,
        rtt: Duration::from_nanos(u64::MAX),
        ..HostRecord::default()
    };
    for (name, steps) in [(0, 200), (9, 200)] {
        let mut capacity = HostCapacity::new(Instant::ZERO, 5, None, 1 << 20);
        for step in 1..steps {
            let now = Instant::ZERO + PERIOD * step;
            let counted = if step % 2 == 0 { u64::MAX } else { u64::from(step) };
            let learnt = Some(Rate { bytes_per_s: counted, burst_bytes: counted });
            let said =
                HostRecord { at: counted, octets: u64::MAX, lost: counted, recoveries: counted, ..most };
            let others = [said, HostRecord { at: 7, ..said }].map(|said| HostRecord { name, learnt, ..said });
            capacity
                .look(now, &[&others[..], &[HostRecord { name: 5, at: now.as_nanos(), ..said }]].concat());
            _ = host_share(capacity.limit(), said, &others);
        }
    }
}

const PAYLOAD: u64 = 1_400;
const DATAGRAM: u64 = PAYLOAD + 48;
const RTT: Duration = Duration::from_micros(200);
const STEP: Duration = Duration::from_micros(20);
/// Nodes say what they do this often.
const PERIOD: Duration = Duration::from_millis(10);
/// One who has had no answer asks after this time.
const PROBE_TIMEOUT: Duration = Duration::from_millis(2);
const SECOND: Duration = Duration::from_secs(1);
/// The link takes a datagram in this time, and so many octets of messages a second.
const SERVICE: Duration = Duration::from_micros(112);
const TAKES: f64 = 12_500_000.0;

/// A Node, and one who has data without end for it.
struct Pair {
    name: u64,
    manager: Manager,
    capacity: HostCapacity,
    /// What it has said last.
    said: Option<HostRecord>,
    weight: u32,
    credit: RateCredit,
    sent_at: Instant,
    missing: u64,
    arrived: u64,
    lost: u64,
    /// Datagrams that its own socket had no room for.
    overflows: u64,
    /// It takes one datagram in this time, and its socket holds as many as come in ten of them.
    pace: Option<Duration>,
    free_at: Instant,
    /// Nobody has anything for it.
    idle: bool,
}

/// Nodes of one host behind a link that holds some datagrams.
struct Link {
    pairs: Vec<Pair>,
    now: Instant,
    said_at: Instant,
    holds: usize,
    free_at: Instant,
    queue: VecDeque<usize>,
    turn: usize,
    /// One datagram in so many is lost on the way.
    chance: Option<u64>,
    sent: u64,
}

impl Link {
    fn new(holds: usize, weights: &[u32], stated: Option<u64>) -> Self {
        let pair = |(&weight, name): (&u32, u64)| Pair {
            name,
            idle: false,
            manager: Manager::of_shared_host(Instant::ZERO, 1 << 20, RTT, Taken::default()),
            capacity: HostCapacity::new(Instant::ZERO, name, stated, 1 << 20),
            said: None,
            weight,
            credit: RateCredit::new(Instant::ZERO, Rate::UNLIMITED),
            sent_at: Instant::ZERO,
            missing: 0,
            arrived: 0,
            lost: 0,
            overflows: 0,
            pace: None,
            free_at: Instant::ZERO,
        };
        Self {
            pairs: weights.iter().zip(10..).map(pair).collect(),
            now: Instant::ZERO,
            said_at: Instant::ZERO,
            holds,
            free_at: Instant::ZERO,
            queue: VecDeque::new(),
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
            self.turn += 1;
            let count = self.pairs.len();
            (0..count).for_each(|pair| self.send((pair + self.turn) % count));
            while self.free_at <= self.now
                && let Some(pair) = self.queue.pop_front()
            {
                self.free_at = self.free_at.max(before) + SERVICE;
                self.pairs[pair].arrive(self.now);
            }
            for pair in &mut self.pairs {
                for (_, rate) in pair.manager.look(self.now, Taken::default()) {
                    pair.credit.set(self.now, rate);
                }
            }
            if self.now >= self.said_at + PERIOD {
                self.pass_on();
            }
        }
    }

    /// Each writes its record, and reads those of the others.
    fn pass_on(&mut self) {
        self.said_at = self.now;
        for at in 0..self.pairs.len() {
            let name = self.pairs[at].name;
            let record = self.pairs[at].manager.host_record(self.now);
            let learnt = self.pairs[at].capacity.learnt();
            let own = HostRecord { name, learnt, ..record };
            // Who has not looked at the others yet says nothing to them.
            if !self.pairs[at].capacity.is_behind(self.now) {
                self.pairs[at].said = Some(own);
            }
            let others = self.pairs.iter().filter(|pair| pair.name != name);
            let others: Vec<HostRecord> = others.filter_map(|pair| pair.said).collect();
            let pair = &mut self.pairs[at];
            pair.capacity.look(self.now, &[&[own], &others[..]].concat());
            let limit = pair.capacity.limit();
            let share = host_share(limit, own, &others);
            let is_learnt = limit.is_some_and(|limit| limit.is_learnt);
            pair.manager.share_host(self.now, share, is_learnt, pair.overflows);
        }
    }

    /// All that may go now, at most as much as a fast link brings in a step.
    fn send(&mut self, pair: usize) {
        for _ in 0..16 {
            let from = &mut self.pairs[pair];
            if from.idle {
                return;
            }
            if from.credit.room(self.now) == Some(0) {
                let waits = self.queue.contains(&pair);
                return self.pairs[pair].ask(self.now, waits);
            }
            from.credit.spend(PAYLOAD);
            from.sent_at = self.now;
            self.sent += 1;
            let survives = self.chance.is_none_or(|one_in| !self.sent.is_multiple_of(one_in));
            if survives && self.queue.len() < self.holds {
                self.queue.push_back(pair);
            } else {
                (from.missing, from.lost) = (from.missing + 1, from.lost + 1);
            }
        }
    }

    /// Octets that arrived at each in that time, and datagrams lost per 1000.
    fn measure(&mut self, time: Duration) -> (Vec<u64>, f64) {
        let lost = |link: &Self| link.pairs.iter().map(|pair| pair.lost).sum::<u64>();
        let before: Vec<u64> = self.pairs.iter().map(|pair| pair.arrived).collect();
        let lost_before = lost(self);
        self.run(time);
        let arrived: Vec<u64> =
            self.pairs.iter().zip(before).map(|(pair, before)| pair.arrived - before).collect();
        let share =
            (lost(self) - lost_before) as f64 * 1e3 * PAYLOAD as f64 / arrived.iter().sum::<u64>() as f64;
        (arrived, share)
    }
}

impl Pair {
    fn arrive(&mut self, now: Instant) {
        if let Some(pace) = self.pace {
            if self.free_at > now + pace * 10 {
                (self.missing, self.lost) = (self.missing + 1, self.lost + 1);
                self.overflows += 1;
                return;
            }
            self.free_at = self.free_at.max(now) + pace;
        }
        self.arrived += PAYLOAD;
        let heard = Heard { data: DATAGRAM, missing: core::mem::take(&mut self.missing) };
        self.manager.on_packet(now, 1, self.weight, heard);
    }

    /// Who has no rate left, and no answer, asks what became of the last that it sent.
    fn ask(&mut self, now: Instant, waits: bool) {
        if self.missing > 0 && !waits && now >= self.sent_at + PROBE_TIMEOUT {
            let heard = Heard { data: 0, missing: core::mem::take(&mut self.missing) };
            self.manager.on_packet(now, 1, self.weight, heard);
        }
    }
}

/// Of the link, in so many seconds.
fn used(arrived: &[u64], seconds: f64) -> f64 {
    arrived.iter().sum::<u64>() as f64 / seconds / TAKES
}

#[test]
fn nodes_behind_one_link_learn_together_what_it_takes() {
    for weights in [&[100][..], &[100, 100], &[100, 100, 100, 100]] {
        for holds in [20, 45, 200] {
            let mut link = Link::new(holds, weights, None);
            link.run(SECOND * 6);
            let (arrived, lost) = link.measure(SECOND * 4);
            let case = format!("{} Nodes, {holds} packets of room: {arrived:?}", weights.len());
            println!("{case} used {:.3} lost {lost:.2}", used(&arrived, 4.0));
            assert!(used(&arrived, 4.0) > 0.85, "{case}");
            assert!(lost < 5.0, "{case}: {lost} lost per 1000 packets");
            let least = *arrived.iter().min().unwrap() as f64;
            let most = *arrived.iter().max().unwrap() as f64;
            assert!(least > 0.9 * most, "{case}");
        }
    }
}

#[test]
fn shares_of_what_is_learnt_follow_the_weights() {
    let mut link = Link::new(60, &[100, 300], None);
    link.run(SECOND * 6);
    let (arrived, _) = link.measure(SECOND * 2);
    let ratio = arrived[1] as f64 / arrived[0] as f64;
    assert!((2.5..=3.5).contains(&ratio), "{arrived:?}");
}

#[test]
fn what_one_leaves_the_others_have() {
    let mut link = Link::new(60, &[100, 100], None);
    link.run(SECOND * 6);
    let stopped = link.pairs.pop().expect("two");
    drop(stopped);
    link.queue.clear();
    link.run(SECOND * 2);
    let (arrived, _) = link.measure(SECOND * 2);
    assert!(used(&arrived, 2.0) > 0.85, "{arrived:?}");
}

/// The first to learn is gone: the next goes on with what it had learnt.
#[test]
fn whoever_is_the_first_learns_for_all() {
    let mut link = Link::new(60, &[100, 100, 100], None);
    link.run(SECOND * 6);
    let before = link.pairs[1].capacity.learnt();
    assert!(before.is_some() && before == link.pairs[2].capacity.learnt());
    link.pairs.remove(0);
    link.queue.clear();
    link.run(SECOND);
    let (arrived, lost) = link.measure(SECOND * 4);
    assert!(used(&arrived, 4.0) > 0.85, "{arrived:?}");
    assert!(lost < 5.0, "{lost} lost per 1000 packets");
}

/// What its own socket has no room for is its own affair.
#[test]
fn a_slow_node_costs_the_others_nothing() {
    let mut link = Link::new(60, &[100, 100], None);
    link.pairs[0].pace = Some(SERVICE * 10);
    link.run(SECOND * 6);
    let (arrived, _) = link.measure(SECOND * 4);
    assert!(used(&arrived[..1], 4.0) > 0.08, "{arrived:?}");
    assert!(used(&arrived, 4.0) > 0.8, "{arrived:?}");
}

#[test]
fn what_is_lost_by_chance_lowers_no_limit() {
    for one_in in [1_000, 100] {
        let mut link = Link::new(60, &[100, 100], None);
        link.chance = Some(one_in);
        link.run(SECOND * 10);
        let (arrived, _) = link.measure(SECOND * 4);
        println!("one in {one_in}: {:.3}", used(&arrived, 4.0));
        assert!(used(&arrived, 4.0) > 0.6, "one in {one_in}: {arrived:?}");
    }
}

/// A Node whose name is less than that of all others learns from then on: it goes on with what they have learnt.
#[test]
fn who_comes_later_and_is_the_first_goes_on_with_what_was_learnt() {
    let learnt = Rate { bytes_per_s: 5_000_000, burst_bytes: 20_000 };
    let old = HostRecord { name: 2, at: 1, learnt: Some(learnt), ..record(100, 500, true) };
    let own = HostRecord { name: 1, at: 1, ..record(0, 0, false) };
    let mut capacity = HostCapacity::new(Instant::ZERO, 1, None, 1 << 20);
    capacity.look(Instant::ZERO, &[own, old]);
    assert_eq!(capacity.learnt(), Some(learnt));
}

/// Each is the first while it is there, and tries what the one before had found to be too much: a few per cent are lost,
/// and not nearly all as where nobody had a limit.
#[test]
fn nodes_that_come_and_go_cost_the_others_little() {
    let mut link = Link::new(60, &[100, 100], None);
    link.run(SECOND * 6);
    for name in (2..10).rev() {
        let mut pair = Link::new(60, &[100], None).pairs.pop().expect("one");
        pair.name = name;
        pair.capacity = HostCapacity::new(link.now, name, None, 1 << 20);
        pair.manager = Manager::of_shared_host(link.now, 1 << 20, RTT, Taken::default());
        pair.idle = true;
        link.pairs.push(pair);
        let (arrived, lost) = link.measure(SECOND / 2);
        assert!(used(&arrived, 0.5) > 0.8 && lost < 60.0, "{arrived:?}, {lost} lost per 1000 packets");
        link.pairs.truncate(2);
        let (arrived, lost) = link.measure(SECOND / 2);
        assert!(used(&arrived, 0.5) > 0.8 && lost < 60.0, "{arrived:?}, {lost} lost per 1000 packets");
    }
}

/// One whose application computes says nothing for a while: what it counts is no news when it goes on.
#[test]
fn what_was_counted_before_a_silence_does_not_count_again() {
    let mut now = Instant::ZERO;
    let mut capacity = HostCapacity::new(now, 1, None, 1 << 20);
    let counted = HostRecord { octets: 1 << 30, lost: 1 << 20, recoveries: 1_000, ..record(0, 0, false) };
    for step in 1..200u32 {
        now += PERIOD;
        let lost = u64::from(step > 20);
        let own = HostRecord {
            name: 1,
            at: now.as_nanos(),
            octets: u64::from(step) * 50_000,
            datagram: DATAGRAM,
            lost: lost * DATAGRAM,
            recoveries: lost,
            ..record(100, 5_000_000, false)
        };
        let says = if (50..100).contains(&step) { record(0, 0, false) } else { counted };
        // It has run for an hour.
        let at = if says == counted { (now + SECOND * 3_600).as_nanos() } else { 0 };
        capacity.look(now, &[own, HostRecord { name: 2, at, ..says }]);
    }
    let rate = capacity.learnt().expect("something was lost");
    assert!(rate.bytes_per_s > 4_500_000 && rate.burst_bytes > 15_000, "{rate:?}");
}

/// A Node that was stopped long has missed what the others have learnt, and knows nothing of the time between.
#[test]
fn who_was_stopped_goes_on_with_what_was_learnt_meanwhile() {
    let old = Rate { bytes_per_s: 50_000_000, burst_bytes: 20_000 };
    let new = Rate { bytes_per_s: 5_000_000, burst_bytes: 20_000 };
    let said = |name, learnt, now: Instant| HostRecord {
        name,
        at: now.as_nanos() + 1,
        learnt,
        ..record(100, 500, true)
    };
    let mut now = Instant::ZERO;
    let mut capacity = HostCapacity::new(now, 1, None, 1 << 20);
    capacity.look(now, &[said(1, None, now), said(2, Some(old), now)]);
    now += PERIOD;
    capacity.look(now, &[said(1, Some(old), now), said(2, Some(old), now)]);
    now += SECOND * 60;
    capacity.look(now, &[said(1, Some(old), now), said(2, Some(new), now)]);
    assert_eq!(capacity.learnt(), Some(new));
}

/// A Node that followed for long and is the first now has not heard of any calm.
#[test]
fn who_becomes_the_first_forgets_nothing_before_a_calm() {
    let learnt = Rate { bytes_per_s: 5_000_000, burst_bytes: 20_000 };
    let leader = HostRecord { name: 1, learnt: Some(learnt), ..record(100, 500, true) };
    let own = HostRecord { name: 2, learnt: Some(learnt), ..record(0, 0, false) };
    let mut now = Instant::ZERO;
    let mut capacity = HostCapacity::new(now, 2, None, 1 << 20);
    while now < Instant::ZERO + CALM * 2 {
        now += PERIOD;
        let at = now.as_nanos();
        capacity.look(now, &[HostRecord { at, ..own }, HostRecord { at, ..leader }]);
    }
    let quiet = |now: Instant| HostRecord { at: now.as_nanos(), ..own };
    capacity.look(now + PERIOD, &[quiet(now + PERIOD)]);
    assert_eq!(capacity.learnt(), Some(learnt));
    while now < Instant::ZERO + CALM * 3 + SECOND {
        now += PERIOD;
        capacity.look(now, &[quiet(now)]);
    }
    assert_eq!(capacity.learnt(), None, "nothing has come for long");
}

/// What the sockets had no room for before this Node looks at it says nothing of what is lost now.
#[test]
fn what_overflowed_long_ago_makes_no_loss_the_nodes_own() {
    let mut view = HostView::default();
    view.decide(Instant::ZERO, 1_000);
    view.on_loss(DATAGRAM, true);
    view.decide(Instant::ZERO + PERIOD, 1_000);
    assert_eq!(view.take_own(), 0);
    view.on_loss(DATAGRAM, true);
    view.decide(Instant::ZERO + PERIOD * 2, 1_001);
    assert_eq!(view.take_own(), 1);
}

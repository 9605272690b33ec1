use super::super::tpdu::{AK, AK_BYTES};
use super::*;
use crate::pool::PoolConfig;

/// A layer and its loop-back, driven by hand. `keep` decides what gets through.
struct Loop {
    tp4: Tp4,
    user: Pool,
    down: VecDeque<Pdu>,
    up: VecDeque<Pdu>,
}

impl Loop {
    fn new(config: Tp4Config) -> Self {
        let tp4 = Tp4::new(config, Pool::new(&PoolConfig::uniform(64)));
        Self { tp4, user: Pool::default(), down: VecDeque::new(), up: VecDeque::new() }
    }

    fn send(&mut self, octet: u8) {
        let mut pdu = self.user.allocate(HEADER_BYTES, 50).unwrap();
        pdu.get_mut().unwrap().fill(octet);
        self.tp4.from_above(pdu, &mut Outlet::new(&mut self.down, &mut self.up));
    }

    fn pass(&mut self, mut keep: impl FnMut(&mut Pdu) -> bool) {
        while let Some(mut pdu) = self.down.pop_front() {
            if keep(&mut pdu) {
                self.tp4.from_below(pdu, &mut Outlet::new(&mut self.down, &mut self.up));
            }
        }
    }

    fn received(&mut self) -> Vec<u8> {
        self.up.drain(..).map(|pdu| pdu[0]).collect()
    }

    fn fire(&mut self, after: Duration) {
        self.fire_at(Instant::now() + after);
    }

    fn fire_at(&mut self, now: Instant) {
        self.tp4.fire_timers(now, &mut Outlet::new(&mut self.down, &mut self.up));
    }
}

#[test]
fn credit_stops_the_sender_and_an_ak_after_half_of_it_lets_it_go_on() {
    let mut pair = Loop::new(Tp4Config { credit: 4, checksum: true, ..Tp4Config::default() });
    for octet in 0..4 {
        assert!(pair.tp4.takes_from_above());
        pair.send(octet);
    }
    assert!(!pair.tp4.takes_from_above(), "four are under way");
    assert_eq!(pair.tp4.kept.len(), 4);
    pair.pass(|_| true);
    assert_eq!(pair.received(), [0, 1, 2, 3]);
    assert_eq!(pair.tp4.counters().acknowledgements.load(Ordering::Relaxed), 2);
    assert!(pair.tp4.takes_from_above() && pair.tp4.is_quiet() && pair.tp4.kept.is_empty());
}

#[test]
fn checksums_fit_in_buffers_that_were_used_before() {
    let mut pair = Loop::new(Tp4Config { credit: 2, checksum: true, ..Tp4Config::default() });
    for octet in 0..200 {
        pair.send(octet);
        pair.pass(|_| true);
        assert_eq!(pair.received(), [octet]);
    }
    assert_eq!(pair.tp4.counters().bad.load(Ordering::Relaxed), 0);
}

#[test]
fn tpdus_are_x224s() {
    let mut pair = Loop::new(Tp4Config { credit: 2, ..Tp4Config::default() });
    pair.send(9);
    assert_eq!(pair.down[0][..9], [7, 0xf0, 0, 1, 0x80, 0, 0, 0, 9]);
    let mut seen = Vec::new();
    pair.pass(|pdu| {
        seen.push(pdu.to_vec());
        true
    });
    assert_eq!(seen[1], [9, 0x60, 0, 1, 0, 0, 0, 1, 0, 2]);
    assert_eq!(pair.received(), [9]);
}

#[test]
fn what_is_lost_is_sent_again_and_nothing_comes_twice() {
    let mut pair = Loop::new(Tp4Config { credit: 6, checksum: true, ..Tp4Config::default() });
    (0..6).for_each(|octet| pair.send(octet));
    let mut count = 0;
    pair.pass(|pdu| {
        count += 1;
        if count == 5 {
            // Damaged, not lost: the checksum finds it. (Kept as well, so written to a copy.)
            let mut copy = Pool::default().copy(pdu, 0).unwrap();
            copy.get_mut().unwrap()[20] ^= 1;
            *pdu = copy;
        }
        count != 2
    });
    assert_eq!(pair.received(), [0]);
    assert!(!pair.tp4.is_quiet());
    pair.fire(Duration::ZERO);
    assert!(pair.down.is_empty(), "something was acknowledged just now");
    pair.fire(Duration::from_secs(1));
    pair.pass(|_| true);
    assert_eq!(pair.received(), [1, 2, 3, 4, 5]);
    pair.fire(Duration::from_millis(1001));
    pair.fire(Duration::from_millis(1004));
    pair.pass(|_| true);
    assert!(pair.received().is_empty() && pair.tp4.is_quiet());
    assert!(pair.tp4.counters().bad.load(Ordering::Relaxed) == 1);
}

#[test]
fn whoever_hears_nothing_asks_at_ever_longer_intervals_until_there_is_an_answer() {
    let ms = Duration::from_millis;
    let mut pair = Loop::new(Tp4Config { credit: 4, retransmit_after: ms(10), ..Tp4Config::default() });
    pair.send(0);
    pair.down.clear();
    let mut asked = Vec::new();
    // All of one clock: this process may be kept from its core between two of them.
    let began = Instant::now();
    for at in 0..3000 {
        pair.fire_at(began + ms(at));
        if pair.down.pop_front().is_some() {
            asked.push(at);
        }
    }
    let pauses: Vec<_> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(asked.len() == 9 && asked[0] <= 10, "{asked:?}");
    for (pause, doubled) in pauses.iter().zip([20, 40, 80, 160, 320, 640, 640, 640]) {
        assert!(pause.abs_diff(doubled) <= doubled / 4, "{pauses:?}");
    }
    // Progress brings T1 back.
    pair.tp4.retransmit(&mut Outlet::new(&mut pair.down, &mut pair.up));
    pair.pass(|_| true);
    pair.fire(ms(3010));
    pair.fire(ms(3020));
    pair.pass(|_| true);
    assert!(pair.tp4.is_quiet());
    pair.fire(ms(3030));
    assert_eq!(pair.tp4.timers.patience(ms(10)), ms(10));
}

#[test]
fn the_last_are_acknowledged_after_a_while() {
    let mut pair = Loop::new(Tp4Config { credit: 64, ..Tp4Config::default() });
    pair.send(1);
    pair.pass(|_| true);
    assert!(!pair.tp4.is_quiet());
    pair.fire(Duration::ZERO);
    assert!(pair.down.is_empty(), "not at once");
    pair.fire(Duration::from_millis(5));
    pair.pass(|_| true);
    assert!(pair.tp4.is_quiet());
}

#[test]
fn a_thread_that_sleeps_between_its_turns_is_not_late() {
    let mut pair = Loop::new(Tp4Config { credit: 64, ..Tp4Config::default() });
    pair.send(1);
    pair.pass(|_| true);
    let mut turns = 0;
    while pair.down.is_empty() {
        assert!(turns < 4, "slept {turns} times as long as the layer said");
        turns += 1;
        std::thread::sleep(pair.tp4.idle_for().unwrap());
        pair.tp4.poll(&mut Outlet::new(&mut pair.down, &mut pair.up));
    }
}

#[test]
fn credit_that_is_taken_back_stops_the_sender() {
    let mut pair = Loop::new(Tp4Config { credit: 8, ..Tp4Config::default() });
    (0..5).for_each(|octet| pair.send(octet));
    let mut say = |number: u8, credit: u8| {
        let mut ak = pair.user.allocate(0, AK_BYTES).unwrap();
        ak.get_mut().unwrap().copy_from_slice(&[9, AK, 0, 1, 0, 0, 0, number, 0, credit]);
        pair.tp4.from_below(ak, &mut Outlet::new(&mut pair.down, &mut pair.up));
        pair.tp4.takes_from_above()
    };
    assert!(!say(1, 2), "up to 3, and 5 are sent");
    assert!(!say(1, 0) && !say(2, 3), "up to 5");
    assert!(say(2, 4), "a sixth");
}

#[test]
fn nothing_from_below_is_trusted() {
    let mut pair = Loop::new(Tp4Config::default());
    let mut pool = Pool::default();
    for content in [
        &[][..],
        &[7],
        &[7, 0xf0, 0, 1],
        &[9, 0x60, 0, 1, 0, 0, 0, 9, 0, 1],
        &[1, 2, 0, 1],
        &[0; 40],
        // Headers that say they are longer, or shorter, than they are.
        &[9, 0xf0, 0, 1, 0x80, 0, 0, 0, 9, 9],
        &[6, 0xf0, 0, 1, 0x80, 0, 0, 0, 9],
        &[7, 0x60, 0, 1, 0, 0, 0, 0, 0, 1],
    ] {
        let mut pdu = pool.allocate(0, content.len()).unwrap();
        pdu.get_mut().unwrap().copy_from_slice(content);
        pair.tp4.from_below(pdu, &mut Outlet::new(&mut pair.down, &mut pair.up));
    }
    assert!(pair.down.is_empty() && pair.up.is_empty());
    let counters = pair.tp4.counters();
    assert_eq!(counters.bad.load(Ordering::Relaxed), 8);
    assert_eq!(counters.out_of_sequence.load(Ordering::Relaxed), 1, "an AK for what was never sent");
}

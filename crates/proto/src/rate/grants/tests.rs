use super::super::{Allowed, DEFAULT_WEIGHT};
use super::*;
use denrei_wire::frame::Grant;

/// Senders that send whatever they are granted, and a link that brings one datagram at a time.
struct Crowd {
    grants: Grants,
    now: Instant,
    /// Per sender: octets sent, octets to send in all.
    senders: Vec<(u64, u64)>,
    finished: Vec<usize>,
}

const DATAGRAM: u64 = 1472;
const ASSUMED: u64 = 208 * 1024;
const STEP: Duration = Duration::from_nanos(12_000);

impl Crowd {
    fn new(sizes: &[u64], weights: &[u32]) -> Self {
        let mut grants = Grants::new(Instant::ZERO, 4 << 20, None);
        for (peer, _) in sizes.iter().enumerate() {
            let weight = weights.get(peer).copied().unwrap_or(DEFAULT_WEIGHT);
            grants.admit(Instant::ZERO, peer as u32, weight, 0);
        }
        let senders = sizes.iter().map(|&size| (0, size)).collect();
        let mut crowd = Self { grants, now: Instant::ZERO, senders, finished: Vec::new() };
        for peer in 0..sizes.len() {
            crowd.ask(peer);
        }
        crowd
    }

    fn ask(&mut self, peer: usize) {
        let (sent, all) = self.senders[peer];
        let beyond = self.grants.on_request(self.now, peer as u32, sent as u32, (all - sent) as u32);
        assert_eq!(beyond, None, "it keeps to what it was granted");
    }

    /// Lets one datagram arrive, of the sender that has waited longest; `false`: none may send.
    fn step(&mut self, order: &mut VecDeque<usize>) -> bool {
        self.grants.distribute(self.now);
        while let Some(peer) = self.grants.take_changed() {
            if !order.contains(&(peer as usize)) {
                order.push_back(peer as usize);
            }
        }
        self.now += STEP;
        while let Some(peer) = order.pop_front() {
            let (sent, all) = self.senders[peer];
            let may = self.grants.limit(peer as u32).unwrap().min(all).saturating_sub(sent);
            if may == 0 {
                continue;
            }
            let octets = may.min(DATAGRAM);
            self.senders[peer].0 += octets;
            self.grants.on_arrival(self.now, octets, self.now);
            self.grants.on_data(self.now, peer as u32, octets);
            if self.senders[peer].0 == all {
                self.ask(peer);
                self.finished.push(peer);
            }
            order.push_back(peer);
            return true;
        }
        false
    }

    fn run(&mut self, steps: usize) -> usize {
        let mut order = VecDeque::new();
        (0..steps).take_while(|_| self.step(&mut order)).count()
    }
}

#[test]
fn no_more_is_on_its_way_than_the_window_lets_in() {
    let mut crowd = Crowd::new(&[1 << 20; 64], &[]);
    let mut order = VecDeque::new();
    for _ in 0..20_000 {
        if !crowd.step(&mut order) {
            break;
        }
        let window = crowd.grants.window.octets();
        // A standing allowance each may come on top, and the grant under way.
        assert!(crowd.grants.outstanding <= window + 2 * MAX_GRANT, "{}", crowd.grants.outstanding);
    }
}

/// A thousand that have sent a little of a standing allowance, lost it, and cannot send it again with
/// what is left.
#[test]
fn what_is_left_of_a_limit_and_too_little_for_a_packet_holds_nobody_up() {
    const PEERS: u32 = 1_000;
    let (mut now, mut grants) = (Instant::ZERO, Grants::new(Instant::ZERO, ASSUMED, None));
    (0..PEERS).for_each(|peer| grants.admit(now, peer, DEFAULT_WEIGHT, 0));
    let limits: Vec<u64> = (0..PEERS).map(|peer| grants.limit(peer).unwrap()).collect();
    while grants.take_changed().is_some() {}
    let sent = |peer: u32| limits[peer as usize] - LEAST_GRANT / 2;
    assert!((0..PEERS).all(|peer| grants.on_request(now, peer, sent(peer) as u32, 80).is_none()));
    let mut served = BTreeSet::new();
    for _ in 0..PEERS {
        now += STEP;
        grants.distribute(now);
        while let Some(peer) = grants.take_changed() {
            if grants.limit(peer).unwrap() - sent(peer) >= LEAST_GRANT && served.insert(peer) {
                grants.on_arrival(now, LEAST_GRANT / 2, now);
                grants.on_data(now, peer, LEAST_GRANT / 2);
                grants.on_request(now, peer, (sent(peer) + LEAST_GRANT / 2) as u32, 0);
            }
        }
    }
    assert_eq!(served.len(), PEERS as usize);
}

#[test]
fn every_claim_is_served_to_its_end() {
    let sizes: Vec<u64> = (0..300).map(|n| 100 + n * n * 37 % 200_000).collect();
    let mut crowd = Crowd::new(&sizes, &[]);
    crowd.run(1_000_000);
    assert_eq!(crowd.finished.len(), sizes.len(), "{:?}", crowd.senders);
    assert!(!crowd.grants.is_busy());
}

#[test]
fn equal_senders_share_equally_and_weights_count() {
    let mut crowd = Crowd::new(&[8 << 20; 8], &[]);
    crowd.run(8_000);
    let sent = || crowd.senders.iter().map(|(sent, _)| *sent);
    let (least, most) = (sent().min().unwrap(), sent().max().unwrap());
    assert!(least as f64 > 0.99 * most as f64, "{least} and {most}");
    let mut crowd = Crowd::new(&[16 << 20; 2], &[100, 300]);
    crowd.run(8_000);
    let share = crowd.senders[1].0 as f64 / crowd.senders[0].0 as f64;
    assert!((2.8..3.2).contains(&share), "{share}");
    crowd.grants.admit_later(2, DEFAULT_WEIGHT, 0);
    crowd.grants.set_weight(2, 200);
    crowd.grants.admit_all(crowd.now);
    assert_eq!(crowd.grants.claims[&2].weight, 200, "set before it was told a limit");
}

#[test]
fn small_remainders_go_first_and_the_oldest_does_not_starve() {
    let mut sizes = vec![4 << 20];
    sizes.extend([20_000; 40]);
    let mut crowd = Crowd::new(&sizes, &[]);
    let steps = crowd.run(40 * 14 + 400);
    assert!(crowd.finished.len() >= 40 && !crowd.finished.contains(&0), "{:?}", crowd.finished);
    let share = crowd.senders[0].0 as f64 / (steps as u64 * DATAGRAM) as f64;
    assert!(share > 0.05, "the large one, which waited longest, got {share}");
}

#[test]
fn grants_that_nothing_comes_of_are_given_to_others() {
    let mut crowd = Crowd::new(&[1 << 20, 1 << 20], &[]);
    crowd.grants.distribute(crowd.now);
    // Sender 0 is gone with what it was granted.
    let held = crowd.grants.claims[&0].outstanding();
    assert!(held > 0);
    crowd.now += crowd.grants.deadline().unwrap();
    crowd.grants.reclaim(crowd.now);
    assert_eq!(crowd.grants.claims[&0].outstanding(), 0);
    assert!(crowd.grants.claims[&0].not_before > crowd.now, "it is passed over for a while");
    crowd.grants.forget(0);
    assert!(crowd.grants.claims.len() == 1 && !crowd.grants.knows(0));
}

/// A crowd of two of which the first is granted something, which is given up; what that was.
fn given_up() -> (Crowd, u64) {
    let mut crowd = Crowd::new(&[1 << 20, 1 << 20], &[]);
    crowd.grants.distribute(crowd.now);
    let held = crowd.grants.claims[&0].outstanding();
    crowd.now += crowd.grants.deadline().unwrap();
    crowd.grants.reclaim(crowd.now);
    (crowd, held)
}

#[test]
fn what_comes_after_it_was_given_up_is_not_counted_twice() {
    let (mut crowd, held) = given_up();
    let accounted = crowd.grants.claims[&0].accounted;
    crowd.grants.on_data(crowd.now, 0, held);
    assert_eq!(crowd.grants.claims[&0].accounted, accounted);
    crowd.grants.on_data(crowd.now, 0, DATAGRAM);
    assert_eq!(crowd.grants.claims[&0].accounted, accounted + DATAGRAM, "what comes then is new");
}

#[test]
fn what_was_given_up_is_no_sample_of_the_round_trip() {
    let (mut crowd, held) = given_up();
    crowd.now += crowd.grants.patience() * 2;
    crowd.grants.reclaim(crowd.now);
    crowd.grants.distribute(crowd.now);
    assert!(crowd.grants.claims[&0].awaited.is_some(), "it has another grant");
    let before = crowd.grants.window.rtt();
    crowd.now += Duration::from_nanos(1);
    crowd.grants.on_data(crowd.now, 0, held);
    assert_eq!(crowd.grants.window.rtt(), before, "it was sent before that");
}

#[test]
fn what_was_given_up_and_is_lost_is_counted_when_its_sender_says_so() {
    let (mut crowd, held) = given_up();
    let room = crowd.grants.window.queue();
    crowd.grants.on_request(crowd.now, 0, held as u32, (1 << 20) - held as u32);
    assert!(crowd.grants.window.queue() < room);
    let narrowed = crowd.grants.window.queue();
    crowd.now += Duration::from_secs(1);
    crowd.grants.on_request(crowd.now, 0, held as u32, (1 << 20) - held as u32);
    assert_eq!(crowd.grants.window.queue(), narrowed, "once");
}

#[test]
fn a_grant_is_given_up_soon_where_data_usually_comes_soon() {
    let mut crowd = Crowd::new(&[1 << 20; 4], &[]);
    assert_eq!(crowd.grants.patience(), MOST_USUAL, "nobody knows");
    crowd.run(500);
    assert!(crowd.grants.patience() < MOST_USUAL / 2, "{:?}", crowd.grants.patience());
}

/// A word of what a sender has sent and wants: of the time, and its limit.
type Lie = fn(u64, u64) -> (u64, u32);

/// What three senders get through, of what the link carries, beside one that sends words only, and one each time.
fn beside_a_liar(lie: Lie) -> f64 {
    const STEPS: u64 = 20_000;
    let mut crowd = Crowd::new(&[0, 1 << 30, 1 << 30, 1 << 30], &[]);
    let mut order = VecDeque::new();
    let (mut steps, mut look_at) = (0, crowd.now);
    for time in 0..STEPS {
        let (sent, wanted) = lie(time, crowd.grants.limit(0).unwrap());
        crowd.grants.on_request(crowd.now, 0, sent as u32, wanted);
        steps += crowd.step(&mut order) as usize;
        if look_at <= crowd.now {
            crowd.grants.reclaim(crowd.now);
            look_at = crowd.now + crowd.grants.deadline().unwrap();
        }
    }
    steps as f64 / STEPS as f64
}

#[test]
fn who_asks_for_much_and_lies_holds_nobody_up() {
    let lies: [(&str, Lie); 7] = [
        ("nothing was sent", |_, _| (0, u32::MAX)),
        ("nothing was sent, and now and then nothing is wanted", |time, _| {
            (0, if time % 100 == 0 { 0 } else { 1 << 30 })
        }),
        ("less than nothing was sent", |_, _| (1 << 31, u32::MAX)),
        ("all was sent", |_, limit| (limit, u32::MAX)),
        ("nothing was sent after all", |time, limit| (if time % 2 == 0 { limit } else { 0 }, u32::MAX)),
        ("all but an octet was sent", |_, limit| (limit - 1, u32::MAX)),
        ("more was sent", |_, limit| (limit + (1 << 30), u32::MAX)),
    ];
    for (said, lie) in lies {
        let share = beside_a_liar(lie);
        assert!(share > 0.8, "{share} of the link is used where {said}");
    }
}

#[test]
fn what_was_lost_without_a_limit_is_not_the_windows_doing() {
    let mut grants = Grants::new(Instant::ZERO, 4 << 20, None);
    grants.admit(Instant::ZERO, 1, DEFAULT_WEIGHT, 1000);
    let room = grants.window.queue();
    let now = Instant::ZERO + Duration::from_secs(1);
    grants.on_request(now, 1, 90_000, 50_000);
    assert_eq!(grants.window.queue(), room);
    grants.distribute(now);
    grants.on_request(now, 1, 91_000, 50_000);
    assert!(grants.window.queue() < room, "1,000 octets that it was let send have not come");
}

#[test]
fn idle_peers_keep_a_small_allowance() {
    let mut grants = Grants::new(Instant::ZERO, 4 << 20, None);
    for peer in 0..64 {
        grants.admit_later(peer, DEFAULT_WEIGHT, 1000);
    }
    grants.admit_all(Instant::ZERO);
    while grants.take_changed().is_some() {}
    let before = grants.limit(5).unwrap();
    assert!((1500..1530).contains(&before), "{before}: a 64th of the queue's room");
    grants.on_arrival(Instant::ZERO, 400, Instant::ZERO);
    grants.on_data(Instant::ZERO, 5, 400);
    grants.on_request(Instant::ZERO, 5, 1400, 0);
    let after = grants.limit(5).unwrap();
    assert!(after > before && after - 1400 >= LEAST_STANDING, "{before} {after}");
    assert_eq!(grants.take_changed(), Some(5));
    assert_eq!(grants.take_changed(), None, "the others are not bothered");
}

#[test]
fn a_sender_of_which_gibibytes_were_lost_is_understood() {
    for lost in [1u64 << 20, 1 << 30, 3 << 30, 5 << 30, 1 << 40] {
        let (now, received) = (Instant::ZERO, 1 << 41);
        let mut sender = Allowed::default();
        sender.on_sent(received + lost);
        let mut grants = Grants::new(now, ASSUMED, None);
        grants.admit(now, 0, DEFAULT_WEIGHT, received);
        let mut arrived = 0;
        for serial in 0..10 {
            sender.on_grant(&Grant { serial: 1, limit: grants.limit(0) });
            let room = sender.room().unwrap();
            assert!(serial == 0 || room > 0, "{lost} lost: it is let send");
            sender.on_sent(room);
            grants.on_data(now, 0, room);
            arrived += room;
            let request = sender.request(0, 1 << 20);
            assert_eq!(grants.on_request(now, 0, request.sent, request.wanted), None, "{lost} lost");
            grants.distribute(now);
        }
        assert!(arrived > 100_000, "{lost} lost: {arrived}");
    }
}

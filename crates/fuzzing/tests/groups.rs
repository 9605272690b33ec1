//! An opener and a member of groups that say whatever they like, as records and as reports, with numbers at the ends of
//! their ranges: whom they say it to neither panics nor runs without end.

use denrei_proto::group::{GroupEvent, GroupOptions};
use denrei_proto::{Config, Endpoint, PeerId, Rate};
use denrei_wire::frame::{Feedback, Frame, Gap, Message, feedback_flags};
use denrei_wire::group::{Begin, Join, Open, Record};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    40,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];
const STEP: Duration = Duration::from_millis(1);

fn addr(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + host as u8], 7000))
}

fn group_addr() -> SocketAddr {
    "239.1.1.1:7400".parse().unwrap()
}

/// The victim, and who is malicious.
struct Pair {
    now: Instant,
    hosts: [Endpoint; 2],
    random: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let config = Arc::new(Config::default());
        let now = Instant::from_nanos(1_000_000_000);
        let hosts = [1, 2].map(|host| Endpoint::new(config.clone(), host, now));
        let mut pair = Self { now, hosts, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 };
        let groups = pair.hosts.each_mut();
        groups.into_iter().for_each(|host| host.join_group(now, group_addr()).unwrap());
        pair
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn number(&mut self) -> u64 {
        NUMBERS[self.below(NUMBERS.len())]
    }

    fn run(&mut self, steps: usize) {
        let mut buf = TransmitBuf::new(8);
        for _ in 0..steps {
            for round in 0..100 {
                let mut quiet = true;
                for host in 0..2 {
                    for count in 0.. {
                        let Some(transmit) = self.hosts[host].poll_transmit(self.now, &mut buf) else {
                            break;
                        };
                        assert!(count < 4096, "it sends without end");
                        quiet = false;
                        let octets = buf.bytes().to_vec();
                        for datagram in octets.chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                            let meta = DatagramMeta { from: addr(host), at: None, ecn: Ecn::NotEct };
                            self.hosts[1 - host].handle_datagram(self.now, &meta, &mut datagram.to_vec());
                        }
                    }
                    assert!(!self.hosts[host].wants_transmit(), "it wants to send, and does not");
                    while self.hosts[host].poll_event().is_some() {}
                }
                if quiet {
                    break;
                }
                assert!(round < 99, "they talk without end");
            }
            self.now += STEP;
            for host in &mut self.hosts {
                for count in 0.. {
                    if host.poll_timeout().is_none_or(|at| at > self.now) {
                        break;
                    }
                    assert!(count < 256, "a timer fires without end");
                    host.handle_timeout(self.now);
                    while host.poll_transmit(self.now, &mut buf).is_some() {}
                }
            }
        }
    }

    fn rogue_and_victim(&self) -> (PeerId, PeerId) {
        (self.hosts[1].peer_at(addr(0)).unwrap(), self.hosts[0].peer_at(addr(1)).unwrap())
    }
}

fn symbol(number: u32) -> Vec<u8> {
    let mut frames = Vec::new();
    let message = Message { flags: 0, channel: 0, number, payload: b"text" };
    Frame::Message(message).encode(&mut |part| frames.extend_from_slice(part));
    frames
}

#[test]
fn an_opener_says_what_it_likes() {
    for seed in 0..600 {
        let mut pair = Pair::new(seed);
        let now = pair.now;
        pair.hosts[1].connect(now, addr(0)).unwrap();
        pair.run(20);
        let (to, _) = pair.rogue_and_victim();
        let address = group_addr();
        let open = Open {
            address,
            member: pair.number() as u32,
            members: pair.number() as u32,
            report_delay_us: pair.number() as u32,
            stagger: true,
            suppress: true,
            key: &[],
        };
        pair.hosts[1].say_record(now, to, &Record::Open(open).encode(7));
        for _ in 0..12 {
            let (first, second, third) = (pair.number(), pair.number(), pair.number());
            let frames = symbol(second as u32);
            let record = match pair.below(5) {
                0 | 1 => Record::Symbol { number: first, report: second == 0, frames: &frames },
                2 => Record::Poll { next: first },
                3 if pair.below(4) == 0 => Record::Close { symbols: first, messages: second },
                _ => Record::Begin(Begin { symbol: first, message: second, cost: third }),
            };
            let now = pair.now;
            pair.hosts[1].say_record(now, to, &record.encode(7));
            pair.run(3);
            pair.hosts[0].accept_group(address);
            let now = pair.now;
            while pair.hosts[0].group_recv(now, denrei_proto::group::GroupId(7)).is_some() {}
        }
        pair.run(50);
    }
}

#[test]
fn a_member_says_what_it_likes() {
    let mut opened = 0;
    for seed in 0..600 {
        let mut pair = Pair::new(seed);
        let now = pair.now;
        pair.hosts[1].stop_joining(group_addr());
        let group = pair.hosts[0].open_group(now, group_addr(), &[addr(1)], GroupOptions::default()).unwrap();
        pair.run(20);
        let (to, _) = pair.rogue_and_victim();
        for turn in 0..12 {
            let (first, second) = (pair.number(), pair.number());
            let record = match turn {
                0 => Record::Accept { credit: first, max_message: second.max(4) },
                _ => Record::Join(Join { address: group_addr(), history: true }),
            };
            let now = pair.now;
            pair.hosts[1].say_record(now, to, &record.encode(group.0));
            let gaps = [Gap::new(pair.number() as u32, pair.number() as u16)];
            let report = Feedback {
                flags: feedback_flags::HEARD,
                group: group.0,
                member: 0,
                covers: pair.number() as u32,
                echo: if turn == 1 { 0 } else { pair.number() as u32 },
                received: pair.number() as u32,
                delay_us: pair.number() as u32,
                next: if pair.below(2) == 0 { pair.below(400) as u32 } else { pair.number() as u32 },
                messages: pair.number() as u32,
                limit: pair.number(),
                gaps: &gaps,
            };
            let mut frame = Vec::new();
            Frame::Feedback(report).encode(&mut |part| frame.extend_from_slice(part));
            // The session may be over.
            let _ = pair.hosts[1].say(now, to, &frame);
            let size = [0, 4, 5_000, 100_000][pair.below(4)];
            // It may be full, or without a member.
            let _ = pair.hosts[0].group_send(group, vec![turn as u8; size].into());
            pair.run(5);
        }
        opened += matches!(pair.hosts[0].poll_group_event(group), Some(GroupEvent::Opened)) as usize;
        pair.run(50);
    }
    assert!(opened > 300, "{opened} groups were opened");
}

/// It has set a rate: a symbol that was cut waits for it, and the member says that it has that one.
#[test]
fn a_member_that_says_that_it_has_what_was_not_sent_yet_keeps_nobody_busy() {
    let mut pair = Pair::new(1);
    let now = pair.now;
    let group = pair.hosts[0].open_group(now, group_addr(), &[addr(1)], GroupOptions::default()).unwrap();
    pair.run(100);
    assert_eq!(pair.hosts[0].poll_group_event(group), Some(GroupEvent::Opened));
    let (to, _) = pair.rogue_and_victim();
    let slow = Rate { bytes_per_s: 1_000_000, burst_bytes: 2_000 };
    pair.hosts[1].set_rate(pair.now, to, slow).unwrap();
    pair.run(10);
    pair.hosts[0].group_send(group, vec![7; 200_000].into()).unwrap();
    pair.run(1);
    let mut frames = Vec::new();
    for next in 1..15 {
        let report = Feedback {
            flags: 0,
            group: group.0,
            member: 0,
            covers: 1,
            echo: 0,
            received: 0,
            delay_us: 0,
            next,
            messages: 0,
            limit: 0,
            gaps: &[],
        };
        Frame::Feedback(report).encode(&mut |part| frames.extend_from_slice(part));
    }
    pair.hosts[1].say(pair.now, to, &frames).unwrap();
    pair.run(3000);
}

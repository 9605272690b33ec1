//! TP4 over IP whose packets are damaged, lost and repeated on the way: everything comes back, once.

use denrei_layers::stacks::ip::{self, Ip};
use denrei_layers::stacks::tp4::{self, Tp4, Tp4Config};
use denrei_layers::stacks::user::{Traffic, User};
use denrei_layers::{Builder, Grouping, Idle, Layer, Outlet, Pdu, Pool, PoolConfig, Shutdown};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const COUNT: u64 = 2_000;

/// A wire on which one packet in so many goes wrong.
struct Noise {
    pool: Pool,
    packets: u64,
}

impl Layer<Pdu> for Noise {
    fn from_above(&mut self, pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        self.packets += 1;
        match self.packets % 40 {
            // In the IP header, and in what TP4's checksum covers.
            3 | 17 => {
                let place = if self.packets % 40 == 3 { 12 } else { pdu.len() - 1 };
                let mut copy = self.pool.copy(&pdu, 0).unwrap();
                copy.get_mut().unwrap()[place] ^= 0x10;
                out.down(copy);
            }
            29 => {}
            31 => {
                out.down(self.pool.copy(&pdu, 0).unwrap());
                out.down(pdu);
            }
            _ => out.down(pdu),
        }
    }

    fn from_below(&mut self, pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        out.up(pdu);
    }
}

#[test]
fn what_noise_does_to_packets_is_noticed_counted_and_repaired() {
    for grouping in [Grouping::Together, Grouping::Sizes(vec![2, 1, 1])] {
        let head_room = ip::HEADER_BYTES + tp4::HEADER_BYTES;
        let traffic = Traffic { warmup: 1, count: COUNT, bytes: 256, head_room, under_way: 64 };
        let user = User::new(traffic, Pool::default());
        let config = Tp4Config {
            credit: 8,
            checksum: true,
            retransmit_after: Duration::from_millis(1),
            acknowledge_after: Duration::from_micros(200),
            ..Tp4Config::default()
        };
        let tp4 = Tp4::new(config, Pool::new(&PoolConfig::uniform(256)));
        let ip = Ip::new([10, 0, 0, 1], [10, 0, 0, 2]);
        let (seen, transport, network) = (user.seen(), tp4.counters(), ip.counters());
        let builder = Builder::new().grouping(grouping).idle(Idle::Yield).queue(64);
        let builder = builder.layer("user", user).layer("tp4", tp4).layer("ip", ip);
        let noise = Noise { pool: Pool::new(&PoolConfig::uniform(256)), packets: 0 };
        let (stack, _top, _bottom) = builder.layer("noise", noise).loop_back().start().unwrap();
        let began = Instant::now();
        while seen.elapsed_ns.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(began.elapsed() < Duration::from_secs(60), "{seen:?} {transport:?} {network:?}");
        }
        let clean = Shutdown { drained: true, left: 0, dropped: 0, panicked: 0 };
        assert_eq!(stack.shutdown(Duration::from_secs(20)), clean);
        assert_eq!(seen.received.load(Ordering::Relaxed), COUNT + 1);
        let counted = [&network.bad, &transport.bad, &transport.retransmitted, &transport.out_of_sequence];
        assert!(
            counted.iter().all(|counter| counter.load(Ordering::Relaxed) > 0),
            "{transport:?} {network:?}"
        );
    }
}

//! A sender and a receiver, and the messages that all have to arrive.

use super::{Process, SOON, Test};
use denrei_e2e::{Order, Plan, Report, Settings, Sizes, Stream};
use denrei_netlab::Lab;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A sender, a receiver that verifies what arrives, and the session between them.
pub struct Pair {
    pub sender: Process,
    pub receiver: Process,
    /// The receiver, as the sender calls it.
    pub peer: u64,
    pub receiver_addr: SocketAddr,
    pub plan: Plan,
}

impl Pair {
    /// On the hosts `from` and `to` of a lab.
    pub fn on(test: &Test, lab: &Lab, from: usize, to: usize, settings: &Settings, sizes: Sizes) -> Self {
        let sender = test.process_on(lab, from, format!("sender on {from}"), "node");
        let receiver = test.process_on(lab, to, format!("receiver on {to}"), "node");
        Self::connected(sender, receiver, [lab.host(from).ip(), lab.host(to).ip()], settings, sizes)
    }

    /// Binds a Node in each process, to one of `ips` each, and connects them.
    pub fn connected(
        mut sender: Process,
        mut receiver: Process,
        ips: [IpAddr; 2],
        settings: &Settings,
        sizes: Sizes,
    ) -> Self {
        let plan = Plan { seed: 7, sizes };
        receiver.order(&Order::Verify { plan, from: Vec::new(), trace: false });
        let receiver_addr = receiver.bind(ips[1], settings.clone());
        sender.bind(ips[0], settings.clone());
        let peer = sender.connect(receiver_addr);
        Self { sender, receiver, peer, receiver_addr, plan }
    }

    /// Orders the messages 0 .. `count` on each of three channels.
    pub fn send(&mut self, count: u64, pace_us: u64) {
        let stream = stream(self.peer, self.plan, count, pace_us);
        self.sender.order(&Order::Send(stream));
    }

    /// Waits until all of them are acknowledged and taken, and checks them. The time it took the
    /// sender, and bytes.
    pub fn finish(&mut self, count: u64, limit: Duration) -> (Duration, u64) {
        let peer = self.peer;
        let (messages, bytes, millis) =
            self.sender.wait("end of the stream", limit, |report| match *report {
                Report::Sent { peer: to, messages, bytes, millis } if to == peer => {
                    Some((messages, bytes, millis))
                }
                _ => None,
            });
        assert_eq!(messages, CHANNELS as u64 * count);
        expect_complete(&mut self.receiver, &[count; CHANNELS as usize]);
        self.sender.expect_no_loss();
        self.receiver.expect_no_loss();
        (Duration::from_millis(millis), bytes)
    }
}

/// Channels that streams use.
const CHANNELS: u16 = 3;

/// The messages 0 .. `count` of a plan on each of three channels.
pub fn stream(peer: u64, plan: Plan, count: u64, pace_us: u64) -> Stream {
    Stream { peer, plan, channels: CHANNELS, from: Vec::new(), to: count, pace_us, delivered: false }
}

/// Waits until one session has brought exactly these numbers of messages per channel, all of them
/// right and in order.
pub fn expect_complete(receiver: &mut Process, channels: &[u64]) {
    let until = Instant::now() + SOON;
    loop {
        let tally = receiver.tally();
        for session in &tally {
            assert!(session.problems.is_empty(), "{:?}", session.problems);
        }
        if tally.iter().any(|session| session.channels == channels) {
            return;
        }
        assert!(Instant::now() < until, "{channels:?} messages sent, received were {tally:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

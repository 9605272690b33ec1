//! Stages worked by hand: what happens when some of them do not run for a while.

use super::receiver::LOOK_CALLS;
use super::*;
use crate::config::{Config, Drive};
use crate::node::{Node, make_shards};
use crate::shards::Shards;
use bytes::Bytes;
use denrei_layers::wake::Bell;
use denrei_proto::{ChannelId, Completion, FlowState, PeerId, Phase};
use std::collections::VecDeque;
use std::thread::sleep;

const PATIENCE: Duration = Duration::from_secs(10);

/// The stages of a Node, which no thread runs.
struct ByHand {
    shards: Shards,
    receiver: Receiver,
    opener: Opener,
    protocol: Protocol,
    sender: Sender,
}

impl ByHand {
    fn bind() -> Self {
        let config = Config { drive: Drive::Pipelined, ..Config::default() };
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config.socket).unwrap();
        let segments = socket.capabilities().max_segments;
        let hand = Arc::new(Mutex::new(socket.sender().unwrap()));
        let sender = Sender::new(Arc::clone(&hand));
        let shards = make_shards(&config, &[7; 32], socket).unwrap();
        // What is queued is for the protocol stage to send: sent by who queued it, its timer would be news there.
        shards.first().hand_over(Arc::new(Bell::new()), hand);
        let all: Arc<[_]> = shards.all().cloned().collect();
        let inbound = Arc::new(Inbound::new(&all[0]));
        let steering = shards.steering();
        let receiver = Receiver::new(Arc::clone(&all), Arc::clone(steering), Arc::clone(&inbound), 2);
        let opener = Opener::new(Arc::clone(&all), Arc::clone(steering), true);
        let protocol = Protocol::new(all, 0, inbound, 4, segments);
        Self { shards, receiver, opener, protocol, sender }
    }

    fn with_core<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let mut core = self.shards.first().core.lock();
        let now = core.now();
        act(&mut core, now)
    }

    fn flow(&self, peer: PeerId) -> FlowState {
        self.with_core(|core, _| core.endpoint.flow(peer)).unwrap()
    }

    /// One receive call; what it brought.
    fn receive(&mut self) -> Option<Parcel> {
        let (mut down, mut up) = (VecDeque::new(), VecDeque::new());
        self.receiver.poll(&mut Outlet::new(&mut down, &mut up));
        let arrival = down.pop_front()?;
        self.opener.from_above(arrival, &mut Outlet::new(&mut down, &mut up));
        down.pop_front()
    }

    /// The protocol's turn, with what was received; the departures that come of it leave.
    fn work(&mut self, arrival: Option<Parcel>) {
        let (mut down, mut up) = (VecDeque::new(), VecDeque::new());
        let out = &mut Outlet::new(&mut down, &mut up);
        match arrival {
            Some(arrival) => self.protocol.from_above(arrival, out),
            None => drop(self.protocol.poll(out)),
        }
        for departure in down {
            let mut back = VecDeque::new();
            let mut sealed = VecDeque::new();
            Sealer.from_above(departure, &mut Outlet::new(&mut sealed, &mut back));
            for departure in sealed {
                self.sender.from_above(departure, &mut Outlet::new(&mut VecDeque::new(), &mut back));
            }
            for departure in back {
                self.protocol.from_below(departure, &mut Outlet::new(&mut VecDeque::new(), &mut up));
            }
        }
        for arrival in up {
            self.receiver.from_below(arrival, &mut Outlet::new(&mut VecDeque::new(), &mut VecDeque::new()));
        }
    }

    /// Works until `holds`.
    fn work_until(&mut self, holds: impl Fn(&Self) -> bool) {
        let end = std::time::Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(std::time::Instant::now() < end, "not within {PATIENCE:?}");
            let arrival = self.receive();
            self.work(arrival);
            sleep(Duration::from_micros(100));
        }
    }

    /// Queues a message, as an application's thread does.
    fn send(&self, to: ChannelId) {
        let message = Bytes::from_static(b"of which the acknowledgement waits");
        self.with_core(|core, _| core.endpoint.send(to, message, Completion::None)).unwrap();
        self.shards.first().kick();
    }
}

/// Nothing is queued or under way.
fn rests(flow: &FlowState) -> bool {
    flow.phase == Phase::Open && flow.queued_bytes + flow.in_flight_bytes == 0
}

/// A session with a Node that acknowledges at once, and nothing under way.
fn session() -> (ByHand, Node, PeerId) {
    let mut here = ByHand::bind();
    let there = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
    let peer = here.with_core(|core, now| core.endpoint.connect(now, there.local_addr())).unwrap();
    here.send(ChannelId { peer, channel: 0 });
    let both_rest = |here: &ByHand| rests(&here.flow(peer)) && there.peers().iter().all(rests);
    here.work_until(both_rest);
    // Both look for larger datagrams, which would come beside what a test waits for.
    for _ in 0..50 {
        let arrival = here.receive();
        here.work(arrival);
        sleep(Duration::from_millis(1));
    }
    here.work_until(both_rest);
    (here, there, peer)
}

/// Sends a message that `there` acknowledges, which is in the socket now, and lets all timers become due.
fn send_and_rest(here: &mut ByHand, there: &Node, peer: PeerId) {
    let said = there.io_counters().sent_datagrams;
    here.send(ChannelId { peer, channel: 0 });
    here.work(None);
    let end = std::time::Instant::now() + PATIENCE;
    while there.io_counters().sent_datagrams == said {
        assert!(std::time::Instant::now() < end, "not acknowledged within {PATIENCE:?}");
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(300));
}

/// Nobody ran for so long that every timer is due; the acknowledgement came before.
#[test]
fn a_timer_waits_for_what_came_before_it_was_due() {
    for has_received in [false, true] {
        let (mut here, there, peer) = session();
        let before = here.flow(peer).counters.probes;
        send_and_rest(&mut here, &there, peer);
        assert!(here.flow(peer).in_flight_bytes > 0);
        // Still in the socket, or between receiving and the protocol.
        let arrival = if has_received { here.receive() } else { None };
        assert_eq!(arrival.is_some(), has_received);
        here.work(None);
        assert_eq!(here.flow(peer).counters.probes, before, "the acknowledgement is here");
        assert!(here.protocol.idle_for() > Some(Duration::ZERO), "it does not look again at once");
        let arrival = arrival.or_else(|| here.receive());
        here.work(arrival);
        assert_eq!((here.flow(peer).in_flight_bytes, here.flow(peer).counters.probes), (0, before));
    }
}

/// A receive call brings what one socket has: who waits, waits for all of them.
#[test]
fn a_timer_waits_for_every_socket() {
    let (mut here, there, peer) = session();
    let before = here.flow(peer).counters.probes;
    // What comes from there comes to a socket of its own; what a stranger sends keeps the main one busy.
    let addr = {
        let mut io = here.shards.first().io.lock();
        assert!(io.socket.connect_peer(there.local_addr()).unwrap());
        io.socket.local_addr()
    };
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let hear_the_stranger = |here: &mut ByHand| {
        stranger.send_to(b"noise", addr).unwrap();
        let arrival = here.receive();
        assert!(arrival.is_some());
        here.work(arrival);
    };
    hear_the_stranger(&mut here);
    send_and_rest(&mut here, &there, peer);
    here.work(None);
    // Something else may lie there before the acknowledgement.
    for _ in 0..20 {
        if here.flow(peer).in_flight_bytes > 0 {
            hear_the_stranger(&mut here);
        }
    }
    assert_eq!((here.flow(peer).in_flight_bytes, here.flow(peer).counters.probes), (0, before));
}

/// A receive call brings what its buffers take: who waits, waits for what is behind that too.
#[test]
fn a_timer_waits_for_what_one_call_left_in_the_socket() {
    let (mut here, there, peer) = session();
    let before = here.flow(peer).counters.probes;
    // More than a call takes, in front of the acknowledgement.
    let addr = here.shards.first().io.lock().socket.local_addr();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..2 * denrei_io::MAX_RECV_BATCH {
        stranger.send_to(b"noise", addr).unwrap();
    }
    send_and_rest(&mut here, &there, peer);
    here.work(None);
    let mut calls = 0;
    while let Some(arrival) = here.receive() {
        here.work(Some(arrival));
        calls += 1;
    }
    assert!(calls > 1, "{calls}");
    assert_eq!((here.flow(peer).in_flight_bytes, here.flow(peer).counters.probes), (0, before));
}

/// What comes all the time holds no timer up: neither what was received after the timer was due, nor what
/// comes after that; on one socket, or on one of several; whether a call empties that or never.
#[test]
fn a_timer_does_not_wait_for_what_came_later() {
    for (sockets, noise, bytes) in [(1, 1, 5), (2, 1, 5), (1, 40, 5), (2, 40, 5), (1, 40, 60_000)] {
        let (noise, mut calls) = (vec![&[0; 60_000][..bytes]; noise], 0);
        let (mut here, there, peer) = session();
        let before = here.flow(peer).counters.probes;
        drop(there);
        // Its goodbye is not heard: nobody acknowledges any more.
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = here.shards.first().io.lock().socket.local_addr();
        while let Some(unseen) = here.receive() {
            here.receiver.inbound.end();
            here.receiver.from_below(unseen, &mut Outlet::new(&mut VecDeque::new(), &mut VecDeque::new()));
        }
        if sockets == 2 {
            let at = stranger.local_addr().unwrap();
            assert!(here.shards.first().io.lock().socket.connect_peer(at).unwrap());
        }
        here.send(ChannelId { peer, channel: 0 });
        here.work(None);
        let end = std::time::Instant::now() + PATIENCE;
        while here.flow(peer).counters.probes == before {
            assert!(std::time::Instant::now() < end, "the timer never fires, with {sockets} sockets");
            // Nobody ever finds it empty who looks between receive calls.
            for noise in &noise {
                stranger.send_to(noise, addr).unwrap();
            }
            let arrival = here.receive();
            stranger.send_to(b"noise", addr).unwrap();
            here.work(arrival);
            calls = calls.max((LOOK_CALLS - here.receiver.look.left) % LOOK_CALLS);
        }
        assert!(bytes == 5 || calls < 200, "8 MiB of large datagrams have come long before {calls} calls");
    }
}

#[test]
fn a_receiver_without_buffers_does_not_listen() {
    let (mut here, _there, _peer) = session();
    let addr = here.shards.first().io.lock().socket.local_addr();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut arrivals = Vec::new();
    for _ in 0..2 {
        stranger.send_to(b"noise", addr).unwrap();
        arrivals.push(here.receive().expect("it is on loopback"));
    }
    stranger.send_to(b"noise", addr).unwrap();
    assert!(here.receive().is_none());
    // Who queued something has rung.
    here.receiver.sleeper().unwrap().sleep(Duration::ZERO);
    let began = std::time::Instant::now();
    let limit = Duration::from_millis(50);
    here.receiver.sleeper().unwrap().sleep(limit);
    assert!(began.elapsed() >= limit, "there is nothing to receive into");
    here.work(arrivals.pop());
    let arrival = here.receive();
    assert!(arrival.is_some());
    stranger.send_to(b"noise", addr).unwrap();
    here.receiver.sleeper().unwrap().sleep(PATIENCE);
    assert!(began.elapsed() < PATIENCE, "now there is");
}

/// What is under way is acknowledged long before its timer, which is then no reason to wake up.
#[test]
fn the_protocol_sleeps_past_timers_that_have_moved_on() {
    let (mut here, _there, peer) = session();
    let mut in_vain = 0;
    for _ in 0..20 {
        here.send(ChannelId { peer, channel: 0 });
        here.work_until(|here| rests(&here.flow(peer)));
        here.protocol.idle_for();
        let sleeps_until = here.protocol.deadline.get();
        let exact = here.with_core(|core, _| {
            core.endpoint.settle_timers();
            core.endpoint.poll_timeout()
        });
        in_vain += u32::from(sleeps_until != exact);
    }
    assert_eq!(in_vain, 0);
}

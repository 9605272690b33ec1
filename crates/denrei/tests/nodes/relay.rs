//! A relay between Nodes of one machine: what goes through, what it holds, how it ends.

use crate::common::background;
use denrei::relay::{MAX_RELAYS, Relay, RelayConfig, Route};
use denrei::{
    ChannelId, ClusterKey, Config, Drive, Event, LostReason, Node, OfferPolicy, PeerId, Rate, SendError,
};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config { drive: background(), ..Config::default() }
}

fn node() -> Node {
    Node::bind("127.0.0.1:0", config()).unwrap()
}

/// A relay to `target`, and the peer that stands for it at `sender`.
fn through(sender: &Node, target: &Node, relay: RelayConfig) -> (Relay, PeerId) {
    let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
    let relay = Relay::start(&[route], &relay).unwrap();
    let peer = sender.connect(relay.addresses()[0]).unwrap();
    (relay, peer)
}

fn small(pair_bytes: u64) -> RelayConfig {
    RelayConfig { pair_bytes, ..RelayConfig::default() }
}

fn content(number: usize, bytes: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..256).map(|place| (number * 131 + place * 7) as u8).collect();
    let mut content = period.repeat(bytes.div_ceil(period.len()));
    content.truncate(bytes);
    content
}

/// Waits for the loss of a peer.
fn lost(node: &Node) -> LostReason {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        if let Some(Event::PeerLost { reason, .. }) = node.event_timeout(Duration::from_millis(50)) {
            return reason;
        }
    }
    panic!("no peer was lost");
}

/// Waits for what `find` finds.
fn until_some<T>(find: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < until, "it does not come");
    }
}

#[test]
fn messages_of_any_size_go_through_in_order_and_back() {
    let (sender, target) = (node(), node());
    let (relay, peer) = through(&sender, &target, small(16 << 20));
    let sizes = [0, 1, 700, 65_536, 3 << 20, 12, 16 << 20, 5];
    for (number, bytes) in sizes.into_iter().enumerate() {
        let channel = ChannelId { peer, channel: number as u16 % 2 };
        sender.send(channel, content(number, bytes)).unwrap();
    }
    let mut next = [0, 1];
    let mut back = None;
    for _ in sizes {
        let message = target.recv_timeout(SOON).unwrap().expect("it arrives");
        let number = &mut next[usize::from(message.channel.channel)];
        assert!(message.data == content(*number, sizes[*number]), "message {number} is whole and in order");
        *number += 2;
        back = Some(message.channel);
    }
    target.send(back.unwrap(), content(99, 2 << 20)).unwrap();
    let answer = sender.recv_timeout(SOON).unwrap().expect("the answer comes back");
    assert!(answer.data == content(99, 2 << 20) && answer.channel.peer == peer);
    let state = &relay.pairs()[0];
    assert_eq!((state.forwarded_messages, state.returned_messages), (sizes.len() as u64, 1));
    assert_eq!(state.near, sender.local_addr());
}

#[test]
fn a_target_that_does_not_read_stops_its_own_sender_only() {
    const LIMIT: u64 = 1 << 20;
    let (eager, calm, idle, awake) = (node(), node(), node(), node());
    let listen = "127.0.0.1:0".parse().unwrap();
    let routes = [&idle, &awake].map(|target| Route { listen, target: target.local_addr() });
    let relay = Relay::start(&routes, &small(LIMIT)).unwrap();
    let to_idle = ChannelId { peer: eager.connect(relay.addresses()[0]).unwrap(), channel: 0 };
    let mut sent = 0usize;
    // Its reader sleeps: the target's credit, the relay's queue and the sender's own fill up.
    while eager.send_timeout(to_idle, content(sent, 50_000), Duration::from_millis(500)).is_ok() {
        sent += 1;
        assert!(sent < 2_000, "100 MB are held somewhere");
    }
    let pair = relay.pairs().into_iter().find(|pair| pair.target == idle.local_addr()).unwrap();
    assert!(pair.held_bytes < 2 * LIMIT, "{pair:?}");
    assert!(pair.lowered > 0, "{pair:?}");
    let to_awake = ChannelId { peer: calm.connect(relay.addresses()[1]).unwrap(), channel: 0 };
    for number in 0..100 {
        calm.send(to_awake, content(number, 10_000)).unwrap();
        let message = awake.recv_timeout(SOON).unwrap().expect("the other pair goes on");
        assert!(message.data == content(number, 10_000));
    }
    for number in 0..sent {
        let message = idle.recv_timeout(SOON).unwrap().expect("what was held arrives");
        assert!(message.data == content(number, 50_000), "message {number} of {sent}");
    }
}

/// The relay takes from a sender what it sends before it has heard that it is to stop: on many channels a lot.
#[test]
fn no_sender_is_ended_that_uses_many_channels_or_sends_large_messages() {
    for (limit, channels, bytes) in [(64 << 10, 50, 1_000), (1 << 20, 8, 1_000_000), (64 << 10, 40, 0)] {
        let (sender, target) = (node(), node());
        let (relay, peer) = through(&sender, &target, small(limit));
        let mut sent = 0usize;
        // Nobody reads meanwhile.
        let until = Instant::now() + Duration::from_millis(700);
        while Instant::now() < until {
            let to = ChannelId { peer, channel: (sent % channels) as u16 };
            match sender.send_timeout(to, content(sent, bytes), Duration::from_millis(20)) {
                Ok(_) => sent += 1,
                Err(SendError::WouldBlock { .. }) => {}
                Err(error) => panic!("after {sent} messages of {bytes}: {error}"),
            }
        }
        let state = &relay.pairs()[0];
        let mut next: Vec<usize> = (0..channels).collect();
        for taken in 0..sent {
            let message = target.recv_timeout(SOON).unwrap();
            let message = message.unwrap_or_else(|| panic!("{taken} of {sent} came: {state:?}"));
            let number = &mut next[usize::from(message.channel.channel)];
            assert!(message.data == content(*number, bytes), "message {number} in its order");
            *number += channels;
        }
        let ended = |event: &Event| matches!(event, Event::PeerLost { .. });
        assert_eq!(std::iter::from_fn(|| sender.try_event()).find(ended), None);
    }
}

#[test]
fn every_rate_that_the_target_sets_reaches_the_sender_to_the_byte() {
    let (sender, target) = (node(), node());
    let (_relay, peer) = through(&sender, &target, RelayConfig::default());
    sender.send(ChannelId { peer, channel: 0 }, content(0, 10)).unwrap();
    let back = target.recv_timeout(SOON).unwrap().expect("it arrives").channel.peer;
    for bytes_per_s in [1_000_000, 900_000, 1_000_000, 1_000_001] {
        let rate = Rate { bytes_per_s, burst_bytes: 20_000 };
        target.set_rate(back, rate).unwrap();
        let until = Instant::now() + SOON;
        while sender.flow(peer).expect("it is there").rate != rate {
            assert!(Instant::now() < until, "{rate} does not come through: {:?}", sender.flow(peer));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn what_is_larger_than_a_pair_may_hold_is_refused_by_name() {
    let (sender, target) = (node(), node());
    let (_relay, peer) = through(&sender, &target, small(1 << 20));
    let channel = ChannelId { peer, channel: 0 };
    sender.send(channel, "open").unwrap();
    assert!(target.recv_timeout(SOON).unwrap().is_some());
    let error = sender.send(channel, vec![0; (1 << 20) + 1]).unwrap_err();
    assert!(matches!(error, SendError::TooLarge { max: 1_048_576, .. }), "{error}");
}

#[test]
fn an_orderly_end_comes_through_after_everything() {
    let (sender, target) = (node(), node());
    let (_relay, peer) = through(&sender, &target, small(1 << 20));
    for number in 0..50 {
        sender.send(ChannelId { peer, channel: 0 }, content(number, 30_000)).unwrap();
    }
    sender.close(peer).unwrap();
    for number in 0..50 {
        let message = target.recv_timeout(SOON).unwrap().expect("what was sent before the end arrives");
        assert!(message.data == content(number, 30_000));
    }
    for side in [&target, &sender] {
        let reason = lost(side);
        assert!(matches!(reason, LostReason::Closed | LostReason::Ended { code: 0, .. }), "{reason}");
    }
}

/// Many small messages: some wait to be taken when their sender's end is there already.
#[test]
fn no_end_overtakes_what_was_sent_before_it() {
    const COUNT: usize = 3_000;
    for _ in 0..10 {
        let (sender, target) = (node(), node());
        let (_relay, peer) = through(&sender, &target, small(1 << 20));
        let send_all = |from: &Node, peer| {
            for number in 0..COUNT {
                from.send(ChannelId { peer, channel: number as u16 % 4 }, content(number, 8)).unwrap();
            }
        };
        let take_all = |at: &Node| {
            let mut channels = [0, 1, 2, 3];
            let mut from = None;
            for taken in 0..COUNT {
                let message = at.recv_timeout(SOON).unwrap();
                let message = message.unwrap_or_else(|| panic!("{taken} of {COUNT} came"));
                let number = &mut channels[usize::from(message.channel.channel)];
                assert!(message.data == content(*number, 8), "message {number} in its order");
                *number += 4;
                from = Some(message.channel.peer);
            }
            from.expect("messages were taken")
        };
        send_all(&sender, peer);
        sender.close_write(peer).unwrap();
        let back = take_all(&target);
        send_all(&target, back);
        target.close(back).unwrap();
        take_all(&sender);
        for side in [&target, &sender] {
            let reason = lost(side);
            assert!(matches!(reason, LostReason::Closed | LostReason::Ended { code: 0, .. }), "{reason}");
        }
    }
}

#[test]
fn the_sender_hears_that_nobody_answers_beyond() {
    let sender = node();
    let mut config = RelayConfig::default();
    config.node.protocol.connect_timeout = Duration::from_millis(100);
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: nobody.local_addr().unwrap() };
    let relay = Relay::start(&[route], &config).unwrap();
    let peer = sender.connect(relay.addresses()[0]).unwrap();
    sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
    let LostReason::Ended { reason, .. } = lost(&sender) else { panic!("it was not ended") };
    assert_eq!(reason, "the peer beyond the relay: no answer");
}

#[test]
fn the_sender_hears_that_the_peer_beyond_is_lost_and_may_come_again() {
    let (sender, target) = (node(), node());
    let (relay, peer) = through(&sender, &target, small(1 << 20));
    sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
    assert!(target.recv_timeout(SOON).unwrap().is_some());
    let addr = target.local_addr();
    drop(target);
    let reason = lost(&sender);
    assert!(
        matches!(&reason, LostReason::Ended { reason, .. } if reason.contains("beyond the relay")),
        "{reason}"
    );
    let again = Node::bind(addr, config()).unwrap();
    let peer = sender.connect(relay.addresses()[0]).unwrap();
    sender.send(ChannelId { peer, channel: 0 }, "hello again").unwrap();
    assert_eq!(again.recv_timeout(SOON).unwrap().unwrap().data, "hello again");
}

#[test]
fn a_relay_is_sealed_like_any_other_node_and_knows_no_strangers() {
    let sealed = |octet: u8| Config { cluster_key: Some(ClusterKey::from_bytes([octet; 32])), ..config() };
    let [sender, target] = [(); 2].map(|()| Node::bind("127.0.0.1:0", sealed(7)).unwrap());
    let (relay, peer) = through(&sender, &target, RelayConfig { node: sealed(7), ..small(1 << 20) });
    sender.send(ChannelId { peer, channel: 0 }, "in secret").unwrap();
    assert_eq!(target.recv_timeout(SOON).unwrap().unwrap().data, "in secret");
    let mut strange = sealed(8);
    strange.protocol.connect_timeout = Duration::from_millis(300);
    let stranger = Node::bind("127.0.0.1:0", strange).unwrap();
    let peer = stranger.connect(relay.addresses()[0]).unwrap();
    stranger.send(ChannelId { peer, channel: 0 }, "let me in").unwrap();
    lost(&stranger);
    assert!(target.recv_timeout(Duration::from_millis(100)).unwrap().is_none());
    assert_eq!(relay.pairs().len(), 1);
}

/// A program gives its relay the settings of its own Nodes.
#[test]
fn which_threads_drive_a_relay_is_its_own_choice_whatever_its_settings_say() {
    let (sender, target) = (node(), node());
    let node = Config { drive: Drive::Pipelined, shards: 2, ..Config::default() };
    let (_relay, peer) = through(&sender, &target, RelayConfig { node, ..RelayConfig::default() });
    sender.send(ChannelId { peer, channel: 0 }, "through").unwrap();
    assert_eq!(target.recv_timeout(SOON).unwrap().expect("it arrives").data, "through");
}

#[test]
fn impossible_settings_and_one_pair_too_many_are_refused() {
    let (sender, late, target) = (node(), node(), node());
    let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
    for bytes in [1, (1 << 30) + 1, 1 << 62, u64::MAX] {
        let error = Relay::start(&[route], &small(bytes)).err().unwrap().to_string();
        let limits = "between 65536 (64 KiB) and 1073741824 (1 GiB)";
        assert!(error.contains(&format!("pair_bytes is {bytes},")) && error.contains(limits), "{error}");
    }
    for max_pairs in [0, 1_025, usize::MAX] {
        let error = Relay::start(&[route], &RelayConfig { max_pairs, ..small(1 << 20) });
        assert!(error.err().unwrap().to_string().contains("between 1 and 1024"));
    }
    let mut asking = small(1 << 20);
    asking.node.protocol.offers = OfferPolicy::Ask;
    let error = Relay::start(&[route], &asking).err().unwrap().to_string();
    assert!(error.contains("offers is ask, but has to be automatic"), "{error}");
    let error = Relay::start(&[], &small(1 << 20)).err().unwrap().to_string();
    assert!(error.contains("routes is empty") && error.contains("one route at least"), "{error}");
    for listen in ["127.0.0.1:7000", "0.0.0.0:7000", "[::ffff:127.0.0.1]:7000"] {
        let itself = Route { listen: listen.parse().unwrap(), target: "127.0.0.1:7000".parse().unwrap() };
        let error = Relay::start(&[route, itself], &small(1 << 20)).err().unwrap().to_string();
        assert!(error.contains(listen) && error.contains("not this relay"), "{error}");
    }
    for (target, hint) in [
        ("127.0.0.1:0", "address and port of a peer"),
        ("239.1.1.1:7000", "address and port of a peer"),
        ("0.0.0.0:7000", "address and port of a peer"),
        ("255.255.255.255:7000", "address and port of a peer"),
        ("[::1]:7000", "can be reached from 127.0.0.1"),
        ("[fe80::7]:7000", "with this host's interface to its link"),
    ] {
        let nowhere = Route { target: target.parse().unwrap(), ..route };
        let config = RelayConfig { from: Some("127.0.0.1".parse().unwrap()), ..small(1 << 20) };
        let error = Relay::start(&[nowhere], &config).err().unwrap().to_string();
        assert!(error.contains(target) && error.contains(hint), "{error}");
    }
    let (relay, peer) = through(&sender, &target, RelayConfig { max_pairs: 1, ..small(1 << 20) });
    sender.send(ChannelId { peer, channel: 0 }, "first").unwrap();
    assert!(target.recv_timeout(SOON).unwrap().is_some());
    let peer = late.connect(relay.addresses()[0]).unwrap();
    // It may have been turned away by now.
    let sent = late.send(ChannelId { peer, channel: 0 }, "second");
    assert!(matches!(sent, Ok(_) | Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_))), "{sent:?}");
    let reason = lost(&late);
    assert!(matches!(&reason, LostReason::Ended { reason, .. } if reason.contains("max_pairs")), "{reason}");
}

#[test]
fn a_sender_that_wants_no_more_is_known_to_the_target() {
    let (sender, target) = (node(), node());
    let (_relay, peer) = through(&sender, &target, RelayConfig::default());
    sender.send(ChannelId { peer, channel: 0 }, content(0, 10)).unwrap();
    let back = target.recv_timeout(SOON).unwrap().expect("it arrives").channel;
    sender.close_read(peer).unwrap();
    let until = Instant::now() + SOON / 4;
    while !matches!(target.event_timeout(SOON / 40), Some(Event::PeerDoneReading { .. })) {
        assert!(Instant::now() < until, "the relay keeps it to itself");
    }
    assert_eq!(target.send(back, content(1, 10)), Err(SendError::PeerDoneReading(back.peer)));
    sender.send(ChannelId { peer, channel: 0 }, content(2, 10)).unwrap();
    assert!(target.recv_timeout(SOON).unwrap().is_some(), "the other way goes on");
}

#[test]
fn a_target_that_wants_no_more_goes_on_speaking() {
    let (sender, target) = (node(), node());
    let (relay, peer) = through(&sender, &target, small(1 << 20));
    let to = ChannelId { peer, channel: 0 };
    sender.send(to, content(0, 10)).unwrap();
    let back = target.recv_timeout(SOON).unwrap().expect("it arrives").channel;
    // As much as there is room for waits in the relay when the target says so.
    let until = Instant::now() + SOON;
    while relay.pairs()[0].held_bytes <= 500_000 {
        let sent = sender.send_timeout(to, content(1, 10_000), SOON / 100);
        assert!(Instant::now() < until, "not filled: {sent:?}");
    }
    target.close_read(back.peer).unwrap();
    while sender.send(to, content(1, 10_000)).is_ok() {}
    for number in 0..10 {
        target.send(back, content(number, 100)).unwrap();
    }
    for number in 0..10 {
        let message = sender.recv_timeout(SOON).unwrap().expect("the other way goes on");
        assert!(message.data == content(number, 100));
    }
    target.close(back.peer).unwrap();
    assert!(matches!(lost(&sender), LostReason::Ended { code: 0, .. }));
}

#[test]
fn what_comes_back_and_is_larger_than_the_sender_takes_ends_the_session_and_is_not_left_out() {
    let mut small = config();
    small.protocol.max_message_bytes = 100_000;
    let (sender, target) = (Node::bind("127.0.0.1:0", small).unwrap(), node());
    let (_relay, peer) = through(&sender, &target, RelayConfig::default());
    sender.send(ChannelId { peer, channel: 0 }, content(0, 10)).unwrap();
    let back = target.recv_timeout(SOON).unwrap().expect("it arrives").channel;
    for bytes in [100_000, 100_001] {
        target.send(back, content(1, bytes)).unwrap();
    }
    let behind = target.send(back, content(1, 10));
    assert!(
        matches!(behind, Ok(_) | Err(SendError::PeerLost { .. })),
        "it may have ended by then: {behind:?}"
    );
    assert_eq!(sender.recv_timeout(SOON).unwrap().expect("it comes").data.len(), 100_000);
    let LostReason::Ended { code, reason } = lost(&sender) else { panic!("it hears why") };
    assert!(code == 0x8e01 && reason.contains("100001 bytes"), "{code:#x}: {reason}");
    assert!(sender.recv_timeout(Duration::ZERO).unwrap().is_none(), "nothing comes behind a gap");
}

/// The relay has acknowledged it by then.
#[test]
fn what_the_peer_on_either_side_refuses_ends_the_session_and_is_not_left_out() {
    let mut asking = config();
    asking.protocol.offers = OfferPolicy::Ask;
    for back in [false, true] {
        let [sender, target] = [!back, back]
            .map(|sends| Node::bind("127.0.0.1:0", if sends { config() } else { asking.clone() }).unwrap());
        let (_relay, peer) = through(&sender, &target, RelayConfig::default());
        let first = ChannelId { peer, channel: 3 };
        sender.send(first, content(0, 10)).unwrap();
        let to_sender = target.recv_timeout(SOON).unwrap().expect("it arrives").channel;
        let (from, to, by, way) = if back {
            (&target, &sender, "the peer before the relay", to_sender)
        } else {
            (&sender, &target, "the peer beyond the relay", first)
        };
        let number = from.send(way, content(1, 3 << 20)).unwrap().number;
        let offered = until_some(|| match to.event_timeout(SOON / 100) {
            Some(Event::Offered { channel, number, .. }) => Some((channel, number)),
            _ => None,
        });
        to.refuse(offered.0, offered.1).unwrap();
        let LostReason::Ended { code, reason } = lost(from) else { panic!("it hears why") };
        let said = format!("{by} refused message {number} of channel 3");
        assert!(code == 0x8e01 && reason.contains(&said), "{code:#x}: {reason}");
    }
}

#[test]
fn senders_that_come_and_go_hold_no_other_up() {
    let (sender, target) = (node(), node());
    let (relay, peer) = through(&sender, &target, RelayConfig::default());
    let over = std::sync::atomic::AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let brief = node();
                    let peer = brief.connect(relay.addresses()[0]).unwrap();
                    // On a busy machine those that went may take all places for a while.
                    let _ = brief.send(ChannelId { peer, channel: 1 }, content(0, 10));
                    brief.flush(peer, SOON / 20);
                }
            });
        }
        let (mut longest, began) = (Duration::ZERO, Instant::now());
        while began.elapsed() < SOON / 10 {
            let sent = Instant::now();
            sender.send(ChannelId { peer, channel: 0 }, content(0, 10)).unwrap();
            let other = |taken: denrei::Message| taken.channel.channel != 0;
            while sent.elapsed() < SOON / 4 && target.recv_timeout(SOON / 20).unwrap().is_none_or(other) {}
            longest = longest.max(sent.elapsed());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        longest
    });
    assert!(longest < SOON / 10, "{longest:?}");
}

#[test]
fn the_peer_beyond_is_told_how_many_relays_lie_between() {
    let (sender, target) = (node(), node());
    let mut addr = target.local_addr();
    let chain = [(); 3].map(|()| {
        let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: addr };
        let relay = Relay::start(&[route], &small(1 << 20)).unwrap();
        addr = relay.addresses()[0];
        relay
    });
    let peer = sender.connect(addr).unwrap();
    sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
    let message = target.recv_timeout(SOON).unwrap().expect("it arrives");
    assert_eq!(target.flow(message.channel.peer).unwrap().relays, chain.len() as u8);
}

#[test]
fn relays_that_stand_for_each_other_are_noticed_and_the_sender_is_told() {
    let sender = node();
    // Each has to name the other before it is there.
    let free = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (here, there) = (free(), free());
    // What goes round takes four pairs of each, and no more.
    let config = RelayConfig { max_pairs: usize::from(MAX_RELAYS) / 2, ..small(1 << 20) };
    let relays = [(here, there), (there, here)]
        .map(|(listen, target)| Relay::start(&[Route { listen, target }], &config).unwrap());
    let peer = sender.connect(here).unwrap();
    sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
    let LostReason::Ended { reason, .. } = lost(&sender) else { panic!("it was not ended") };
    assert!(reason.contains("come through 8 relays"), "{reason}");
    let until = Instant::now() + SOON;
    while relays.iter().any(|relay| !relay.pairs().is_empty()) {
        assert!(Instant::now() < until, "pairs are left: {:?}", relays.map(|relay| relay.pairs()));
        std::thread::sleep(Duration::from_millis(10));
    }
}

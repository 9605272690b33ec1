//! Nodes whose peers are spread over several protocol threads.

use denrei::{
    Bytes, ChannelId, ClusterKey, Completion, Config, CongestionAlgorithm, Drive, Event, GroupOptions,
    LostReason, Message, Node, PeerId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SHARDS: usize = 3;
/// So many that one of the shards goes without any once in four million runs.
const PEERS: usize = 40;
const CHANNELS: u16 = 2;
const EACH: u64 = 40;

fn sharded(key: Option<ClusterKey>) -> Config {
    Config { drive: Drive::Pipelined, shards: SHARDS, cluster_key: key, ..Config::default() }
}

fn threaded(key: Option<ClusterKey>) -> Config {
    Config { drive: Drive::Thread, cluster_key: key, ..Config::default() }
}

fn bind(config: Config) -> Node {
    Node::bind("127.0.0.1:0", config).unwrap()
}

fn content(peer: usize, channel: u16, number: u64) -> Bytes {
    let len = (number as usize * 997) % 20_000;
    (0..len).map(|at| (at * 31 + peer * 17 + channel as usize * 5 + number as usize) as u8).collect()
}

fn expect(node: &Node) -> Message {
    node.recv_timeout(LONG).unwrap().expect("a message within twenty seconds")
}

/// Takes events until one is `wanted`.
fn await_event(node: &Node, wanted: impl Fn(&Event) -> bool) {
    let deadline = Instant::now() + LONG;
    loop {
        let event = node.event_timeout(deadline.saturating_duration_since(Instant::now()));
        if wanted(&event.expect("the event comes within twenty seconds")) {
            return;
        }
    }
}

/// A hub, spokes that are connected to it, and the hub's name for each.
type Wheel = (Node, Vec<(Node, PeerId)>, Vec<PeerId>);

/// One whose peers are in more than one shard. Which they are in follows from their ports: of six, all are
/// in the same once in 243.
fn wheel(spokes: usize) -> Wheel {
    const TRIALS: usize = 20;
    let is_spread = |wheel: &Wheel| wheel.2.iter().any(|peer| peer.shard(SHARDS) != wheel.2[0].shard(SHARDS));
    let wheel = (0..TRIALS).map(|_| wheel_by_chance(spokes)).find(is_spread);
    wheel.expect("peers are spread over shards")
}

fn wheel_by_chance(spokes: usize) -> Wheel {
    let hub = bind(sharded(None));
    let spokes: Vec<_> = (0..spokes)
        .map(|index| {
            let spoke = bind(threaded(None));
            let peer = spoke.connect(hub.local_addr()).unwrap();
            spoke.send(ChannelId { peer, channel: 0 }, vec![index as u8]).unwrap();
            (spoke, peer)
        })
        .collect();
    let names: BTreeMap<u8, PeerId> =
        spokes.iter().map(|_| expect(&hub)).map(|message| (message.data[0], message.channel.peer)).collect();
    (hub, spokes, names.into_values().collect())
}

fn a_hub_echoes(key: Option<ClusterKey>) {
    let hub = bind(sharded(key.clone()));
    let addr = hub.local_addr();
    // Whoever leaves takes the acknowledgement of what was repeated to it along.
    let flushed = AtomicBool::new(false);
    thread::scope(|scope| {
        for index in 0..PEERS {
            let (key, flushed) = (key.clone(), &flushed);
            scope.spawn(move || {
                let spoke = bind(threaded(key));
                let peer = spoke.connect(addr).unwrap();
                for number in 0..EACH {
                    for channel in 0..CHANNELS {
                        spoke.send(ChannelId { peer, channel }, content(index, channel, number)).unwrap();
                    }
                }
                let mut next = [0; CHANNELS as usize];
                for _ in 0..EACH * CHANNELS as u64 {
                    let Message { channel: ChannelId { channel, .. }, data, .. } = expect(&spoke);
                    let number = &mut next[channel as usize];
                    assert_eq!(data, content(index, channel, *number), "peer {index}, channel {channel}");
                    *number += 1;
                }
                assert!(spoke.flush(peer, LONG));
                let until = Instant::now() + LONG;
                while !flushed.load(Ordering::Relaxed) && Instant::now() < until {
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let mut next = BTreeMap::new();
        for _ in 0..PEERS as u64 * EACH * CHANNELS as u64 {
            let message = expect(&hub);
            let number = next.entry(message.channel).or_insert(0);
            assert_eq!(message.number, *number, "{:?}", message.channel);
            *number += 1;
            hub.send(message.channel, message.data).unwrap();
        }
        assert_eq!(next.len(), PEERS * CHANNELS as usize);
        let peers: BTreeSet<_> = next.keys().map(|channel| channel.peer).collect();
        let shards: BTreeSet<_> = peers.iter().map(|peer| peer.shard(SHARDS)).collect();
        assert_eq!((peers.len(), shards.len()), (PEERS, SHARDS), "{shards:?}");
        for peer in &peers {
            assert!(hub.flush(*peer, LONG));
        }
        flushed.store(true, Ordering::Relaxed);
    });
    assert!(hub.counters().datagrams > 0 && hub.counters().malformed == 0);
}

#[test]
fn a_hub_of_shards_keeps_the_order_of_every_channel() {
    a_hub_echoes(None);
}

#[test]
fn a_sealed_hub_of_shards_keeps_the_order_of_every_channel() {
    a_hub_echoes(Some(ClusterKey::from_bytes([9; 32])));
}

#[test]
fn every_call_finds_the_shard_of_its_peer() {
    let (hub, spokes, names) = wheel(8);
    let listed: BTreeSet<_> = hub.peers().iter().map(|flow| flow.peer).collect();
    assert_eq!(listed, names.iter().copied().collect());
    for ((spoke, back), &peer) in spokes.iter().zip(&names) {
        assert_eq!(hub.peer_at(spoke.local_addr()), Some(peer));
        assert_eq!(hub.connect(spoke.local_addr()), Ok(peer));
        assert_eq!(hub.flow(peer).map(|flow| flow.peer), Some(peer));
        assert_eq!(hub.wait(peer, 1000, LONG), Ok(true));
        let channel = ChannelId { peer, channel: 5 };
        hub.set_priority(channel, 1).unwrap();
        let id = hub.send_with(channel, "to one", Completion::Delivered).unwrap();
        assert_eq!(expect(spoke).data, "to one");
        await_event(&hub, |event| *event == Event::Delivered(id));
        let asked = hub.request_status(peer).unwrap();
        await_event(&hub, |event| matches!(event, Event::Status { request, .. } if *request == asked));
        spoke.send(ChannelId { peer: *back, channel: 6 }, "back").unwrap();
        let answer = hub.recv_from(ChannelId { peer, channel: 6 }, LONG).unwrap().expect("it comes");
        assert_eq!(answer.data, "back");
        spoke.send(ChannelId { peer: *back, channel: 7 }, "again").unwrap();
        assert_eq!(hub.ready(LONG), Some((ChannelId { peer, channel: 7 }, 5)));
        assert_eq!(pollster::block_on(hub.recv_async()).unwrap().data, "again");
        pollster::block_on(hub.send_async(channel, "async")).unwrap();
        assert_eq!(expect(spoke).data, "async");
    }
    let unknown = PeerId::from_u64(u64::MAX);
    assert!(hub.flow(unknown).is_none() && hub.request_status(unknown).is_err());
}

#[test]
fn whoever_waits_for_any_peer_is_woken_by_each() {
    let (hub, spokes, names) = wheel(8);
    let fd = hub.news_fd().unwrap();
    while hub.try_event().is_some() {}
    hub.clear_news();
    let mut taken = BTreeSet::new();
    for (index, (spoke, peer)) in spokes.iter().enumerate() {
        spoke.send(ChannelId { peer: *peer, channel: 1 }, vec![index as u8]).unwrap();
        assert!(becomes_readable(fd), "the descriptor tells of peer {index}");
        hub.clear_news();
        assert!(hub.wait_incoming(LONG));
        let drained = hub.drain(
            10,
            |_| true,
            |incoming| match incoming {
                denrei::Incoming::Message(message) => assert!(taken.insert(message.channel.peer)),
                denrei::Incoming::Event(event) => panic!("{event:?}"),
            },
        );
        assert_eq!(drained, 1);
    }
    assert_eq!(taken, names.into_iter().collect());
}

/// Waits until a descriptor is readable.
fn becomes_readable(fd: std::os::fd::BorrowedFd<'_>) -> bool {
    let waiter = denrei_io::Waiter::new().unwrap();
    use std::os::fd::AsRawFd;
    waiter.wait([fd.as_raw_fd()], None, Some(LONG)).unwrap().readable == 1
}

#[test]
fn a_node_of_shards_says_goodbye_to_all_after_everything_has_arrived() {
    let (hub, spokes, names) = wheel(12);
    for &peer in &names {
        for number in 0..20 {
            hub.send(ChannelId { peer, channel: 3 }, content(0, 3, number)).unwrap();
        }
    }
    for &peer in &names {
        assert!(hub.flush(peer, LONG));
    }
    drop(hub);
    for (spoke, _) in &spokes {
        for number in 0..20 {
            assert_eq!(expect(spoke).data, content(0, 3, number));
        }
        await_event(spoke, |event| {
            matches!(event, Event::PeerLost { reason: LostReason::Ended { code: 4, .. }, .. })
        });
    }
}

#[test]
fn groups_open_among_peers_of_all_shards_while_messages_flow() {
    let (hub, spokes, names) = wheel(6);
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([239, 255, 79, 1], port));
    let members: Vec<SocketAddr> = spokes.iter().map(|(spoke, _)| spoke.local_addr()).collect();
    let listeners: Vec<_> = spokes.iter().map(|(spoke, _)| spoke.join_group(address).unwrap()).collect();
    const BEFORE: u64 = 50;
    thread::scope(|scope| {
        // These wait in every shard while all peers move into one.
        for ((spoke, _), &peer) in spokes.iter().zip(&names) {
            let hub = hub.clone();
            scope.spawn(move || {
                for number in 0..2 * BEFORE {
                    hub.send(ChannelId { peer, channel: 1 }, content(1, 1, number)).unwrap();
                }
                assert!(hub.flush(peer, LONG));
            });
            scope.spawn(move || {
                for number in 0..2 * BEFORE {
                    assert_eq!(expect(spoke).data, content(1, 1, number));
                }
            });
        }
        let waiting = hub.clone();
        let waiter = scope.spawn(move || expect(&waiting).data);
        let group = hub.open_group(address, &members, GroupOptions::default()).unwrap();
        for number in 0..10 {
            group.send(content(2, 2, number)).unwrap();
        }
        let memberships = listeners.iter().map(|listener| listener.accept(LONG).expect("it is open"));
        let memberships: Vec<_> = memberships.collect();
        for membership in &memberships {
            for number in 0..10 {
                let message = membership.recv_timeout(LONG).unwrap().expect("it comes");
                assert_eq!(message.data, content(2, 2, number));
            }
        }
        let (spoke, peer) = &spokes[0];
        spoke.send(ChannelId { peer: *peer, channel: 0 }, "for whoever waits").unwrap();
        assert_eq!(waiter.join().unwrap(), "for whoever waits");
        assert!(group.close(LONG));
        assert!(memberships.iter().all(|membership| membership.recv_timeout(LONG).is_err()));
    });
    // Peers keep their names, and new ones come.
    for ((spoke, _), &peer) in spokes.iter().zip(&names) {
        assert_eq!(hub.peer_at(spoke.local_addr()), Some(peer));
    }
    let late = bind(threaded(None));
    let peer = late.connect(hub.local_addr()).unwrap();
    late.send(ChannelId { peer, channel: 0 }, "late").unwrap();
    assert_eq!(expect(&hub).data, "late");
}

#[test]
fn shards_that_cannot_be_are_refused() {
    let error = |drive, shards| {
        let config = Config { drive, shards, ..Config::default() };
        Node::bind("127.0.0.1:0", config).unwrap_err().to_string()
    };
    assert!(error(Drive::Pipelined, 0).contains("shards is 0, but has to be 1 to 128"));
    assert!(error(Drive::Pipelined, 1000).contains("1 to 128"));
    assert!(error(Drive::Thread, 2).contains("unless drive is pipelined"));
}

/// A Node that sends to `hub` as fast as it is let, and `hub` there.
fn rate_only_spoke(hub: &Node) -> (Node, PeerId) {
    let mut config = threaded(None);
    config.protocol.congestion = CongestionAlgorithm::RateOnly;
    config.protocol.send_buffer_bytes = 128 << 10;
    let spoke = bind(config);
    let peer = spoke.connect(hub.local_addr()).unwrap();
    (spoke, peer)
}

/// Shards are to a host what Nodes are: all that come through them share it.
#[test]
fn shards_share_what_the_host_takes() {
    const HOST_BYTES_PER_S: u64 = 24_000_000;
    let directory = std::env::temp_dir().join(format!("denrei-shards-{}", std::process::id()));
    let mut config = sharded(None);
    config.protocol.learn_rates = true;
    (config.host_directory, config.host_bytes_per_s) = (Some(directory.clone()), HOST_BYTES_PER_S);
    let hub = bind(config);
    let done = AtomicBool::new(false);
    let flood = |(spoke, peer): &(Node, PeerId)| {
        while !done.load(Ordering::Relaxed) {
            spoke.send_timeout(ChannelId { peer: *peer, channel: 0 }, vec![1; 1200], LONG).unwrap();
        }
    };
    let spokes: Vec<_> = (0..12).map(|_| rate_only_spoke(&hub)).collect();
    let rates = || -> Vec<f64> {
        let rate = |(spoke, peer): &(Node, PeerId)| spoke.flow(*peer).unwrap().rate.bytes_per_s as f64;
        spokes.iter().map(rate).map(|rate| rate / HOST_BYTES_PER_S as f64).collect()
    };
    let fair = |rates: &[f64]| {
        let sum: f64 = rates.iter().sum();
        (0.9..=1.05).contains(&sum) && rates.iter().all(|rate| (0.04..=0.13).contains(rate))
    };
    thread::scope(|scope| {
        spokes.iter().for_each(|spoke| drop(scope.spawn(|| flood(spoke))));
        scope.spawn(|| while hub.recv_timeout(LONG / 40).unwrap().is_some() {});
        let deadline = Instant::now() + LONG;
        let mut last = rates();
        while !fair(&last) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            last = rates();
        }
        done.store(true, Ordering::Relaxed);
        assert!(fair(&last), "a twelfth of the host for each: {last:?}");
    });
    drop(hub);
    std::fs::remove_dir(directory).expect("the Node has left nothing in it");
}

/// Who computes for a while takes nothing meanwhile, and the others have its share.
#[test]
fn an_application_that_does_not_call_keeps_no_share_of_the_host_from_others() {
    const HOST_BYTES_PER_S: u64 = 8_000_000;
    let directory = std::env::temp_dir().join(format!("denrei-busy-{}", std::process::id()));
    let hub = |drive| {
        let mut config = Config { drive, ..threaded(None) };
        config.protocol.learn_rates = true;
        (config.host_directory, config.host_bytes_per_s) = (Some(directory.clone()), HOST_BYTES_PER_S);
        bind(config)
    };
    let (calls, computes) = (hub(Drive::Thread), hub(Drive::Inline));
    let spokes = [rate_only_spoke(&calls), rate_only_spoke(&computes)];
    let done = AtomicBool::new(false);
    let share = |(spoke, peer): &(Node, PeerId)| {
        spoke.flow(*peer).map_or(0.0, |flow| flow.rate.bytes_per_s as f64) / HOST_BYTES_PER_S as f64
    };
    let take = |hub: &Node| hub.recv_timeout(Duration::from_millis(10)).unwrap();
    let take_until = |holds: &dyn Fn() -> bool, both: bool| {
        // Sooner than the one that does not call is taken for dead.
        let deadline = Instant::now() + LONG / 2;
        let mut held = holds();
        while !held && Instant::now() < deadline {
            take(if both { &computes } else { &calls });
            held = holds();
        }
        held
    };
    thread::scope(|scope| {
        for (spoke, peer) in &spokes {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let to = ChannelId { peer: *peer, channel: 0 };
                    let _ = spoke.send_timeout(to, vec![1; 1200], Duration::from_millis(50));
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                take(&calls);
            }
        });
        let half = |share: f64| (0.45..=0.55).contains(&share);
        let halves = take_until(&|| spokes.iter().map(share).all(half), true);
        let whole = take_until(&|| share(&spokes[0]) > 0.95, false);
        let again = take_until(&|| spokes.iter().map(share).all(half), true);
        let last: Vec<f64> = spokes.iter().map(share).collect();
        done.store(true, Ordering::Relaxed);
        assert!(halves && whole && again, "{halves} {whole} {again}: {last:?}");
    });
    drop((calls, computes));
    std::fs::remove_dir(directory).expect("the Nodes have left nothing in it");
}

#[test]
fn the_longest_time_there_is_is_for_ever() {
    let (hub, spokes, _) = wheel(2);
    let (spoke, peer) = &spokes[0];
    spoke.send(ChannelId { peer: *peer, channel: 0 }, "x").unwrap();
    assert_eq!(hub.recv_timeout(Duration::MAX).unwrap().unwrap().data.len(), 1);
    assert!(hub.event_timeout(Duration::MAX).is_some());
    let options = GroupOptions { open_timeout: Duration::MAX, ..GroupOptions::default() };
    // No member: refused at once, and not after a time that does not exist.
    assert!(hub.open_group("239.255.71.9:7100".parse().unwrap(), &[], options).is_err());
}

/// A task of a runtime that cannot wake it.
struct Unwakeable;

impl Wake for Unwakeable {
    fn wake(self: Arc<Self>) {
        panic!("it cannot be woken");
    }
}

#[test]
fn a_task_that_cannot_be_woken_holds_up_nothing_of_a_node_that_gathers() {
    let (hub, spokes, names) = wheel(6);
    // Until nothing more is said that would bring the rest along: the search for the paths' sizes.
    thread::sleep(Duration::from_secs(2));
    let elsewhere = *names.iter().find(|name| name.shard(SHARDS) != 0).expect("peers are spread over shards");
    let mut waits = pin!(hub.recv_from_async(ChannelId { peer: elsewhere, channel: 1 }));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&Arc::new(Unwakeable).into())).is_pending());
    for name in &names {
        hub.queue(ChannelId { peer: *name, channel: 0 }, "queued", Completion::None).unwrap();
    }
    let group = "239.1.1.9:7409".parse().unwrap();
    catch_unwind(AssertUnwindSafe(|| hub.join_group(group))).expect_err("who gathers hears of the panic");
    for (spoke, _) in &spokes {
        let message = spoke.recv_timeout(Duration::from_secs(3)).unwrap();
        assert_eq!(message.expect("what was queued leaves").data, "queued");
    }
}

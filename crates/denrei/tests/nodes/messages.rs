//! Nodes over real sockets on loopback, in all drive modes.

use crate::common::{attend, background};
use denrei::{
    Bytes, ChannelId, Completion, Config, Drive, Event, Incoming, LostReason, Node, OfferPolicy, PeerId,
    ProtocolConfig, SendError,
};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

fn config(drive: Drive) -> Config {
    Config { drive, ..Config::default() }
}

fn bind(drive: Drive) -> Node {
    Node::bind("127.0.0.1:0", config(drive)).unwrap()
}

fn content(number: u64, len: usize) -> Bytes {
    (0..len).map(|i| (i as u64 * 31 + number * 7 + i as u64 / 251) as u8).collect()
}

fn channel(peer: PeerId, channel: u16) -> ChannelId {
    ChannelId { peer, channel }
}

fn expect(node: &Node) -> denrei::Message {
    node.recv_timeout(LONG).unwrap().expect("a message within ten seconds")
}

const DRIVES: [Drive; 3] = [Drive::Inline, Drive::Thread, Drive::Pipelined];

#[test]
fn messages_of_all_sizes_go_both_ways() {
    for drive in DRIVES {
        let (a, b) = (bind(drive), bind(drive));
        let sizes = [0, 1, 64, 1500, 70_000, 1 << 20, 5 << 20];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (number, &len) in sizes.iter().enumerate() {
                    let message = expect(&b);
                    assert_eq!((message.number, message.data.len()), (number as u64, len));
                    assert_eq!(message.data, content(number as u64, len));
                    b.send(message.channel, message.data).unwrap();
                }
                let flushed = b.flush(b.peers()[0].peer, LONG);
                done.store(true, Ordering::Relaxed);
                assert!(flushed, "{drive:?}");
            });
            let peer = a.connect(b.local_addr()).unwrap();
            for (number, &len) in sizes.iter().enumerate() {
                a.send(channel(peer, 2), content(number as u64, len)).unwrap();
                assert_eq!(expect(&a).data, content(number as u64, len), "{drive:?}");
            }
            attend(&a, || done.load(Ordering::Relaxed));
        });
    }
}

/// A pipeline does not: it receives on a core that does not have the messages.
#[test]
#[cfg(target_os = "linux")]
fn large_messages_are_received_where_they_belong() {
    let (a, b) = (bind(Drive::Thread), bind(Drive::Thread));
    let peer = a.connect(b.local_addr()).unwrap();
    // A thread that the machine has kept waiting finds the whole message in its socket, and lends its memory too late.
    let began = Instant::now();
    let landed = (0..).take_while(|_| began.elapsed() < 3 * LONG).any(|number| {
        a.send(channel(peer, 2), content(number, 5 << 20)).unwrap();
        b.send(channel(b.peers()[0].peer, 2), expect(&b).data).unwrap();
        assert_eq!(expect(&a).data, content(number, 5 << 20));
        a.io_counters().recv_landed > 0 && b.io_counters().recv_landed > 0
    });
    assert!(landed);
}

#[test]
fn many_threads_share_a_node() {
    for drive in DRIVES {
        let (a, b) = (bind(drive), bind(drive));
        let peer = a.connect(b.local_addr()).unwrap();
        const THREADS: u16 = 4;
        const EACH: u64 = 500;
        let (received, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (a, b, received, flushed) = (&a, &b, &received, &flushed);
                scope.spawn(move || {
                    for number in 0..EACH {
                        a.send(channel(peer, thread), content(number, 300)).unwrap();
                    }
                    let all = a.flush(peer, LONG);
                    flushed.fetch_add(1, Ordering::Relaxed);
                    assert!(all, "{drive:?}");
                });
                scope.spawn(move || {
                    while received.load(Ordering::SeqCst) < THREADS as u64 * EACH {
                        if let Some(message) = b.recv_timeout(Duration::from_millis(100)).unwrap() {
                            assert_eq!(message.data, content(message.number, 300));
                            received.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    attend(b, || flushed.load(Ordering::Relaxed) == THREADS as u64);
                });
            }
        });
        assert_eq!(received.into_inner(), THREADS as u64 * EACH);
    }
}

#[test]
fn a_full_queue_blocks_times_out_or_says_so() {
    for drive in DRIVES {
        let small = ProtocolConfig { send_buffer_bytes: 1 << 20, ..ProtocolConfig::default() };
        let a = Node::bind("127.0.0.1:0", Config { protocol: small, ..config(drive) }).unwrap();
        let b = bind(background());
        let peer = a.connect(b.local_addr()).unwrap();
        let to = channel(peer, 0);
        let mut sent = 0;
        let began = Instant::now();
        loop {
            match a.send_timeout(to, content(sent, 100_000), Duration::from_millis(300)) {
                Ok(_) => sent += 1,
                // A machine with much else to do stands still for longer than that.
                Err(SendError::WouldBlock { .. }) if sent < 45 => {}
                Err(SendError::WouldBlock { queued_bytes, .. }) => {
                    assert!(queued_bytes > 900_000);
                    break;
                }
                Err(other) => panic!("{other}"),
            }
            assert!(began.elapsed() < LONG, "4 MiB of credit and 1 MiB of queue, not {sent}");
        }
        assert!(matches!(a.try_send(to, content(0, 100_000)), Err(SendError::WouldBlock { .. })));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                a.send(to, content(sent, 100_000)).unwrap();
                assert!(a.flush(peer, LONG));
            });
            for number in 0..=sent {
                assert_eq!(expect(&b).data, content(number, 100_000));
            }
        });
    }
}

#[test]
fn completion_is_reported_at_both_levels() {
    for drive in DRIVES {
        let (a, b) = (bind(drive), bind(background()));
        let peer = a.connect(b.local_addr()).unwrap();
        let acked = a.send_with(channel(peer, 0), "one", Completion::Acknowledged).unwrap();
        let delivered = a.send_with(channel(peer, 0), "two", Completion::Delivered).unwrap();
        let mut seen = Vec::new();
        while let Some(event) = a.event_timeout(Duration::from_millis(300)) {
            seen.push(event);
        }
        assert!(seen.contains(&Event::Acknowledged(acked)) && !seen.contains(&Event::Delivered(delivered)));
        let request = a.request_status(peer).unwrap();
        let status = a.event_timeout(LONG).unwrap();
        assert!(
            matches!(status, Event::Status { request: r, buffered_messages: 2, .. } if r == request),
            "{status:?}"
        );
        expect(&b);
        expect(&b);
        assert_eq!(a.event_timeout(LONG), Some(Event::Delivered(delivered)));
    }
}

#[test]
fn an_offered_message_is_placed_into_the_posted_buffer() {
    let ask = ProtocolConfig { offers: OfferPolicy::Ask, ..ProtocolConfig::default() };
    let a = bind(background());
    let b = Node::bind("127.0.0.1:0", Config { protocol: ask, ..config(Drive::Inline) }).unwrap();
    let peer = a.connect(b.local_addr()).unwrap();
    a.send(channel(peer, 0), content(9, 3_000_000)).unwrap();
    let offer = loop {
        match b.next(LONG).unwrap().expect("an offer") {
            Incoming::Event(Event::Offered { channel, number, bytes }) => break (channel, number, bytes),
            Incoming::Event(_) => continue,
            Incoming::Message(message) => panic!("{message:?} before its offer was accepted"),
        }
    };
    assert_eq!(offer.2, 3_000_000);
    let posted = Vec::with_capacity(3_000_000);
    let place = posted.as_ptr();
    b.accept(offer.0, offer.1, posted).unwrap();
    let message = expect(&b);
    assert_eq!(message.data, content(9, 3_000_000));
    assert_eq!(message.data.as_ptr(), place);
}

#[test]
fn a_dropped_node_is_noticed_at_once_and_a_new_one_takes_its_place() {
    for drive in DRIVES {
        let (a, b) = (bind(drive), bind(drive));
        let addr = b.local_addr();
        let peer = a.connect(addr).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| expect(&b));
            a.send_with(channel(peer, 0), "hello", Completion::Delivered).unwrap();
            while !matches!(a.event_timeout(LONG).expect("delivery"), Event::Delivered(_)) {}
        });
        drop(b);
        let lost = a.event_timeout(LONG).expect("the loss");
        assert!(
            matches!(lost, Event::PeerLost { reason: LostReason::Ended { code: 4, .. }, .. }),
            "{lost:?}"
        );
        let b = Node::bind(addr, config(drive)).unwrap();
        let again = a.connect(addr).unwrap();
        assert_ne!(peer, again);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(expect(&b).data, "again");
                attend(&b, || done.load(Ordering::Relaxed));
            });
            a.send(channel(again, 0), "again").unwrap();
            let flushed = a.flush(again, LONG);
            done.store(true, Ordering::Relaxed);
            assert!(flushed, "{drive:?}");
        });
    }
}

#[test]
fn closing_in_order_ends_both_sides() {
    let (a, b) = (bind(background()), bind(background()));
    let peer = a.connect(b.local_addr()).unwrap();
    a.send(channel(peer, 0), content(1, 500_000)).unwrap();
    a.close(peer).unwrap();
    // Whether the session still closes or is over already: nothing more is taken.
    let late = a.send(channel(peer, 0), "late");
    assert!(
        matches!(
            late,
            Err(SendError::WriteClosed(_) | SendError::PeerLost { .. } | SendError::UnknownPeer(_))
        ),
        "{late:?}"
    );
    let mut events = std::iter::from_fn(|| a.event_timeout(LONG));
    let closed = events.any(|e| matches!(e, Event::PeerLost { reason: LostReason::Closed, .. }));
    assert!(closed);
    assert_eq!(expect(&b).data, content(1, 500_000), "still readable");
}

#[test]
fn futures_need_no_particular_runtime() {
    let (a, b) = (bind(Drive::Inline), bind(Drive::Inline));
    let peer = a.connect(b.local_addr()).unwrap();
    let echo = std::thread::spawn(move || {
        pollster::block_on(async {
            for _ in 0..100 {
                let message = b.recv_async().await.unwrap();
                b.send_async(message.channel, message.data).await.unwrap();
            }
            assert!(matches!(b.event_async().await, Ok(Event::Connected { .. })));
        });
        b
    });
    pollster::block_on(async {
        for number in 0..100 {
            a.send_async(channel(peer, 0), content(number, 2000)).await.unwrap();
            assert_eq!(a.recv_async().await.unwrap().data, content(number, 2000));
        }
    });
    echo.join().unwrap();
}

#[test]
fn wrong_use_is_refused_with_advice() {
    let a = bind(Drive::Inline);
    let taken = Node::bind(a.local_addr(), Config::default()).unwrap_err().to_string();
    assert!(taken.contains("another process has that port"), "{taken}");
    for nowhere in ["192.0.2.1:0", "239.1.1.1:0", "[ff15::1]:0", "255.255.255.255:0"] {
        let nowhere = Node::bind(nowhere, Config { insecure: true, ..Config::default() });
        let nowhere = nowhere.unwrap_err().to_string();
        assert!(nowhere.contains("ip address"), "{nowhere}");
    }
    let mut config = Config::default();
    config.protocol.max_channels = 0;
    let invalid = Node::bind("127.0.0.1:0", config).unwrap_err().to_string();
    assert_eq!(invalid, "max_channels is 0, but has to be at least 16");
    assert!(a.connect("0.0.0.0:7000".parse().unwrap()).is_err());
    let nobody = PeerId::from_u64(77);
    assert!(matches!(a.send(channel(nobody, 0), "x"), Err(SendError::UnknownPeer(_))));
}

#[test]
fn without_a_key_a_node_stays_on_loopback() {
    for exposed in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let refused = Node::bind(exposed, Config::default()).unwrap_err().to_string();
        assert!(refused.contains("denrei keygen") && refused.contains("--insecure"), "{refused}");
    }
    Node::bind("127.9.9.9:0", Config::default()).unwrap();
    Node::bind("0.0.0.0:0", Config { insecure: true, ..Config::default() }).unwrap();
}

fn is_send_sync<T: Send + Sync>() {}

#[test]
fn a_node_is_send_and_sync() {
    is_send_sync::<Node>();
}

#[test]
fn an_event_loop_waits_on_the_news_descriptor() {
    let (a, b) = (bind(Drive::Inline), bind(background()));
    let fd = a.news_fd().unwrap().as_raw_fd();
    let waiter = denrei_io::Waiter::new().unwrap();
    let wait = |timeout| !waiter.wait([fd], None, Some(timeout)).unwrap().timed_out();
    let take_all = || {
        a.clear_news();
        std::iter::from_fn(|| a.next(Duration::ZERO).unwrap()).count()
    };
    let peer = b.connect(a.local_addr()).unwrap();
    let mut taken = 0;
    for number in 0..50 {
        b.send(channel(peer, 0), content(number, 3000)).unwrap();
        assert!(wait(LONG), "message {number}");
        taken += take_all();
    }
    let patience = Instant::now() + LONG;
    while taken < 51 && Instant::now() < patience {
        wait(Duration::from_millis(100));
        taken += take_all();
    }
    assert_eq!(taken, 51, "fifty messages and the event that the peer has come");
    // It may ring once more for what was taken before it was noticed.
    assert_eq!(take_all(), 0);
    assert!(!wait(Duration::from_millis(30)), "readable without news");
}

/// Memory outside of the Node, as a message-passing library posts it.
#[derive(Debug)]
struct Posted(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl denrei::Placement for Posted {
    fn place(&mut self, offset: u64, bytes: &[u8]) {
        self.0.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

#[test]
fn queued_messages_leave_together_and_large_ones_are_placed() {
    let mut config = Config::default();
    config.protocol.offers = denrei::OfferPolicy::Ask;
    config.protocol.offer_above_bytes = 10_000;
    let a = Node::bind("127.0.0.1:0", config.clone()).unwrap();
    let b = Node::bind("127.0.0.1:0", config).unwrap();
    let peer = a.connect(b.local_addr()).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    let (small, bulk) = (ChannelId { peer, channel: 0 }, ChannelId { peer, channel: 1 });
    a.queue(bulk, large.clone(), Completion::Acknowledged).unwrap();
    for number in 0..3u8 {
        a.queue(small, vec![number], Completion::None).unwrap();
    }
    a.send_queued();
    let memory = std::sync::Arc::new(std::sync::Mutex::new(vec![0; large.len()]));
    let (mut refused, mut messages, mut acknowledged) = (Vec::new(), Vec::new(), false);
    let deadline = Instant::now() + Duration::from_secs(10);
    while (messages.len() < 4 || !acknowledged) && Instant::now() < deadline {
        a.poll();
        b.poll();
        b.wait_incoming(Duration::from_millis(1));
        // The small ones are left until the large one is there.
        let placed = messages.iter().any(|message: &denrei::Message| message.data.is_empty());
        let mut offers = Vec::new();
        let wanted = |channel: ChannelId| channel.channel == 1 || placed;
        b.drain(16, wanted, |incoming| match incoming {
            denrei::Incoming::Event(Event::Offered { channel, number, bytes }) => {
                offers.push((channel, number, bytes));
            }
            denrei::Incoming::Event(other) => refused.push(other),
            denrei::Incoming::Message(message) => messages.push(message),
        });
        for (channel, number, bytes) in offers {
            assert_eq!(bytes, large.len() as u64);
            let posted: Box<dyn denrei::Placement> = Box::new(Posted(memory.clone()));
            b.accept(channel, number, posted).unwrap();
        }
        a.drain(
            16,
            |_| true,
            |incoming| {
                acknowledged |= matches!(incoming, denrei::Incoming::Event(Event::Acknowledged(_)));
            },
        );
    }
    assert!(acknowledged);
    assert_eq!(*memory.lock().unwrap(), large);
    let order: Vec<_> = messages.iter().map(|message| message.data.to_vec()).collect();
    assert_eq!(order, [vec![], vec![0], vec![1], vec![2]]);
    assert_eq!(std::sync::Arc::strong_count(&memory), 1, "the placement is dropped with its message");
}

#[test]
fn a_thread_that_waits_for_one_channel_is_woken_by_each_message() {
    let (a, b) = (bind(background()), bind(background()));
    let to = a.connect(b.local_addr()).unwrap();
    a.send(channel(to, 3), content(0, 10)).unwrap();
    let from = b.ready(LONG).expect("the first message").0;
    for number in 0..200 {
        let message = b.recv_from(from, LONG).unwrap().expect("a message within ten seconds");
        assert_eq!(message.number, number);
        // The channel is empty now, and the next message comes while nobody or somebody waits.
        if number % 2 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        a.send(channel(to, 3), content(number, 10)).unwrap();
    }
}

/// Nodes that cannot share their host say what to change.
#[test]
fn a_host_directory_needs_learnt_rates_and_a_place_to_write() {
    let refusal = |learn: &str, directory: &str| {
        let mut config = Config::default();
        config.set("learn_rates", learn).unwrap();
        config.set("host_directory", directory).unwrap();
        Node::bind("127.0.0.1:0", config).unwrap_err().to_string()
    };
    let without = refusal("off", "/dev/shm/denrei");
    assert!(without.contains("learn_rates") && without.contains("host_directory"), "{without}");
    let nowhere = refusal("on", "/dev/null/denrei");
    assert!(nowhere.contains("/dev/null/denrei") && nowhere.contains("/dev/shm"), "{nowhere}");
}

/// How one takes messages and events in the order in which they count.
type Take = fn(&Node) -> Vec<Incoming>;

#[test]
fn an_end_comes_after_what_was_sent_before_it() {
    const COUNT: u64 = 200;
    let takes: [Take; 2] = [
        |node| node.next(LONG).unwrap().into_iter().collect(),
        |node| {
            let mut taken = Vec::new();
            assert!(node.wait_incoming(LONG), "there is more to come");
            node.drain(64, |_| true, |incoming| taken.push(incoming));
            taken
        },
    ];
    for (drive, take) in DRIVES.into_iter().flat_map(|drive| takes.map(|take| (drive, take))) {
        let (a, b) = (bind(Drive::Thread), bind(drive));
        let peer = a.connect(b.local_addr()).unwrap();
        for number in 0..COUNT {
            a.send(channel(peer, number as u16 % 3), content(number, 20)).unwrap();
        }
        a.close(peer).unwrap();
        // In inline drive nothing is acknowledged but in its calls.
        let until = Instant::now() + LONG;
        while !matches!(a.try_event(), Some(Event::PeerLost { .. })) {
            assert!(Instant::now() < until, "{drive:?}: the end is not agreed upon");
            b.poll();
        }
        let (mut messages, mut ends) = (0, 0);
        while ends < 2 {
            for incoming in take(&b) {
                match incoming {
                    Incoming::Message(_) => messages += 1,
                    Incoming::Event(Event::PeerDoneWriting(_) | Event::PeerLost { .. }) => {
                        assert_eq!(messages, COUNT, "{drive:?}: before the end");
                        ends += 1;
                    }
                    Incoming::Event(_) => {}
                }
            }
        }
    }
}

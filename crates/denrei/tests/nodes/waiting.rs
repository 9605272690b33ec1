//! Who waits is woken, whatever else happens to a Node meanwhile.

use denrei::{
    Bytes, ChannelId, Completion, Config, Drive, Event, Incoming, Node, PeerId, ProtocolConfig, Rate,
    SendError,
};
use std::future::Future;
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

fn bind(drive: Drive, protocol: ProtocolConfig) -> Node {
    Node::bind("127.0.0.1:0", Config { drive, protocol, ..Config::default() }).unwrap()
}

fn channel(peer: PeerId, channel: u16) -> ChannelId {
    ChannelId { peer, channel }
}

#[test]
fn who_has_room_for_no_such_message_waits_until_there_is() {
    for drive in [Drive::Thread, Drive::Pipelined] {
        // What another channel has queued, and what is to be sent: more than there is room for.
        for (full, size) in [(1000 << 10, 100 << 10), (300 << 10, 900 << 10), (300 << 10, 3 << 20)] {
            let few = ProtocolConfig {
                send_buffer_bytes: 1 << 20,
                channel_credit_bytes: 64 << 10,
                offer_above_bytes: 32 << 10,
                ..ProtocolConfig::default()
            };
            let (a, b) = (bind(drive, few.clone()), bind(Drive::Thread, few));
            let peer = a.connect(b.local_addr()).unwrap();
            let small = Bytes::from(vec![1; 8 << 10]);
            let mut queued = 0;
            while queued < full {
                a.send(channel(peer, 0), small.clone()).unwrap();
                queued += small.len();
            }
            // All that credit lets go has gone, and whoever drives sleeps.
            std::thread::sleep(Duration::from_millis(300));
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let began = Instant::now();
                    let large = Bytes::from(vec![2; size]);
                    let sent = a.send_timeout(channel(peer, 1), large, LONG);
                    (sent.is_ok(), began.elapsed())
                });
                std::thread::sleep(Duration::from_millis(200));
                let mut left = queued / small.len();
                while left > 0 {
                    left -= usize::from(b.recv_timeout(LONG).unwrap().is_some());
                }
                let (sent, took) = waits.join().unwrap();
                assert!(sent && took < LONG / 3, "{drive:?} {full} {size}: {sent} after {took:?}");
            });
        }
    }
}

#[test]
fn who_sends_a_large_message_has_its_turn_beside_who_sends_small_ones() {
    for (drive, size) in [(Drive::Thread, 900 << 10), (Drive::Thread, 3 << 20), (Drive::Pipelined, 3 << 20)] {
        let slow = Rate { bytes_per_s: 20_000_000, burst_bytes: 64 << 10 };
        let few =
            ProtocolConfig { send_buffer_bytes: 1 << 20, rate_request: slow, ..ProtocolConfig::default() };
        let (a, b) = (bind(drive, few.clone()), bind(Drive::Thread, few));
        let peer = a.connect(b.local_addr()).unwrap();
        let (done, small) = (AtomicBool::new(false), Bytes::from(vec![1; 32 << 10]));
        let is_done = || done.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| while !is_done() && b.recv_timeout(LONG).unwrap().is_some() {});
            scope.spawn(
                || {
                    while !is_done() && a.send_timeout(channel(peer, 0), small.clone(), LONG).is_ok() {}
                },
            );
            std::thread::sleep(Duration::from_millis(200));
            let (began, large) = (Instant::now(), Bytes::from(vec![2; size]));
            let sent = a.send_timeout(channel(peer, 1), large, LONG / 2);
            done.store(true, Ordering::Relaxed);
            assert!(sent.is_ok(), "{drive:?} {size}: {sent:?} after {:?}", began.elapsed());
        });
    }
}

/// Starts a Node's thread, as the first asynchronous call does.
fn start_thread(node: &Node) {
    look(node.recv_async());
}

#[test]
fn the_thread_that_a_future_starts_takes_over_from_one_that_sleeps() {
    let hasty = ProtocolConfig { connect_timeout: Duration::from_millis(100), ..ProtocolConfig::default() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More than there are cores for: threads are late, each time another one.
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for round in 0..8 {
            let (a, hole) = (bind(Drive::Inline, hasty.clone()), UdpSocket::bind("127.0.0.1:0").unwrap());
            std::thread::scope(|scope| {
                let sleeps = scope.spawn(|| a.recv_timeout(Duration::from_millis(300)));
                std::thread::sleep(Duration::from_millis(2 + round % 3));
                start_thread(&a);
                std::thread::sleep(Duration::from_millis(5));
                a.connect(hole.local_addr().unwrap()).unwrap();
                let lost = a.event_timeout(LONG);
                over.store(!matches!(lost, Some(Event::PeerLost { .. })), Ordering::Relaxed);
                assert!(!over.load(Ordering::Relaxed), "round {round}: {lost:?}");
                assert_eq!(sleeps.join().unwrap().unwrap(), None);
            });
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Looks at a future once.
fn look<T>(future: impl Future<Output = T>) {
    assert!(pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn what_was_queued_leaves_with_the_next_call_that_polls_or_waits_whoever_drives() {
    type Call = fn(&Node);
    let calls: [(&str, Call); 4] = [
        ("poll", |node| {
            node.poll();
        }),
        ("recv_timeout", |node| assert!(node.recv_timeout(LONG / 100).unwrap().is_none())),
        ("try_event", |node| assert_eq!(node.try_event(), None)),
        ("recv_async", |node| look(node.recv_async())),
    ];
    let drives = [(Drive::Inline, 1), (Drive::Thread, 1), (Drive::Pipelined, 1), (Drive::Pipelined, 3)];
    for ((drive, shards), (name, call)) in
        drives.into_iter().flat_map(|drive| calls.map(|call| (drive, call)))
    {
        let a = Node::bind("127.0.0.1:0", Config { drive, shards, ..Config::default() }).unwrap();
        let b = bind(Drive::Thread, ProtocolConfig::default());
        let peer = a.connect(b.local_addr()).unwrap();
        assert!(matches!(a.event_timeout(LONG), Some(Event::Connected { .. })));
        // What else there is to say is said, and whoever drives sleeps.
        assert_eq!(a.event_timeout(LONG / 100), None);
        a.queue(channel(peer, 0), "queued", Completion::None).unwrap();
        call(&a);
        let came = b.recv_timeout(LONG).unwrap();
        assert!(came.is_some(), "{drive:?} with {shards} shards: {name} has sent nothing");
    }
}

/// A task of an executor that is gone: waking it drops it.
#[derive(Default)]
struct Orphan(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {
        let task = self.0.lock().unwrap().take();
        drop(task);
    }
}

#[test]
fn a_node_may_end_with_a_task_that_its_own_thread_wakes() {
    for drive in [Drive::Thread, Drive::Pipelined] {
        let (a, b) = (bind(drive, ProtocolConfig::default()), bind(Drive::Thread, ProtocolConfig::default()));
        let peer = b.connect(a.local_addr()).unwrap();
        let task = Arc::new(Orphan::default());
        let mut waits: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            a.recv_async().await.unwrap();
        });
        assert!(waits.as_mut().poll(&mut Context::from_waker(&task.clone().into())).is_pending());
        *task.0.lock().unwrap() = Some(waits);
        drop(task);
        // The session may have woken it before.
        let sent = b.send(channel(peer, 0), "the last one");
        assert!(matches!(sent, Ok(_) | Err(SendError::PeerLost { .. })), "{sent:?}");
        let began = Instant::now();
        while !matches!(b.event_timeout(LONG), Some(Event::PeerLost { .. })) {
            assert!(began.elapsed() < LONG, "{drive:?}: the Node has not ended");
        }
    }
}

#[test]
fn a_future_that_is_dropped_leaves_nothing_behind() {
    for (drive, shards) in [(Drive::Inline, 1), (Drive::Pipelined, 1), (Drive::Pipelined, 2)] {
        let node = Node::bind("127.0.0.1:0", Config { drive, shards, ..Config::default() }).unwrap();
        let tasks: Vec<_> = (0..3).map(|_| Arc::new(Orphan::default())).collect();
        for task in &tasks {
            let waker = task.clone().into();
            let mut received = pin!(node.recv_async());
            let mut event = pin!(node.event_async());
            for _ in 0..3 {
                assert!(received.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                assert!(event.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        assert!(tasks.iter().all(|task| Arc::strong_count(task) == 1), "{drive:?}");
    }
}

#[test]
fn reports_wait_for_an_application_that_sends_for_long_before_it_looks() {
    const MESSAGES: usize = 70_000;
    let [sender, receiver] = [(); 2].map(|()| bind(Drive::Thread, ProtocolConfig::default()));
    let peer = sender.connect(receiver.local_addr()).unwrap();
    let taking = std::thread::spawn(move || {
        for _ in 0..MESSAGES {
            receiver.recv_timeout(LONG).unwrap().expect("a message comes");
        }
        receiver
    });
    let sent: Vec<_> = (0..MESSAGES)
        .map(|_| sender.send_with(channel(peer, 0), "x", Completion::Delivered).unwrap())
        .collect();
    let _receiver = taking.join().unwrap();
    for id in sent {
        let delivered = || loop {
            match sender.event_timeout(LONG) {
                Some(Event::Connected { .. }) => {}
                event => break event,
            }
        };
        assert_eq!(delivered(), Some(Event::Delivered(id)));
    }
    assert_eq!(sender.counters().dropped_events, 0);
}

#[test]
fn who_waits_is_called_away_whoever_drives_the_node() {
    let spread = Config { drive: Drive::Pipelined, shards: 4, ..Config::default() };
    let of = |drive| Config { drive, ..Config::default() };
    for config in [of(Drive::Inline), of(Drive::Thread), of(Drive::Pipelined), spread] {
        let node = Node::bind("127.0.0.1:0", config.clone()).unwrap();
        for _ in 0..3 {
            let left = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let began = Instant::now();
                    let is_here = node.wait_incoming_unless(LONG, || left.load(Ordering::SeqCst));
                    (is_here, began.elapsed())
                });
                std::thread::sleep(Duration::from_millis(30));
                left.store(true, Ordering::SeqCst);
                node.rally();
                let (is_here, lasted) = waits.join().unwrap();
                assert!(!is_here && lasted < LONG / 2, "{config:?}: {lasted:?}");
            });
        }
    }
}

#[test]
fn who_waits_beside_a_thread_that_panics_is_not_left_alone() {
    let (a, b) =
        (bind(Drive::Inline, ProtocolConfig::default()), bind(Drive::Thread, ProtocolConfig::default()));
    let peer = b.connect(a.local_addr()).unwrap();
    b.send(channel(peer, 0), "who").unwrap();
    let back = a.recv_timeout(LONG).unwrap().unwrap().channel.peer;
    while a.event_timeout(LONG / 50).is_some() {}
    let panics = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let soon = || std::thread::sleep(LONG / 100);
        let sleeps_for_all = scope.spawn(|| {
            let left = || panics.load(Ordering::SeqCst).then(|| panic!("the application's")).is_some();
            catch_unwind(AssertUnwindSafe(|| a.wait_incoming_unless(LONG, left)))
        });
        soon();
        let waits = scope.spawn(|| a.recv_from(channel(back, 7), LONG / 2));
        soon();
        panics.store(true, Ordering::SeqCst);
        // Its acknowledgement wakes who sleeps on the sockets; where a thread drives the Node that is nobody who waits here.
        a.send(channel(back, 3), "hello").unwrap();
        soon();
        if !sleeps_for_all.is_finished() {
            a.rally();
        }
        assert!(sleeps_for_all.join().unwrap().is_err());
        let began = Instant::now();
        b.send(channel(peer, 7), "hello").unwrap();
        assert!(waits.join().unwrap().unwrap().is_some() && began.elapsed() < LONG / 4);
    });
}

/// Some wait for other amounts of room in the same queue than others, by turns: each of them is told of its own.
#[test]
fn of_many_who_wait_for_room_in_one_queue_none_is_forgotten() {
    for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
        let few = ProtocolConfig { send_buffer_bytes: 256 << 10, ..ProtocolConfig::default() };
        let (a, b) = (bind(drive, few.clone()), bind(Drive::Thread, few));
        let peer = a.connect(b.local_addr()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while b.recv_timeout(LONG / 100).unwrap().is_some() || !over.load(Ordering::Relaxed) {}
            });
            let senders: Vec<_> = (0..12)
                .map(|number| {
                    let a = &a;
                    let to = channel(peer, number / 2);
                    scope.spawn(move || {
                        for round in 0..60 {
                            let bytes = 1 << (7 + (number + round) % 10);
                            a.send_timeout(to, vec![1; bytes], LONG).unwrap();
                            match (number + round) % 4 {
                                0 => assert!(a.flush(peer, LONG), "flush"),
                                1 => assert_eq!(a.wait(peer, bytes as u64 * 16, LONG), Ok(true)),
                                _ => {}
                            }
                        }
                    })
                })
                .collect();
            let began = Instant::now();
            let ended: Vec<_> = senders.into_iter().map(|sender| sender.join().is_ok()).collect();
            over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(|ended| *ended), "{drive:?}: {ended:?}");
            assert!(began.elapsed() < LONG / 2, "{drive:?}: took {:?}", began.elapsed());
        });
    }
}

/// A thread for each channel: a message wakes the one that it is for.
#[test]
fn a_message_does_not_wake_the_threads_of_other_channels() {
    const THREADS: u16 = 32;
    const ROUNDS: u16 = 200;
    for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
        let [a, b] = [drive, Drive::Thread].map(|drive| bind(drive, ProtocolConfig::default()));
        let peer = b.connect(a.local_addr()).unwrap();
        b.send(channel(peer, 0), "who").unwrap();
        let back = a.recv_timeout(LONG).unwrap().unwrap().channel.peer;
        let threads = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (a, threads) = (&a, &threads);
                scope.spawn(move || {
                    let this = std::fs::read_link("/proc/thread-self").unwrap();
                    threads.lock().unwrap().push(Path::new("/proc").join(this));
                    while let Ok(message) = a.recv_from(channel(back, number), LONG) {
                        let message = message.expect("one comes, or the end");
                        a.send(message.channel, message.data).unwrap();
                    }
                });
            }
            for round in 0..ROUNDS {
                let to = channel(peer, round % THREADS);
                b.send(to, "hello").unwrap();
                assert_eq!(b.recv_from(to, LONG).unwrap().unwrap().data, "hello", "{drive:?}");
            }
            let threads = threads.lock().unwrap().clone();
            let before = switches(&threads);
            for _ in 0..ROUNDS {
                b.send(channel(peer, 3), "hello").unwrap();
                assert!(b.recv_from(channel(peer, 3), LONG).unwrap().is_some(), "{drive:?}");
            }
            let each = (switches(&threads) - before) / u64::from(ROUNDS);
            assert!(each < u64::from(THREADS) / 2, "{drive:?}: {each} threads wake for each message");
            b.close_write(peer).unwrap();
        });
    }
}

/// How often these threads have gone to sleep so far.
fn switches(threads: &[PathBuf]) -> u64 {
    let sleeps = |thread: &PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    threads.iter().map(sleeps).sum()
}

#[test]
fn who_drains_lets_senders_go_on_at_once() {
    for drive in [Drive::Thread, Drive::Pipelined] {
        let [a, b] = [Drive::Thread, drive].map(|drive| bind(drive, ProtocolConfig::default()));
        let peer = a.connect(b.local_addr()).unwrap();
        let message = Bytes::from(vec![7; 100_000]);
        let mut sent = 0;
        // Until there is no room on either side.
        while a.send_timeout(channel(peer, 0), message.clone(), Duration::from_millis(300)).is_ok() {
            sent += 1;
        }
        let (mut taken, began) = (0, Instant::now());
        while taken < sent {
            b.drain(16, |_| true, |incoming| taken += u64::from(matches!(incoming, Incoming::Message(_))));
            assert!(began.elapsed() < Duration::from_secs(3), "{drive:?}: {taken} of {sent}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

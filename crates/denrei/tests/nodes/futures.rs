//! What waits has a form for tasks, which are woken for what concerns them and leave nothing behind.

use denrei::{
    Bytes, ChannelId, Completion, Config, Drive, Event, GroupBackend, GroupError, GroupEvent, GroupOptions,
    Incoming, MembershipEnd, NoMore, Node, OpenGroupError, PeerId, ProtocolConfig, RecvError, SendError,
};
use pollster::block_on;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
const DRIVES: [(Drive, usize); 4] =
    [(Drive::Inline, 1), (Drive::Thread, 1), (Drive::Pipelined, 1), (Drive::Pipelined, 2)];

fn bind((drive, shards): (Drive, usize), protocol: ProtocolConfig) -> Node {
    Node::bind("127.0.0.1:0", Config { drive, shards, protocol, ..Config::default() }).unwrap()
}

/// Two Nodes, and the second as the first one's peer.
fn pair(drive: (Drive, usize), protocol: &ProtocolConfig) -> (Node, Node, PeerId) {
    let (a, b) = (bind(drive, protocol.clone()), bind((Drive::Thread, 1), protocol.clone()));
    let peer = a.connect(b.local_addr()).unwrap();
    assert!(matches!(a.event_timeout(LONG), Some(Event::Connected { .. })));
    (a, b, peer)
}

fn on(peer: PeerId, channel: u16) -> ChannelId {
    ChannelId { peer, channel }
}

/// Counts how often its task is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task that is looked at when the test says so.
struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    woken: Arc<Count>,
}

impl<'a, T> Task<'a, T> {
    /// That it can be moved to another thread is asked of it here.
    fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        let mut task = Self { future: Box::pin(future), woken: Arc::default() };
        assert!(task.look().is_none(), "there is nothing yet");
        task
    }

    fn look(&mut self) -> Option<T> {
        match self.future.as_mut().poll(&mut Context::from_waker(&Arc::clone(&self.woken).into())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }

    /// Looks when it is woken, until there is something.
    fn end(mut self) -> T {
        let began = Instant::now();
        let mut seen = 0;
        loop {
            while self.woken() == seen {
                assert!(began.elapsed() < LONG, "nobody wakes it");
                std::thread::sleep(Duration::from_millis(1));
            }
            seen = self.woken();
            if let Some(value) = self.look() {
                return value;
            }
        }
    }
}

#[test]
fn messages_and_events_are_awaited_from_one_channel_from_any_or_in_their_order() {
    for drive in DRIVES {
        let (a, b, peer) = pair(drive, &ProtocolConfig::default());
        a.send(on(peer, 0), "who").unwrap();
        let back = b.recv_timeout(LONG).unwrap().unwrap().channel.peer;
        let (third, ready) = (Task::new(a.recv_from_async(on(peer, 3))), Task::new(a.ready_async()));
        b.send(on(back, 2), "second").unwrap();
        b.send(on(back, 3), "third").unwrap();
        assert_eq!(third.end().unwrap().data, "third");
        assert_eq!(ready.end().unwrap(), (on(peer, 2), 6));
        assert_eq!(block_on(a.next_async()).unwrap(), {
            let data = Bytes::from("second");
            Incoming::Message(denrei::Message { channel: on(peer, 2), number: 0, data })
        });
        let (next, third) = (Task::new(a.next_async()), Task::new(a.recv_from_async(on(peer, 3))));
        b.close_write(back).unwrap();
        assert!(matches!(next.end(), Ok(Incoming::Event(_))), "{drive:?}");
        assert!(matches!(third.end(), Err(RecvError::NoMore(NoMore::PeerDoneWriting(_)))), "{drive:?}");
        let nowhere = block_on(a.recv_from_async(on(peer, u16::MAX)));
        assert!(matches!(nowhere, Err(RecvError::NoMore(NoMore::NoSuchChannel { .. }))));
    }
}

#[test]
fn a_message_wakes_the_task_of_its_channel_and_a_lost_peer_those_of_all() {
    const CHANNELS: u16 = 64;
    for drive in DRIVES {
        let (a, b, peer) = pair(drive, &ProtocolConfig::default());
        a.send(on(peer, 0), "who").unwrap();
        let back = b.recv_timeout(LONG).unwrap().unwrap().channel.peer;
        assert!(a.flush(peer, LONG));
        let mut tasks: Vec<_> =
            (0..CHANNELS).map(|channel| Task::new(a.recv_from_async(on(peer, channel)))).collect();
        for channel in [7, 40, 41] {
            b.send(on(back, channel), channel.to_string()).unwrap();
            let task = tasks.remove(usize::from(channel));
            assert_eq!(task.end().unwrap().data, channel.to_string());
            tasks.insert(usize::from(channel), Task::new(a.recv_from_async(on(peer, channel))));
        }
        let untouched = tasks.iter().map(Task::woken).sum::<usize>();
        assert_eq!(untouched, 0, "{drive:?}: tasks are woken for messages of others");
        let by_peer = drive.1 == 1;
        if by_peer {
            b.abort(back, 0x8000, "enough").unwrap();
        } else {
            a.abort(peer, 0x8000, "enough").unwrap();
        }
        for task in tasks {
            let end = task.end();
            assert!(matches!(end, Err(RecvError::NoMore(NoMore::PeerLost { .. }))), "{drive:?}: {end:?}");
        }
    }
}

#[test]
fn room_is_awaited_by_who_waits_for_that_peer_and_a_send_that_is_dropped_is_none() {
    for drive in DRIVES {
        let few = ProtocolConfig {
            send_buffer_bytes: 1 << 20,
            channel_credit_bytes: 64 << 10,
            offer_above_bytes: 32 << 10,
            ..ProtocolConfig::default()
        };
        let (a, reader, reads) = pair(drive, &few);
        let other = bind((Drive::Thread, 1), few);
        let deaf = a.connect(other.local_addr()).unwrap();
        let [message, last, never] = [1, 2, 3].map(|octet| Bytes::from(vec![octet; 16 << 10]));
        let mut queued = 0;
        for to in [reads, deaf] {
            // Until all that credit lets go has gone, and nothing changes any more.
            let began = Instant::now();
            while began.elapsed() < LONG / 30 {
                match a.try_send(on(to, 0), message.clone()) {
                    Ok(_) => queued += usize::from(to == reads),
                    Err(_) => std::thread::sleep(LONG / 1000),
                }
            }
        }
        let to_reader = Task::new(a.send_with_async(on(reads, 0), last.clone(), Completion::Delivered));
        let room = Task::new(a.wait_async(reads, 1 << 19));
        let flushed = Task::new(a.wait_acknowledged_async(reads));
        let dropped = Task::new(a.send_async(on(reads, 0), never));
        let to_deaf = Task::new(a.send_async(on(deaf, 0), message.clone()));
        drop(dropped);
        for number in 0..queued {
            let here = reader.recv_timeout(LONG).unwrap();
            assert_eq!(here.map(|message| message.data), Some(message.clone()), "{drive:?}: {number}");
        }
        let sent = to_reader.end().unwrap();
        assert_eq!(reader.recv_timeout(LONG).unwrap().unwrap().data, last);
        assert_eq!((room.end(), flushed.end()), (Ok(()), Ok(())));
        let delivered = loop {
            match block_on(a.event_async()).unwrap() {
                Event::Connected { .. } => {}
                event => break event,
            }
        };
        assert_eq!(delivered, Event::Delivered(sent), "{drive:?}");
        assert_eq!(reader.recv_timeout(LONG / 100).unwrap(), None, "{drive:?}: what was dropped was sent");
        assert_eq!(to_deaf.woken(), 0, "{drive:?}: woken for room that another peer has");
        a.abort(deaf, 0x8000, "deaf").unwrap();
        assert!(matches!(to_deaf.end(), Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_))));
        let peers: Vec<_> =
            (1..9).map(|port| reader.connect(([127, 0, 0, 1], port).into()).unwrap()).collect();
        let unknown = block_on(a.wait_async(peers[7], 1));
        assert!(matches!(unknown, Err(SendError::UnknownPeer(_))), "{unknown:?}");
    }
}

/// How long a task waits before it gives up, each time another while: the runtime counts milliseconds.
fn patience(attempt: u32) -> Duration {
    Duration::from_millis(u64::from(attempt % 3))
}

async fn send_all(node: Node, to: ChannelId, messages: u32) {
    let mut attempts = 0..;
    for number in 0..messages {
        let message = Bytes::from(number.to_le_bytes().repeat(1000));
        let attempt = || node.send_async(to, message.clone());
        while tokio::time::timeout(patience(attempts.next().unwrap()), attempt()).await.is_err() {}
    }
}

async fn receive_all(node: Node, from: ChannelId, messages: u32) {
    let mut attempts = 0..;
    for number in 0..messages {
        let message = loop {
            let patience = patience(attempts.next().unwrap());
            if let Ok(message) = tokio::time::timeout(patience, node.recv_from_async(from)).await {
                break message.unwrap();
            }
        };
        assert_eq!(message.data, number.to_le_bytes().repeat(1000), "channel {}", from.channel);
    }
}

#[test]
fn tasks_that_give_up_and_try_again_neither_lose_nor_repeat_a_message() {
    const CHANNELS: u16 = 24;
    const MESSAGES: u32 = 200;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build().unwrap();
    for drive in DRIVES {
        let few = ProtocolConfig { send_buffer_bytes: 64 << 10, ..ProtocolConfig::default() };
        let (a, b, peer) = pair(drive, &few);
        a.send(on(peer, 0), "who").unwrap();
        let back = b.recv_timeout(LONG).unwrap().unwrap().channel.peer;
        let work = (0..CHANNELS).flat_map(|channel| {
            let sending = runtime.spawn(send_all(b.clone(), on(back, channel), MESSAGES));
            [sending, runtime.spawn(receive_all(a.clone(), on(peer, channel), MESSAGES))]
        });
        for task in work.collect::<Vec<_>>() {
            let ended = runtime.block_on(async { tokio::time::timeout(6 * LONG, task).await });
            ended.unwrap_or_else(|_| panic!("{drive:?}: a task hangs")).unwrap();
        }
        assert_eq!(a.try_recv().unwrap(), None, "{drive:?}: a message came twice");
    }
}

/// No multicast is needed.
fn by_unicast() -> GroupOptions {
    GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() }
}

const ADDRESS: &str = "239.71.17.9:7117";

#[test]
fn a_group_is_opened_fed_and_closed_by_tasks() {
    for drive in DRIVES {
        let nodes = [(); 3].map(|()| bind(drive, ProtocolConfig::default()));
        let [opener, members @ ..] = &nodes;
        let address: SocketAddr = ADDRESS.parse().unwrap();
        let addresses: Vec<_> = members.iter().map(Node::local_addr).collect();
        std::thread::scope(|scope| {
            for member in members {
                let listener = member.join_group(address).unwrap();
                scope.spawn(move || {
                    block_on(async {
                        let membership = listener.next_async().await.unwrap();
                        for number in 0..100u8 {
                            assert_eq!(membership.recv_async().await.unwrap().data, vec![number; 3000]);
                        }
                        assert_eq!(membership.recv_async().await.unwrap_err(), MembershipEnd::Closed);
                    });
                });
            }
            block_on(async {
                let group = opener.open_group_async(address, &addresses, by_unicast()).await.unwrap();
                for number in 0..100 {
                    group.send_async(vec![number; 3000]).await.unwrap();
                }
                group.wait_acknowledged_async().await.unwrap();
                group.close_async().await.unwrap();
                let mut events = Vec::new();
                while let Ok(event) = group.event_async().await {
                    events.push(event);
                }
                assert!(events.contains(&GroupEvent::Closed), "{drive:?}: {events:?}");
                assert!(matches!(group.send_async("late").await, Err(GroupError::Unknown(_))));
            });
        });
    }
}

/// With a task for each of many groups, each message woke all of them.
#[test]
fn what_comes_of_a_group_wakes_the_task_of_its_membership() {
    for drive in DRIVES {
        let (member, opener) = (bind(drive, <_>::default()), bind((Drive::Thread, 1), <_>::default()));
        let addresses = [member.local_addr()];
        let join = |last| {
            let address = SocketAddr::from(([239, 71, 18, last], 7118));
            let listener = member.join_group(address).unwrap();
            let (group, membership) = std::thread::scope(|scope| {
                let membership = scope.spawn(|| listener.accept(LONG).unwrap());
                (opener.open_group(address, &addresses, by_unicast()).unwrap(), membership.join().unwrap())
            });
            (group, (membership, listener))
        };
        let (groups, memberships): (Vec<_>, Vec<_>) = (0..16).map(join).unzip();
        let task_of = |at: usize| Task::new(memberships[at].0.recv_async());
        let mut tasks: Vec<_> = (0..groups.len()).map(task_of).collect();
        for at in [3, 9, 10] {
            groups[at].send(at.to_string()).unwrap();
            assert_eq!(tasks.remove(at).end().unwrap().data, at.to_string());
            tasks.insert(at, task_of(at));
        }
        assert!(groups[5].close(LONG));
        assert_eq!(tasks.remove(5).end().unwrap_err(), MembershipEnd::Closed);
        let untouched = tasks.iter().map(Task::woken).sum::<usize>();
        assert_eq!(untouched, 0, "{drive:?}: tasks are woken for other groups");
    }
}

#[test]
fn a_group_whose_members_do_not_answer_is_an_error_and_one_that_is_dropped_is_given_up_at_once() {
    let (opener, member) =
        (bind((Drive::Inline, 1), <_>::default()), bind((Drive::Thread, 1), <_>::default()));
    let address: SocketAddr = ADDRESS.parse().unwrap();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses = [member.local_addr(), nobody.local_addr().unwrap()];
    let options = GroupOptions { open_timeout: Duration::from_millis(300), ..by_unicast() };
    let listener = member.join_group(address).unwrap();
    match block_on(opener.open_group_async(address, &addresses, options)).unwrap_err() {
        OpenGroupError::Group(GroupError::OpenFailed { missing }) => {
            assert_eq!(missing.iter().map(|(addr, _)| *addr).collect::<Vec<_>>(), addresses[1..]);
        }
        error => panic!("{error}"),
    }
    let began = Instant::now();
    let task = Task::new(opener.open_group_async(address, &addresses, by_unicast()));
    std::thread::sleep(LONG / 100);
    drop(task);
    assert!(began.elapsed() < LONG / 30, "waits for members of a group that is given up");
    // Nothing is left that would be in the way of another.
    let mut joined = pin!(listener.next_async());
    let group = block_on(opener.open_group_async(address, &addresses[..1], by_unicast())).unwrap();
    let membership = block_on(joined.as_mut()).unwrap();
    assert_eq!(membership.id(), group.id());
    group.send("here").unwrap();
    assert_eq!(block_on(membership.recv_async()).unwrap().data, "here");
}

#[test]
fn who_waits_for_room_hears_that_this_side_sends_no_more_or_has_ended_the_session() {
    type End = fn(&Node, PeerId);
    let ends: [End; 2] =
        [|node, peer| node.close_write(peer).unwrap(), |node, peer| node.abort(peer, 0x8000, "").unwrap()];
    for (drive, end) in DRIVES.into_iter().flat_map(|drive| ends.map(|end| (drive, end))) {
        let few = ProtocolConfig { send_buffer_bytes: 64 << 10, ..ProtocolConfig::default() };
        let (a, silent) = (bind(drive, few), std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let peer = a.connect(silent.local_addr().unwrap()).unwrap();
        let message = Bytes::from(vec![1; 16 << 10]);
        while a.try_send(on(peer, 0), message.clone()).is_ok() {}
        std::thread::scope(|scope| {
            let began = Instant::now();
            let thread = scope.spawn(|| a.send_timeout(on(peer, 0), message.clone(), LONG));
            std::thread::sleep(LONG / 100);
            let task = Task::new(a.send_async(on(peer, 0), message.clone()));
            end(&a, peer);
            let told = [task.end(), thread.join().unwrap()];
            let is_end = |sent: &Result<_, _>| {
                matches!(sent, Err(SendError::WriteClosed(_) | SendError::PeerLost { .. }))
            };
            assert!(told.iter().all(is_end), "{drive:?}: {told:?}");
            assert!(began.elapsed() < LONG / 4, "{drive:?}: {:?}", began.elapsed());
        });
    }
}

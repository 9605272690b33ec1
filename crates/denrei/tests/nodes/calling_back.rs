//! What an application gives a Node may call that Node: it is asked under no lock.

use denrei::{
    AcceptInto, Bytes, ChannelId, Completion, Config, Drive, Event, GroupBackend, GroupOptions, LostReason,
    MembershipEnd, MessageId, Node, SendError,
};
use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
const DRIVES: [(Drive, usize); 4] =
    [(Drive::Inline, 1), (Drive::Thread, 1), (Drive::Pipelined, 1), (Drive::Pipelined, 2)];

fn bind((drive, shards): (Drive, usize)) -> Node {
    Node::bind("127.0.0.1:0", Config { drive, shards, ..Config::default() }).unwrap()
}

/// Two Nodes, and the channel from the first to the second.
fn pair(drive: (Drive, usize)) -> (Node, Node, ChannelId) {
    let (a, b) = (bind(drive), bind((Drive::Thread, 1)));
    let peer = a.connect(b.local_addr()).unwrap();
    (a, b, ChannelId { peer, channel: 0 })
}

/// Does it in a thread of its own, which would wait for itself for ever.
fn ends<T: Send + 'static>(what: String, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = channel();
    std::thread::spawn(move || done.send(work()));
    is_done.recv_timeout(LONG).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Something that asks a Node while it becomes what the Node takes.
struct Asks(Node);

impl From<Asks> for Bytes {
    fn from(Asks(node): Asks) -> Self {
        assert_eq!(node.counters().dropped_events, 0);
        Self::from_static(b"asked")
    }
}

impl From<Asks> for AcceptInto {
    fn from(Asks(node): Asks) -> Self {
        assert_eq!(node.counters().dropped_events, 0);
        Vec::new().into()
    }
}

#[test]
fn what_becomes_a_message_may_call_the_node() {
    type Send = fn(&Node, ChannelId) -> Result<MessageId, SendError>;
    let ways: [(&str, Send); 5] = [
        ("send", |node, to| node.send(to, Asks(node.clone()))),
        ("try_send", |node, to| node.try_send(to, Asks(node.clone()))),
        ("queue", |node, to| {
            let queued = node.queue(to, Asks(node.clone()), Completion::None);
            node.send_queued();
            queued
        }),
        ("send_within", |node, to| node.send_within(to, Asks(node.clone()), Completion::None, LONG)),
        ("send_async", |node, to| pollster::block_on(node.send_async(to, Asks(node.clone())))),
    ];
    for (drive, (name, send)) in DRIVES.into_iter().flat_map(|drive| ways.map(|way| (drive, way))) {
        ends(format!("{name}, {drive:?}"), move || {
            let (a, b, to) = pair(drive);
            send(&a, to).unwrap();
            assert!(a.flush(to.peer, LONG));
            assert_eq!(b.recv_timeout(LONG).unwrap().unwrap().data, "asked");
        });
    }
}

#[test]
fn what_an_offer_is_accepted_into_may_call_the_node() {
    for drive in DRIVES {
        ends(format!("{drive:?}"), move || {
            let (a, _b, to) = pair(drive);
            assert!(a.accept(to, 0, Asks(a.clone())).is_err(), "nothing is offered");
            assert!(a.queue_accept(to, 0, Asks(a.clone())).is_err());
        });
    }
}

#[test]
fn what_becomes_a_message_to_a_group_may_call_the_node() {
    ends("a group".to_owned(), || {
        let (a, b, _) = pair((Drive::Thread, 1));
        let address = "239.71.17.10:7127".parse().unwrap();
        let listener = b.join_group(address).unwrap();
        let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
        let group = a.open_group(address, &[b.local_addr()], options).unwrap();
        let membership = listener.accept(LONG).unwrap();
        group.try_send(Asks(a.clone())).unwrap();
        assert_eq!(membership.recv().unwrap().data, "asked");
    });
}

/// A waker that asks a Node whenever it is cloned or dropped, and wakes nobody.
fn asking(node: &Node) -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(clone, drop_it, |_| {}, drop_it);
    fn clone(node: *const ()) -> RawWaker {
        // SAFETY: it comes from `raw`, and is not dropped before this returns.
        raw(unsafe { &*node.cast::<Node>() })
    }
    fn drop_it(node: *const ()) {
        // SAFETY: it comes from `raw`, and a waker is dropped once, or woken.
        let node = unsafe { Box::from_raw(node.cast::<Node>().cast_mut()) };
        assert_eq!(node.counters().dropped_events, 0);
    }
    fn raw(node: &Node) -> RawWaker {
        assert_eq!(node.counters().dropped_events, 0);
        RawWaker::new(Box::into_raw(Box::new(node.clone())).cast_const().cast(), &TABLE)
    }
    // SAFETY: each has a Node of its own, which any thread may use and drop.
    unsafe { Waker::from_raw(raw(node)) }
}

#[test]
fn a_waker_may_call_the_node_while_it_is_cloned_and_dropped() {
    for drive in DRIVES {
        ends(format!("{drive:?}"), move || {
            let (a, b, to) = pair(drive);
            let waker = asking(&a);
            let mut task = Context::from_waker(&waker);
            let (mut of_one, mut of_any) = (pin!(a.recv_from_async(to)), pin!(a.recv_async()));
            for _ in 0..3 {
                assert!(of_one.as_mut().poll(&mut task).is_pending());
                assert!(of_any.as_mut().poll(&mut task).is_pending());
            }
            a.send(to, "who").unwrap();
            let back = b.recv_timeout(LONG).unwrap().unwrap().channel;
            b.send(back, "here").unwrap();
            let message = loop {
                match of_any.as_mut().poll(&mut task) {
                    Poll::Ready(message) => break message.unwrap(),
                    Poll::Pending => std::thread::yield_now(),
                }
            };
            assert_eq!(message.data, "here");
        });
    }
}

/// A task that is dropped as soon as it is woken, as by a runtime that has ended.
struct Dropped<T>(Mutex<Option<T>>, Mutex<Option<Duration>>);

impl<T: Send> Wake for Dropped<T> {
    fn wake(self: Arc<Self>) {
        let began = Instant::now();
        let task = self.0.lock().unwrap().take();
        drop(task);
        *self.1.lock().unwrap() = Some(began.elapsed());
    }
}

#[test]
fn a_group_that_goes_with_a_task_ends_in_order_and_holds_its_node_up_for_nothing() {
    let drives = &DRIVES[1..];
    for (index, (drive, keeps)) in drives.iter().flat_map(|it| [(*it, true), (*it, false)]).enumerate() {
        let what = format!("{drive:?}, the Node lives on: {keeps}");
        let (took, end) = ends(what.clone(), move || {
            let (opener, member, to) = pair(drive);
            opener.send(to, "who").unwrap();
            let back = member.recv_timeout(LONG).unwrap().unwrap().channel;
            let address = SocketAddr::from(([239, 71, 17, 11], 7130 + index as u16));
            let listener = member.join_group(address).unwrap();
            let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
            let group = opener.open_group(address, &[member.local_addr()], options).unwrap();
            let membership = listener.accept(LONG).unwrap();
            let slot = Arc::new(Dropped(Mutex::new(None), Mutex::new(None)));
            let node = opener.clone();
            let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                let _group = group;
                let _ = node.recv_async().await;
            });
            assert!(task.as_mut().poll(&mut Context::from_waker(&slot.clone().into())).is_pending());
            let kept = keeps.then(|| opener.clone());
            *slot.0.lock().unwrap() = Some((task, opener));
            member.send(back, "wake up").unwrap();
            let end = membership.recv();
            drop(kept);
            loop {
                match *slot.1.lock().unwrap() {
                    Some(took) => return (took, end),
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(end, Err(MembershipEnd::Closed), "{what}");
        assert!(took < Duration::from_millis(400), "{what}: {took:?}");
    }
}

/// Memory of a message, which breaks when it is given up.
struct Brittle([u8; 5000]);

impl AsRef<[u8]> for Brittle {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        panic!("memory breaks, as this test wants");
    }
}

#[test]
fn a_node_whose_messages_memory_breaks_at_its_end_leaves_its_port() {
    for drive in DRIVES {
        ends(format!("{drive:?}"), move || {
            let (a, b, to) = pair(drive);
            a.send(to, "who").unwrap();
            assert!(a.flush(to.peer, LONG) && b.recv_timeout(LONG).unwrap().is_some());
            let port = a.local_addr();
            let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
            let nobody = a.connect(silent.local_addr().unwrap()).unwrap();
            let brittle = Bytes::from_owner(Brittle([1; 5000]));
            a.send(ChannelId { peer: nobody, channel: 0 }, brittle).unwrap();
            assert!(catch_unwind(AssertUnwindSafe(|| drop(a))).is_err(), "the panic is told of");
            UdpSocket::bind(port).unwrap();
            let end = std::iter::from_fn(|| b.event_timeout(LONG)).find_map(|event| match event {
                Event::PeerLost { reason, .. } => Some(reason),
                _ => None,
            });
            assert!(matches!(end, Some(LostReason::Ended { .. } | LostReason::Gone)), "{end:?}");
        });
    }
}

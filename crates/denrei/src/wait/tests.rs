use crate::tasks::Interest;
use crate::{ChannelId, Config, Drive, Event, Node};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::task::Wake;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

/// Two Nodes with a session, of which the first has its next sends refused by the kernel, and ends it then: the
/// END is the last that there is to send, and nothing repeats it. Whoever waits then sleeps.
fn refused(drive: Drive, refusals: &'static [i32]) -> (Node, Node) {
    let bind = |drive| Node::bind("127.0.0.1:0", Config { drive, ..Config::default() }).unwrap();
    let (a, b) = (bind(drive), bind(Drive::Thread));
    let peer = a.connect(b.local_addr()).unwrap();
    while !matches!(a.event_timeout(LONG), Some(Event::Connected { .. })) {}
    // What else there is to say is said.
    assert_eq!(a.event_timeout(LONG / 20), None);
    let mut refusals = refusals.iter();
    let hook = move |_: &_| refusals.next().copied();
    a.shared().with_io(|io| io.socket.set_send_hook(Some(Box::new(hook))));
    a.abort(peer, 0x8000, "enough").unwrap();
    let looks = a.io_counters().recv_calls;
    assert_eq!(a.recv_timeout(LONG / 20).unwrap(), None);
    assert!(a.io_counters().recv_calls < looks + 1000, "{drive:?}: looks again and again");
    (a, b)
}

#[test]
fn what_the_kernel_had_no_room_for_leaves_as_soon_as_it_has() {
    const EAGAIN: i32 = 11;
    const ENETUNREACH: i32 = 101;
    for drive in [Drive::Inline, Drive::Thread] {
        let (_a, b) = refused(drive, &[EAGAIN, EAGAIN]);
        let began = Instant::now();
        while !matches!(b.event_timeout(LONG / 10), Some(Event::PeerLost { .. })) {
            assert!(began.elapsed() < LONG / 5, "{drive:?}: the END is stuck");
        }
        refused(drive, &[EAGAIN, ENETUNREACH]);
    }
}

/// A Node whose callers receive and send by themselves. Where the environment asks for another drive, threads do that,
/// and nothing of what is tested here.
fn inline() -> Option<Node> {
    let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let is_driven = node.shared().core.lock().has_driver;
    (!is_driven).then_some(node)
}

#[test]
fn who_finds_no_room_in_the_kernel_leaves_it_to_who_sleeps() {
    const EAGAIN: i32 = 11;
    let Some(a) = inline() else { return };
    let b = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
    let peer = a.connect(b.local_addr()).unwrap();
    while !matches!(a.event_timeout(LONG), Some(Event::Connected { .. })) {}
    let _ = a.shared().waiter.wait([], None, Some(Duration::ZERO));
    let mut calls = 0;
    let full = move |_: &_| {
        calls += 1;
        (calls < 1000).then_some(EAGAIN)
    };
    a.shared().with_io(|io| io.socket.set_send_hook(Some(Box::new(full))));
    // As if another thread had queued something while the socket was not free.
    a.shared().dirty.store(true, Ordering::SeqCst);
    a.try_send(ChannelId { peer, channel: 0 }, "waits").unwrap();
    assert!(a.io_counters().send_would_block < 10, "tries again and again");
    let wake = a.shared().waiter.wait([], None, Some(Duration::ZERO)).unwrap();
    assert!(!wake.woken, "the next sleep would end at once, and no room be waited for");
    // With room the message leaves.
    assert!(a.flush(peer, LONG));
}

#[test]
fn that_a_node_has_failed_is_news_once() {
    let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    node.shared().fail(std::io::Error::other("gone"));
    let mut core = node.shared().core.lock();
    assert!(core.has_news());
    assert!(!core.has_news(), "those who wait for something else wake each other all the time");
    core.broken = true;
    assert!(core.has_news(), "who waits still is to hear that nobody drives the Node any more");
    assert!(!core.has_news());
}

/// Asks the Node about its socket, as a task may that is run where it is woken.
struct Curious(Node, Sender<u64>);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.io_counters().recv_calls).unwrap();
    }
}

#[test]
fn a_task_is_woken_while_no_lock_is_held() {
    let Some(a) = inline() else { return };
    let b = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
    let peer = a.connect(b.local_addr()).unwrap();
    while !matches!(a.event_timeout(LONG), Some(Event::Connected { .. })) {}
    a.send(ChannelId { peer, channel: 0 }, "of which the acknowledgement waits").unwrap();
    let back = b.recv_timeout(LONG).unwrap().unwrap().channel;
    b.send(back, "and this").unwrap();
    // Until a timer is due: then a flush looks what has come first.
    std::thread::sleep(LONG / 20);
    let (said, heard) = channel();
    let task = Arc::new(Curious(a.clone(), said)).into();
    let before = a.shared().core.lock().tasks.wait(u64::MAX, Interest::Any, task);
    assert!(before.is_none());
    let flushing = a.clone();
    std::thread::spawn(move || flushing.shared().kick());
    assert!(heard.recv_timeout(LONG).is_ok(), "who was woken waits for who woke it");
}

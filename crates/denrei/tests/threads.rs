//! Hosts that let this user have no more threads, as containers and batch systems do.
#![cfg(target_os = "linux")]

#[path = "../../io/tests/common/forbid.rs"]
mod forbid;

use denrei::{ChannelId, Config, Drive, Event, Node, SendError};
use forbid::{THREADS, forbid};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

fn bind(drive: Drive) -> Result<Node, denrei::BindError> {
    Node::bind("127.0.0.1:0", Config { drive, ..Config::default() })
}

#[test]
fn who_gets_no_thread_is_told_what_to_do() {
    let short_of_threads = std::thread::spawn(|| {
        forbid(THREADS, libc::EAGAIN).unwrap();
        // Tests may be run with another drive for all that would have this one.
        if std::env::var_os("DENREI_DRIVE").is_none() {
            bind(Drive::Inline).unwrap();
        }
        [Drive::Thread, Drive::Pipelined].map(|drive| bind(drive).unwrap_err().to_string())
    });
    for said in short_of_threads.join().unwrap() {
        assert!(said.contains("ulimit -u") && said.contains("pids.max"), "{said}");
    }
}

/// A task of an executor that is gone: waking it drops it, in a thread that gets no other.
#[derive(Default)]
struct Orphan {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    panicked: AtomicBool,
}

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {
        let Some(task) = self.task.lock().unwrap().take() else { return };
        forbid(THREADS, libc::EAGAIN).unwrap();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(task)));
        self.panicked.store(dropped.is_err(), Ordering::SeqCst);
    }
}

#[test]
fn a_node_that_its_own_thread_drops_ends_though_there_is_no_thread_to_end_it_in() {
    for drive in [Drive::Thread, Drive::Pipelined] {
        let (a, b) = (bind(drive).unwrap(), bind(Drive::Thread).unwrap());
        let at = a.local_addr();
        let peer = b.connect(at).unwrap();
        let task = Arc::new(Orphan::default());
        let mut waits: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            a.recv_async().await.unwrap();
        });
        assert!(waits.as_mut().poll(&mut Context::from_waker(&task.clone().into())).is_pending());
        *task.task.lock().unwrap() = Some(waits);
        // The session may have woken it before.
        let sent = b.send(ChannelId { peer, channel: 0 }, "the last one");
        assert!(matches!(sent, Ok(_) | Err(SendError::PeerLost { .. })), "{sent:?}");
        let began = Instant::now();
        while Node::bind(at, Config::default()).is_err() {
            assert!(began.elapsed() < LONG, "{drive:?}: the Node has not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        while !matches!(b.event_timeout(LONG), Some(Event::PeerLost { .. })) {
            assert!(began.elapsed() < LONG, "{drive:?}: the peer has not heard of it");
        }
        // Nobody else has it when the thread is through with it.
        while Arc::strong_count(&task) > 1 {
            assert!(began.elapsed() < LONG, "{drive:?}: the task is still in its hands");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!task.panicked.load(Ordering::SeqCst), "{drive:?}: it panicked");
    }
}

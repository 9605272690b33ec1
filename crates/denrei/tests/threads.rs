//! Hosts that let this user have no more threads, as containers and batch systems do.
#![cfg(target_os = "linux")]

use denrei::{ChannelId, Config, Drive, Event, Node, SendError};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

/// Makes this thread's kernel refuse it more threads, as `ulimit -u` does to users without privileges.
fn forbid_threads() {
    let line = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call is the first field of what is judged.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, libc::SYS_clone as u32),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, libc::SYS_clone3 as u32),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both concern this thread alone; the filter and its program live through the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
    }
}

fn bind(drive: Drive) -> Result<Node, denrei::BindError> {
    Node::bind("127.0.0.1:0", Config { drive, ..Config::default() })
}

#[test]
fn who_gets_no_thread_is_told_what_to_do() {
    let short_of_threads = std::thread::spawn(|| {
        forbid_threads();
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
        forbid_threads();
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

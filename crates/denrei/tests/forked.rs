//! What a child that was forked inherits of a Node it can drop, whatever the parent's threads were at.

use denrei::{Config, Node};
use std::ffi::c_int;
use std::future::Future;
use std::ptr::null_mut;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(5);
const NO_HANG: c_int = 1;
const KILL: c_int = 9;

unsafe extern "C" {
    fn fork() -> c_int;
    fn _exit(code: c_int) -> !;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
}

/// Whether a child that does this ends.
fn child_ends(work: impl FnOnce()) -> bool {
    // SAFETY: the child does what is asked of it here, and ends without anything of the parent's.
    let child = unsafe { fork() };
    if child == 0 {
        work();
        // SAFETY: ends the process.
        unsafe { _exit(0) };
    }
    let began = Instant::now();
    // SAFETY: a child of this process, whose status is not asked for.
    while unsafe { waitpid(child, null_mut(), NO_HANG) } == 0 {
        if began.elapsed() > LONG {
            // SAFETY: that child, which nobody has waited for.
            unsafe { (kill(child, KILL), waitpid(child, null_mut(), 0)) };
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn a_child_that_was_forked_can_drop_what_waits() {
    let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let mut future = Box::pin(node.recv_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut waits = Some(future);
    std::thread::scope(|scope| {
        let (is_locked, locked) = mpsc::channel();
        let (unlock, may_go) = mpsc::channel::<()>();
        let node = &node;
        scope.spawn(move || {
            // Asked under the Node's lock.
            node.wait_incoming_unless(LONG, || {
                is_locked.send(()).unwrap();
                may_go.recv().is_err()
            })
        });
        locked.recv().unwrap();
        let ends = child_ends(|| waits = None);
        drop(unlock);
        assert!(ends, "it waits for a thread that it does not have");
    });
}

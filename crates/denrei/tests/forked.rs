//! What a child that was forked inherits of a Node it can drop, whatever the parent's threads were at.

use denrei::{Config, Node};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::future::Future;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(5);

/// Whether a child that does this ends well.
fn child_ends(work: impl FnOnce()) -> bool {
    // SAFETY: the child does what is asked of it here, and ends without anything of the parent's.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            work();
            // SAFETY: ends the process.
            unsafe { nix::libc::_exit(0) }
        }
    };
    let began = Instant::now();
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive if began.elapsed() < LONG => std::thread::sleep(Duration::from_millis(1)),
            WaitStatus::StillAlive => {
                kill(child, Signal::SIGKILL).unwrap();
                waitpid(child, None).unwrap();
                return false;
            }
            end => return end == WaitStatus::Exited(child, 0),
        }
    }
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

//! The background thread of `Drive::Thread`.

use crate::wait::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread stays awake after work: senders of many small messages then only queue
/// them, and what has collected during one system call leaves with the next.
const STAY_HOT: Duration = Duration::from_micros(100);

/// Work that comes so soon after other work, and as many times in a row, may be followed by more. What comes alone, as a
/// sign of life and its answer do, is not waited after: of two hundred Nodes at rest that alone took half a core.
const SOON: Duration = Duration::from_millis(1);
const TIMES_IN_A_ROW: u32 = 4;

/// Starts the thread; it ends when [`Shared::stopping`] is set and it is woken.
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("denrei".into()).spawn(move || {
        let _watch = Watch(&shared);
        run(&shared);
    })
}

/// Has those who wait for the thread hear of its panic.
struct Watch<'a>(&'a Shared);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            Shared::break_down(std::iter::once(self.0));
        }
    }
}

fn run(shared: &Shared) {
    shared.take_over();
    let (mut worked_at, mut in_a_row) = (Instant::now(), 0);
    while !shared.stopping.load(Ordering::Acquire) {
        shared.hot.store(true, Ordering::SeqCst);
        let worked = shared.turn();
        let now = Instant::now();
        if worked {
            in_a_row = if now - worked_at < SOON { TIMES_IN_A_ROW.min(in_a_row + 1) } else { 1 };
            worked_at = now;
        }
        if in_a_row == TIMES_IN_A_ROW && now - worked_at < STAY_HOT {
            std::hint::spin_loop();
            continue;
        }
        shared.hot.store(false, Ordering::SeqCst);
        // A sender may have relied on us in the meantime: `turn` picks that up.
        shared.turn();
        let mut core = shared.core.lock();
        shared.sleep(&mut core, None);
    }
}

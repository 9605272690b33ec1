//! SIGINT and SIGTERM for commands that have others to tell that they end.
//!
//! Inputs → outputs: the signals → the first of them, as a value; a second one ends the process at once.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

/// The signals that end a program in order.
const ENDING: [i32; 2] = [SIGINT, SIGTERM];

/// Waits for one.
pub struct Ending(Receiver<i32>);

/// One that came.
pub struct Signal(i32);

impl Ending {
    /// From now on the signals do not end the process by themselves.
    pub fn watch() -> Result<Self> {
        let wrong = "cannot watch for SIGINT and SIGTERM";
        let came = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            register_conditional_default(signal, came.clone()).context(wrong)?;
        }
        let mut signals = Signals::new(ENDING).context(wrong)?;
        let (tell, told) = sync_channel(1);
        let watcher = thread::Builder::new().name("signals".into());
        let watch = move || {
            if let Some(signal) = signals.forever().next() {
                came.store(true, Ordering::SeqCst);
                // Nobody waits any more: the command ends anyway.
                let _ = tell.send(signal);
            }
        };
        watcher.spawn(watch).context(wrong)?;
        Ok(Self(told))
    }

    /// Waits at most `patience` for a signal.
    pub fn wait(&self, patience: Duration) -> Option<Signal> {
        self.0.recv_timeout(patience).ok().map(Signal)
    }
}

impl Signal {
    /// Ends the process the way the signal would have.
    pub fn end_process(self) -> ! {
        let _ = signal_hook::low_level::emulate_default_handler(self.0);
        std::process::exit(128 + self.0)
    }
}

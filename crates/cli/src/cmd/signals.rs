//! The signals that end a process, for commands that have others to tell that they end.
//!
//! Inputs → outputs: the signals → the first of them, as a value; a later one ends the process at once. Signals that
//! end nothing can be waited for as well.

use crate::process::NO_THREAD;
use anyhow::{Context, Result};
use denrei_netlab::ending_signals;
use signal_hook::consts::SIGHUP;
use signal_hook::flag::register;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Signals that come so soon after the end of what is read came at the same time.
const SAME_TIME: Duration = Duration::from_millis(50);

/// Whoever ends a process may say so twice at once: `timeout` tells the process and then its group, a wrapper hands on
/// what a terminal has told both. A signal that comes later than this after the first is another one.
const TWICE: Duration = Duration::from_millis(200);

/// Waits for one.
pub struct Ending {
    told: Arc<Told>,
    came: Arc<AtomicBool>,
}

/// What came and has not been waited for, each signal once.
#[derive(Default)]
struct Told {
    signals: Mutex<Vec<i32>>,
    more: Condvar,
}

/// One that came.
pub struct Signal(i32);

impl Ending {
    /// From now on the signals do not end the process by themselves.
    pub fn watch() -> Result<Self> {
        Self::watch_and(&[])
    }

    /// The same, and `others` are waited for as well, and do nothing by themselves.
    pub fn watch_and(others: &[i32]) -> Result<Self> {
        let wrong = "cannot watch for signals";
        let came = Arc::new(AtomicBool::new(false));
        let ending = ending_signals();
        for signal in &ending {
            register(*signal, came.clone()).context(wrong)?;
        }
        let mut signals = Signals::new(ending.iter().chain(others)).context(wrong)?;
        let told = Arc::<Told>::default();
        let tell = told.clone();
        let watcher = thread::Builder::new().name("signals".into());
        let watch = move || {
            let mut first = None;
            for signal in signals.forever() {
                if ending.contains(&signal) && first.get_or_insert_with(Instant::now).elapsed() > TWICE {
                    let _ = emulate_default_handler(signal);
                }
                // If nobody waits any more, the command ends anyway.
                tell.take_in(signal);
            }
        };
        watcher.spawn(watch).context(NO_THREAD)?;
        Ok(Self { told, came })
    }

    /// `source` without an end that comes with a signal: that is the end of whoever writes to it, which a terminal has
    /// interrupted too, and not that of what it writes.
    pub fn guard<R: Read>(&self, source: R) -> impl Read + use<R> {
        Guarded { source, came: self.came.clone() }
    }

    /// Waits at most `patience` for a signal.
    pub fn wait(&self, patience: Duration) -> Option<Signal> {
        let signals = self.told.signals.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.more.wait_timeout_while(signals, patience, |signals| signals.is_empty());
        let (mut signals, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let first = (!signals.is_empty()).then(|| signals.remove(0));
        first.map(Signal)
    }
}

impl Told {
    fn take_in(&self, signal: i32) {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if !signals.contains(&signal) {
            signals.push(signal);
        }
        self.more.notify_one();
    }
}

/// What [`Ending::guard`] makes.
struct Guarded<R> {
    source: R,
    came: Arc<AtomicBool>,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into)?;
        if read == 0 && !into.is_empty() {
            thread::sleep(SAME_TIME);
            while self.came.load(Ordering::SeqCst) {
                thread::park();
            }
        }
        Ok(read)
    }
}

impl Signal {
    /// What a terminal says that goes away.
    pub const HANGUP: Self = Self(SIGHUP);

    /// Which.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Stops the process the way the signal would have, until it is continued.
    pub fn stop_process(self) {
        let _ = emulate_default_handler(self.0);
    }

    /// Ends the process the way the signal would have.
    pub fn end_process(self) -> ! {
        let _ = emulate_default_handler(self.0);
        std::process::exit(128 + self.0)
    }
}

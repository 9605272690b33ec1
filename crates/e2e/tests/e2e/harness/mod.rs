//! What the tests work with: processes, labs, and streams between them.

mod lab;
mod process;
mod stream;

pub use lab::{Test, begin};
pub use process::Process;
pub use stream::{Pair, expect_complete, stream};

use std::time::{Duration, Instant};

/// Longest wait for an answer that is due at once; generous, as the machine may be busy.
pub const SOON: Duration = Duration::from_secs(10);

/// Waits until `holds`, looking every few milliseconds; fails if that takes too long.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "no {what} within {SOON:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

//! What the tests work with: processes, labs, and streams between them.

mod lab;
mod stream;

pub use denrei_e2e::{Process, SOON};
pub use lab::{Test, begin, begin_beside, on};
pub use stream::{Pair, expect_complete, stream};

use std::time::{Duration, Instant};

/// Waits until `holds`, looking every few milliseconds; fails if that takes too long.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(SOON, what, holds);
}

/// The same, of what may take longer.
pub fn until_within(longest: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !holds() {
        assert!(Instant::now() < end, "no {what} within {longest:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

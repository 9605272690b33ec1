//! What the tests work with: processes, labs, and streams between them.

mod lab;
mod process;
mod stream;

pub use lab::{Test, begin};
pub use process::Process;
pub use stream::{Pair, expect_complete, stream};

use std::time::Duration;

/// Longest wait for an answer that is due at once; generous, as the machine may be busy.
pub const SOON: Duration = Duration::from_secs(10);

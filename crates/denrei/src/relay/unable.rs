//! What is said where a sender cannot be joined with its target, for want of descriptors for one.
//!
//! Inputs → outputs: why not → what the sender hears, and, now and then, the log: who runs the relay can do something
//! about it, and the sender cannot.

use parking_lot::Mutex;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often at most a log hears of it: senders may come again as soon as they are told.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// When the log heard of it last.
#[derive(Default)]
pub(super) struct Unable(Mutex<Option<Instant>>);

impl Unable {
    /// A session's last words, which are few; `near` is none for a sender that is gone.
    pub fn words(&self, error: &dyn Display, near: Option<SocketAddr>, target: SocketAddr) -> String {
        let mut last = self.0.lock();
        if last.is_none_or(|at| at.elapsed() >= BETWEEN_WARNINGS) {
            *last = Some(Instant::now());
            let near = near.map_or_else(|| "a sender".into(), |near| near.to_string());
            tracing::warn!("{near} cannot be joined with {target}: {error}");
        }
        format!("the relay: {error}")
    }
}

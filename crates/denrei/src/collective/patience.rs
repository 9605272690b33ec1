//! How long a Node waits in an operation.
//!
//! Inputs → outputs: an attempt that takes a moment at most, a deadline → what the attempt brought, or that time is up;
//! an error as soon as whoever uses the set wants no more of it.

use super::CollectiveError;
use crate::group::MOMENT;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Says whether to give up.
pub(super) struct Patience(Mutex<Box<dyn FnMut() -> bool + Send>>);

impl Patience {
    pub fn new(interrupted: impl FnMut() -> bool + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(interrupted)))
    }

    /// Whether to give up.
    pub fn is_over(&self) -> bool {
        (self.0.lock())()
    }

    /// Tries until there is something, or time is up.
    pub fn wait<T, E>(
        &self,
        until: Instant,
        mut attempt: impl FnMut(Duration) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, CollectiveError>
    where
        CollectiveError: From<E>,
    {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(value) = attempt(left.min(MOMENT))? {
                return Ok(Some(value));
            }
            if left <= MOMENT {
                return Ok(None);
            }
            if self.is_over() {
                return Err(CollectiveError::Interrupted);
            }
        }
    }

    /// Tries until there is room for something, or time is up: then with the error that says that there is none.
    pub fn wait_for_room<T, E>(
        &self,
        until: Instant,
        mut attempt: impl FnMut(Duration) -> Result<T, E>,
        is_full: impl Fn(&E) -> bool,
    ) -> Result<Result<T, E>, CollectiveError> {
        let mut full = None;
        let sent = self.wait(until, |moment| match attempt(moment) {
            Err(error) if is_full(&error) => {
                full = Some(error);
                Ok::<_, CollectiveError>(None)
            }
            sent => Ok(Some(sent)),
        });
        Ok(sent?.unwrap_or_else(|| Err(full.expect("it was tried"))))
    }
}

impl std::fmt::Debug for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Patience")
    }
}

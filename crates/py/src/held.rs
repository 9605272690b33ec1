//! What is let go without the interpreter's lock.

use crate::error::DenreiError;
use denrei::Maker;
use parking_lot::RwLock;
use pyo3::prelude::*;
use std::fmt::Display;
use std::sync::Arc;

/// What is closed while others may be using it: the last of them lets go of it. A child that was forked has none.
///
/// It is let go without the interpreter's lock: closing waits for the Node's thread, which may be waiting for the lock
/// to give lent memory back.
pub(crate) struct Closable<T: Send + Sync> {
    value: RwLock<Option<Arc<T>>>,
    maker: Maker,
}

impl<T: Send + Sync> Closable<T> {
    pub fn new(value: T) -> Self {
        Self { value: RwLock::new(Some(Arc::new(value))), maker: Maker::this_process() }
    }

    /// The process that made it.
    pub fn maker(&self) -> Maker {
        self.maker
    }

    /// The value, unless it was closed or is another process's. To be called, and let go, without the interpreter's lock.
    pub fn get(&self) -> Option<Arc<T>> {
        if self.maker.is_this_process() { self.value.read().clone() } else { None }
    }

    /// The same, and an error where `what` is another process's: to a child it would seem to have ended in order.
    pub fn get_own(&self, what: impl Display) -> PyResult<Option<Arc<T>>> {
        match self.maker {
            maker if maker.is_this_process() => Ok(self.get()),
            maker => Err(DenreiError::new_err(format!(
                "{what} is {maker}'s, from which this one was forked: make one here"
            ))),
        }
    }

    /// Lets go of the value. In a child that was forked it stays: a thread of the parent's may have had the lock.
    pub fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let value = self.maker.is_this_process().then(|| self.value.write().take());
            drop(value);
        });
    }
}

impl<T: Send + Sync> Drop for Closable<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().take();
        // Without an interpreter there is no lock to release.
        Python::try_attach(|py| py.detach(|| drop(value)));
    }
}

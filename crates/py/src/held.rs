//! What is let go without the interpreter's lock.

use parking_lot::RwLock;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that is dropped without the interpreter's lock: closing waits for the Node's thread, which
/// may be waiting for the lock to give lent memory back.
#[derive(Clone)]
pub(crate) struct Held<T: Send>(ManuallyDrop<T>);

impl<T: Send> Held<T> {
    pub fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// The value, for those who have let go of the lock already.
    pub fn into_inner(self) -> T {
        let mut held = ManuallyDrop::new(self);
        // SAFETY: taken once: `held` is not dropped.
        unsafe { ManuallyDrop::take(&mut held.0) }
    }
}

impl<T: Send> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, as a value is dropped once, and not used after.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut value = Some(value);
        // Without an interpreter there is no lock to release.
        Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}

/// What is closed while others may be using it: the last of them lets go of it. A child that was forked has none.
pub(crate) struct Closable<T: Send + Sync> {
    value: Held<RwLock<Option<Arc<T>>>>,
    /// The process that made it.
    maker: u32,
}

impl<T: Send + Sync> Closable<T> {
    pub fn new(value: T) -> Self {
        Self { value: Held::new(RwLock::new(Some(Arc::new(value)))), maker: std::process::id() }
    }

    /// The value, unless it was closed or is another process's. To be called, and let go, without the interpreter's lock.
    pub fn get(&self) -> Option<Arc<T>> {
        if self.maker == std::process::id() { self.value.read().clone() } else { None }
    }

    /// Lets go of the value.
    pub fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let value = self.value.write().take();
            drop(value);
        });
    }
}

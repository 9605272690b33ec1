//! The primitives that the lock-free parts are made of: std's, or loom's under `--cfg loom`, where
//! every interleaving of a test is tried.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::thread::{Thread as ThreadHandle, current as thread_handle};
#[cfg(not(loom))]
pub(crate) use std::thread::{Thread as ThreadHandle, current as thread_handle, park_timeout as park};

/// loom knows no time: parks until somebody unparks.
#[cfg(loom)]
pub(crate) fn park(_limit: std::time::Duration) {
    loom::thread::park();
}

/// std's cell with loom's way of access.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

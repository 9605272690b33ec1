//! How long a side of a benchmark goes on.
//!
//! Inputs → outputs: a [`Job`] and the orders that come → whether to stop, and whether there is time for one more
//! message.

use super::clock::now_ns;
use super::control::{Job, Order};
use crate::orders::Orders;
use anyhow::{Result, bail};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Whether a side shall end, and whether it may go on at all.
pub struct Until<'a> {
    orders: &'a Orders<Order>,
    limit: Instant,
    stopped: Cell<Option<u64>>,
}

impl<'a> Until<'a> {
    /// Until `Stop`, or until the job's time is over.
    pub fn stop(orders: &'a Orders<Order>, job: &Job) -> Self {
        let limit = Instant::now() + Duration::from_millis(job.limit_ms);
        Self { orders, limit, stopped: Cell::new(None) }
    }

    /// Whether `Stop` has come, and with how many messages.
    ///
    /// # Errors
    /// If the job's time is over.
    pub fn reached(&self) -> Result<Option<u64>> {
        if self.stopped.get().is_none()
            && let Some(Order::Stop(messages)) = self.orders.next()?
        {
            self.stopped.set(Some(messages));
        }
        self.check()?;
        Ok(self.stopped.get())
    }

    /// # Errors
    /// If the job's time is over.
    pub fn check(&self) -> Result<()> {
        if Instant::now() > self.limit {
            bail!("the time for this run is over: messages are missing, or give fewer --iters");
        }
        Ok(())
    }
}

/// When one that sends has to end: the side that does so first, and every member of a mesh.
pub struct SendLimit<'a> {
    job: &'a Job,
    end_ns: u64,
}

impl<'a> SendLimit<'a> {
    /// Counts from now.
    pub fn new(job: &'a Job) -> Self {
        Self { job, end_ns: now_ns() + job.send_ms * 1_000_000 }
    }

    /// Whether message `number` shall not be sent any more.
    pub fn is_over(&self, number: u64) -> bool {
        is_time_to_look(self.job, number) && self.is_past(now_ns())
    }

    /// Whether that is over, looking at the clock.
    pub fn is_over_now(&self) -> bool {
        self.is_past(now_ns())
    }

    /// Whether it was over at `ns` (CLOCK_MONOTONIC).
    pub fn is_past(&self, ns: u64) -> bool {
        ns > self.end_ns
    }
}

/// Whether to look at the clock before message `number` of a stream, and after the one before it, which may be the
/// last for that reason: a look takes 20 ns, which is not nothing beside a small message.
pub fn is_time_to_look(job: &Job, number: u64) -> bool {
    /// A few tens of microseconds' worth.
    const EVERY_BYTES: u64 = 64 * 1024;
    job.rate_per_s.is_some() || number.is_multiple_of((EVERY_BYTES / job.size.max(1) as u64).max(1))
}

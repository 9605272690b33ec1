//! The other end of [`LineProcess`](crate::process::LineProcess): orders read from standard input.
//!
//! Inputs → outputs: lines → orders, queued; the end of the input → the end of this process, so
//! that none outlives the one that started it.

use anyhow::{Result, bail};
use denrei_output::tell;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Orders read and not taken yet; the parent then waits in its `write`.
const MAX_WAITING_ORDERS: usize = 64;

/// Exit status of a process whose parent has gone.
const ORPHANED: i32 = 4;

/// The orders of the process that started this one.
pub struct Orders<T> {
    orders: Receiver<T>,
}

impl<T: DeserializeOwned + Send + 'static> Orders<T> {
    /// Begins to read standard input, on a thread that does nothing else.
    fn from_stdin() -> Result<Self> {
        let (sender, orders) = sync_channel(MAX_WAITING_ORDERS);
        let reader = thread::Builder::new().name("orders".into());
        reader.spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                match serde_json::from_str(&line) {
                    Ok(order) => {
                        if sender.send(order).is_err() {
                            return;
                        }
                    }
                    Err(error) => tell!("denrei: an order that is none, {line:?}: {error}"),
                }
            }
            std::process::exit(ORPHANED);
        })?;
        Ok(Self { orders })
    }

    /// Waits for an order.
    pub fn wait(&self, limit: Duration) -> Result<T> {
        match self.orders.recv_timeout(limit) {
            Ok(order) => Ok(order),
            Err(RecvTimeoutError::Timeout) => bail!("no order came within {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the orders have ended"),
        }
    }

    /// An order, if one is there.
    pub fn next(&self) -> Result<Option<T>> {
        match self.orders.try_recv() {
            Ok(order) => Ok(Some(order)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("the orders have ended"),
        }
    }
}

#[cfg(test)]
impl<T> Orders<T> {
    /// None, and none to come.
    pub fn silent() -> Self {
        Self { orders: sync_channel(0).1 }
    }
}

/// What went wrong was said to the process that gave the orders, which says it to the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Told(String);

/// Carries orders out until they end. What goes wrong is said, as what `failed` makes of it, and returned as [`Told`].
pub fn obey<T: DeserializeOwned + Send + 'static, A: Serialize>(
    obey: impl FnOnce(&Orders<T>) -> Result<()>,
    failed: impl FnOnce(String) -> A,
) -> Result<()> {
    let Err(error) = obey(&Orders::from_stdin()?) else { return Ok(()) };
    let words = denrei_output::in_words(&error);
    answer(&failed(words.clone()))?;
    Err(Told(words).into())
}

/// Says something to the process that started this one.
pub fn answer(answer: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()?;
    Ok(())
}

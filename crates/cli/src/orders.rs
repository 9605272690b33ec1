//! The other end of [`LineProcess`](crate::process::LineProcess): orders read from standard input.
//!
//! Inputs → outputs: lines → orders, queued; the end of the input → the end of this process, so
//! that none outlives the one that started it.

use crate::process::{NO_THREAD, beginning};
use anyhow::{Context, Result, bail};
use denrei_output::{say, tell};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Orders read and not taken yet; the parent then waits in its `write`.
const MAX_WAITING_ORDERS: usize = 64;

/// Longest order, bytes: the addresses of 257 sides take a fifth of it. Who reaches the address of a `--listen` may send
/// anything.
const MAX_ORDER_BYTES: u64 = 64 << 10;

/// Exit status of a process whose parent has gone, or does not speak as it should.
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
        let started = reader.spawn(move || {
            let mut source = io::stdin().lock();
            while let Some(order) = read(&mut source) {
                if sender.send(order).is_err() {
                    return;
                }
            }
            std::process::exit(ORPHANED);
        });
        started.context(NO_THREAD)?;
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

/// The next order; `None`: there is none, or what comes is no order.
fn read<T: DeserializeOwned>(source: &mut impl BufRead) -> Option<T> {
    let mut line = String::new();
    source.take(MAX_ORDER_BYTES).read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let order = serde_json::from_str(&line);
    order.inspect_err(|error| tell!("denrei: an order that is none, {}: {error}", beginning(&line))).ok()
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

/// Says something to the process that started this one; where that has ended this one does too, without a word.
pub fn answer(answer: &impl Serialize) -> Result<()> {
    say!("{}", serde_json::to_string(answer)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_lines_and_what_is_none_ends_them() {
        let mut source = &b"1\n2\n\"none\"\n3\n"[..];
        assert_eq!([read(&mut source), read(&mut source), read::<u8>(&mut source)], [Some(1), Some(2), None]);
        assert_eq!(read::<u8>(&mut &b""[..]), None);
        assert_eq!(read::<String>(&mut &b"\"\xff\"\n"[..]), None);
    }

    #[test]
    fn an_order_without_end_is_not_read_to_its_end() {
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(read::<u8>(&mut endless), None);
    }
}

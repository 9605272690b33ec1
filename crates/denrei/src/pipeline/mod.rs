//! `Drive::Pipelined`: receive, open, protocol, seal, send on cores of their own, or grouped (L1–L7).
//!
//! Inputs → outputs: a Node's shared state and a grouping of [`Stage`]s → threads that do its work,
//! on the runtime of `denrei-layers`. What goes from stage to stage are whole receive calls and whole
//! transmits with the memory they lie in, which comes back when it is empty: nothing is copied, and
//! a stage that cannot keep up holds the others back. The protocol is the same endpoint, under the same
//! lock, as in the other drive modes; applications' threads queue messages and take them as always.
//!
//! Of a Node with several shards each has a protocol stage of its own, one below the other: an arrival
//! goes from one to the next until all have taken theirs out of it, as the first stage that looks at
//! datagrams has marked them; departures pass the stages below theirs.

mod plan;
mod stages;

pub use plan::Stage;
pub(crate) use plan::{check, parse};

use crate::shards::Shards;
use crate::wait::Shared;
use denrei_io::UdpSocket;
use denrei_layers::{Builder, Grouping, Idle, Pinning, Stack, StackError};
use parking_lot::Mutex;
use stages::{Inbound, Opener, Parcel, Protocol, Receiver, Sealer, Sender};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Receive calls, and transmits, that may be under way between the stages. Each has up to a
/// megabyte (what is never used is never backed), and each is a wait for those behind it.
const ARRIVALS: usize = 8;
const DEPARTURES: usize = 32;
/// Looks in vain before a thread sleeps: some tens of microseconds, a wake-up's time.
const LOOKS: u32 = 64;
/// What is under way when a Node ends, the last words to its peers among it, gets this time.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A Node's pipeline while it runs.
pub(crate) struct Pipeline {
    stack: Stack,
}

impl Pipeline {
    /// Starts the threads.
    pub fn start(shards: &Shards, pipeline: &[Vec<Stage>]) -> io::Result<Self> {
        let all: Arc<[_]> = shards.all().cloned().collect();
        let socket = shards.first().io.lock().socket.sender()?;
        let segments = socket.capabilities().max_segments;
        let sender: Arc<Mutex<UdpSocket>> = Arc::new(Mutex::new(socket));
        let groups = plan::groups(pipeline);
        let sizes = plan::sizes(&groups, all.len());
        let steering = shards.steering();
        let opener = Opener::new(Arc::clone(&all), Arc::clone(steering), plan::opens_apart(&groups));
        let inbound = Arc::new(Inbound::new(&all[0]));
        let receiver = Receiver::new(Arc::clone(&all), Arc::clone(steering), Arc::clone(&inbound), ARRIVALS);
        let mut builder =
            Builder::<Parcel>::new().layer(Stage::Rx.name(), receiver).layer(Stage::Open.name(), opener);
        for index in 0..all.len() {
            builder = builder.layer(
                format!("{}{index}", Stage::Proto.name()),
                Protocol::new(Arc::clone(&all), index, Arc::clone(&inbound), DEPARTURES, segments),
            );
        }
        let to_tell = Arc::clone(&all);
        let builder = builder
            .on_panic(move || Shared::break_down(to_tell.iter().map(|shard| &**shard)))
            .layer(Stage::Seal.name(), Sealer)
            .layer(Stage::Tx.name(), Sender::new(Arc::clone(&sender)))
            .grouping(Grouping::Sizes(sizes))
            // Other Nodes, and others' threads, are on this host too: on cores of their own choice all of
            // them would meet on the first ones.
            .pinning(Pinning::Free)
            .idle(Idle::Park { after_turns: LOOKS })
            .queue(ARRIVALS + all.len() * DEPARTURES);
        let (stack, _, _) = builder.start().map_err(|error| match error {
            StackError::Thread(error) => error,
            other => io::Error::other(other.to_string()),
        })?;
        for (index, shard) in all.iter().enumerate() {
            let bell = stack.bell(Stage::Proto as usize + index).expect("there is such a layer");
            shard.hand_over(bell, Arc::clone(&sender));
        }
        Ok(Self { stack })
    }

    /// Whether the calling thread is one of them.
    pub fn runs_this_thread(&self) -> bool {
        self.stack.runs_this_thread()
    }

    /// Lets what is under way leave, and ends the threads. One of them cannot wait for that: it may be it that
    /// dropped the Node, with a task that it woke.
    pub fn stop(self) {
        if self.runs_this_thread() {
            let started = std::thread::Builder::new().name("denrei-end".into()).spawn(move || self.stop());
            if let Err(error) = started {
                // With what was to run there the threads have ended, at once.
                tracing::warn!("no thread to end a Node in: {error}; what was under way is given up");
            }
            return;
        }
        let shutdown = self.stack.shutdown(LAST_WORDS);
        if shutdown.panicked > 0 {
            tracing::error!("{} threads of the pipeline had panicked", shutdown.panicked);
        }
    }
}

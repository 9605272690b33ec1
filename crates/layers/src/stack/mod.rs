//! The runtime: a stack of layers in one thread, in one each, or in any grouping (L1, L5, L6).
//!
//! Inputs → outputs: layers from top to bottom and a [`Grouping`] → threads that pass PDUs between
//! them through rings. The layers do not know which of their neighbours share their thread.
//!
//! Deviations from L1: a thread may also yield or sleep when it has nothing to do ([`Idle`]):
//! with more threads than cores one that never sleeps holds up the very thread it waits for.

mod builder;
mod layer;
mod port;
mod portion;
mod shutdown;
mod worker;

pub use builder::{Builder, StackError};
pub use layer::{Layer, Outlet};
pub use port::Port;
pub use shutdown::Shutdown;

use crate::ring::{Gauge, QueueCounters};
use crate::wake::Bell;
use port::Door;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Which layers share a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All in one: run to completion.
    Together,
    /// A thread each (L1).
    Each,
    /// So many from the top, so many below those, …; the numbers add up to the layers.
    Sizes(Vec<usize>),
}

/// What a thread does that has found nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Looks again at once (L1): the fastest, if every thread has a core of its own.
    Spin,
    /// Lets others run first.
    Yield,
    /// Sleeps until it is woken, after so many looks in vain; while a neighbour has no room for what it is to
    /// get, after a millisecond of looks, and with one a millisecond from then on.
    Park {
        /// Looks in vain before it sleeps.
        after_turns: u32,
    },
}

impl Default for Idle {
    fn default() -> Self {
        /// A few microseconds: what a wake-up costs.
        const LOOKS: u32 = 200;
        Self::Park { after_turns: LOOKS }
    }
}

/// Where threads run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Each on a core of its own, if there are enough; else where the kernel puts them. They are the first cores
    /// that the process may use, for every stack: where there are several, name their cores or leave them free.
    #[default]
    Auto,
    /// Where the kernel puts them.
    Free,
    /// On these cores, by turns, the uppermost group first.
    Cores(Vec<usize>),
}

/// A queue between two groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Who writes it.
    pub from: String,
    /// Who reads it.
    pub to: String,
    /// What it has counted.
    pub counters: QueueCounters,
}

/// What all threads of a stack look at.
#[derive(Debug, Default)]
struct Control {
    /// Nothing new begins.
    closing: AtomicBool,
    /// Threads end.
    stop: AtomicBool,
}

/// What others may see of a worker.
#[derive(Debug)]
struct WorkerState {
    control: Arc<Control>,
    bell: Arc<Bell>,
    /// While closing: nothing is in the worker's hands, and nothing of its layers is under way.
    resting: AtomicBool,
    parks: AtomicU64,
    dropped: AtomicU64,
    /// Once the worker has ended: what was in its hands.
    left: AtomicU64,
}

/// A running stack. Dropped, it stops at once; [`Stack::shutdown`] lets what is under way arrive.
#[derive(Debug)]
pub struct Stack {
    control: Arc<Control>,
    workers: Vec<(Arc<WorkerState>, Option<JoinHandle<()>>)>,
    /// Queues that workers read, and how they are called; then those that the application reads.
    queues: Vec<(String, String, Gauge)>,
    /// The first so many of `queues` are read by workers.
    inner_queues: usize,
    /// The worker of each layer.
    worker_of: Vec<usize>,
    /// What the port above the top layer goes in by.
    above: Arc<Door>,
    /// The same for the port below the bottom layer.
    below: Arc<Door>,
    /// The process whose threads they are: a child that it forks has none of them.
    process: u32,
}

fn is_this_thread(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

impl Stack {
    /// What each queue has counted.
    pub fn counters(&self) -> Vec<QueueReport> {
        let report = |(from, to, gauge): &(String, String, Gauge)| QueueReport {
            from: from.clone(),
            to: to.clone(),
            counters: gauge.counters(),
        };
        self.queues.iter().map(report).collect()
    }

    /// PDUs that were handed on where nobody was: above the top or below the bottom.
    pub fn dropped(&self) -> u64 {
        self.workers.iter().map(|(state, _)| state.dropped.load(Ordering::Relaxed)).sum()
    }

    /// Times that a thread went to sleep.
    pub fn parks(&self) -> u64 {
        self.workers.iter().map(|(state, _)| state.parks.load(Ordering::Relaxed)).sum()
    }

    /// The bell of the thread that runs a layer (0: the top one). Who changes something that the
    /// layer's [`has_work`](Layer::has_work) looks at rings it afterwards.
    pub fn bell(&self, layer: usize) -> Option<Arc<Bell>> {
        Some(Arc::clone(&self.workers[*self.worker_of.get(layer)?].0.bell))
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Whether this thread is one of them: it cannot wait for its own end.
    pub fn runs_this_thread(&self) -> bool {
        self.workers.iter().filter_map(|(_, thread)| thread.as_ref()).any(is_this_thread)
    }
}

#[cfg(test)]
mod tests;

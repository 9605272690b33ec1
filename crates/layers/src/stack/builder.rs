//! From layers and a grouping to running threads.

use super::port::Door;
use super::worker::{Edges, Link, Worker};
use super::{Control, Grouping, Idle, Layer, Pinning, Port, Stack, WorkerState};
use crate::pin;
use crate::ring::{Consumer, Gauge, MAX_CAPACITY, ring};
use crate::wake::Bell;
use crossbeam_utils::CachePadded;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// PDUs that a queue between two groups holds unless told otherwise.
const DEFAULT_QUEUE: usize = 1024;

/// Why a stack cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// Nothing to run.
    #[error("a stack needs at least one layer")]
    NoLayers,
    /// The groups are not the layers.
    #[error("groups of {sizes:?} layers do not make up {layers}: the sizes must be positive and add up")]
    Groups {
        /// The groups asked for.
        sizes: Vec<usize>,
        /// Layers that there are.
        layers: usize,
    },
    /// A core that this process may not use.
    #[error("cannot pin to core {core}: this process may use {allowed:?}")]
    Core {
        /// Asked for.
        core: usize,
        /// Those that may be used.
        allowed: Vec<usize>,
    },
    /// A queue that cannot be.
    #[error("a queue of {0} cannot be: it holds 1 to {MAX_CAPACITY} PDUs")]
    Queue(usize),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Puts a stack together, from the top layer to the bottom one.
pub struct Builder<P> {
    layers: Vec<(String, Box<dyn Layer<P>>)>,
    grouping: Grouping,
    pinning: Pinning,
    idle: Idle,
    queue: usize,
    loop_back: bool,
    on_panic: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Calls when the thread that has it panics.
struct Watch(Option<Arc<dyn Fn() + Send + Sync>>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(call) = &self.0
        {
            call();
        }
    }
}

impl<P> Default for Builder<P> {
    fn default() -> Self {
        Self {
            layers: Vec::new(),
            grouping: Grouping::Each,
            pinning: Pinning::default(),
            idle: Idle::default(),
            queue: DEFAULT_QUEUE,
            loop_back: false,
            on_panic: None,
        }
    }
}

impl<P: Send + 'static> Builder<P> {
    /// A stack without layers, each of which will have a thread.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a layer below those added before.
    #[must_use]
    pub fn layer(mut self, name: impl Into<String>, layer: impl Layer<P> + 'static) -> Self {
        self.layers.push((name.into(), Box::new(CachePadded::new(layer))));
        self
    }

    /// Which layers share a thread.
    #[must_use]
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Where the threads run.
    #[must_use]
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// What a thread does that has nothing to do.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// PDUs that each queue between two groups holds, 1 to 2^20.
    #[must_use]
    pub fn queue(mut self, capacity: usize) -> Self {
        self.queue = capacity;
        self
    }

    /// What the bottom layer hands down comes back to it from below (L8).
    #[must_use]
    pub fn loop_back(mut self) -> Self {
        self.loop_back = true;
        self
    }

    /// What a thread calls that a layer's panic ends, for those who wait for what it would have done. Must not panic.
    #[must_use]
    pub fn on_panic(mut self, call: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Arc::new(call));
        self
    }

    /// Starts the threads. The first port is above the top layer; the second, below the bottom one,
    /// gets nothing if the stack loops back.
    ///
    /// # Errors
    /// Layers, groups, cores or queues that cannot be; no thread left.
    pub fn start(self) -> Result<(Stack, Port<P>, Port<P>), StackError> {
        let sizes = self.group_sizes()?;
        let cores = self.cores(sizes.len())?;
        if !(1..=MAX_CAPACITY).contains(&self.queue) {
            return Err(StackError::Queue(self.queue));
        }
        let mut names = self.layers.iter().map(|(name, _)| name.as_str());
        let groups: Vec<String> =
            sizes.iter().map(|size| names.by_ref().take(*size).collect::<Vec<_>>().join("+")).collect();
        let mut plumbing = Plumbing::new(groups, self.queue, self.idle);
        let (top, bottom) = plumbing.lay(self.loop_back);
        let Plumbing { edges, mut stack, groups, .. } = plumbing;
        stack.worker_of =
            sizes.iter().enumerate().flat_map(|(group, size)| std::iter::repeat_n(group, *size)).collect();
        let mut layers = self.layers.into_iter().map(|(_, layer)| layer);
        for (index, (edges, size)) in edges.into_iter().zip(sizes).enumerate() {
            let (state, thread) = &mut stack.workers[index];
            let group = layers.by_ref().take(size).collect();
            let worker = Worker::new(group, edges, self.idle, Arc::clone(state));
            let core = cores.as_ref().map(|cores| cores[index % cores.len()]);
            let watch = Watch(self.on_panic.clone());
            let run = move || {
                let _watch = watch;
                if let Some(core) = core {
                    // Checked before; a set that shrinks meanwhile leaves the thread where it is.
                    let _ = pin::to_core(core);
                }
                worker.run();
            };
            // The system's names end at a zero.
            let builder = std::thread::Builder::new().name(groups[index].replace('\0', "?"));
            *thread = Some(builder.spawn(run).map_err(StackError::Thread)?);
        }
        Ok((stack, top, bottom))
    }

    fn group_sizes(&self) -> Result<Vec<usize>, StackError> {
        let layers = self.layers.len();
        let sizes = match &self.grouping {
            _ if layers == 0 => return Err(StackError::NoLayers),
            Grouping::Together => vec![layers],
            Grouping::Each => vec![1; layers],
            Grouping::Sizes(sizes) => sizes.clone(),
        };
        let total = sizes.iter().try_fold(0_usize, |total, size| total.checked_add(*size));
        if sizes.contains(&0) || total != Some(layers) {
            return Err(StackError::Groups { sizes, layers });
        }
        Ok(sizes)
    }

    fn cores(&self, threads: usize) -> Result<Option<Vec<usize>>, StackError> {
        let allowed = pin::allowed_cores();
        match &self.pinning {
            Pinning::Auto if threads <= allowed.len() => Ok(Some(allowed)),
            Pinning::Auto | Pinning::Free => Ok(None),
            Pinning::Cores(cores) => match cores.iter().find(|core| !allowed.contains(core)) {
                Some(core) => Err(StackError::Core { core: *core, allowed }),
                None => Ok((!cores.is_empty()).then(|| cores.clone())),
            },
        }
    }
}

/// The queues of a stack that is being built.
struct Plumbing<P> {
    groups: Vec<String>,
    queue: usize,
    idle: Idle,
    edges: Vec<Edges<P>>,
    stack: Stack,
}

impl<P> Plumbing<P> {
    fn new(groups: Vec<String>, queue: usize, idle: Idle) -> Self {
        let control = Arc::new(Control::default());
        let state = |_: &String| WorkerState {
            control: Arc::clone(&control),
            bell: Arc::default(),
            resting: AtomicBool::new(false),
            parks: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            left: AtomicU64::new(0),
        };
        let workers = groups.iter().map(|group| (Arc::new(state(group)), None)).collect();
        let edges = groups.iter().map(|_| Edges {
            from_above: None,
            to_above: None,
            from_below: None,
            to_below: None,
            loop_back: false,
        });
        let edges = edges.collect();
        let stack = Stack {
            control,
            workers,
            queues: Vec::new(),
            inner_queues: 0,
            worker_of: Vec::new(),
            above: Arc::default(),
            below: Arc::default(),
            process: std::process::id(),
        };
        Self { groups, queue, idle, edges, stack }
    }

    /// A queue that group `to` reads.
    fn towards(&mut self, from: &str, to: usize) -> (Link<P>, Consumer<P>) {
        let (producer, consumer) = ring(self.queue);
        self.stack.queues.push((from.to_owned(), self.groups[to].clone(), producer.gauge()));
        let sleeps = matches!(self.idle, Idle::Park { .. });
        let bell = sleeps.then(|| Arc::clone(&self.stack.workers[to].0.bell));
        (Link { producer, bell }, consumer)
    }

    fn lay(&mut self, loop_back: bool) -> (Port<P>, Port<P>) {
        let last = self.groups.len() - 1;
        for upper in 0..last {
            let (link, consumer) = self.towards(&self.groups[upper].clone(), upper + 1);
            self.edges[upper].to_below = Some(link);
            self.edges[upper + 1].from_above = Some(consumer);
            let (link, consumer) = self.towards(&self.groups[upper + 1].clone(), upper);
            self.edges[upper + 1].to_above = Some(link);
            self.edges[upper].from_below = Some(consumer);
        }
        let (into_top, from_top) = self.towards("application", 0);
        self.edges[0].from_above = Some(from_top);
        let (into_bottom, from_bottom) = self.towards("below", last);
        self.edges[last].from_below = Some(from_bottom);
        self.edges[last].loop_back = loop_back;
        self.stack.inner_queues = self.stack.queues.len();
        let (to_above, above) = self.outwards(0, "application");
        self.edges[0].to_above = Some(to_above);
        let (to_below, below) = self.outwards(last, "below");
        self.edges[last].to_below = (!loop_back).then_some(to_below);
        let port = |into: Link<P>, group: usize, from, door: &Arc<Door>| {
            let bell = Arc::clone(&self.stack.workers[group].0.bell);
            Port::new((into.producer, bell), from, Arc::clone(door))
        };
        (port(into_top, 0, above, &self.stack.above), port(into_bottom, last, below, &self.stack.below))
    }

    /// A queue that the application reads, and the bell that it may sleep by.
    fn outwards(&mut self, from: usize, to: &str) -> (Link<P>, (Consumer<P>, Arc<Bell>)) {
        let (producer, consumer) = ring(self.queue);
        let gauge: Gauge = producer.gauge();
        self.stack.queues.push((self.groups[from].clone(), to.to_owned(), gauge));
        let news = Arc::new(Bell::new());
        (Link { producer, bell: Some(Arc::clone(&news)) }, (consumer, news))
    }
}

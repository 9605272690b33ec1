//! What the C calls do: layers by number, queues by name, ends and pools by thread.
//!
//! Inputs → outputs: see the header. The ends of queues and the pool belong to the thread that opened
//! them, so that handing on a primitive takes no lock; names are looked up under one.

use crate::Primitive;
use denrei_layers::{Consumer, Gauge, Pdu, Pool, Producer, flush_frees, pin, ring};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// `P_QUEUE_MAX` of the header.
const QUEUE_MAX: usize = 1024;
/// `P_LAYERS_MAX` of the header: numbers stay small, and a program that starts more has a loop too many.
const LAYERS_MAX: usize = 1024;

/// What all threads share; locked to start layers and to open queues.
#[derive(Default)]
struct Registry {
    /// Those that this process had when it started its first layer: a layer has one of them.
    cores: Option<Arc<[usize]>>,
    layers: Vec<Option<JoinHandle<()>>>,
    queues: HashMap<Vec<u8>, Ends>,
}

/// Ends of a queue that nobody has opened yet.
struct Ends {
    producer: Option<Producer<Primitive>>,
    consumer: Option<Consumer<Primitive>>,
    gauge: Gauge,
}

impl Ends {
    fn new() -> Self {
        let (producer, consumer) = ring(QUEUE_MAX);
        let gauge = producer.gauge();
        Self { producer: Some(producer), consumer: Some(consumer), gauge }
    }
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// What a thread has opened. A queue's identifier is its place in `ends`.
#[derive(Default)]
struct Own {
    layer: Option<(usize, Pool)>,
    ends: Vec<End>,
}

enum End {
    Read(Consumer<Primitive>),
    Write(Producer<Primitive>),
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// Does something with what this thread has opened. `None` as well once it is ending and has let go of that: C's own
/// destructors run after that, and so do the functions of `atexit`.
fn with_own<T>(run: impl FnOnce(&mut Own) -> Option<T>) -> Option<T> {
    OWN.try_with(|own| run(&mut own.borrow_mut())).ok().flatten()
}

fn registry() -> MutexGuard<'static, Registry> {
    // A panic ends the program; whatever it left here is never seen.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a layer; its number.
pub fn start_layer(main: impl FnOnce() + Send + 'static) -> Option<usize> {
    let mut registry = registry();
    let layer = registry.layers.len();
    if layer >= LAYERS_MAX {
        return None;
    }
    let cores = Arc::clone(registry.cores.get_or_insert_with(|| pin::allowed_cores().into()));
    let run = move || {
        // Beyond the cores all of them: who has started it may have but one.
        let own = cores.get(layer..=layer).unwrap_or(&cores);
        // Without the right to it the layer runs where the system puts it.
        let _ = pin::to_cores(own);
        OWN.with_borrow_mut(|own| own.layer = Some((layer, Pool::default())));
        main();
    };
    let thread = std::thread::Builder::new().name(format!("layer {layer}")).spawn(run).ok()?;
    registry.layers.push(Some(thread));
    Some(layer)
}

/// Waits for a layer to end; whether there was one, other than the caller.
pub fn wait_for_layer(layer: usize) -> bool {
    if current_layer() == Some(layer) {
        return false;
    }
    let thread = registry().layers.get_mut(layer).and_then(Option::take);
    thread.is_some_and(|thread| thread.join().is_ok())
}

/// The layer that runs in this thread.
pub fn current_layer() -> Option<usize> {
    with_own(|own| own.layer.as_ref().map(|(layer, _)| *layer))
}

fn open(name: &[u8], take: impl FnOnce(&mut Ends) -> Option<End>) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    // An end that this thread cannot keep is for another.
    with_own(|_| Some(()))?;
    let mut registry = registry();
    let ends = registry.queues.entry(name.to_owned()).or_insert_with(Ends::new);
    if ends.gauge.is_abandoned() {
        // Whoever had opened them has ended: the name is free.
        *ends = Ends::new();
    }
    let end = take(ends)?;
    drop(registry);
    with_own(|own| {
        own.ends.push(end);
        Some(own.ends.len() - 1)
    })
}

/// Opens the reading end of a queue; its identifier in this thread.
pub fn open_reading(name: &[u8]) -> Option<usize> {
    open(name, |ends| ends.consumer.take().map(End::Read))
}

/// Opens the writing end of a queue; its identifier in this thread.
pub fn open_writing(name: &[u8]) -> Option<usize> {
    open(name, |ends| ends.producer.take().map(End::Write))
}

/// Puts a primitive into a queue; whether there was room.
pub fn put(queue: usize, primitive: Primitive) -> bool {
    let put = with_own(|own| match own.ends.get_mut(queue)? {
        End::Write(producer) => producer.push(primitive).ok(),
        End::Read(_) => None,
    });
    put.is_some()
}

/// Takes a primitive from a queue.
pub fn get(queue: usize) -> Option<Primitive> {
    let taken = with_own(|own| match own.ends.get_mut(queue)? {
        End::Read(consumer) => consumer.pop(),
        End::Write(_) => None,
    });
    if taken.is_none() {
        // Nothing to do: the time to send home what was freed.
        flush_frees();
    }
    taken
}

/// A buffer from the pool of `layer`, if that is who asks.
pub fn allocate(layer: usize, size: usize) -> Option<Pdu> {
    with_own(|own| match &mut own.layer {
        Some((own_layer, pool)) if *own_layer == layer => pool.allocate(0, size).ok(),
        _ => None,
    })
}

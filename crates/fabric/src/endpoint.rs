//! An endpoint: the engine under its lock, and the keeper.
//!
//! Inputs → outputs: calls of any thread → the engine's. With manual progress the engine works in the
//! threads that call. The keeper is a thread that sleeps: it sends, within [`KEEPER_TURN`], what waits
//! for company and the application has gone away from, and it speaks for a process that computes
//! for long without a call, so that its peers do not take it for dead. With automatic progress, or
//! when threads may sleep on completions, it drives the engine as well.

use crate::engine::address::AddressVector;
use crate::engine::completion::Progress;
use crate::engine::region_table::RegionTable;
use crate::engine::{Engine, Limits};
use denrei::{BindError, Config, Maker, Node};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a message may wait for company, about: at first, and as long as the application goes away.
const KEEPER_TURN: Duration = Duration::from_micros(50);
/// The longest turn: while the application is there and sends by itself what it has let wait, each turn
/// takes the core from it for nothing.
const KEEPER_LONGEST_TURN: Duration = Duration::from_micros(800);
/// How long the keeper stays awake after there was something to keep.
const KEEPER_AWAKE: Duration = Duration::from_millis(2);
/// How often it looks whether the application has looked: well below any keepalive.
const KEEPER_ROUND: Duration = Duration::from_millis(200);
/// Longest sleep of a driving keeper, so that it notices that it is to end.
const DRIVER_SLEEP: Duration = Duration::from_millis(100);
/// Yields in a row that nobody used, after which the core is this process's alone: those who share it are
/// asleep now and then.
const YIELDS_ALONE: u32 = 64;
/// Pause of a driving keeper while unexpected messages hold others back.
const HELD_BACK_PAUSE: Duration = Duration::from_micros(200);

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    engine: Mutex<Engine>,
    node: Node,
    maker: Maker,
    keeper: Arc<Keeper>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Read by whoever sleeps on the sockets, and takes in what comes.
    resting: RwLock<()>,
    drives: AtomicBool,
    /// Turns of the engine that brought something.
    successes: AtomicU64,
    /// The engine's: yields that others may not use until the core counts as this process's alone.
    turns: Arc<AtomicU32>,
}

/// The engine, which its caller has for itself. Where a keeper drives it, what the call has said to the endpoint's own
/// address is taken in before others have it: the keeper sleeps on the sockets, and nothing comes by them.
#[derive(Debug)]
pub struct Engaged<'a> {
    engine: MutexGuard<'a, Engine>,
    endpoint: &'a Endpoint,
}

impl Deref for Engaged<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for Engaged<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for Engaged<'_> {
    fn drop(&mut self) {
        while self.engine.has_word_for_itself()
            && self.endpoint.drives.load(Ordering::Acquire)
            && self.endpoint.turn(&mut self.engine)
        {}
    }
}

/// What the endpoint and its keeper share.
#[derive(Debug, Default)]
struct Keeper {
    /// Something waits for company.
    deferred: AtomicBool,
    /// The keeper is awake and will see it.
    awake: AtomicBool,
    /// The application has called since the last round.
    attended: AtomicBool,
    stopping: AtomicBool,
}

impl Endpoint {
    /// Opens an endpoint at an address; port 0: any free one.
    ///
    /// # Errors
    /// The address cannot be bound, or must not be without a key.
    pub fn open(
        address: SocketAddr,
        config: Config,
        regions: Arc<RegionTable>,
        limits: Limits,
    ) -> Result<Arc<Self>, BindError> {
        let node = Node::bind(address, config)?;
        let engine = Engine::new(node.clone(), Arc::new(AddressVector::default()), regions, limits);
        Ok(Arc::new(Self {
            turns: Arc::clone(&engine.turns),
            engine: Mutex::new(engine),
            node,
            maker: Maker::this_process(),
            keeper: Arc::default(),
            thread: Mutex::default(),
            resting: RwLock::default(),
            drives: AtomicBool::new(false),
            successes: AtomicU64::new(0),
        }))
    }

    /// Whether this process has opened it, and has not been forked from the one that did.
    pub fn is_own(&self) -> bool {
        self.maker.is_this_process()
    }

    /// The engine; the caller has it for itself.
    pub fn engine(&self) -> Engaged<'_> {
        Engaged { engine: self.engine.lock(), endpoint: self }
    }

    /// Where the endpoint is.
    pub fn local_address(&self) -> SocketAddr {
        self.node.local_addr()
    }

    /// Starts the keeper. `drives`: it makes progress by itself.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn enable(self: &Arc<Self>, drives: bool) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return Ok(());
        }
        self.drives.store(drives, Ordering::Release);
        if drives {
            self.engine().send_at_once();
        }
        let (keeper, node, endpoint) = (Arc::clone(&self.keeper), self.node.clone(), Arc::downgrade(self));
        let builder = std::thread::Builder::new().name("denrei-keeper".into());
        *thread = Some(builder.spawn(move || {
            if drives { drive(&keeper, &node, &endpoint) } else { keep(&keeper, &node, &endpoint) }
        })?);
        Ok(())
    }

    /// Something was queued and waits for company: the keeper sees that it leaves.
    pub fn deferred(&self) {
        self.keeper.deferred.store(true, Ordering::Release);
        if !self.keeper.awake.load(Ordering::Acquire) && !self.keeper.awake.swap(true, Ordering::AcqRel) {
            self.unpark();
        }
    }

    /// Lets the engine work; whether anything came. Who looks while this is closed may come too late: the buffers
    /// are the application's again.
    fn turn(&self, engine: &mut Engine) -> bool {
        if self.keeper.stopping.load(Ordering::Acquire) {
            return false;
        }
        let worked = engine.progress();
        if worked {
            self.successes.fetch_add(1, Ordering::Relaxed);
        }
        worked
    }

    /// Sends what waits for company; whether the application has left anything to be sent.
    fn send_deferred(&self) -> bool {
        // Whoever has the engine may let something wait after this look: it says so.
        let Some(mut engine) = self.engine.try_lock() else { return false };
        engine.send_deferred()
    }

    fn unpark(&self) {
        if let Some(thread) = &*self.thread.lock() {
            Thread::unpark(thread.thread());
        }
    }

    /// Sends what was queued, waits a while for it to be acknowledged, and ends the keeper. Nothing is reported and
    /// no buffer touched after it, whoever still looks. In a child that was forked everything stays as it is.
    pub fn close(&self) {
        if !self.is_own() {
            return std::mem::forget(self.thread.try_lock().and_then(|mut thread| thread.take()));
        }
        self.engine().flush();
        self.keeper.stopping.store(true, Ordering::Release);
        self.unpark();
        if let Some(thread) = self.thread.lock().take() {
            // It has nothing that could panic.
            let _ = thread.join();
        }
        // Other threads may be at it just now.
        let (mut engine, _resting) = (self.engine(), self.resting.write());
        // A Node that has threads of its own goes on as long as it lives.
        engine.end_sessions();
    }
}

impl Progress for Endpoint {
    fn progress(&self) -> u64 {
        // Another thread that is at it does it for us; in a child that was forked nobody does.
        if self.is_own()
            && let Some(mut engine) = self.engine.try_lock()
        {
            self.keeper.attended.store(true, Ordering::Relaxed);
            self.turn(&mut engine);
        }
        self.successes.load(Ordering::Relaxed)
    }

    fn yielded(&self, shared: bool) {
        let turns = if shared { YIELDS_ALONE } else { self.turns.load(Ordering::Relaxed).saturating_sub(1) };
        self.turns.store(turns, Ordering::Relaxed);
    }

    fn has_thread(&self) -> bool {
        self.drives.load(Ordering::Acquire)
    }

    fn rest(&self, longest: Duration) {
        let _resting = self.resting.read();
        if !self.keeper.stopping.load(Ordering::Acquire) && self.is_own() {
            self.node.wait_incoming(longest);
        }
    }
}

/// The keeper's life with manual progress.
fn keep(keeper: &Keeper, node: &Node, endpoint: &Weak<Endpoint>) {
    let (mut last, mut turn) = (Instant::now(), KEEPER_TURN);
    while !keeper.stopping.load(Ordering::Acquire) {
        if keeper.deferred.swap(false, Ordering::AcqRel) {
            let Some(endpoint) = endpoint.upgrade() else { return };
            turn = if endpoint.send_deferred() { KEEPER_TURN } else { (2 * turn).min(KEEPER_LONGEST_TURN) };
            last = Instant::now();
        }
        if keeper.awake.load(Ordering::Acquire) {
            if last.elapsed() < KEEPER_AWAKE {
                std::thread::park_timeout(turn);
                continue;
            }
            keeper.awake.store(false, Ordering::Release);
            // Whoever deferred something before it saw that has relied on us.
            continue;
        }
        std::thread::park_timeout(KEEPER_ROUND);
        if keeper.awake.load(Ordering::Acquire) {
            last = Instant::now();
        }
        if !keeper.attended.swap(false, Ordering::Relaxed) {
            node.poll();
        }
    }
}

/// The keeper's life with automatic progress.
fn drive(keeper: &Keeper, node: &Node, endpoint: &Weak<Endpoint>) {
    while !keeper.stopping.load(Ordering::Acquire) {
        let Some(endpoint) = endpoint.upgrade() else { return };
        keeper.awake.store(true, Ordering::Release);
        let (worked, held_back) = {
            let mut engine = endpoint.engine();
            (endpoint.turn(&mut engine), engine.is_holding_back())
        };
        drop(endpoint);
        if worked {
            continue;
        }
        if held_back {
            std::thread::sleep(HELD_BACK_PAUSE);
        } else {
            node.wait_incoming(DRIVER_SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Payload, Receive, Send, Until};
    use crate::memory::Memory;
    use crate::settings::Settings;
    use denrei::Drive;

    #[test]
    fn a_closed_endpoint_touches_no_buffer_whoever_still_looks_or_sleeps() {
        for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
            close_while_a_message_comes(drive);
        }
    }

    fn close_while_a_message_comes(drive: Drive) {
        const LEN: usize = 4 << 20;
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let open = || {
            let address = "127.0.0.1:0".parse().unwrap();
            let config = Config { drive, ..settings.node_config() };
            Endpoint::open(address, config, Arc::default(), settings.limits.clone()).unwrap()
        };
        let (from, to) = (open(), open());
        let addresses = Arc::new(AddressVector::default());
        addresses.insert(to.local_address());
        from.engine().set_addresses(addresses);
        let (mut out, mut into) = (vec![7; LEN], vec![0; LEN]);
        // SAFETY: they live longer than the endpoints are used.
        let posted = |bytes: &mut [u8]| unsafe { Memory::new([(bytes.as_mut_ptr(), bytes.len())]) };
        let anybodys = to.engine().pattern(crate::ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
        for _ in 0..2 {
            let receive = Receive { memory: posted(&mut into), context: 1, wanted: true, multi: None };
            to.engine().receive(false, anybodys, receive).unwrap();
        }
        let send = |payload| {
            let send = Send { to: 0, tag: None, data: None, payload, report: None, until: Until::Free };
            from.engine().send(send)
        };
        send(Payload::Posted(posted(&mut out))).unwrap();
        // Until the large one is on its way.
        while core::hint::black_box(&into)[0] == 0 {
            from.progress();
            to.progress();
        }
        to.close();
        into.fill(0);
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            // Its session is over, and the next is nobody's.
            let _ = send(Payload::Copied(&[7; 8]));
            from.progress();
            to.progress();
            to.rest(Duration::from_micros(100));
        }
        assert!(core::hint::black_box(&into).iter().all(|byte| *byte == 0), "{drive:?}");
    }
}

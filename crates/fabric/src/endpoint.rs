//! An endpoint: the engine under its lock, and the keeper.
//!
//! Inputs → outputs: calls of any thread → the engine's. With manual progress the engine works in the
//! threads that call, and in the keeper while none does.

use crate::engine::address::AddressVector;
use crate::engine::region_table::RegionTable;
use crate::engine::sources::Progress;
use crate::engine::{Engine, Limits};
use crate::keeper::{Keeper, Keeps};
use denrei::{BindError, Config, Maker, Node};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// Yields in a row that nobody used, after which the core is this process's alone: those who share it are
/// asleep now and then.
const YIELDS_ALONE: u32 = 64;
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

    /// Starts the keeper.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn enable(self: &Arc<Self>, keeps: Keeps) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return Ok(());
        }
        let drives = keeps == Keeps::Driving;
        self.drives.store(drives, Ordering::Release);
        if drives {
            self.engine().send_at_once();
        }
        let (keeper, node, endpoint) = (Arc::clone(&self.keeper), self.node.clone(), Arc::downgrade(self));
        let builder = std::thread::Builder::new().name("denrei-keeper".into());
        *thread = Some(builder.spawn(move || keeper.live(keeps, &node, &endpoint))?);
        Ok(())
    }

    /// Something was queued and waits for company: the keeper sees that it leaves.
    pub fn deferred(&self) {
        if self.keeper.is_to_be_woken() {
            self.wake_keeper();
        }
    }

    /// Lets the engine work; whether anything came. Who looks while this is closed may come too late: the buffers
    /// are the application's again.
    pub(crate) fn turn(&self, engine: &mut Engine) -> bool {
        if self.keeper.is_stopping() {
            return false;
        }
        let worked = engine.progress();
        if worked {
            self.successes.fetch_add(1, Ordering::Relaxed);
        }
        worked
    }

    /// Sends what waits for company; whether the application has left anything to be sent. `None`: somebody has the
    /// engine, and is not waited for.
    pub(crate) fn send_deferred(&self, waits: bool) -> Option<bool> {
        let engine = if waits { Some(self.engine.lock()) } else { self.engine.try_lock() };
        engine.map(|mut engine| engine.send_deferred())
    }

    /// The keeper looks whether it is wanted, wherever it sleeps.
    fn wake_keeper(&self) {
        if let Some(thread) = &*self.thread.lock() {
            Thread::unpark(thread.thread());
        }
        if self.keeper.is_on_sockets() {
            self.node.rally();
        }
    }

    /// Sends what was queued, waits a while for it to be acknowledged, and ends the keeper. Nothing is reported and
    /// no buffer touched after it, whoever still looks. In a child that was forked everything stays as it is.
    pub fn close(&self) {
        if !self.is_own() {
            return std::mem::forget(self.thread.try_lock().and_then(|mut thread| thread.take()));
        }
        self.engine().flush();
        self.keeper.stop();
        self.wake_keeper();
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
            self.keeper.attend();
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
        if !self.keeper.is_stopping() && self.is_own() {
            self.node.wait_incoming(longest);
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
    use std::time::Instant;

    #[test]
    fn a_closed_endpoint_touches_no_buffer_whoever_still_looks_or_sleeps() {
        for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
            close_while_a_message_comes(drive);
        }
    }

    const LEN: usize = 4 << 20;

    /// Two endpoints, of which the first knows the second.
    fn pair(drive: Drive) -> (Arc<Endpoint>, Arc<Endpoint>) {
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
        (from, to)
    }

    /// What is posted; it has to live longer than the endpoints are used.
    fn posted(bytes: &mut [u8]) -> Memory {
        // SAFETY: it does in these tests.
        unsafe { Memory::new([(bytes.as_mut_ptr(), bytes.len())]) }
    }

    /// Posts a receive for a message of anybody.
    fn receive(to: &Endpoint, into: &mut [u8]) {
        let mut engine = to.engine();
        let anybodys = engine.pattern(crate::ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
        let receive = Receive { memory: posted(into), context: 1, wanted: true, multi: None };
        engine.receive(false, anybodys, receive).unwrap();
    }

    fn send(from: &Endpoint, payload: Payload<'_>) -> Result<bool, crate::error::Errno> {
        let send = Send { to: 0, tag: None, data: None, payload, report: None, until: Until::Free };
        from.engine().send(send)
    }

    /// The application of neither calls once it has posted: it computes.
    #[test]
    fn a_message_arrives_while_both_sides_compute() {
        let (from, to) = pair(Drive::Inline);
        let (mut out, mut into) = (vec![7; LEN], vec![0; LEN]);
        receive(&to, &mut into);
        send(&from, Payload::Posted(posted(&mut out))).unwrap();
        for endpoint in [&from, &to] {
            endpoint.enable(Keeps::StandingIn).unwrap();
        }
        let end = Instant::now() + Duration::from_secs(10);
        while core::hint::black_box(&into).contains(&0) {
            assert!(Instant::now() < end, "nobody has taken it in");
            std::thread::sleep(Duration::from_millis(10));
        }
        from.close();
        to.close();
    }

    /// Until the keeper that stands in sleeps on the sockets, and has not done so for long.
    const ASLEEP: Duration = Duration::from_millis(70);

    #[test]
    fn a_row_of_small_messages_leaves_though_the_keeper_sleeps_on_the_sockets() {
        const ROWS: usize = 8;
        const ROW: usize = 6;
        let (from, to) = pair(Drive::Inline);
        let mut into = [0; ROW];
        from.enable(Keeps::StandingIn).unwrap();
        let mut lasted = Duration::ZERO;
        for _ in 0..ROWS {
            into.fill(0);
            for octet in into.chunks_mut(1) {
                receive(&to, octet);
            }
            let end = Instant::now() + ASLEEP;
            while Instant::now() < end {
                to.progress();
            }
            for _ in 0..ROW {
                if send(&from, Payload::Copied(&[7])).unwrap() {
                    from.deferred();
                }
            }
            let began = Instant::now();
            while core::hint::black_box(&into).contains(&0) {
                assert!(began.elapsed() < Duration::from_secs(10), "they wait for company for ever");
                to.progress();
            }
            lasted += began.elapsed();
        }
        // By itself it would wake after 50 ms on average.
        assert!(lasted < ROWS as u32 * Duration::from_millis(30), "{ROWS} rows took {lasted:?}");
        from.close();
        to.close();
    }

    /// Receives are posted while the keeper turns, say.
    #[test]
    fn a_row_of_small_messages_leaves_though_the_engine_was_in_use_when_the_keeper_turned() {
        const ROW: usize = 6;
        let (from, to) = pair(Drive::Inline);
        let mut into = [0; ROW];
        for octet in into.chunks_mut(1) {
            receive(&to, octet);
        }
        from.enable(Keeps::Alive).unwrap();
        for _ in 0..ROW {
            if send(&from, Payload::Copied(&[7])).unwrap() {
                from.deferred();
            }
        }
        // Until the keeper sleeps again.
        let in_use = from.engine();
        std::thread::sleep(Duration::from_millis(20));
        drop(in_use);
        let end = Instant::now() + Duration::from_secs(5);
        while core::hint::black_box(&into).contains(&0) {
            assert!(Instant::now() < end, "they wait for company for ever");
            to.progress();
        }
        from.close();
        to.close();
    }

    /// It never looks, and wakes the keeper for each row.
    #[test]
    fn a_message_arrives_while_a_program_computes_between_rows_of_small_ones() {
        let (peer, program) = pair(Drive::Inline);
        let addresses = Arc::new(AddressVector::default());
        addresses.insert(peer.local_address());
        program.engine().set_addresses(addresses);
        let (mut out, mut into) = (vec![7; LEN], vec![0; LEN]);
        receive(&program, &mut into);
        program.enable(Keeps::StandingIn).unwrap();
        peer.enable(Keeps::Driving).unwrap();
        send(&peer, Payload::Posted(posted(&mut out))).unwrap();
        let end = Instant::now() + Duration::from_secs(3);
        while core::hint::black_box(&into).contains(&0) {
            assert!(Instant::now() < end, "nobody has taken it in");
            for _ in 0..4 {
                if send(&program, Payload::Copied(&[7; 8])).unwrap() {
                    program.deferred();
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        program.close();
        peer.close();
    }

    #[test]
    fn closing_does_not_wait_until_a_keeper_wakes_by_itself() {
        const TIMES: u32 = 8;
        for keeps in [Keeps::StandingIn, Keeps::Driving] {
            let mut lasted = Duration::ZERO;
            for _ in 0..TIMES {
                let (endpoint, _) = pair(Drive::Inline);
                endpoint.enable(keeps).unwrap();
                std::thread::sleep(ASLEEP);
                let began = Instant::now();
                endpoint.close();
                lasted += began.elapsed();
            }
            assert!(lasted < TIMES * Duration::from_millis(25), "{keeps:?}: {TIMES} times took {lasted:?}");
        }
    }

    fn close_while_a_message_comes(drive: Drive) {
        let (from, to) = pair(drive);
        let (mut out, mut into) = (vec![7; LEN], vec![0; LEN]);
        for _ in 0..2 {
            receive(&to, &mut into);
        }
        send(&from, Payload::Posted(posted(&mut out))).unwrap();
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
            let _ = send(&from, Payload::Copied(&[7; 8]));
            from.progress();
            to.progress();
            to.rest(Duration::from_micros(100));
        }
        assert!(core::hint::black_box(&into).iter().all(|byte| *byte == 0), "{drive:?}");
    }
}

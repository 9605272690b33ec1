use super::*;
use crate::wake::Sleeper;
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

mod ends;
mod portions;

const LONG: Duration = Duration::from_secs(20);

/// Counts what passes and stamps it, as a header would.
struct Stamp {
    stamp: u64,
}

impl Layer<Vec<u64>> for Stamp {
    fn from_above(&mut self, mut pdu: Vec<u64>, out: &mut Outlet<'_, Vec<u64>>) {
        pdu.push(self.stamp);
        out.down(pdu);
    }

    fn from_below(&mut self, mut pdu: Vec<u64>, out: &mut Outlet<'_, Vec<u64>>) {
        assert_eq!(pdu.pop(), Some(self.stamp));
        out.up(pdu);
    }
}

fn stamps(layers: u64) -> Builder<Vec<u64>> {
    (0..layers).fold(Builder::new(), |builder, stamp| builder.layer(format!("layer{stamp}"), Stamp { stamp }))
}

/// Sends through a stack that loops back, and checks that all come back in order.
fn round(builder: Builder<Vec<u64>>, count: u64) -> (Shutdown, Vec<QueueReport>) {
    let (stack, mut top, _bottom) = builder.loop_back().start().unwrap();
    let (mut sent, mut received) = (0, 0);
    let began = std::time::Instant::now();
    while received < count {
        if sent < count && top.send(vec![sent]).is_ok() {
            sent += 1;
        }
        match top.recv() {
            Some(pdu) => {
                assert_eq!(pdu, [received]);
                received += 1;
            }
            None => std::thread::yield_now(),
        }
        assert!(began.elapsed() < LONG, "{received} of {sent} came back: {:?}", stack.counters());
    }
    let counters = stack.counters();
    (stack.shutdown(LONG), counters)
}

const CLEAN: Shutdown = Shutdown { drained: true, left: 0, dropped: 0, panicked: 0 };

#[test]
fn every_grouping_and_way_to_wait_gives_the_same() {
    for grouping in [Grouping::Together, Grouping::Each, Grouping::Sizes(vec![1, 2])] {
        for idle in [Idle::Yield, Idle::Park { after_turns: 3 }, Idle::Spin] {
            // Spinning threads beyond the cores wait for each other's time slices.
            let count = if idle == Idle::Spin { 200 } else { 5_000 };
            let builder = stamps(3).grouping(grouping.clone()).idle(idle).queue(16);
            let (shutdown, counters) = round(builder, count);
            assert_eq!(shutdown, CLEAN, "{grouping:?} {idle:?}");
            assert!(counters.iter().all(|queue| queue.counters.depth_max <= 16));
        }
    }
}

#[test]
fn queues_are_named_and_counted() {
    let builder = stamps(3).grouping(Grouping::Sizes(vec![2, 1])).idle(Idle::Yield).queue(8);
    let (_, counters) = round(builder, 100);
    let names: Vec<_> = counters.iter().map(|queue| (queue.from.as_str(), queue.to.as_str())).collect();
    assert!(names.contains(&("layer0+layer1", "layer2")) && names.contains(&("layer2", "layer0+layer1")));
    assert!(names.contains(&("application", "layer0+layer1")));
    let down = counters.iter().find(|queue| queue.to == "layer2").unwrap();
    assert!(down.counters.depth_max > 0 && down.counters.idle > 0);
}

#[test]
fn a_reader_that_is_late_holds_everybody_up_and_loses_nothing() {
    let (stack, mut top, _bottom) = stamps(2).queue(4).loop_back().start().unwrap();
    let mut sent = 0;
    // Until nothing goes in for a while: every queue, and what layers keep, is full.
    let mut refused = 0;
    while refused < 1_000 {
        match top.send(vec![sent]) {
            Ok(()) => (sent, refused) = (sent + 1, 0),
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        assert!(sent < 1_000, "queues of 4 take no end of PDUs");
    }
    assert!(stack.counters().iter().any(|queue| queue.counters.full > 0));
    let mut received = 0;
    let began = std::time::Instant::now();
    while received < sent {
        match top.recv() {
            Some(pdu) => {
                assert_eq!(pdu, [received]);
                received += 1;
            }
            None => std::thread::yield_now(),
        }
        assert!(began.elapsed() < LONG);
    }
    assert_eq!(stack.shutdown(LONG), CLEAN);
}

#[test]
fn shutting_down_lets_everything_arrive() {
    for grouping in [Grouping::Together, Grouping::Each] {
        let (stack, mut top, mut bottom) = stamps(3).grouping(grouping).queue(512).start().unwrap();
        for number in 0..300 {
            top.send(vec![number]).unwrap();
            bottom.send(vec![number, 0, 1, 2]).unwrap();
        }
        assert_eq!(stack.shutdown(LONG), CLEAN);
        for number in 0..300 {
            assert_eq!(bottom.recv(), Some(vec![number, 0, 1, 2]));
        }
        assert_eq!(bottom.recv(), None);
        let up: Vec<_> = std::iter::from_fn(|| top.recv()).collect();
        assert_eq!(up, (0..300).map(|number| vec![number]).collect::<Vec<_>>());
    }
}

#[test]
fn a_layer_that_is_not_quiet_is_waited_for_but_not_for_ever() {
    struct Restless;
    impl Layer<u8> for Restless {
        fn from_above(&mut self, _: u8, _: &mut Outlet<'_, u8>) {}
        fn from_below(&mut self, _: u8, _: &mut Outlet<'_, u8>) {}
        fn is_quiet(&self) -> bool {
            false
        }
    }
    let (stack, _top, _bottom) = Builder::new().layer("restless", Restless).start().unwrap();
    assert_eq!(stack.shutdown(Duration::from_millis(20)), Shutdown { drained: false, ..CLEAN });
}

/// A layer may sleep, or wait for a disk. What is in front of it then is not waited for.
#[test]
fn a_layer_that_blocks_is_waited_for_once() {
    const EACH: Duration = Duration::from_millis(150);

    struct Slow;

    impl Layer<Vec<u64>> for Slow {
        fn from_above(&mut self, pdu: Vec<u64>, out: &mut Outlet<'_, Vec<u64>>) {
            std::thread::sleep(EACH);
            out.down(pdu);
        }

        fn from_below(&mut self, _: Vec<u64>, _: &mut Outlet<'_, Vec<u64>>) {}
    }

    for grouping in [Grouping::Each, Grouping::Together] {
        let stack = Builder::new().layer("slow", Slow).layer("below", Stamp { stamp: 1 }).grouping(grouping);
        let (stack, mut top, mut bottom) = stack.start().unwrap();
        (0..20).for_each(|number| top.send(vec![number]).unwrap());
        std::thread::sleep(EACH / 2);
        let began = std::time::Instant::now();
        let Shutdown { drained, left, dropped, panicked } = stack.shutdown(EACH / 10);
        assert!(began.elapsed() < 10 * EACH, "{:?}", began.elapsed());
        let arrived = std::iter::from_fn(|| bottom.recv()).count() as u64;
        assert_eq!((drained, left + arrived, dropped, panicked), (false, 20, 0, 0));
    }
}

#[test]
fn a_panic_in_a_layer_is_reported() {
    struct Broken;
    impl Layer<u8> for Broken {
        fn from_above(&mut self, _: u8, _: &mut Outlet<'_, u8>) {
            panic!("a layer breaks, as this test wants");
        }
        fn from_below(&mut self, _: u8, _: &mut Outlet<'_, u8>) {}
    }
    let (said, heard) = std::sync::mpsc::channel();
    let said = Mutex::new(said);
    let builder =
        Builder::new().layer("broken", Broken).on_panic(move || said.lock().unwrap().send(()).unwrap());
    let (stack, mut top, _bottom) = builder.start().unwrap();
    top.send(1).unwrap();
    heard.recv_timeout(LONG).unwrap();
    let shutdown = stack.shutdown(LONG);
    assert_eq!((shutdown.drained, shutdown.panicked), (false, 1));
}

#[test]
fn a_stack_that_has_ended_takes_nothing() {
    let (stack, mut top, mut bottom) = stamps(2).start().unwrap();
    assert_eq!((top.send(vec![1]), top.is_closed()), (Ok(()), false));
    assert_eq!(stack.shutdown(LONG), CLEAN);
    assert_eq!(top.send(vec![2]), Err(vec![2]), "nobody would ever take it");
    assert!(top.is_closed() && bottom.is_closed());
    assert_eq!(bottom.recv(), Some(vec![1, 0, 1]), "what came out before is there");
}

#[test]
fn sleeping_threads_are_woken() {
    let idle = Idle::Park { after_turns: 0 };
    let (stack, mut top, _bottom) = stamps(3).idle(idle).loop_back().start().unwrap();
    for number in 0..50 {
        std::thread::sleep(Duration::from_micros(300));
        top.send(vec![number]).unwrap();
        let began = std::time::Instant::now();
        while top.recv().is_none() {
            std::thread::yield_now();
            assert!(began.elapsed() < Duration::from_millis(900), "woken by the bell, not by the limit");
        }
    }
    assert!(stack.parks() > 0);
    assert_eq!(stack.shutdown(LONG), CLEAN);
}

#[test]
fn wrong_plans_are_refused_with_advice() {
    let error = |builder: Builder<Vec<u64>>| builder.start().unwrap_err().to_string();
    assert_eq!(error(Builder::new()), "a stack needs at least one layer");
    let groups = error(stamps(3).grouping(Grouping::Sizes(vec![1, 1])));
    assert_eq!(groups, "groups of [1, 1] layers do not make up 3: the sizes must be positive and add up");
    let groups = error(stamps(3).grouping(Grouping::Sizes(vec![usize::MAX, 4])));
    assert!(groups.starts_with("groups of [18446744073709551615, 4] layers do not make up 3"), "{groups}");
    for queue in [0, (1 << 20) + 1, 1 << 30] {
        let said = format!("a queue of {queue} cannot be: it holds 1 to 1048576 PDUs");
        assert_eq!(error(stamps(1).queue(queue)), said);
    }
    let core = error(stamps(1).pinning(Pinning::Cores(vec![9_999])));
    assert!(core.starts_with("cannot pin to core 9999: this process may use ["), "{core}");
}

#[test]
fn a_layer_may_have_any_name() {
    let (stack, ..) = Builder::new().layer("a\0b", Stamp { stamp: 0 }).start().unwrap();
    assert_eq!(stack.counters()[0].to, "a\0b");
}

/// Credit that has run out holds the way down; it comes back on the way up, behind other PDUs. If the
/// way up waited for room on the way down, both would wait for ever.
#[test]
fn the_way_up_does_not_wait_for_the_way_down() {
    const CREDIT: u8 = 255;
    const DATA: u8 = 0;

    /// May send one PDU for each credit from below.
    struct Window {
        credit: u32,
    }
    impl Layer<u8> for Window {
        fn takes_from_above(&self) -> bool {
            self.credit > 0
        }
        fn from_above(&mut self, pdu: u8, out: &mut Outlet<'_, u8>) {
            self.credit -= 1;
            out.down(pdu);
        }
        fn from_below(&mut self, pdu: u8, out: &mut Outlet<'_, u8>) {
            if pdu == CREDIT { self.credit += 1 } else { out.up(pdu) }
        }
    }
    /// Answers each PDU.
    struct Echo;
    impl Layer<u8> for Echo {
        fn from_above(&mut self, pdu: u8, out: &mut Outlet<'_, u8>) {
            out.down(pdu);
        }
        fn from_below(&mut self, pdu: u8, out: &mut Outlet<'_, u8>) {
            out.down(pdu);
            out.up(pdu);
        }
    }

    /// More than a group keeps for one side.
    const MANY: u32 = 200;
    for grouping in [Grouping::Together, Grouping::Each] {
        let builder = Builder::new().layer("echo", Echo).layer("window", Window { credit: 0 });
        let (stack, mut top, mut bottom) = builder.grouping(grouping).start().unwrap();
        for _ in 0..MANY {
            top.send(DATA).unwrap();
            bottom.send(DATA).unwrap();
        }
        for _ in 0..2 * MANY {
            bottom.send(CREDIT).unwrap();
        }
        assert_eq!(stack.shutdown(LONG), CLEAN);
        assert_eq!(std::iter::from_fn(|| top.recv()).count(), MANY as usize);
        assert_eq!(std::iter::from_fn(|| bottom.recv()).count(), 2 * MANY as usize);
    }
}

#[test]
fn a_shutdown_may_have_all_the_time_there_is() {
    let (stack, _top, _bottom) = stamps(2).start().unwrap();
    assert_eq!(stack.shutdown(Duration::MAX), CLEAN);
}

/// Drops what runs it.
struct Ending(Arc<std::sync::Mutex<Option<Stack>>>, std::sync::mpsc::Sender<bool>);

impl Layer<Vec<u64>> for Ending {
    fn from_above(&mut self, _: Vec<u64>, _: &mut Outlet<'_, Vec<u64>>) {
        let stack = self.0.lock().unwrap().take().unwrap();
        let own = stack.runs_this_thread();
        drop(stack);
        self.1.send(own).unwrap();
    }

    fn from_below(&mut self, _: Vec<u64>, _: &mut Outlet<'_, Vec<u64>>) {}
}

#[test]
fn a_layer_may_end_its_own_stack() {
    let (place, (said, heard)) = (Arc::default(), std::sync::mpsc::channel());
    let builder = Builder::new().layer("ending", Ending(Arc::clone(&place), said));
    let (stack, mut top, _bottom) = builder.start().unwrap();
    assert!(!stack.runs_this_thread());
    *place.lock().unwrap() = Some(stack);
    top.send(vec![]).unwrap();
    assert_eq!(heard.recv_timeout(LONG), Ok(true));
}

/// Takes nothing until a while has passed, as a sender that the kernel has no room for.
struct Full {
    polls: Arc<AtomicU64>,
    has_room: Arc<AtomicBool>,
}

impl Layer<u64> for Full {
    fn takes_from_above(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    fn from_above(&mut self, pdu: u64, out: &mut Outlet<'_, u64>) {
        out.down(pdu);
    }

    fn from_below(&mut self, _: u64, _: &mut Outlet<'_, u64>) {}

    fn poll(&mut self, _: &mut Outlet<'_, u64>) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn idle_for(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn a_thread_sleeps_while_a_layer_takes_nothing() {
    let (polls, has_room) = (Arc::default(), Arc::default());
    let full = Full { polls: Arc::clone(&polls), has_room: Arc::clone(&has_room) };
    let (stack, mut top, mut bottom) = Builder::new().layer("full", full).start().unwrap();
    // More than the layer's thread keeps: some stay in the queue.
    for number in 0..200 {
        top.send(number).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    // It looks some hundred times before it sleeps, and then once a millisecond.
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls < 1_500, "{polls} looks in vain");
    has_room.store(true, Ordering::Relaxed);
    let began = std::time::Instant::now();
    for expected in 0..200 {
        let pdu = loop {
            match bottom.recv() {
                Some(pdu) => break pdu,
                None => std::thread::yield_now(),
            }
            assert!(began.elapsed() < LONG);
        };
        assert_eq!(pdu, expected);
    }
    assert_eq!(stack.shutdown(LONG), CLEAN);
}

/// Sleeps by means of its own, and is given work by another just after it was asked for some.
struct Asked {
    bell: Arc<OnceLock<Arc<Bell>>>,
    is_given: AtomicBool,
    naps: Naps,
    said: std::sync::mpsc::Sender<bool>,
}

/// Sleeps until called; whether it ever was called too late.
struct Naps {
    calls: Arc<(Mutex<bool>, Condvar)>,
    has_overslept: bool,
}

impl Sleeper for Naps {
    fn sleep(&mut self, limit: Duration) {
        let calls = self.calls.0.lock().unwrap();
        let (mut called, end) = self.calls.1.wait_timeout_while(calls, limit, |called| !*called).unwrap();
        self.has_overslept |= end.timed_out();
        *called = false;
    }

    fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let calls = Arc::clone(&self.calls);
        Box::new(move || {
            *calls.0.lock().unwrap() = true;
            calls.1.notify_all();
        })
    }
}

impl Layer<u64> for Asked {
    fn from_above(&mut self, _: u64, _: &mut Outlet<'_, u64>) {}

    fn from_below(&mut self, _: u64, _: &mut Outlet<'_, u64>) {}

    fn poll(&mut self, _: &mut Outlet<'_, u64>) -> bool {
        if self.is_given.load(Ordering::Relaxed) {
            // Nobody listens to what comes after the first.
            let _ = self.said.send(self.naps.has_overslept);
        }
        false
    }

    fn has_work(&self) -> bool {
        let Some(bell) = self.bell.get() else { return true };
        let was_given = self.is_given.swap(true, Ordering::Relaxed);
        if !was_given {
            bell.ring();
        }
        was_given
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleeper> {
        Some(&mut self.naps)
    }
}

#[test]
fn a_layer_that_sleeps_by_itself_is_asked_for_work_after_its_announcement() {
    let (bell, (said, heard)) = (Arc::<OnceLock<_>>::default(), std::sync::mpsc::channel());
    let naps = Naps { calls: Arc::default(), has_overslept: false };
    let asked = Asked { bell: Arc::clone(&bell), is_given: AtomicBool::new(false), naps, said };
    let (stack, _top, _bottom) = Builder::new().layer("asked", asked).start().unwrap();
    bell.set(stack.bell(0).unwrap()).unwrap();
    assert_eq!(heard.recv_timeout(LONG), Ok(false), "slept over what it was called for");
}

//! What is heavy is handed on while more of it waits; what has no end within a group does not keep its thread.

use super::*;
use std::sync::atomic::AtomicU64;

/// Takes so long with each PDU that each is worth a hand-over.
const HEAVY: Duration = Duration::from_micros(200);

/// Counts the PDUs that come by.
struct Counts {
    seen: Arc<AtomicU64>,
}

impl Layer<u64> for Counts {
    fn from_above(&mut self, pdu: u64, out: &mut Outlet<'_, u64>) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        out.down(pdu);
    }

    fn from_below(&mut self, pdu: u64, out: &mut Outlet<'_, u64>) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        out.up(pdu);
    }
}

/// Works on each PDU, and does not end with one before its neighbour has seen the last but one.
struct Heavy {
    seen_beside: Arc<AtomicU64>,
    done: u64,
    waited_in_vain: Arc<AtomicU64>,
}

impl Heavy {
    fn work(&mut self) {
        let began = std::time::Instant::now();
        let is_late = || self.seen_beside.load(Ordering::Relaxed) + 2 < self.done;
        while began.elapsed() < HEAVY || (is_late() && began.elapsed() < Duration::from_secs(2)) {
            std::thread::yield_now();
        }
        self.waited_in_vain.fetch_add(is_late().into(), Ordering::Relaxed);
        self.done += 1;
    }
}

impl Layer<u64> for Heavy {
    fn from_above(&mut self, pdu: u64, out: &mut Outlet<'_, u64>) {
        self.work();
        out.down(pdu);
    }

    fn from_below(&mut self, pdu: u64, out: &mut Outlet<'_, u64>) {
        self.work();
        out.up(pdu);
    }
}

#[test]
fn the_neighbour_has_each_heavy_pdu_before_the_batch_is_through() {
    for goes_down in [true, false] {
        let (seen, waited_in_vain) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let heavy =
            Heavy { seen_beside: Arc::clone(&seen), done: 0, waited_in_vain: Arc::clone(&waited_in_vain) };
        let counts = Counts { seen: Arc::clone(&seen) };
        let builder = Builder::new();
        let builder = if goes_down {
            builder.layer("heavy", heavy).layer("counts", counts)
        } else {
            builder.layer("counts", counts).layer("heavy", heavy)
        };
        let builder = builder.grouping(Grouping::Each).idle(Idle::Yield);
        let (stack, mut top, mut bottom) = builder.start().unwrap();
        let (way_in, way_out) = if goes_down { (&mut top, &mut bottom) } else { (&mut bottom, &mut top) };
        for number in 0..40 {
            way_in.send(number).unwrap();
        }
        for number in 0..40 {
            assert_eq!(way_out.recv_timeout(LONG), Some(number));
        }
        assert_eq!(waited_in_vain.load(Ordering::Relaxed), 0, "down: {goes_down}");
        assert_eq!(stack.shutdown(LONG), CLEAN);
    }
}

/// Has something new for below as soon as what it gave has come back, until it is closed, or `LONG` is over.
struct Restless {
    closed: bool,
    began: Option<std::time::Instant>,
    polled_after: Arc<AtomicU64>,
    goes_up: bool,
}

impl Layer<u64> for Restless {
    fn from_above(&mut self, _: u64, _: &mut Outlet<'_, u64>) {}

    fn from_below(&mut self, pdu: u64, out: &mut Outlet<'_, u64>) {
        // So that whoever reads what goes up is not behind.
        std::thread::sleep(Duration::from_micros(50));
        if self.goes_up {
            out.up(pdu);
        }
        if !self.closed && self.began.is_some_and(|began| began.elapsed() < LONG) {
            out.down(pdu + 1);
        }
    }

    fn poll(&mut self, out: &mut Outlet<'_, u64>) -> bool {
        let is_first = self.began.is_none();
        if is_first {
            self.began = Some(std::time::Instant::now());
            out.down(0);
        } else {
            self.polled_after.fetch_add(1, Ordering::Relaxed);
        }
        is_first
    }

    fn close(&mut self) {
        self.closed = true;
    }
}

#[test]
fn what_comes_back_without_end_keeps_no_thread() {
    for goes_up in [true, false] {
        let polled_after = Arc::<AtomicU64>::default();
        let layer = Restless { closed: false, began: None, polled_after: Arc::clone(&polled_after), goes_up };
        let (stack, mut top, _bottom) =
            Builder::new().layer("restless", layer).loop_back().idle(Idle::Yield).start().unwrap();
        let began = std::time::Instant::now();
        while polled_after.load(Ordering::Relaxed) < 3 {
            assert!(began.elapsed() < LONG / 2, "up: {goes_up}: not polled");
            top.recv_timeout(Duration::from_millis(1));
        }
        let reading = std::thread::spawn(move || {
            while !top.is_closed() {
                top.recv_timeout(LONG);
            }
        });
        assert_eq!(stack.shutdown(LONG), CLEAN);
        assert!(began.elapsed() < LONG / 2, "up: {goes_up}: not told to close");
        reading.join().unwrap();
    }
}

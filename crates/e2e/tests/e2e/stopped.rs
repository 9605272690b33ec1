//! A process that stands still for five seconds.

use crate::harness::{Pair, SOON, begin};
use denrei_e2e::{Drive, Latency, Order, Report, Settings, Sizes};
use nix::sys::signal::Signal;
use std::time::Duration;

/// How long it stands still.
const STOP: Duration = Duration::from_secs(5);
/// 99 % of the round trips with another peer are faster: far below any timer or time-out, far above
/// what a busy machine needs to let a process run.
const P99_LIMIT_US: u64 = 25_000;
/// Round trips with the other peer.
const PINGS: usize = 1500;
/// Pause between them, µs: together longer than the stop.
const PING_PAUSE_US: u64 = 3000;

#[test]
fn a_stopped_receiver_loses_nothing_and_delays_nobody() {
    let test = begin("a_stopped_receiver_loses_nothing_and_delays_nobody");
    let Some(lab) = test.lab(5, 1500) else { return };
    let mut echo = test.process_on(&lab, 4, "echo", "node");
    echo.order(&Order::Echo);
    let echo_addr = echo.bind(lab.host(4).ip(), Settings::driven(Drive::Thread));
    let drives = [Drive::Inline, Drive::Thread];
    let sizes = Sizes::Fixed(8000);
    let mut pairs =
        [0, 1].map(|i| Pair::on(&test, &lab, 2 * i, 2 * i + 1, &Settings::driven(drives[i]), sizes));
    let count = 2000;
    for pair in &mut pairs {
        let other = pair.sender.connect(echo_addr);
        pair.send(count, 500);
        pair.sender.order(&Order::Ping {
            peer: other,
            channel: 0,
            bytes: 64,
            count: PINGS,
            pause_us: PING_PAUSE_US,
        });
    }
    std::thread::sleep(Duration::from_millis(300));
    for pair in &pairs {
        pair.receiver.signal(Signal::SIGSTOP);
    }
    std::thread::sleep(STOP);
    for pair in &pairs {
        pair.receiver.signal(Signal::SIGCONT);
    }
    for (pair, drive) in pairs.iter_mut().zip(drives) {
        let (took, _) = pair.finish(count, Duration::from_secs(20));
        assert!(took > STOP, "the stream was over in {took:?}, before the stop was");
        let latency: Latency = pair.sender.wait("latencies", SOON, |report| match report {
            Report::Latency(latency) => Some(*latency),
            _ => None,
        });
        test.print(format_args!("{drive:?}: the stream took {took:.2?}; the other peer: {latency:?}"));
        assert!(latency.p99_us < P99_LIMIT_US, "the other peer was delayed: {latency:?}");
    }
}

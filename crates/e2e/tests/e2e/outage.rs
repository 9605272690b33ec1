//! A cable pulled for ten seconds.

use crate::harness::{Pair, begin_beside, until};
use denrei_e2e::{Drive, Settings, Sizes};
use std::time::{Duration, Instant};

/// How long the cable is out.
const OUTAGE: Duration = Duration::from_secs(10);
/// How soon after it is back traffic has to flow: probes go at least twice a second, the kernel asks where the other host is
/// once a second, and on a busy machine either waits for its turn.
const RESUMES_WITHIN: Duration = Duration::from_secs(4);
/// Messages per channel.
const COUNT: u64 = 2500;
/// Time between two messages, µs: there is something to send before, in and after the outage.
const PACE_US: u64 = 1700;
/// The pairs' drive modes.
const DRIVES: [Drive; 2] = [Drive::Inline, Drive::Thread];

#[test]
fn a_link_that_is_down_for_ten_seconds() {
    let test = begin_beside("a_link_that_is_down_for_ten_seconds");
    let Some(lab) = test.lab(4, 1500) else { return };
    let sizes = Sizes::Mixed { most: 64 << 10 };
    let mut pairs =
        [0, 1].map(|i| Pair::on(&test, &lab, 2 * i, 2 * i + 1, &Settings::driven(DRIVES[i]), sizes));
    for pair in &mut pairs {
        pair.send(COUNT, PACE_US);
        until("messages", || pair.receiver.received() >= 100);
    }
    for receiver in [1, 3] {
        lab.link_down(receiver).unwrap();
    }
    std::thread::sleep(OUTAGE);
    let before = pairs.each_mut().map(|pair| pair.receiver.received());
    // One after the other, so that the time for one is not spent on looking at the other.
    for (index, pair) in pairs.iter_mut().enumerate() {
        assert!(before[index] < 3 * COUNT, "the stream ended before the outage did");
        lab.link_up(2 * index + 1).unwrap();
        let up = Instant::now();
        until("more messages", || pair.receiver.received() > before[index]);
        let resumed = up.elapsed();
        test.print(format_args!(
            "{:?}: traffic resumed {} ms after the link",
            DRIVES[index],
            resumed.as_millis()
        ));
        assert!(resumed <= RESUMES_WITHIN, "it took {resumed:?}");
    }
    for pair in &mut pairs {
        let (took, _) = pair.finish(COUNT, Duration::from_secs(30));
        assert!(took > OUTAGE);
    }
}

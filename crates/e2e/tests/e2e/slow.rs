//! A reader that does not read.

use crate::harness::{Pair, begin, expect_complete, stream};
use denrei_e2e::{Drive, Order, Report, Settings, Sizes};
use std::time::Duration;

/// Credit of a channel by default, bytes.
const CREDIT_BYTES: u64 = 4 << 20;

#[test]
fn a_slow_reader_stops_only_its_own_sender() {
    let test = begin("a_slow_reader_stops_only_its_own_sender");
    let Some(lab) = test.lab(3, 1500) else { return };
    let count = 500;
    for drive in [Drive::Inline, Drive::Thread] {
        let settings = Settings::driven(drive);
        let mut slow = Pair::on(&test, &lab, 0, 1, &settings, Sizes::Fixed(50_000));
        slow.receiver.order(&Order::Read(false));
        // Answered after that order was carried out.
        assert!(slow.receiver.tally().is_empty());
        let mut reader = test.process_on(&lab, 2, "the one that reads", "node");
        reader.order(&Order::Verify { plan: slow.plan, from: Vec::new(), trace: false });
        let reader_addr = reader.bind(lab.host(2).ip(), settings);
        slow.send(count, 0);
        // Its queue is full by then.
        std::thread::sleep(Duration::from_millis(700));
        let other = slow.sender.connect(reader_addr);
        slow.sender.order(&Order::Send(stream(other, slow.plan, count, 0)));
        let millis = slow.sender.wait("end of the stream to the reader", Duration::from_secs(15), |report| {
            match *report {
                Report::Sent { peer, millis, .. } if peer == other => Some(millis),
                _ => None,
            }
        });
        expect_complete(&mut reader, &[count; 3]);
        let session = slow.receiver.wait("session", Duration::from_secs(1), |report| match *report {
            Report::Connected { peer } => Some(peer),
            _ => None,
        });
        let unread = slow.receiver.flow(session).unread_bytes;
        assert!((1..=3 * CREDIT_BYTES).contains(&unread), "{unread} bytes held for 3 channels");
        assert!(slow.sender.flow(slow.peer).queued_bytes > 0, "its own sender waits");
        test.print(format_args!("{drive:?}: 75 MB to the reader in {millis} ms, {unread} bytes unread"));
        slow.receiver.order(&Order::Read(true));
        slow.finish(count, Duration::from_secs(15));
    }
}

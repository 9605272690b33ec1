//! Limits: of messages, channels, descriptors and buffers.

use crate::harness::{Pair, Process, SOON, Test, begin, expect_complete, stream, until};
use denrei_e2e::{Drive, Latency, Order, Plan, Report, Settings, Sizes, Stream};
use nix::sys::signal::Signal;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The receiver's limit on messages, bytes.
const MOST: u64 = 100_000;

/// A sender with default settings and the address of a receiver with `limits`; not connected.
fn receiver_with(test: &Test, limits: Settings) -> (Process, Process, std::net::SocketAddr) {
    let (mut sender, mut receiver) = (test.process("sender", "node"), test.process("receiver", "node"));
    let addr = receiver.bind(LOOPBACK, limits);
    sender.bind(LOOPBACK, Settings::default());
    (sender, receiver, addr)
}

/// One message of `bytes` on channel `channel`, and only that.
fn one(peer: u64, channel: u16, bytes: usize) -> Stream {
    let plan = Plan { seed: 1, sizes: Sizes::Fixed(bytes) };
    let from = (0..=channel).map(|other| u64::from(other != channel)).collect();
    Stream { channels: channel + 1, from, ..stream(peer, plan, 1, 0) }
}

/// Connects and sends `send` (whose peer is filled in) while the receiver stands still, so that
/// its limits are not known yet.
fn connect_before_it_answers(
    sender: &mut Process,
    receiver: &Process,
    addr: std::net::SocketAddr,
    send: Stream,
) -> u64 {
    receiver.signal(Signal::SIGSTOP);
    let peer = sender.connect(addr);
    sender.order(&Order::Send(Stream { peer, ..send }));
    until("message on its way", || sender.flow(peer).queued_bytes > 0);
    receiver.signal(Signal::SIGCONT);
    peer
}

fn wait_for_sent(sender: &mut Process, peer: u64) -> u64 {
    sender.wait("acknowledgement", SOON, |report| match *report {
        Report::Sent { peer: to, messages, .. } if to == peer => Some(messages),
        _ => None,
    })
}

#[test]
fn a_message_over_the_receivers_limit_is_refused() {
    let test = begin("a_message_over_the_receivers_limit_is_refused");
    for drive in [Drive::Inline, Drive::Thread] {
        let limits = Settings { max_message_bytes: Some(MOST), ..Settings::driven(drive) };
        let (mut sender, mut receiver, addr) = receiver_with(&test, limits);
        let peer = connect_before_it_answers(&mut sender, &receiver, addr, one(0, 0, 3_000_000));
        let refused = sender.wait("refusal", SOON, |report| match *report {
            Report::Refused { channel, number } => Some((channel, number)),
            _ => None,
        });
        assert_eq!(refused, (0, 0));
        assert_eq!(wait_for_sent(&mut sender, peer), 0);
        // Now it does.
        let error = sender.ask_in_vain(&Order::Send(one(peer, 0, MOST as usize + 1)));
        assert!(error.contains("over the receiver's limit of 100000"), "{error}");
        sender.order(&Order::Send(one(peer, 1, MOST as usize)));
        assert_eq!(wait_for_sent(&mut sender, peer), 1);
        let tally = receiver.tally();
        assert_eq!(tally.iter().map(|session| session.bytes).sum::<u64>(), MOST);
        sender.expect_no_loss();
    }
}

#[test]
fn a_channel_beyond_the_limit_is_refused() {
    let test = begin("a_channel_beyond_the_limit_is_refused");
    let limits = Settings { max_channels: Some(16), ..Settings::default() };
    let (mut sender, receiver, addr) = receiver_with(&test, limits);
    // Channels up to 15 may be used before the receiver has said how many it has; others wait.
    let peer = connect_before_it_answers(&mut sender, &receiver, addr, one(0, 20, 10));
    sender.wait("refusal", SOON, |report| match *report {
        Report::Refused { channel: 20, number: 0 } => Some(()),
        _ => None,
    });
    wait_for_sent(&mut sender, peer);
    sender.order(&Order::Send(one(peer, 15, 10)));
    assert_eq!(wait_for_sent(&mut sender, peer), 1);
    // Beyond the receiver's: known now.
    let error = sender.ask_in_vain(&Order::Send(one(peer, 16, 10)));
    assert_eq!(error, "channel 16 does not exist: numbers go up to 15 (max_channels)");
    sender.order(&Order::Send(one(peer, 2, 10)));
    assert_eq!(wait_for_sent(&mut sender, peer), 1);
    sender.expect_no_loss();
}

#[test]
fn a_process_without_descriptors_says_so_and_goes_on() {
    let test = begin("a_process_without_descriptors_says_so_and_goes_on");
    for drive in [Drive::Inline, Drive::Thread] {
        let (mut caller, mut echo) = (test.process("caller", "node"), test.process("echo", "node"));
        echo.order(&Order::Echo);
        let addr = echo.bind(LOOPBACK, Settings::driven(drive));
        caller.bind(LOOPBACK, Settings::driven(drive));
        let before = caller.resources().descriptors;
        for process in [&mut caller, &mut echo] {
            process.make(&Order::LimitFiles { spare: 0 });
            let error = process.ask_in_vain(&Order::BindAnother);
            assert!(error.contains("out of descriptors: raise `ulimit -n`"), "{error}");
        }
        // Busy enough to deserve a connected socket, which there cannot be.
        let peer = caller.connect(addr);
        caller.order(&Order::Ping { peer, channel: 0, bytes: 64, count: 5000, pause_us: 0 });
        let latency: Latency = caller.wait("5000 echoes", Duration::from_secs(20), |report| match report {
            Report::Latency(latency) => Some(*latency),
            _ => None,
        });
        test.print(format_args!("{drive:?}: {before} descriptors and no more; {latency:?}"));
        caller.expect_no_loss();
        echo.expect_no_loss();
    }
}

/// U8: the kernel holds a packet or two for the receiver and drops the others of a burst.
#[test]
fn a_burst_into_the_smallest_receive_buffer_arrives() {
    let test = begin("a_burst_into_the_smallest_receive_buffer_arrives");
    for drive in [Drive::Inline, Drive::Thread] {
        let settings = Settings { recv_buffer_bytes: Some(1), ..Settings::driven(drive) };
        let processes = (test.process("sender", "node"), test.process("receiver", "node"));
        let mut pair =
            Pair::connected(processes.0, processes.1, [LOOPBACK; 2], &settings, Sizes::Fixed(1000));
        let buffer = pair.receiver.resources().recv_buffer_bytes;
        assert!(buffer < 4096, "the kernel gave {buffer} bytes");
        let whole = Stream { channels: 1, ..stream(pair.peer, pair.plan, 10_000, 0) };
        pair.sender.order(&Order::Send(whole));
        let peer = pair.peer;
        let millis = pair.sender.wait("end of the burst", Duration::from_secs(30), |report| match *report {
            Report::Sent { peer: to, messages: 10_000, millis, .. } if to == peer => Some(millis),
            _ => None,
        });
        expect_complete(&mut pair.receiver, &[10_000]);
        let lost = pair.sender.flow(peer).packets_lost;
        test.print(format_args!("{drive:?}: {buffer} bytes of buffer, {lost} packets lost, {millis} ms"));
    }
}

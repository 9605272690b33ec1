//! Processes killed with SIGKILL.

use crate::harness::{Pair, Process, SOON, Test, begin, begin_beside, expect_complete, on, stream, until};
use denrei_e2e::{Drive, Order, Plan, Report, Settings, Sizes, Stream};
use denrei_netlab::Lab;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Channels of a stream.
const CHANNELS: usize = 3;
/// Messages per channel.
const COUNT: u64 = 2000;
/// Content of what the tests send.
const PLAN: Plan = Plan { seed: 7, sizes: Sizes::Mixed { most: 32 << 10 } };

/// A `Lost` report.
struct Loss {
    reason: String,
    unacknowledged: Vec<(u16, u64)>,
}

fn wait_for_loss(process: &mut Process, peer: u64, limit: Duration) -> Loss {
    process.wait("loss of the peer", limit, |report| match report {
        Report::Lost { peer: lost, reason, unacknowledged } if *lost == peer => {
            Some(Loss { reason: reason.clone(), unacknowledged: unacknowledged.clone() })
        }
        _ => None,
    })
}

/// Number behind the last in each channel of what `pick` finds in the reports, which counts up by one.
fn counted(reports: &[Report], pick: impl Fn(&Report) -> Option<(u16, u64)>) -> Vec<u64> {
    let mut next = vec![0; CHANNELS];
    for (channel, number) in reports.iter().filter_map(pick) {
        assert_eq!(number, next[usize::from(channel)], "channel {channel}: once and in order");
        next[usize::from(channel)] += 1;
    }
    next
}

fn taken(reports: &[Report]) -> Vec<u64> {
    counted(reports, |report| match *report {
        Report::Took { channel, index, .. } => Some((channel, index)),
        _ => None,
    })
}

fn delivered(reports: &[Report]) -> Vec<u64> {
    counted(reports, |report| match *report {
        Report::Delivered { channel, number } => Some((channel, number)),
        _ => None,
    })
}

/// The receiver is killed in the middle and started again. What its application had not taken is
/// sent again to the new incarnation: together the two have everything.
fn a_receiver_is_killed(name: &'static str, drive: Drive) {
    let test = begin(name);
    let Some(lab) = test.lab(2, 1500) else { return };
    let settings = Settings::driven(drive);
    let mut pair = Pair::on(&test, &lab, 0, 1, &settings, PLAN.sizes);
    pair.receiver.order(&Order::Verify { plan: PLAN, from: Vec::new(), trace: true });
    // Answered after that order was carried out.
    assert!(pair.receiver.tally().is_empty());
    let whole = Stream { delivered: true, ..stream(pair.peer, PLAN, COUNT, 200) };
    pair.sender.order(&Order::Send(whole.clone()));
    let in_the_middle = |report: &Report| matches!(report, Report::Took { index: 300.., .. });
    pair.receiver.watch("message 300", SOON, in_the_middle);
    // It only has to bind then: after about a second without anybody at the port the sender would know that it is gone.
    let mut again = test.process_on(&lab, 1, "the receiver's second start", "node");
    let first = taken(&pair.receiver.kill());

    again.order(&Order::Verify { plan: PLAN, from: first.clone(), trace: false });
    again.bind_to(pair.receiver_addr, settings);
    let loss = wait_for_loss(&mut pair.sender, pair.peer, SOON);
    assert!(["Restarted", "Forgotten"].contains(&loss.reason.as_str()), "{}", loss.reason);
    assert!(!loss.unacknowledged.is_empty(), "it was killed in the middle");
    let reported = delivered(&pair.sender.said());
    for channel in 0..CHANNELS {
        // What was taken just before the end may not have been written down any more.
        assert!(reported[channel] <= first[channel] + 1, "delivered {reported:?}, taken {first:?}");
        let numbers = numbers_of(&loss, channel as u16);
        let begins = numbers.first().copied().unwrap_or(0);
        assert!(numbers.iter().copied().eq(begins..begins + numbers.len() as u64), "without a gap");
    }
    let second = pair.sender.connect(pair.receiver_addr);
    assert_ne!(second, pair.peer, "a new incarnation is a new peer");
    pair.sender.order(&Order::Send(Stream { peer: second, from: first.clone(), ..whole }));
    let rest: Vec<u64> = first.iter().map(|taken| COUNT - taken).collect();
    wait_for_sent(&mut pair.sender, second);
    expect_complete(&mut again, &rest);
    test.print(format_args!(
        "{}: {} messages taken before, {} after, {} were not acknowledged",
        loss.reason,
        first.iter().sum::<u64>(),
        rest.iter().sum::<u64>(),
        loss.unacknowledged.len(),
    ));
}

fn wait_for_sent(sender: &mut Process, peer: u64) {
    sender.wait("end of the stream", Duration::from_secs(20), |report| match *report {
        Report::Sent { peer: to, .. } if to == peer => Some(()),
        _ => None,
    });
}

fn numbers_of(loss: &Loss, channel: u16) -> Vec<u64> {
    loss.unacknowledged.iter().filter(|id| id.0 == channel).map(|id| id.1).collect()
}

#[test]
fn a_receiver_is_killed_and_restarted_inline() {
    a_receiver_is_killed("a_receiver_is_killed_and_restarted_inline", Drive::Inline);
}

#[test]
fn a_receiver_is_killed_and_restarted_threaded() {
    a_receiver_is_killed("a_receiver_is_killed_and_restarted_threaded", Drive::Thread);
}

/// The sender is killed in the middle of large messages and started again: the receiver hears of
/// the end, and nothing of the first incarnation gets into the session of the second.
#[test]
fn a_sender_is_killed_and_restarted() {
    let test = begin("a_sender_is_killed_and_restarted");
    let Some(lab) = test.lab(2, 1500) else { return };
    for drive in [Drive::Inline, Drive::Thread] {
        let settings = Settings::driven(drive);
        let sizes = Sizes::Fixed(300_000);
        let mut pair = Pair::on(&test, &lab, 0, 1, &settings, sizes);
        pair.send(COUNT, 0);
        let old = pair.receiver.wait("session", SOON, |report| match *report {
            Report::Connected { peer } => Some(peer),
            _ => None,
        });
        until("30 messages", || pair.receiver.received() >= 30);
        pair.sender.kill();
        let mut again = test.process_on(&lab, 0, "the sender's second start", "node");
        again.bind_to((lab.host(0).ip(), 0).into(), settings);
        let peer = again.connect(pair.receiver_addr);
        again.order(&Order::Send(stream(peer, pair.plan, 20, 0)));
        expect_complete(&mut pair.receiver, &[20; CHANNELS]);
        let sessions = pair.receiver.tally();
        assert_eq!(sessions.len(), 2, "{sessions:?}");
        let first = sessions.iter().find(|session| session.peer == old).expect("its session");
        assert!(first.messages() >= 30 && first.messages() < 3 * COUNT);
        test.print(format_args!("{drive:?}: {} messages of the first, 60 of the second", first.messages()));
    }
}

/// The same port speaks with a new incarnation: the receiver says that the old one is gone, at once,
/// and which of the messages to it were not acknowledged.
#[test]
fn a_restart_at_the_same_address_is_noticed_at_once() {
    let test = begin("a_restart_at_the_same_address_is_noticed_at_once");
    for drive in [Drive::Inline, Drive::Thread] {
        let (mut hub, mut caller) = (test.process("hub", "node"), test.process("caller", "node"));
        let hub_addr = hub.bind(Ipv4Addr::LOCALHOST.into(), Settings::driven(drive));
        let addr = caller.bind(Ipv4Addr::LOCALHOST.into(), Settings::driven(drive));
        let peer = caller.connect(hub_addr);
        caller.order(&Order::Send(stream(peer, PLAN, 10, 0)));
        expect_taken(&mut hub, 30);
        let old = hub.wait("session", SOON, |report| match *report {
            Report::Connected { peer } => Some(peer),
            _ => None,
        });
        caller.kill();
        hub.order(&Order::Send(stream(old, PLAN, 5, 0)));
        until("queued", || hub.flow(old).queued_bytes > 0);
        let mut again = test.process("the caller's second start", "node");
        again.order(&Order::Verify { plan: PLAN, from: Vec::new(), trace: false });
        again.bind_to(addr, Settings::driven(drive));
        let peer = again.connect(hub_addr);
        again.order(&Order::Send(stream(peer, PLAN, 10, 0)));
        let loss = wait_for_loss(&mut hub, old, Duration::from_secs(3));
        assert!(["Restarted", "Forgotten"].contains(&loss.reason.as_str()), "{}", loss.reason);
        let all: Vec<(u16, u64)> = (0..3).flat_map(|c| (0..5).map(move |number| (c, number))).collect();
        assert_eq!(loss.unacknowledged, all);
        expect_taken(&mut hub, 60);
        assert_eq!(again.received(), 0, "what was for the old one did not reach the new one");
    }
}

fn expect_taken(process: &mut Process, messages: u64) {
    until("all messages", || process.received() >= messages);
    assert!(process.tally().iter().all(|session| session.problems.is_empty()));
    assert_eq!(process.received(), messages);
}

/// Nobody of denrei's takes the dead process's place: the sender is told within the failure timeout.
#[test]
fn a_killed_process_that_stays_away_times_out() {
    let test = begin("a_killed_process_that_stays_away_times_out");
    let settings = Settings {
        failure_timeout_ms: Some(1000),
        keepalive_ms: Some(300),
        ..Settings::driven(Drive::Inline)
    };
    let ip = Ipv4Addr::LOCALHOST.into();
    let processes = (test.process("sender", "node"), test.process("receiver", "node"));
    let mut pair = Pair::connected(processes.0, processes.1, [ip, ip], &settings, PLAN.sizes);
    pair.send(1, 0);
    pair.finish(1, SOON);
    pair.receiver.kill();
    // Another program has its port: the host does not say that nobody is there.
    let _held = UdpSocket::bind(pair.receiver_addr).expect("its port is free");
    let killed = Instant::now();
    pair.send(10, 0);
    let loss = wait_for_loss(&mut pair.sender, pair.peer, SOON);
    let noticed = killed.elapsed();
    test.print(format_args!("{} after {noticed:.0?}", loss.reason));
    assert_eq!(loss.reason, "TimedOut");
    assert_eq!(loss.unacknowledged.len(), 30);
    assert!((Duration::from_millis(900)..Duration::from_secs(3)).contains(&noticed), "{noticed:?}");
}

/// Its host says that nobody is at its port: the sender is told long before the failure timeout, whether it has
/// something to send or only asks now and then whether the peer is there.
fn a_killed_process_is_missed(test: &Test, lab: Option<&Lab>, drive: &str, sends: bool) {
    let keepalive_ms = Some(if sends { 5000 } else { 500 });
    let named = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let shards = if drive == "pipelined" { "2" } else { "1" };
    let named = [("drive", drive), ("shards", shards)].map(named).to_vec();
    let settings = Settings { keepalive_ms, named, ..Settings::default() };
    let mut pair = match lab {
        Some(lab) => Pair::on(test, lab, 0, 1, &settings, PLAN.sizes),
        None => {
            let ip = Ipv4Addr::LOCALHOST.into();
            let processes = (test.process("sender", "node"), test.process("receiver", "node"));
            Pair::connected(processes.0, processes.1, [ip, ip], &settings, PLAN.sizes)
        }
    };
    pair.send(1, 0);
    pair.finish(1, SOON);
    pair.receiver.kill();
    let killed = Instant::now();
    if sends {
        pair.send(10, 0);
    }
    let loss = wait_for_loss(&mut pair.sender, pair.peer, SOON);
    let noticed = killed.elapsed();
    test.print(format_args!("{drive}, sends {sends}: {} after {noticed:.0?}", loss.reason));
    assert_eq!((loss.reason.as_str(), loss.unacknowledged.len()), ("Gone", if sends { 30 } else { 0 }));
    assert!((Duration::from_millis(900)..Duration::from_secs(4)).contains(&noticed), "{noticed:?}");
}

/// Who drives, and whether it has something to send.
const WAYS: [(&str, bool); 4] = [("inline", true), ("thread", true), ("thread", false), ("pipelined", true)];

#[test]
fn a_killed_process_is_missed_on_the_same_host() {
    let test = begin_beside("a_killed_process_is_missed_on_the_same_host");
    for (drive, sends) in WAYS {
        a_killed_process_is_missed(&test, None, drive, sends);
    }
}

#[test]
fn a_killed_process_is_missed_on_another_host() {
    let test = begin_beside("a_killed_process_is_missed_on_another_host");
    let Some(lab) = test.lab(2, 1500) else { return };
    // A host that has refused much of late says so to each other once a second: up to three seconds more, which are
    // the kernel's.
    on(&lab, 1, "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit");
    for (drive, sends) in WAYS {
        a_killed_process_is_missed(&test, Some(&lab), drive, sends);
    }
}

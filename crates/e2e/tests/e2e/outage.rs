//! A cable pulled for ten seconds, and firewalls that refuse for some.

use crate::harness::{Pair, begin_beside, on, until};
use denrei_e2e::{Drive, Settings, Sizes};
use std::net::Ipv4Addr;
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

/// As long as a firewall takes to load its rules again, and some.
const REFUSAL: Duration = Duration::from_secs(4);
/// There is something to send before, in and after it.
const REFUSED_COUNT: u64 = 1000;
const REFUSED_PACE_US: u64 = 3000;

/// A router on the way, or the sender's own host, says that nobody is at the peer's port: the peer has said nothing.
#[test]
fn a_firewall_that_refuses_for_seconds_ends_no_session() {
    let test = begin_beside("a_firewall_that_refuses_for_seconds_ends_no_session");
    let Some(lab) = test.lab(4, 1500) else { return };
    // Host 0 reaches host 2 by host 1 alone, which keeps it from noticing that there is a shorter way.
    let behind = Ipv4Addr::new(10, 99, 0, 2);
    let conf = "/proc/sys/net/ipv4/conf";
    on(&lab, 2, &format!("ip addr add {behind}/32 dev eth0"));
    on(&lab, 1, &format!("ip route add {behind}/32 dev eth0; echo 1 > /proc/sys/net/ipv4/ip_forward"));
    on(&lab, 1, &format!("echo 0 > {conf}/all/send_redirects; echo 0 > {conf}/eth0/send_redirects"));
    on(&lab, 0, &format!("ip route add {behind}/32 via {}", lab.host(1).ip()));
    let pair = |from: usize, to, drive| {
        let sender = test.process_on(&lab, from, format!("sender on {from}"), "node");
        let receiver = test.process_on(&lab, 2, format!("receiver at {to}"), "node");
        let ips = [lab.host(from).ip(), to];
        Pair::connected(sender, receiver, ips, &Settings::driven(drive), Sizes::Mixed { most: 20_000 })
    };
    let mut pairs = [pair(0, behind.into(), Drive::Inline), pair(3, lab.host(2).ip(), Drive::Thread)];
    for pair in &mut pairs {
        pair.send(REFUSED_COUNT, REFUSED_PACE_US);
        until("messages", || pair.receiver.received() >= 100);
    }
    for (host, hook) in [(1, "forward"), (3, "output")] {
        let chain = format!("add chain ip wall at {{ type filter hook {hook} priority 0; }}");
        let rule = "add rule ip wall at meta l4proto udp reject";
        on(&lab, host, &format!("nft 'add table ip wall; {chain}; {rule}'"));
    }
    std::thread::sleep(REFUSAL);
    let before = pairs.each_mut().map(|pair| pair.receiver.received());
    assert!(before.iter().all(|got| *got < 3 * REFUSED_COUNT), "the streams ended before: {before:?}");
    [1, 3].into_iter().for_each(|host| on(&lab, host, "nft delete table ip wall"));
    for mut pair in pairs {
        pair.finish(REFUSED_COUNT, Duration::from_secs(30));
    }
}

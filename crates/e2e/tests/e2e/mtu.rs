//! Paths that carry less than the sender's link, from the beginning or suddenly; and IPv6.

use crate::harness::{Pair, Test, begin, until};
use denrei_e2e::{Drive, Settings, Sizes};
use denrei_netlab::Lab;
use std::time::Duration;

/// IPv4 and UDP headers, bytes.
const HEADERS: u16 = 28;
/// Longest time for a stream.
const LIMIT: Duration = Duration::from_secs(30);
const DRIVES: [Drive; 2] = [Drive::Inline, Drive::Thread];

/// Makes host `index` receive packets of at most `mtu` bytes. Larger ones vanish on the way to it:
/// a black hole, because a bridge tells nobody. What it sends itself its kernel refuses.
fn narrow(lab: &Lab, index: usize, mtu: u16) {
    let mut ip = lab.host(index).command("ip");
    let status = ip.args(["link", "set", "eth0", "mtu", &mtu.to_string()]).status();
    assert!(status.expect("ip runs").success());
}

/// The datagram size that the sender ended up with.
fn found(pair: &mut Pair) -> u16 {
    pair.sender.flow(pair.peer).datagram_bytes
}

/// A path of which one end has this MTU from the beginning.
fn a_narrow_path(test: &Test, end: usize, mtu: u16) {
    let Some(lab) = test.lab(2, 1500) else { return };
    narrow(&lab, end, mtu);
    for drive in DRIVES {
        let mut pair = Pair::on(test, &lab, 0, 1, &Settings::driven(drive), Sizes::Mixed { most: 1 << 20 });
        pair.send(100, 0);
        let (took, bytes) = pair.finish(100, LIMIT);
        let datagram = found(&mut pair);
        test.print(format_args!(
            "{drive:?}: MTU {mtu}, datagrams of {datagram}, {bytes} bytes in {took:.2?}"
        ));
        assert!(datagram <= mtu - HEADERS, "datagrams of {datagram} cannot pass");
    }
}

#[test]
fn a_path_of_1280_bytes() {
    a_narrow_path(&begin("a_path_of_1280_bytes"), 1, 1280);
}

/// Less than a session begins with.
#[test]
fn a_path_of_620_bytes() {
    a_narrow_path(&begin("a_path_of_620_bytes"), 1, 620);
}

#[test]
fn an_interface_of_620_bytes() {
    a_narrow_path(&begin("an_interface_of_620_bytes"), 0, 620);
}

#[test]
fn a_path_of_1500_bytes_is_found_and_used() {
    let test = begin("a_path_of_1500_bytes_is_found_and_used");
    let Some(lab) = test.lab(2, 1500) else { return };
    for drive in DRIVES {
        let mut pair = Pair::on(&test, &lab, 0, 1, &Settings::driven(drive), Sizes::Fixed(100_000));
        pair.send(200, 0);
        pair.finish(200, LIMIT);
        // The search goes on by itself after the stream.
        until("datagrams of 1472 bytes", || found(&mut pair) == 1500 - HEADERS);
    }
}

/// The path loses all large packets from some moment on.
fn a_black_hole_opens(test: &Test, before: u32, after: u16) {
    let Some(lab) = test.lab(4, before) else { return };
    let mut pairs = [0, 1]
        .map(|i| Pair::on(test, &lab, 2 * i, 2 * i + 1, &Settings::driven(DRIVES[i]), Sizes::Fixed(20_000)));
    let count = 1000;
    for (pair, at) in pairs.iter_mut().zip([1, 3]) {
        pair.send(count, 1000);
        until("datagrams as large as the path", || u32::from(found(pair) + HEADERS) >= before);
        assert!(pair.receiver.received() < 3 * count / 2, "too late to narrow the path");
        narrow(&lab, at, after);
    }
    for (pair, drive) in pairs.iter_mut().zip(DRIVES) {
        let (took, _) = pair.finish(count, LIMIT);
        let datagram = found(pair);
        test.print(format_args!(
            "{drive:?}: MTU {before}, then {after}: the stream took {took:.2?}, datagrams of {datagram}"
        ));
        assert!(datagram <= after - HEADERS, "datagrams of {datagram} cannot pass");
    }
}

#[test]
fn an_mtu_falls_from_1500_to_1280_in_the_middle() {
    a_black_hole_opens(&begin("an_mtu_falls_from_1500_to_1280_in_the_middle"), 1500, 1280);
}

#[test]
fn an_mtu_falls_from_9000_to_1500_in_the_middle() {
    a_black_hole_opens(&begin("an_mtu_falls_from_9000_to_1500_in_the_middle"), 9000, 1500);
}

#[test]
fn ipv6_between_hosts() {
    let test = begin("ipv6_between_hosts");
    let Some(lab) = test.lab(2, 1500) else { return };
    let (Some(from), Some(to)) = (lab.host(0).ipv6(), lab.host(1).ipv6()) else {
        return test.skip_because("this kernel has no IPv6");
    };
    for drive in DRIVES {
        let processes = [0, 1].map(|host| test.process_on(&lab, host, format!("host {host}"), "node"));
        let [sender, receiver] = processes;
        let sizes = Sizes::Mixed { most: 4 << 20 };
        let mut pair =
            Pair::connected(sender, receiver, [from.into(), to.into()], &Settings::driven(drive), sizes);
        pair.send(200, 0);
        let (took, bytes) = pair.finish(200, LIMIT);
        test.print(format_args!("{drive:?}: {bytes} bytes in {took:.2?}"));
        // IPv6's header has 40 bytes.
        until("datagrams of 1452 bytes", || found(&mut pair) == 1500 - 48);
    }
}

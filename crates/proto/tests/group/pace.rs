//! How fast a group goes: no faster than any member has told its opener.

use super::net::{Net, addr, content};
use super::sealed::sealed;
use denrei_proto::group::{GroupBackend, GroupEvent, GroupOptions};
use denrei_proto::{Config, Rate};
use std::time::Duration;

const BACKENDS: [GroupBackend; 3] = [GroupBackend::Auto, GroupBackend::Unicast, GroupBackend::Tree];
const SLOW: Rate = Rate { bytes_per_s: 5_000_000, burst_bytes: 50_000 };
const MEGABYTE: usize = 1_000_000;
/// What the slow member may receive in this time is what is sent.
const MEGABYTES: usize = 5;

fn opened(backend: GroupBackend, config: Config) -> Net {
    let mut net = Net::new(3, config);
    net.open(GroupOptions { backend, ..GroupOptions::default() });
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net
}

fn set_rate(net: &mut Net, host: usize, rate: Rate) {
    let opener = net.hosts[host].peer_at(addr(0)).unwrap();
    net.hosts[host].set_rate(net.now, opener, rate).unwrap();
    net.run(Duration::from_millis(10));
}

/// Sends some megabytes; how long it takes until all have them.
fn send(net: &mut Net) -> Duration {
    let before = net.received[1].len();
    (0..MEGABYTES).for_each(|number| net.send(content(before + number, MEGABYTE)));
    for time in 1.. {
        net.run(Duration::from_millis(10));
        if (1..=3).all(|host| net.received[host].len() == before + MEGABYTES) {
            return Duration::from_millis(10) * time;
        }
        assert!(time < 1000, "{:?}", net.received.iter().map(Vec::len).collect::<Vec<_>>());
    }
    unreachable!()
}

fn assert_slow(took: Duration, what: &str) {
    let expected = MEGABYTES as f64 * MEGABYTE as f64 / SLOW.bytes_per_s as f64;
    let took = took.as_secs_f64();
    assert!((0.9 * expected..1.3 * expected).contains(&took), "{what}: {took} s");
}

#[test]
fn a_group_goes_no_faster_than_a_member_has_told_its_opener() {
    for config in [Config::default(), sealed()] {
        for backend in BACKENDS {
            let mut net = opened(backend, config.clone());
            assert!(send(&mut net) < Duration::from_millis(200), "{backend:?}: nobody has told a rate");
            set_rate(&mut net, 2, SLOW);
            assert_slow(send(&mut net), &format!("{backend:?}"));
            set_rate(&mut net, 2, Rate::UNLIMITED);
            assert!(send(&mut net) < Duration::from_millis(200), "{backend:?}: it is unlimited again");
        }
    }
}

#[test]
fn a_group_stands_still_while_a_member_lets_nothing_come_and_goes_on_when_it_does_or_leaves() {
    for backend in [GroupBackend::Auto, GroupBackend::Unicast] {
        for leaves in [false, true] {
            let mut net = opened(backend, Config::default());
            set_rate(&mut net, 3, Rate::STOPPED);
            net.send(content(0, 20_000));
            net.run(Duration::from_secs(2));
            assert!(net.received.iter().all(Vec::is_empty), "{backend:?}");
            let group = net.group;
            match leaves {
                true => net.hosts[3].leave_group(net.now, group),
                false => set_rate(&mut net, 3, Rate::UNLIMITED),
            }
            net.run(Duration::from_millis(500));
            net.assert_received(1, &[20_000]);
            net.assert_received(2, &[20_000]);
        }
    }
}

#[test]
fn lost_packets_of_a_paced_group_come_again() {
    for backend in BACKENDS {
        let mut net = opened(backend, Config::default());
        net.loss = vec![0, 20, 20, 20];
        set_rate(&mut net, 1, SLOW);
        net.run(Duration::from_millis(500));
        let took = send(&mut net);
        assert!(took > Duration::from_millis(900), "{backend:?}: {took:?}");
        for host in 1..=3 {
            net.assert_received(host, &[MEGABYTE; MEGABYTES]);
        }
    }
}

/// Runs for a while with a host whose Node says every 10 ms what it may receive.
fn run_limited(net: &mut Net, host: usize, time: Duration) {
    let step = Duration::from_millis(10);
    for _ in 0..time.as_millis() / step.as_millis() {
        net.hosts[host].share_host(net.now, Some(SLOW.bytes_per_s), &[]);
        net.run(step);
    }
}

#[test]
fn packets_of_a_group_count_at_its_member_and_keep_to_the_limit_of_its_host() {
    for backend in [GroupBackend::Auto, GroupBackend::Unicast] {
        let mut net = opened(backend, Config { learn_rates: true, ..Config::default() });
        run_limited(&mut net, 1, Duration::from_millis(500));
        (0..MEGABYTES).for_each(|number| net.send(content(number, MEGABYTE)));
        run_limited(&mut net, 1, Duration::from_millis(500));
        let comes = net.hosts[1].host_record(net.now).bytes_per_s as f64 / SLOW.bytes_per_s as f64;
        assert!((0.8..1.2).contains(&comes), "{backend:?}: {comes} of what the host may receive");
        let arrived = net.received[1].len();
        assert!((1..=3).contains(&arrived), "{backend:?}: {arrived} of {MEGABYTES} in half of the time");
        run_limited(&mut net, 1, Duration::from_secs(1));
        for host in 1..=3 {
            net.assert_received(host, &[MEGABYTE; MEGABYTES]);
        }
    }
}

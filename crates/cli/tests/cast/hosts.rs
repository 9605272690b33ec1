//! Casts between hosts in namespaces, with loss, of different speed, and with several addresses.

use crate::sides::{Side, begun, content, places, wait_until};
use denrei_netlab::{Lab, LabError};
use std::fs;
use std::process::Command;

/// What this machine has granted a test; else it says that the test is skipped, and why.
fn granted<T>(test: &str, result: Result<T, LabError>) -> Option<T> {
    result.inspect_err(|error| eprintln!("SKIPPED {test}: {error}")).ok()
}

/// A side of a cast on one of the lab's hosts: `send` or `recv`.
fn cast(lab: &Lab, host: usize, direction: &str) -> Command {
    let mut command = lab.host(host).command(env!("CARGO_BIN_EXE_denrei"));
    command.args(["cast", direction, "--json"]);
    command
}

/// Hosts with 1 % loss on a switch with multicast; one is killed, one comes late, one is stopped and
/// started again.
#[test]
fn hosts_with_loss_of_which_one_dies_one_is_late_and_one_is_interrupted() {
    const NAME: &str = "hosts_with_loss_of_which_one_dies_one_is_late_and_one_is_interrupted";
    let Some(lab) = granted(NAME, Lab::bridge(6)) else { return };
    for host in 1..6 {
        let Some(()) = granted(NAME, lab.loss(host, 10)) else { return };
    }
    let (group, into, from) = ("239.255.81.1:7118", places(5), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(12_000_000)).unwrap();
    let receiver = |host: usize| {
        let mut command = cast(&lab, host, "recv");
        command.args(["--insecure", "--group", group, "--into"]).arg(into[host - 1].path());
        Side::receiver(command.args(["--name", &format!("host{host}")])).0
    };
    let mut command = cast(&lab, 0, "send");
    command.args(["--insecure", "--group", group, "--min-members=4", "--rate=5M", "--patience=1"]);
    let sender = Side::start(command.arg(&file));
    let mut sides: Vec<Side> = (1..5).map(receiver).collect();
    wait_until("the cast begins", || begun(into[1].path()) > 2_000_000);
    sides[0].kill();
    sides[1].kill();
    sides.push(receiver(5));
    sides[1] = receiver(2);
    let (status, report) = sender.json();
    assert_eq!(status, Some(1), "one is gone: {report}");
    let members = report["members"].as_array().unwrap();
    let of = |name: &'static str| members.iter().filter(move |member| member["name"] == name);
    assert!(of("host1").all(|member| member["state"] == "vanished"), "{report}");
    for host in ["host2", "host3", "host4", "host5"] {
        assert!(of(host).any(|member| member["state"] == "complete"), "{host}: {report}");
    }
    assert!(report["repairs"].as_u64().unwrap() > 0, "{report}");
    sides.remove(0);
    for (side, dir) in sides.into_iter().zip(&into[1..]) {
        let (status, received) = side.json();
        assert_eq!(status, Some(0), "{received}");
        assert!(fs::read(dir.path().join("file")).unwrap() == content(12_000_000));
    }
}

/// One receiver behind a tenth of the others' speed, which makes progress all the time.
#[test]
fn a_slow_receiver_is_served_by_itself_and_holds_nobody_up() {
    const NAME: &str = "a_slow_receiver_is_served_by_itself_and_holds_nobody_up";
    let Some(lab) = granted(NAME, Lab::bridge(4)) else { return };
    for (host, mbit) in [(1, 200), (2, 200), (3, 20)] {
        let Some(()) = granted(NAME, lab.rate(host, mbit, 200_000)) else { return };
    }
    let (group, into, from) = ("239.255.81.3:7118", places(3), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(16_000_000)).unwrap();
    let receivers = (1..4).map(|host| {
        let mut command = cast(&lab, host, "recv");
        command.args(["--insecure", "--group", group, "--name", &format!("host{host}"), "--into"]);
        Side::receiver(command.arg(into[host - 1].path())).0
    });
    let receivers: Vec<Side> = receivers.collect();
    let mut command = cast(&lab, 0, "send");
    command.args(["--insecure", "--group", group, "--stall=0.5", "--min-members=3"]);
    let (status, report) = Side::start(command.arg(&file)).json();
    assert_eq!(status, Some(0), "{report}");
    let members = report["members"].as_array().unwrap();
    let took = |name: &str| {
        let member = members.iter().find(|member| member["name"] == name).unwrap();
        member["seconds"].as_f64().unwrap()
    };
    let fast = took("host1").max(took("host2"));
    assert!(fast * 2.0 < took("host3"), "{report}");
    for (side, dir) in receivers.into_iter().zip(&into) {
        assert_eq!(side.json().0, Some(0));
        assert!(fs::read(dir.path().join("file")).unwrap() == content(16_000_000));
    }
}

/// A sender on loopback, which is where one without a key is, and receivers on all addresses and one.
#[test]
fn processes_of_a_host_find_each_other_whatever_they_are_bound_to() {
    const NAME: &str = "processes_of_a_host_find_each_other_whatever_they_are_bound_to";
    let Some(lab) = granted(NAME, Lab::bridge(1)) else { return };
    // More interfaces than a socket may hear groups on, like a host of many containers.
    let many = "for n in $(seq 12); do ip link add a$n type veth peer name b$n && for i in a b; do \
                ip addr add 10.77.$n.$((0x$i))/24 dev $i$n && ip link set $i$n up; done; done";
    assert!(lab.host(0).command("sh").args(["-ec", many]).status().unwrap().success());
    let (group, into, from) = ("239.255.81.2:7118", places(3), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(2_000_000)).unwrap();
    let own = format!("--bind={}:0", lab.host(0).ipv4());
    let binds = [&[][..], &["--insecure"], &["--insecure", &own]];
    let cast = |direction: &str, bind: &[&str]| {
        let mut command = cast(&lab, 0, direction);
        command.args(["--group", group]).args(bind);
        command
    };
    for sender in binds {
        let receivers = binds
            .iter()
            .zip(&into)
            .map(|(bind, dir)| Side::receiver(cast("recv", bind).arg("--into").arg(dir.path())).0);
        let receivers: Vec<Side> = receivers.collect();
        let (status, report) = Side::start(cast("send", sender).arg("--min-members=3").arg(&file)).json();
        assert_eq!(status, Some(0), "{sender:?}: {report}");
        assert_eq!(report["members"].as_array().unwrap().len(), 3, "each is heard once: {report}");
        for (side, dir) in receivers.into_iter().zip(&into) {
            assert_eq!(side.json().0, Some(0), "{sender:?}");
            let file = dir.path().join("file");
            assert!(fs::read(&file).unwrap() == content(2_000_000));
            fs::remove_file(file).unwrap();
        }
    }
}

/// Both sides are started before their hosts' links are up, as at boot. Of IPv6 there is no route to groups by then.
#[test]
fn who_was_started_before_its_link_came_up_is_found_all_the_same() {
    const NAME: &str = "who_was_started_before_its_link_came_up_is_found_all_the_same";
    let Some(lab) = granted(NAME, Lab::bridge(2)) else { return };
    let set_links = |state: &str| {
        for host in lab.hosts() {
            assert!(host.command("ip").args(["link", "set", "eth0", state]).status().unwrap().success());
        }
    };
    let (into, from) = (places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(100_000)).unwrap();
    let has_v6 = lab.host(0).ipv6().is_some();
    for group in ["239.255.81.4:7118", "[ff15::8104]:7118"].into_iter().take(1 + usize::from(has_v6)) {
        set_links("down");
        let cast = |host: usize, direction: &str| {
            let mut command = cast(&lab, host, direction);
            command.args(["--insecure", "--group", group]);
            command
        };
        let receiver = Side::receiver(cast(1, "recv").arg("--into").arg(into[0].path())).0;
        let sender = Side::start(cast(0, "send").args(["--min-members=1", "--wait=60"]).arg(&file));
        std::thread::sleep(std::time::Duration::from_secs(1));
        set_links("up");
        let (status, report) = sender.json();
        assert_eq!(status, Some(0), "{group}: {report}");
        assert_eq!(receiver.json().0, Some(0), "{group}");
        assert!(fs::read(into[0].path().join("file")).unwrap() == content(100_000));
        fs::remove_file(into[0].path().join("file")).unwrap();
    }
}

/// Nobody could be reached for longer than `--stall` allows: none of the receivers held up another.
#[test]
fn after_an_outage_of_the_senders_link_the_rest_goes_once_to_all_again() {
    const NAME: &str = "after_an_outage_of_the_senders_link_the_rest_goes_once_to_all_again";
    let Some(lab) = granted(NAME, Lab::bridge(5)) else { return };
    let (group, into, from) = ("239.255.81.5:7118", places(4), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(30_000_000)).unwrap();
    let receivers = (1..5).map(|host| {
        let mut command = cast(&lab, host, "recv");
        command.args(["--insecure", "--group", group, "--into"]);
        Side::receiver(command.arg(into[host - 1].path())).0
    });
    let receivers: Vec<Side> = receivers.collect();
    let mut command = cast(&lab, 0, "send");
    command.args(["--insecure", "--group", group, "--min-members=4", "--rate=6M"]);
    let sender = Side::start(command.arg(&file));
    wait_until("the cast is under way", || begun(into[0].path()) > 4_000_000);
    lab.link_down(0).unwrap();
    // Longer than all are waited for, and shorter than sessions live.
    std::thread::sleep(std::time::Duration::from_secs(3));
    lab.link_up(0).unwrap();
    let (status, report) = sender.json();
    assert_eq!(status, Some(0), "{report}");
    // By itself for each it would be some 110 MB.
    assert!(report["wire_bytes"].as_u64().unwrap() < 75_000_000, "{report}");
    for (side, dir) in receivers.into_iter().zip(&into) {
        assert_eq!(side.json().0, Some(0));
        assert!(fs::read(dir.path().join("file")).unwrap() == content(30_000_000));
    }
}

/// Nobody says where to bind, or which group: hosts are reached by the addresses that their names have.
#[test]
fn hosts_are_reached_over_ipv6_and_by_multicast_there() {
    const NAME: &str = "hosts_are_reached_over_ipv6_and_by_multicast_there";
    let Some(lab) = granted(NAME, Lab::bridge(4)) else { return };
    let Some(v6) = (1..4).map(|host| lab.host(host).ipv6()).collect::<Option<Vec<_>>>() else {
        return eprintln!("SKIPPED {NAME}: no IPv6 here");
    };
    let (into, from) = (places(3), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(2_000_000)).unwrap();
    let mixed = format!("{},{},{}", v6[0], lab.host(2).ipv4(), v6[2]);
    let all = v6.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let of_link = ["--group", "[ff02::77%eth0]:7118"];
    // The link's own address is spoken from once nobody else has turned out to have it.
    let tentative = || lab.host(0).command("ip").args(["-6", "addr", "show", "tentative"]).output().unwrap();
    wait_until("the addresses", || tentative().stdout.is_empty());
    for (members, group, most_bytes) in
        [(all.clone(), &[][..], 4_000_000), (mixed, &[], 8_000_000), (all, &of_link, 4_000_000)]
    {
        let receiver = |host: usize| {
            let mut command = cast(&lab, host, "recv");
            Side::receiver(command.args(["--insecure", "--into"]).arg(into[host - 1].path())).0
        };
        let receivers: Vec<Side> = (1..4).map(receiver).collect();
        let mut command = cast(&lab, 0, "send");
        command.args(["--insecure", "--members", &members]).args(group);
        let (status, report) = Side::start(command.arg(&file)).json();
        assert_eq!(status, Some(0), "{members} {group:?}: {report}");
        assert!(report["wire_bytes"].as_u64().unwrap() < most_bytes, "{members} {group:?}: {report}");
        for (side, dir) in receivers.into_iter().zip(&into) {
            assert_eq!(side.json().0, Some(0), "{members}");
            assert!(fs::read(dir.path().join("file")).unwrap() == content(2_000_000));
            fs::remove_file(dir.path().join("file")).unwrap();
        }
    }
}

/// The default group is of IPv4, which nobody there speaks.
#[test]
fn hosts_of_ipv6_alone_are_told_the_group_at_which_they_find_each_other() {
    const NAME: &str = "hosts_of_ipv6_alone_are_told_the_group_at_which_they_find_each_other";
    const TOLD: &str = "--group [ff15::7117]:7118";
    let Some(lab) = granted(NAME, Lab::bridge(2)) else { return };
    if lab.host(0).ipv6().is_none() {
        return eprintln!("SKIPPED {NAME}: no IPv6 here");
    }
    for host in lab.hosts() {
        let mut flush = host.command("ip");
        assert!(flush.args(["-4", "addr", "flush", "dev", "eth0"]).status().unwrap().success());
    }
    let (into, from) = (places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(100_000)).unwrap();
    let receive = |group: &[&str]| {
        let mut command = cast(&lab, 1, "recv");
        command.args(["--insecure", "--into"]).arg(into[0].path()).args(group);
        command
    };
    let send = |group: &[&str]| {
        let mut command = cast(&lab, 0, "send");
        command.args(["--insecure", "--min-members=1"]).args(group).arg(&file);
        command
    };
    for mut command in [receive(&["--wait=0.3"]), send(&["--wait=0.3"])] {
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(said.contains(TOLD), "{said}");
    }
    let told: Vec<&str> = TOLD.split(' ').collect();
    let receiver = Side::receiver(&mut receive(&told)).0;
    let (status, report) = Side::start(&mut send(&told)).json();
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(receiver.json().0, Some(0));
    assert!(fs::read(into[0].path().join("file")).unwrap() == content(100_000));
}

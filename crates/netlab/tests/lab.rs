//! Real namespaces. Without root these tests say so loudly and end.

use denrei_netlab::{Lab, LabConfig, LabError};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A lab, or `None` after saying why there is none.
fn lab(test: &str, hosts: usize, config: LabConfig) -> Option<Lab> {
    match Lab::with_config(hosts, config) {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotRoot | LabError::MissingTool { .. })) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// How many of so many small UDP datagrams sent from host 0 arrive at host 1: until none
/// has for `wait`, once all are sent.
fn received_of(lab: &Lab, datagrams: usize, wait: Duration) -> usize {
    received(
        lab,
        &format!("for _ in range({datagrams}):\n  try: s.send(bytes(100))\n  except OSError: pass"),
        wait,
    )
}

/// How many of the UDP datagrams that a script sends by its socket `s` from host 0 arrive at host 1: until none
/// has for `wait`, once all are sent.
fn received(lab: &Lab, script_of_sender: &str, wait: Duration) -> usize {
    let script = "
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(('0.0.0.0', 7000)); print('ready', flush=True)
sent = False; n = 0
while True:
    ready = select.select([s] if sent else [s, sys.stdin], [], [], float(sys.argv[1]) if sent else 60)[0]
    if s in ready: s.recv(2048); n += 1
    elif ready: sent = True
    else: break
print(n)
";
    let mut receiver = lab
        .host(1)
        .command("python3")
        .args(["-c", script, &wait.as_secs_f64().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(receiver.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let send = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.connect(('{}', 7000))\n{script_of_sender}",
        lab.host(1).ip()
    );
    assert!(lab.host(0).command("python3").args(["-c", &send]).status().unwrap().success());
    drop(receiver.stdin.take());
    let count = lines.next().unwrap().unwrap().parse().unwrap();
    receiver.wait().unwrap();
    count
}

fn namespaces() -> String {
    String::from_utf8(Command::new("ip").args(["netns", "list"]).output().unwrap().stdout).unwrap()
}

#[test]
fn hosts_reach_each_other_and_nothing_remains() {
    let Some(lab) = lab("hosts_reach_each_other_and_nothing_remains", 3, LabConfig::default()) else {
        return;
    };
    assert_eq!(received_of(&lab, 50, Duration::from_millis(300)), 50);
    let name = lab.host(2).namespace().to_owned();
    assert!(namespaces().contains(&name));
    let mut inside = lab.host(2).command("sleep").arg("60").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(lab);
    assert!(!namespaces().contains(&name));
    let started = Instant::now();
    assert!(!inside.wait().unwrap().success(), "killed with its namespace");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn loss_link_and_rate_do_what_they_say() {
    let Some(lab) = lab("loss_link_and_rate_do_what_they_say", 2, LabConfig::default()) else { return };
    let wait = Duration::from_millis(300);
    lab.loss(1, 300).unwrap();
    let received = received_of(&lab, 2000, wait);
    assert!((1200..=1600).contains(&received), "30 % of 2000 lost: {received} received");
    lab.loss(1, 0).unwrap();
    lab.link_down(1).unwrap();
    assert_eq!(received_of(&lab, 20, wait), 0);
    lab.link_up(1).unwrap();
    assert_eq!(received_of(&lab, 20, wait), 20);
    // 1 Mbit/s and a queue of 3 kB: of 500 × 142 B most are lost.
    lab.rate(1, 1, 3000).unwrap();
    let received = received_of(&lab, 500, wait);
    assert!((20..400).contains(&received), "{received} got through");
}

/// A train that its bucket just holds would lose what the timer is late; and be lost as one, which no cable does.
#[test]
fn a_slow_link_cuts_trains_before_its_queue() {
    let Some(lab) = lab("a_slow_link_cuts_trains_before_its_queue", 2, LabConfig::default()) else { return };
    // Buckets of 9,216 bytes; six frames have 9,084 and three fit the queue.
    lab.rate(1, 1, 5000).unwrap();
    let train = "s.setsockopt(17, 103, 1472)  # UDP_SEGMENT\ns.send(bytes(6 * 1472))";
    assert_eq!(received(&lab, train, Duration::from_millis(300)), 3);
}

/// One core per flow hands on what comes by a shaped link: in the order in which it left the queue.
#[test]
fn a_slow_link_keeps_the_order() {
    let Some(lab) = lab("a_slow_link_keeps_the_order", 2, LabConfig::default()) else { return };
    let cores = || {
        let file = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
        let printed = lab.host(1).command("cat").arg(file).output().unwrap().stdout;
        let word = String::from_utf8(printed).unwrap().trim().rsplit(',').next().unwrap().to_owned();
        u64::from_str_radix(&word, 16).unwrap().count_ones() as usize
    };
    assert_eq!(cores(), 0);
    lab.rate_towards(1, 1000, 65_536).unwrap();
    assert_eq!(cores(), std::thread::available_parallelism().unwrap().get().min(32));
}

#[test]
fn frames_of_the_largest_mtu_pass_a_slow_link() {
    let config = LabConfig { mtu: 9000, ..LabConfig::default() };
    let Some(lab) = lab("frames_of_the_largest_mtu_pass_a_slow_link", 2, config) else { return };
    lab.rate(1, 100, 100_000).unwrap();
    let large = "for _ in range(5): s.send(bytes(8972))";
    assert_eq!(received(&lab, large, Duration::from_millis(300)), 5);
}

#[test]
fn a_panic_removes_the_lab() {
    let Some(lab) = lab("a_panic_removes_the_lab", 1, LabConfig { mtu: 9000, offload: false }) else {
        return;
    };
    let name = lab.host(0).namespace().to_owned();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _lab = lab;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(!namespaces().contains(&name));
}

#[test]
fn impossible_settings_are_refused_with_the_range() {
    let error = Lab::bridge(0).unwrap_err();
    assert_eq!(error.to_string(), "the number of hosts is 0, but has to be between 1 and 512");
}

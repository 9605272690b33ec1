//! How the command ends: by signals, and where nobody hears what it says.

use denrei::{ChannelId, Config, Drive, Event, LostReason, Node};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn denrei() -> Command {
    // Whoever runs the tests may have been started to survive the end of a terminal.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_denrei")]);
    command
}

fn node() -> Node {
    Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
}

/// A relay to `target` and the address that stands for it.
fn relay_to(target: SocketAddr, args: &[&str]) -> (Child, String) {
    let route = format!("127.0.0.1:0={target}");
    let mut relay = denrei()
        .args(["relay", "--route", &route])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(relay.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let address = line.split_whitespace().nth(1).unwrap().to_owned();
    (relay, address)
}

/// Sends SIGTERM.
fn terminate(child: &Child) {
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
}

/// How the session with the only peer ends.
fn lost(node: &Node) -> LostReason {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        if let Some(Event::PeerLost { reason, .. }) = node.event_timeout(Duration::from_millis(50)) {
            return reason;
        }
    }
    panic!("nobody told it");
}

#[test]
fn a_relay_that_is_ended_tells_both_sides() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let (sender, target) = (node(), node());
        let (mut relay, address) = relay_to(target.local_addr(), &["--failure-timeout=60"]);
        let peer = sender.connect(address.parse().unwrap()).unwrap();
        sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
        assert_eq!(target.recv_timeout(SOON).unwrap().unwrap().data, "hello");
        // Twice, as `timeout` does, which tells the process and then its group.
        let id = relay.id();
        let twice = format!("kill -s {name} {id} && sleep 0.02; kill -s {name} {id}");
        assert!(Command::new("sh").args(["-c", &twice]).status().unwrap().success());
        for side in [&sender, &target] {
            let reason = lost(side);
            assert!(matches!(reason, LostReason::Ended { .. } | LostReason::Closed), "{reason}");
        }
        assert_eq!(relay.wait().unwrap().signal(), Some(number), "as if it had not been caught");
    }
}

#[test]
fn a_relay_hands_on_what_it_took_before_a_signal_ends_it() {
    const MESSAGES: usize = 150;
    for patient in [true, false] {
        let mut narrow = Config { drive: Drive::Thread, ..Config::default() };
        narrow.protocol.channel_credit_bytes = 64 << 10;
        narrow.protocol.offer_above_bytes = 32 << 10;
        let (sender, target) = (node(), Node::bind("127.0.0.1:0", narrow).unwrap());
        let (mut relay, address) = relay_to(target.local_addr(), &["--drain=60"]);
        let peer = sender.connect(address.parse().unwrap()).unwrap();
        for _ in 0..MESSAGES {
            sender.send(ChannelId { peer, channel: 0 }, vec![0; 4_000]).unwrap();
        }
        assert!(sender.flush(peer, SOON), "the relay has all of it");
        let mut said = BufReader::new(relay.stderr.take().unwrap()).lines();
        terminate(&relay);
        let line = said.next().unwrap().unwrap();
        assert!(line.contains("another signal ends it at once"), "{line}");
        if patient {
            for number in 0..MESSAGES {
                assert!(target.recv_timeout(SOON).unwrap().is_some(), "{number}");
            }
        } else {
            // Later than a signal that is told twice.
            std::thread::sleep(Duration::from_millis(300));
            terminate(&relay);
        }
        let begun = Instant::now();
        let status = relay.wait().unwrap();
        assert!(status.signal() == Some(15) && begun.elapsed() < SOON, "{status}");
        if patient {
            let reason = lost(&sender);
            assert!(reason.to_string().contains("the relay is ending"), "{reason}");
        }
    }
}

#[test]
fn a_relay_notices_a_dead_peer_after_its_failure_timeout() {
    let (sender, target) = (node(), node());
    let (mut further, beyond) = relay_to(target.local_addr(), &[]);
    let (mut relay, address) = relay_to(beyond.parse().unwrap(), &["--failure-timeout=0.5"]);
    let peer = sender.connect(address.parse().unwrap()).unwrap();
    let channel = ChannelId { peer, channel: 0 };
    sender.send(channel, "hello").unwrap();
    assert!(target.recv_timeout(SOON).unwrap().is_some());
    further.kill().unwrap();
    further.wait().unwrap();
    let killed = Instant::now();
    sender.send(channel, "is anybody there?").unwrap();
    let reason = lost(&sender);
    assert!(
        matches!(&reason, LostReason::Ended { reason, .. } if reason.contains("beyond the relay")),
        "{reason}"
    );
    assert!(killed.elapsed() < SOON / 2, "half of what it takes by default: {:?}", killed.elapsed());
    relay.kill().unwrap();
    relay.wait().unwrap();
    let refused = denrei().args(["relay", "--route=127.0.0.1:0=127.0.0.1:9", "--failure-timeout=0"]).output();
    assert_eq!(refused.unwrap().status.code(), Some(2));
}

/// Who sends cannot do anything about it.
#[test]
fn a_relay_out_of_descriptors_says_so_to_its_senders_and_to_who_runs_it() {
    const SENDERS: usize = 20;
    let target = node();
    let route = format!("127.0.0.1:0={}", target.local_addr());
    let mut relay = Command::new("sh")
        .args(["-c", "ulimit -n 24; exec \"$0\" relay --route \"$1\"", env!("CARGO_BIN_EXE_denrei"), &route])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(relay.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let address: SocketAddr = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let senders: Vec<Node> = (0..SENDERS).map(|_| node()).collect();
    for sender in &senders {
        sender.connect(address).unwrap();
    }
    let until = Instant::now() + SOON;
    let mut heard = Vec::new();
    // Each has a pair, which takes several descriptors, or is told why not.
    while heard.len() < 2 {
        assert!(Instant::now() < until, "{heard:?}");
        for event in senders.iter().filter_map(Node::try_event) {
            if let Event::PeerLost { reason: LostReason::Ended { reason, .. }, .. } = event {
                heard.push(reason);
            }
        }
    }
    relay.kill().unwrap();
    let said = String::from_utf8(relay.wait_with_output().unwrap().stderr).unwrap();
    for reason in heard {
        assert!(reason.starts_with("the relay: "), "{reason}");
        assert!(reason.ends_with("(the process is out of descriptors: raise `ulimit -n`)"), "{reason}");
    }
    let warning = format!("cannot be joined with {}: ", target.local_addr());
    assert_eq!(said.matches(&warning).count(), 1, "once for many: {said}");
    assert!(said.contains("raise `ulimit -n`"), "{said}");
}

/// The processes that a process has started.
fn children(process: &Child) -> Vec<String> {
    let id = process.id();
    let listed = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    listed.split_whitespace().map(str::to_owned).collect()
}

/// Without bare UDP nobody would notice by himself for as long as all have to send.
#[test]
fn a_benchmark_one_of_whose_sides_dies_names_it_at_once() {
    for args in [&["mesh", "--nodes=3", "--seconds=600"][..], &["pingpong", "--seconds=600"]] {
        let mut command = denrei();
        command.args(["bench"]).args(args);
        command.args(["--transports=udp", "--sizes=4", "--iters=100000000", "--repeat=1"]);
        let bench = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let sides = if args.len() == 3 { 3 } else { 2 };
        let until = Instant::now() + SOON;
        while children(&bench).len() < sides {
            assert!(Instant::now() < until, "{args:?}: {:?}", children(&bench));
            std::thread::sleep(Duration::from_millis(10));
        }
        // That they have begun is likely, and no matter.
        std::thread::sleep(Duration::from_millis(500));
        let last = children(&bench).pop().unwrap();
        assert!(Command::new("kill").args(["-s", "KILL", &last]).status().unwrap().success());
        let killed = Instant::now();
        let output = bench.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!("side {} of {sides} has ended without an answer", sides - 1);
        assert!(output.status.code() == Some(3) && said.contains(&expected), "{args:?}: {said}");
        assert!(killed.elapsed() < 3 * SOON, "{args:?}");
    }
}

/// As whoever reaches the address of a `--listen` may do it.
#[test]
fn a_side_that_is_sent_what_is_no_order_ends_and_does_not_repeat_it() {
    use std::io::Write;
    let mut side = denrei();
    let side = side.arg("__bench-peer").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut side = side.spawn().unwrap();
    let mut orders = side.stdin.take().unwrap();
    // Without the end of a line; it may be gone before it has all.
    let _ = orders.write_all(&vec![b'x'; 1 << 20]);
    let until = Instant::now() + SOON;
    while side.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it waits for more");
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = side.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(4) && said.contains("an order that is none") && said.len() < 1000,
        "{said:.2000}"
    );
}

/// As the demo's nodes do, and the sides of a benchmark, which is ended by a signal.
#[test]
fn a_side_that_nobody_listens_to_any_more_ends_without_a_word() {
    use std::io::Write;
    let mut node = denrei();
    node.arg("__demo-node").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut node = node.spawn().unwrap();
    drop(node.stdout.take());
    let mut orders = node.stdin.take().unwrap();
    // It has to be told more before that, which it answers.
    orders.write_all(b"{\"Stage\":1}\n").unwrap();
    let output = node.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}

/// With a compiler and a launcher that only stand for an MPI's.
#[test]
fn a_run_of_an_mpi_ends_with_the_benchmark_and_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let (mpi, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = mpi.path().join("run");
    let waits = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", run.display());
    for (name, script) in [("mpicc", "exit 0"), ("ompi_info", "exit 0"), ("mpirun", &waits)] {
        let path = mpi.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = denrei();
    command.args(["bench", "mpi", "--kind=barrier", "--transports=openmpi-tcp", "--openmpi"]).arg(mpi.path());
    let mut bench = command.env("TMPDIR", scratch.path()).stdout(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + SOON;
    while !run.exists() {
        assert!(Instant::now() < until && bench.try_wait().unwrap().is_none(), "the run begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = bench.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(bench.wait().unwrap().signal(), Some(15));
    let launcher = std::fs::read_to_string(&run).unwrap();
    assert!(!std::path::Path::new("/proc").join(launcher.trim()).exists(), "{launcher} goes on");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "what was compiled is removed");
}

#[test]
fn the_exit_status_is_the_same_where_standard_error_cannot_be_written() {
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("bad.toml");
    std::fs::write(&plan, "name = 'bad'\n[axes]\nhosts = 1\n").unwrap();
    let secret = place.path().join("secret");
    for (args, status) in [
        (&["sim", plan.to_str().unwrap()][..], 2),
        (&["sim", "/no/such/plan"], 3),
        (&["bench", "stream", "--sizes", "3"], 2),
        (&["keygen", "--out", secret.to_str().unwrap()], 0),
    ] {
        let (nobody, closed) = std::io::pipe().unwrap();
        drop(nobody);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let heard = denrei().args(args).output().unwrap();
        let ends = [Stdio::from(closed), full.into()].map(|stderr| {
            let _ = std::fs::remove_file(&secret);
            denrei().args(args).stderr(stderr).stdout(Stdio::null()).status().unwrap().code()
        });
        assert_eq!(ends, [heard.status.code(); 2], "{args:?}");
        assert_eq!(ends[0], Some(status), "{args:?}: {}", String::from_utf8_lossy(&heard.stderr));
    }
}

/// A process that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a short benchmark with the side at `address` says when it cannot be made.
fn refused_at(address: &str) -> String {
    let output = denrei()
        .args(["bench", "pingpong", "--transports=tcp", "--sizes=64", "--iters=10", "--repeat=1", "--json"])
        .args(["--connect", address])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn who_serves_benchmarks_outlives_a_side_that_cannot_be_started() {
    // Standard streams, its own socket and the connection: none is left for the side.
    let few = "exec 3>&- 4>&-; ulimit -n 5; exec \"$0\" bench pingpong --listen 127.0.0.1:0";
    let mut shell = Command::new("sh");
    shell.args(["-c", few, env!("CARGO_BIN_EXE_denrei")]);
    let mut server = Served(shell.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let serving = said.next().unwrap();
    let address = serving.strip_prefix("serving benchmarks on ").and_then(|rest| rest.split(';').next());
    let address = address.unwrap_or_else(|| panic!("{serving}"));
    assert!(said.next().unwrap().contains("trusted networks only"));
    for _ in 0..2 {
        let refused = refused_at(address);
        assert!(refused.contains("of this version answers there, or it has 16 sides already"), "{refused}");
        let why = said.next().unwrap();
        assert!(why.contains("cannot start a side") && why.contains("Too many open files"), "{why}");
    }
}

#[test]
fn what_is_no_side_of_a_benchmark_is_not_taken_for_one() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    let strange = std::thread::spawn(move || {
        let (mut stream, _) = stranger.accept().unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let refused = refused_at(&address);
    strange.join().unwrap();
    assert!(refused.contains("no `denrei bench pingpong --listen` of this version answers"), "{refused}");
    assert!(refused.contains("HTTP/1.1 400 Bad Request"), "{refused}");
}

//! A program that is ended by a signal leaves nothing; what SIGKILL leaves, the next lab removes.

use denrei_netlab::{Lab, LabError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tells this program that it is the child: build a lab, print a name, wait.
const CHILD: &str = "DENREI_LAB_CHILD";

fn namespaces() -> String {
    String::from_utf8(Command::new("ip").args(["netns", "list"]).output().unwrap().stdout).unwrap()
}

fn gone_within(name: &str, limit: Duration) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit {
        if !namespaces().contains(name) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// What the child does: it waits for a process on its host, as a benchmark does for its sides, and
/// takes the end of that for a failure.
fn hold(lab: Lab) -> ! {
    let mut side = lab.host(0).command("sleep").arg("30").spawn().unwrap();
    println!("\nnamespace {}", lab.host(0).namespace());
    let ended = side.wait();
    drop(lab);
    println!("a side has ended: {ended:?}");
    std::process::exit(3);
}

/// Starts this program as a child that holds a lab; returns it and the name of a namespace.
fn child_with_lab() -> (Child, String) {
    // Whoever runs the tests may have been started to survive the end of a terminal.
    let mut child = Command::new("env")
        .arg("--default-signal=HUP")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "signals_end_a_lab", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let name = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("namespace ").map(str::to_owned))
        .expect("the child builds its lab");
    assert!(namespaces().contains(&name));
    (child, name)
}

#[test]
fn signals_end_a_lab() {
    let lab = match Lab::bridge(1) {
        Ok(lab) => lab,
        Err(error @ (LabError::NotRoot | LabError::MissingTool { .. })) => {
            return eprintln!("SKIPPED signals_end_a_lab: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    if std::env::var_os(CHILD).is_some() {
        hold(lab);
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (mut child, name) = child_with_lab();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert!(gone_within(&name, Duration::from_secs(10)), "{signal} left {name}");
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32), "ends as the signal would end it");
    }
    let (mut child, name) = child_with_lab();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(namespaces().contains(&name), "SIGKILL leaves it");
    let next = Lab::bridge(1).unwrap();
    assert!(!namespaces().contains(&name), "the next lab has swept it");
    drop(next);
}

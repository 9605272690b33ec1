//! `cargo xtask sim` as developers and scripts run it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Many times what it takes.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn it_ends_where_nobody_reads_what_it_says() {
    let (nobody, closed) = std::io::pipe().unwrap();
    drop(nobody);
    let mut sim = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let mut sim =
        sim.args(["sim", "--seeds=20", "--verbose"]).stdout(closed).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + LIMIT;
    while sim.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            sim.kill().unwrap();
            sim.wait().unwrap();
            panic!("it goes on for ever");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = sim.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(141) && !said.contains("panicked"), "{:?} {said}", ended.status);
}

#[test]
fn it_does_not_pass_what_it_was_not_given_time_to_look_at() {
    let sim = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["sim", "--seeds=20", "--failures=0"])
        .output()
        .unwrap();
    assert!(sim.status.success());
    assert!(String::from_utf8_lossy(&sim.stdout).contains("20 seeds, 0 failed"), "{sim:?}");
}

//! One test at a time, and one beside it, its namespaces, and what is said where there can be none.

use super::Process;
use denrei_netlab::{Lab, LabConfig, LabError};
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The path of the program all processes run.
const PROGRAM: &str = env!("CARGO_BIN_EXE_e2e-node");

/// A running test: while it lives no other one begins that takes turns with it.
pub struct Test {
    name: &'static str,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for this test's turn.
pub fn begin(name: &'static str) -> Test {
    static TURN: Mutex<()> = Mutex::new(());
    take_turn(name, &TURN)
}

/// The same among those that do next to nothing but wait, for seconds, and take turns with each other only.
pub fn begin_beside(name: &'static str) -> Test {
    static TURN: Mutex<()> = Mutex::new(());
    take_turn(name, &TURN)
}

fn take_turn(name: &'static str, turn: &'static Mutex<()>) -> Test {
    // A test that failed has harmed nothing but itself.
    Test { name, _turn: turn.lock().unwrap_or_else(PoisonError::into_inner) }
}

impl Test {
    /// Hosts on a bridge whose packets all travel one by one; `None`, after it has been said
    /// loudly, where this machine has no root or no tools.
    pub fn lab(&self, hosts: usize, mtu: u32) -> Option<Lab> {
        let built = Lab::with_config(hosts, LabConfig { mtu, offload: false }).and_then(|lab| {
            // Finds out whether `nft` is there and may do its work.
            lab.loss(0, 0)?;
            Ok(lab)
        });
        match built {
            Ok(lab) => Some(lab),
            Err(error @ (LabError::NotRoot | LabError::MissingTool { .. })) => self.skip(&error),
            Err(error @ LabError::Refused { .. }) if error.to_string().contains("not permitted") => {
                self.skip(&error)
            }
            Err(error) => panic!("cannot build the lab: {error}"),
        }
    }

    /// Starts a process on this machine.
    pub fn process(&self, name: impl Into<String>, role: &str) -> Process {
        Process::start(Command::new(PROGRAM), name, role)
    }

    /// Starts a process on this machine that drives hundreds of Nodes by itself, whatever the environment
    /// says about drives: threads for each of them would be all that it measures.
    pub fn leaves(&self, name: impl Into<String>) -> Process {
        let mut command = Command::new(PROGRAM);
        command.env_remove(denrei::environment::DRIVE).env_remove(denrei::environment::SHARDS);
        Process::start(command, name, "leaves")
    }

    /// Starts a process on a host.
    pub fn process_on(&self, lab: &Lab, host: usize, name: impl Into<String>, role: &str) -> Process {
        Process::start(lab.host(host).command(PROGRAM), name, role)
    }

    /// Prints a measurement.
    pub fn print(&self, line: impl std::fmt::Display) {
        println!("{}: {line}", self.name);
    }

    fn skip<T>(&self, reason: &LabError) -> Option<T> {
        self.skip_because(reason);
        None
    }

    /// Says loudly that this test could not do its work, and why.
    pub fn skip_because(&self, reason: impl std::fmt::Display) {
        let line = format!("SKIPPED: {}: {reason}\n", self.name);
        // Past the test runner, which would hide it; behind its own unfinished line.
        let _ = std::io::stderr().write_all(format!("\n{line}").as_bytes());
        if let Some(log) = std::env::var_os("DENREI_SKIP_LOG") {
            let appended = OpenOptions::new().append(true).create(true).open(&log);
            appended.and_then(|mut log| log.write_all(line.as_bytes())).expect("DENREI_SKIP_LOG is writable");
        }
    }
}

/// Runs a line of the shell on a host.
pub fn on(lab: &Lab, host: usize, line: &str) {
    let done = lab.host(host).command("sh").args(["-c", line]).status();
    assert!(done.expect("there is a shell").success(), "host {host}: {line}");
}

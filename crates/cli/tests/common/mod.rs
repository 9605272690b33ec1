//! What the tests of the command share.

use std::process::{Command, Output};

/// The command, run to its end.
pub fn denrei(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_denrei")).args(args).output().expect("the command runs")
}

/// What it printed.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it said beside that.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

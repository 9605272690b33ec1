//! Hosts that let this user have no more threads, processes or files: a command ends with what to do, and not in a panic.
#![cfg(target_os = "linux")]

#[path = "../../io/tests/common/forbid.rs"]
mod forbid;

use forbid::{THREADS, forbid};
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn a_command_that_gets_no_thread_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.toml");
    std::fs::write(&plan, "name = 'p'\n[axes]\nmessages = [1, 2]\n").unwrap();
    let [dir, plan] = [dir.path(), &plan].map(|path| path.to_str().unwrap());
    let commands: [&[&str]; 4] = [
        &["demo"],
        &["sim", plan],
        &["relay", "--route", "127.0.0.1:0=127.0.0.1:9"],
        &["cast", "recv", "--into", dir, "--listen", "127.0.0.1:0"],
    ];
    for args in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
        // SAFETY: it makes system calls alone, and allocates nothing.
        unsafe { command.args(args).pre_exec(|| forbid(THREADS, libc::EAGAIN)) };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.contains("ulimit -u") && said.lines().count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn a_command_that_gets_no_file_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let commands: [&[&str]; 3] = [
        &["demo"],
        &["relay", "--route", "127.0.0.1:0=127.0.0.1:9"],
        &["cast", "recv", "--into", dir, "--listen", "127.0.0.1:0", "--wait", "1"],
    ];
    for args in commands {
        // One more each time: what it gets none for is another.
        for files in 4..8 {
            let script = format!("ulimit -n {files}; exec timeout 20 \"$0\" \"$@\"");
            let mut command = Command::new("sh");
            let output =
                command.args(["-c", &script, env!("CARGO_BIN_EXE_denrei")]).args(args).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{args:?} with {files}: {said}");
            assert!(said.contains("ulimit -n"), "{args:?} with {files}: {said}");
        }
    }
}

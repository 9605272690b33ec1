//! Hosts that let this user have no more threads: a command ends with what to do, and not in a panic.
#![cfg(target_os = "linux")]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the kernel refuse this process more threads, and whatever becomes of it, as `ulimit -u` does to users without
/// privileges.
fn forbid_threads() -> std::io::Result<()> {
    let line = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call is the first field of what is judged.
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 2, 0, libc::SYS_clone as u32),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, libc::SYS_clone3 as u32),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program live through the call, which copies them.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_command_that_gets_no_thread_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.toml");
    std::fs::write(&plan, "name = 'p'\n[axes]\nmessages = [1, 2]\n").unwrap();
    let [dir, plan] = [dir.path(), &plan].map(|path| path.to_str().unwrap());
    let commands: [&[&str]; 3] = [
        &["sim", plan],
        &["relay", "--route", "127.0.0.1:0=127.0.0.1:9"],
        &["cast", "recv", "--into", dir, "--listen", "127.0.0.1:0"],
    ];
    for args in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
        // SAFETY: it makes system calls alone, and allocates nothing.
        unsafe { command.args(args).pre_exec(forbid_threads) };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.contains("ulimit -u") && said.lines().count() == 1, "{args:?}: {said}");
    }
}

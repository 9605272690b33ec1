//! `denrei top` on a terminal: whoever stops or ends it has the terminal back.

#![cfg(target_os = "linux")]

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// The end of what is drawn.
const CLEAR_BELOW: &str = "\x1b[J";

/// The command on a terminal of 80 columns, in a directory where nobody is; it looks once an hour.
struct Top {
    child: Child,
    /// What shows what it writes.
    terminal: Option<PtyMaster>,
    name: String,
    /// What it has written behind what was looked for.
    text: String,
    directory: tempfile::TempDir,
}

impl Top {
    fn start() -> Self {
        // No other test's process has it as well, or it would not go away.
        let flags = OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let terminal = posix_openpt(OFlag::O_RDWR | flags).unwrap();
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
        let name = ptsname_r(&terminal).unwrap();
        let shown = OpenOptions::new().write(true).custom_flags(flags.bits()).open(&name).unwrap();
        is_of_size(&name, 24, 80);
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_denrei"))
            .args(["top", "--interval=3600", "--directory"])
            .arg(directory.path())
            .env("TERM", "xterm")
            .stdout(shown)
            .stderr(Stdio::null())
            // As a shell does, so that there is somebody who could continue it.
            .process_group(0)
            .spawn()
            .unwrap();
        Self { child, terminal: Some(terminal), name, text: String::new(), directory }
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    fn is_sent(&self, signal: Signal) {
        kill(self.id(), signal).unwrap();
    }

    /// What it writes until it has written so, that included.
    fn writes(&mut self, what: &str) -> String {
        let until = Instant::now() + SOON;
        loop {
            if let Some(at) = self.text.find(what) {
                let rest = self.text.split_off(at + what.len());
                return std::mem::replace(&mut self.text, rest);
            }
            self.reads(until.saturating_duration_since(Instant::now()));
        }
    }

    fn reads(&mut self, patience: Duration) {
        let terminal = self.terminal.as_mut().unwrap();
        let patience_ms = PollTimeout::try_from(patience).unwrap();
        let mut there = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
        assert!(poll(&mut there, patience_ms).unwrap() > 0, "it writes no more than {:?}", self.text);
        let mut part = [0; 4096];
        let count = terminal.read(&mut part).unwrap();
        self.text += std::str::from_utf8(&part[..count]).unwrap();
    }

    fn has_stopped(&self) -> bool {
        let how = waitpid(self.id(), Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)).unwrap();
        matches!(how, WaitStatus::Stopped(..))
    }

    /// The signal that ended it.
    fn ends_by(&mut self) -> Option<i32> {
        let mut status = None;
        becomes(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().signal()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn becomes(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come to that");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A terminal that is nobody's controlling one tells nobody.
fn is_of_size(name: &str, rows: u16, columns: u16) {
    let size = ["rows", &rows.to_string(), "cols", &columns.to_string()];
    assert!(Command::new("stty").args(["-F", name]).args(size).status().unwrap().success());
}

#[test]
fn who_stops_it_has_the_terminal_until_it_goes_on() {
    let mut top = Top::start();
    top.writes(ENTER);
    top.writes(CLEAR_BELOW);
    top.is_sent(Signal::SIGTSTP);
    becomes(|| top.has_stopped());
    assert_eq!(top.writes(LEAVE), LEAVE);
    top.is_sent(Signal::SIGCONT);
    top.writes(ENTER);
    assert!(top.writes(CLEAR_BELOW).contains(": 0 nodes"));
    top.is_sent(Signal::SIGTERM);
    top.writes(LEAVE);
    assert_eq!(top.ends_by(), Some(15));
}

#[test]
fn a_new_size_is_drawn_at_once() {
    let mut top = Top::start();
    let name = top.directory.path().to_str().unwrap().to_owned();
    assert!(top.writes(CLEAR_BELOW).contains(&name));
    is_of_size(&top.name, 10, 8);
    top.is_sent(Signal::SIGWINCH);
    let drawn = top.writes(CLEAR_BELOW);
    assert!(drawn.contains(&format!("{}…", &name[..7])), "{drawn:?}");
}

#[test]
fn a_terminal_that_goes_away_ends_it_as_the_signal_does() {
    let mut top = Top::start();
    top.writes(CLEAR_BELOW);
    top.terminal = None;
    top.is_sent(Signal::SIGHUP);
    assert_eq!(top.ends_by(), Some(1));
}

/// A shell that is told of it may not hand it on.
#[test]
fn a_terminal_that_has_gone_away_without_a_signal_ends_it_the_same_way() {
    let mut top = Top::start();
    top.writes(CLEAR_BELOW);
    top.terminal = None;
    // A process that another test starts just now has the terminal until it runs its own program.
    becomes(|| {
        top.is_sent(Signal::SIGWINCH);
        top.child.try_wait().unwrap().is_some()
    });
    assert_eq!(top.ends_by(), Some(1));
}

//! `denrei top`: Nodes of other processes, seen from outside.

mod common;

use common::{denrei, stderr, stdout};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const VARIABLE: &str = "DENREI_STATUS_DIRECTORY";
const SOON: Duration = Duration::from_secs(20);

fn top(directory: &Path, args: &[&str]) -> Output {
    let command =
        Command::new(env!("CARGO_BIN_EXE_denrei")).arg("top").args(args).env(VARIABLE, directory).output();
    command.unwrap()
}

/// A relay tells of the Node that it stands for its target by.
struct Relay(Child);

impl Relay {
    fn start(directory: &Path) -> Self {
        let relay = Command::new(env!("CARGO_BIN_EXE_denrei"))
            .args(["relay", "--route", "127.0.0.1:0=127.0.0.1:9"])
            .env(VARIABLE, directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until_somebody_is_there(directory: &Path) -> Output {
    let until = Instant::now() + SOON;
    loop {
        let output = top(directory, &["--once", "--interval=0.1"]);
        if output.status.success() {
            return output;
        }
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(Instant::now() < until, "{}", stdout(&output));
    }
}

#[test]
fn a_program_that_knows_nothing_of_it_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let relay = Relay::start(directory.path());
    let text = stdout(&until_somebody_is_there(directory.path()));
    let pid = relay.0.id().to_string();
    assert!(text.contains(": 1 node\n"), "{text}");
    assert!(text.lines().any(|line| line.contains(&pid) && line.contains("denrei relay --route")), "{text}");
    let output = top(directory.path(), &["--once", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(object["process"].to_string(), pid);
    assert_eq!(object["peers"].as_array().map(Vec::len), Some(0));
    // Killed, it cannot take its socket along.
    drop(relay);
    let output = top(directory.path(), &["--once", "--interval=0.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("no node tells of itself there"), "{}", stdout(&output));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Of another version, which lacks a field: named, on standard error where objects are printed.
#[test]
fn who_cannot_be_understood_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let other = UnixListener::bind(directory.path().join("4711-00.socket")).unwrap();
    thread::spawn(move || {
        while let Ok((mut asking, _)) = other.accept() {
            let _ = asking.write_all(b"{\"process\":4711}\n");
        }
    });
    let words = "the answer of process 4711 cannot be read (another version?): missing field";
    let output = top(directory.path(), &["--once", "--interval=0.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains(words), "{}", stdout(&output));
    assert!(!stdout(&output).contains("no node tells of itself"), "{}", stdout(&output));
    let output = top(directory.path(), &["--once", "--json"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(1)));
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

#[test]
fn where_to_look_has_to_be_known() {
    let unknown =
        Command::new(env!("CARGO_BIN_EXE_denrei")).arg("top").env_remove(VARIABLE).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr(&unknown).contains(VARIABLE) && stderr(&unknown).contains("--directory"),
        "{}",
        stderr(&unknown)
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let wrong = denrei(&["top", "--once", "--directory", file.path().to_str().unwrap()]);
    assert_eq!(wrong.status.code(), Some(3));
    assert!(stderr(&wrong).contains("cannot look into"), "{}", stderr(&wrong));
    let wrong = denrei(&["top", "--interval", "0"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("no time from 0.1 to 3600 s"), "{}", stderr(&wrong));
}

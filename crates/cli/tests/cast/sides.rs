//! Senders and receivers as processes, what they carry, and what arrived.

use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything; far above what it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn denrei() -> Command {
    Command::new(env!("CARGO_BIN_EXE_denrei"))
}

/// A group that no other test uses.
pub fn group() -> String {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("239.255.80.{}:{}", port % 250 + 1, port.min(65_000))
}

/// A process. Killed when dropped.
pub struct Side(pub Option<Child>);

impl Side {
    pub fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self(Some(child.expect("it starts")))
    }

    /// A receiver that is there; and its address.
    pub fn receiver(command: &mut Command) -> (Self, String) {
        let mut side = Self::start(command);
        let child = side.0.as_mut().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        // What the host does not grant is warned of first.
        while lines.read_line(&mut line).unwrap() > 0 && line.starts_with(" WARN ") {
            line.clear();
        }
        // What follows is kept from filling the pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        let addr = line.strip_prefix("receiving at ").and_then(|rest| rest.split(',').next());
        (side, addr.unwrap_or_else(|| panic!("{line:?}")).to_owned())
    }

    pub fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits for the end.
    pub fn end(mut self) -> Output {
        let until = Instant::now() + PATIENCE;
        while self.0.as_mut().unwrap().try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// Waits for the end: the exit status, and the line of JSON.
    pub fn json(self) -> (Option<i32>, Value) {
        let output = self.end();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = serde_json::from_str(&text);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), value.unwrap_or_else(|_| panic!("{:?} {text:?} {error:?}", output.status)))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn content(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

pub fn recv(into: &Path, group: &str) -> Command {
    let mut command = denrei();
    command.args(["cast", "recv", "--group", group, "--json", "--into"]).arg(into);
    command
}

pub fn on_loopback(mut command: Command) -> Command {
    command.args(["--bind", "127.0.0.1:0"]);
    command
}

pub fn send(paths: &[&Path], group: &str) -> Command {
    let mut command = denrei();
    command.args(["cast", "send", "--json", "--group", group]).args(paths);
    command
}

pub fn places(count: usize) -> Vec<TempDir> {
    (0..count).map(|_| tempfile::tempdir().unwrap()).collect()
}

/// A tree with everything that has to be kept.
pub fn tree(top: &Path) {
    fs::create_dir_all(top.join("sub/deeper")).unwrap();
    fs::write(top.join("data"), content(3_000_000)).unwrap();
    fs::write(top.join("empty"), "").unwrap();
    fs::write(top.join("sub/run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(top.join("sub/run"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(top.join("sub/deeper"), fs::Permissions::from_mode(0o550)).unwrap();
    symlink("../data", top.join("sub/link")).unwrap();
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"middle", 40 << 20).unwrap();
    (0..200).for_each(|n| fs::write(top.join(format!("sub/{n}")), format!("file {n}")).unwrap());
}

pub fn expect_tree(top: &Path, from: &Path) {
    assert_eq!(fs::read(top.join("data")).unwrap(), content(3_000_000));
    assert_eq!(fs::read(top.join("empty")).unwrap(), b"");
    assert_eq!(fs::metadata(top.join("sub/run")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(top.join("sub/deeper")).unwrap().mode() & 0o7777, 0o550);
    assert_eq!(fs::read_link(top.join("sub/link")).unwrap(), Path::new("../data"));
    let (sparse, original) =
        (fs::metadata(top.join("sparse")).unwrap(), fs::metadata(from.join("sparse")).unwrap());
    assert_eq!(sparse.len(), 64 << 20);
    assert!(sparse.blocks() * 512 < 4 << 20, "{} blocks", sparse.blocks());
    assert_eq!((sparse.mtime(), sparse.mtime_nsec()), (original.mtime(), original.mtime_nsec()));
    let mut middle = [0; 6];
    File::open(top.join("sparse")).unwrap().read_exact_at(&mut middle, 40 << 20).unwrap();
    assert_eq!(&middle, b"middle");
    assert_eq!(fs::read_to_string(top.join("sub/199")).unwrap(), "file 199");
}

pub fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// How many bytes a receiver has on disk, of what it has begun.
pub fn begun(dir: &Path) -> u64 {
    let staged = names(dir).into_iter().find(|name| name.starts_with(".denrei-cast-"));
    let journal = staged.map(|name| dir.join(name).join("journal-262144"));
    journal.and_then(|path| fs::metadata(path).ok()).map_or(0, |meta| meta.len() * 262_144)
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

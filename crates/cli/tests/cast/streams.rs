//! What becomes of receivers that do not keep up with a stream.

use crate::sides::{Side, group, on_loopback, places, recv, send};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

#[test]
fn one_whose_reader_is_too_slow_for_a_stream_is_told_so() {
    let (group, into) = (group(), places(1));
    let (filed, filed_addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let mut slow = Side::start(&mut on_loopback(recv(Path::new("-"), &group)));
    let child = slow.0.as_mut().unwrap();
    let (mut out, mut said) = (child.stdout.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
    let mut line = String::new();
    while !line.starts_with("receiving at ") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0);
    }
    let slow_addr = line["receiving at ".len()..].split(',').next().unwrap();
    let mut command = send(&[Path::new("-")], &group);
    command.args(["--retain=1M", "--stall=0.2", "--members", &format!("{filed_addr},{slow_addr}")]);
    let mut sender = Side::start(&mut command);
    let mut stdin = sender.0.as_mut().unwrap().stdin.take().unwrap();
    std::io::copy(&mut std::io::repeat(7).take(60_000_000), &mut stdin).unwrap();
    drop(stdin);
    assert_eq!(filed.json().0, Some(0));
    let (status, report) = sender.json();
    assert_eq!((status, &report["members"][1]["state"]), (Some(1), &"failed".into()), "{report}");
    // Only now is it read, and so what it was told.
    out.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(slow.end().status.code(), Some(1));
    let mut error = String::new();
    said.read_to_string(&mut error).unwrap();
    assert!(error.contains("past what is kept of it") && error.contains("--retain"), "{error}");
}

/// A compressor that computes, a tape that is wound: longer than a receiver of files is waited for.
#[test]
fn one_whose_reader_rests_for_a_while_is_waited_for() {
    let (group, into) = (group(), places(1));
    let (filed, filed_addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let (mut slow, slow_addr) = Side::receiver(&mut on_loopback(recv(Path::new("-"), &group)));
    let mut command = send(&[Path::new("-")], &group);
    command.args(["--retain=1M", "--members", &format!("{filed_addr},{slow_addr}")]);
    let mut sender = Side::start(&mut command);
    let mut stdin = sender.0.as_mut().unwrap().stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        std::io::copy(&mut std::io::repeat(7).take(30_000_000), &mut stdin).unwrap();
    });
    std::thread::sleep(Duration::from_secs(4));
    let mut out = slow.0.as_mut().unwrap().stdout.take().unwrap();
    let mut read = Vec::new();
    out.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), 30_000_000);
    writer.join().unwrap();
    let (status, report) = sender.json();
    assert_eq!(status, Some(0), "{report}");
    assert_eq!((filed.json().0, slow.end().status.code()), (Some(0), Some(0)));
}

/// As `node` leaves the pipes that it shares: each side meets one that is empty, or full, for the moment.
#[test]
fn pipes_that_somebody_has_made_non_blocking_are_waited_for() {
    let (group, data) = (group(), vec![7; 5_000_000]);
    let [(mut written, input), (mut out, output)] = [(); 2].map(|()| UnixStream::pair().unwrap());
    input.set_nonblocking(true).unwrap();
    output.set_nonblocking(true).unwrap();
    let start = |command: &mut Command| Side(Some(command.stderr(Stdio::piped()).spawn().unwrap()));
    let receiver = start(on_loopback(recv(Path::new("-"), &group)).stdout(OwnedFd::from(output)));
    let mut command = send(&[Path::new("-")], &group);
    let sender = start(command.args(["--min-members=1"]).stdin(OwnedFd::from(input)).stdout(Stdio::piped()));
    drop(command);
    std::thread::sleep(Duration::from_millis(500));
    written.write_all(&data[..10]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let rest = data.clone();
    let writer = std::thread::spawn(move || written.write_all(&rest[10..]));
    std::thread::sleep(Duration::from_secs(1));
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        out.read_to_end(&mut read).map(|_| read)
    });
    let (sent, received) = (sender.end(), receiver.end());
    let said = |side: &Output| String::from_utf8_lossy(&side.stderr).into_owned();
    assert_eq!(sent.status.code(), Some(0), "{}", said(&sent));
    assert_eq!(received.status.code(), Some(0), "{}", said(&received));
    writer.join().unwrap().unwrap();
    assert!(reader.join().unwrap().unwrap() == data, "it is another stream");
}

/// As `nohup` leaves a terminal's: nothing was taken for a stream that is whole, and what came went nowhere.
#[test]
fn descriptors_that_are_open_the_other_way_are_said() {
    let (group, into) = (group(), places(1));
    let other = into[0].path().join("other");
    let written = Stdio::from(File::create(&other).unwrap());
    let (receiver, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let mut command = send(&[Path::new("-")], &group);
    command.args(["--members", &addr]).stdin(written).stdout(Stdio::piped()).stderr(Stdio::piped());
    let sent = Side(Some(command.spawn().unwrap())).end();
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(!sent.status.success() && said.contains("Bad file descriptor"), "{:?}: {said}", sent.status);
    assert_eq!(receiver.json().0, Some(1));

    let read = Stdio::from(File::open(&other).unwrap());
    let mut command = on_loopback(recv(Path::new("-"), &group));
    let receiver = Side(Some(command.stdout(read).stderr(Stdio::piped()).spawn().unwrap()));
    let mut sender = Side::start(send(&[Path::new("-")], &group).args(["--min-members", "1"]));
    sender.0.as_mut().unwrap().stdin.take().unwrap().write_all(b"a stream").unwrap();
    assert_eq!(sender.json().0, Some(1));
    let received = receiver.end();
    let said = String::from_utf8_lossy(&received.stderr).into_owned();
    assert!(received.status.code() == Some(1) && said.contains("Bad file descriptor"), "{said}");
}

//! `denrei dump`: captures in words.

mod common;

use common::{denrei, stderr, stdout};
use denrei_io::pcap::Recorder;
use denrei_wire::checksum::crc32c;
use denrei_wire::packet::{Kind, common_header, flags};
use denrei_wire::{Ecn, PacketNumber, Token, frame};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

/// A line that has not come by then will not.
const SOON: Duration = Duration::from_secs(20);

/// A packet with a message of three octets.
fn packet(number: u64) -> Vec<u8> {
    let mut bytes = common_header(Kind::Session, flags::ACK_NOW, PacketNumber(number), Token(0xaa)).to_vec();
    bytes.extend(frame::message_header(0, 2, 7, 3));
    bytes.extend(b"abc");
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// A capture of `datagrams`, a millisecond apart.
fn capture(datagrams: &[&[u8]]) -> Vec<u8> {
    let mut recorder = Recorder::new(Vec::new()).unwrap();
    let (from, to) = ("10.0.0.1:7411".parse().unwrap(), "[fd00::2]:7412".parse().unwrap());
    for (nth, datagram) in (0..).zip(datagrams) {
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_millis(nth);
        let (from, to) = if nth % 2 == 0 { (from, "10.0.0.2:7412".parse().unwrap()) } else { (to, to) };
        recorder.record(at, from, to, Ecn::Ect0, datagram);
    }
    recorder.finish().unwrap()
}

fn dump(bytes: &[u8], args: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    denrei(&[&["dump", file.path().to_str().unwrap()], args].concat())
}

#[test]
fn packets_in_words() {
    let mut sealed = packet(9);
    *sealed.last_mut().unwrap() ^= 1;
    let pcap = capture(&[&packet(7), &packet(8), &sealed, b"hello, this is DNS"]);
    let expected = "\
0.000000 10.0.0.1:7411 > 10.0.0.2:7412 33 B: SESSION #7 token 00000000000000aa ack-now | MESSAGE 2:7 len 3 | crc ok
0.001000 [fd00::2]:7412 > [fd00::2]:7412 33 B: SESSION #8 token 00000000000000aa ack-now | MESSAGE 2:7 len 3 | crc ok
0.002000 10.0.0.1:7411 > 10.0.0.2:7412 33 B: SESSION #9 token 00000000000000aa ack-now | 17 bytes, sealed or damaged
";
    let output = dump(&pcap, &[]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), (expected, Some(0)), "{}", stderr(&output));
    assert_eq!(stderr(&output), "datagrams: 3; other packets: 1\n");
    let named = stdout(&dump(&pcap, &["--port", "7411"]));
    assert_eq!(named.lines().count(), 2, "{named}");
    let all = stdout(&dump(&pcap, &["--port", "7412"]));
    assert!(all.starts_with(expected) && all.lines().nth(3).unwrap().contains("not a packet: "), "{all}");
}

#[test]
fn packets_as_objects() {
    let output = dump(&capture(&[&packet(7), &packet(8)]), &["--json"]);
    let objects = stdout(&output);
    let objects: Vec<serde_json::Value> =
        objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2);
    let expected = serde_json::json!({
        "at_ns": 1_700_000_000_001_000_000_u64, "from": "[fd00::2]:7412", "to": "[fd00::2]:7412", "bytes": 33,
        "captured": 33, "kind": "SESSION", "number": 8, "token": "00000000000000aa", "plain": true,
        "says": "SESSION #8 token 00000000000000aa ack-now | MESSAGE 2:7 len 3 | crc ok",
    });
    assert_eq!(objects[1], expected);
}

#[test]
fn a_capture_that_ends_too_early_is_read_up_to_there() {
    let pcap = capture(&[&packet(7), &packet(8)]);
    let output = dump(&pcap[..pcap.len() - 9], &[]);
    assert_eq!(stdout(&output).lines().count(), 1);
    assert!(
        stderr(&output).ends_with("; the capture ends in the middle of a packet\n"),
        "{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_is_no_capture_is_named() {
    for bytes in [&b""[..], b"# a plan of the simulator, and nothing that tcpdump has written"] {
        let output = dump(bytes, &[]);
        assert!(stderr(&output).contains("not a capture"), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(3));
    }
    let damaged = [&capture(&[&packet(7)])[..], &[0x55; 40]].concat();
    let output = dump(&damaged, &[]);
    assert!(stderr(&output).contains("damaged"), "{}", stderr(&output));
    assert_eq!(
        (stdout(&output).lines().count(), output.status.code()),
        (1, Some(3)),
        "what comes before it is shown"
    );
    let output = denrei(&["dump", "/nowhere/at.all"]);
    assert!(stderr(&output).contains("/nowhere/at.all: No such file"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(dump(&capture(&[]), &[]).status.code(), Some(0), "a capture of nothing is one");
}

/// Another that has the same pipe may have set that.
#[test]
fn a_pipe_that_does_not_block_is_waited_for() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
    let child =
        command.arg("dump").stdin(reader).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(100));
    let _ = writer.write_all(&capture(&[&packet(7)]));
    drop(writer);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (stdout(&output).lines().count(), stderr(&output).as_str()),
        (1, "datagrams: 1; other packets: 0\n")
    );
}

#[test]
fn standard_input_that_is_not_open_to_be_read_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let output = command.arg("dump").stdin(null).output().unwrap();
    assert!(stderr(&output).contains("cannot be read"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn what_is_piped_in_is_shown_as_it_comes() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
    let command = command.arg("dump").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pcap = capture(&[&packet(7), &packet(8)]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, shown) = mpsc::channel();
    let reader = thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut input = child.stdin.take().unwrap();
    let length = 16 + 28 + packet(7).len();
    // As tcpdump -U writes: the header, and each packet.
    for (part, number) in
        [(&pcap[..24], None), (&pcap[24..24 + length], Some(7)), (&pcap[24 + length..], Some(8))]
    {
        input.write_all(part).unwrap();
        if let Some(number) = number {
            let line = shown.recv_timeout(SOON).unwrap();
            assert!(line.contains(&format!("SESSION #{number} ")), "{line}");
        }
    }
    drop(input);
    assert!(shown.recv_timeout(SOON).is_err());
    assert!(child.wait().unwrap().success());
    reader.join().unwrap().unwrap();
}

//! `denrei cast` between real processes on loopback; between hosts in namespaces: `hosts.rs`.

mod disks;
mod hosts;
mod interrupted;
mod limits;
mod sides;
mod streams;

use serde_json::Value;
use sides::{
    Side, begun, content, denrei, expect_tree, group, names, on_loopback, places, recv, send, tree,
    wait_until,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[test]
fn a_tree_to_three_listed_receivers() {
    let (group, into, from) = (group(), places(3), tempfile::tempdir().unwrap());
    let top = from.path().join("top");
    tree(&top);
    let receivers: Vec<(Side, String)> =
        into.iter().map(|dir| Side::receiver(&mut on_loopback(recv(dir.path(), &group)))).collect();
    let members: Vec<&str> = receivers.iter().map(|(_, addr)| addr.as_str()).collect();
    let (status, report) = Side::start(send(&[&top], &group).args(["--members", &members.join(",")])).json();
    assert_eq!((status, &report["complete"]), (Some(0), &Value::Bool(true)), "{report}");
    assert_eq!(report["members"].as_array().unwrap().len(), 3);
    let (bytes, wire) = (report["bytes"].as_u64().unwrap(), report["wire_bytes"].as_u64().unwrap());
    assert!((3_000_000..4_000_000).contains(&bytes) && wire > bytes, "{report}");
    assert!(report["repairs"].is_u64() && report["seconds"].as_f64().unwrap() > 0.0, "{report}");
    assert!(members.contains(&report["slowest"].as_str().unwrap()), "{report}");
    for ((side, _), dir) in receivers.into_iter().zip(&into) {
        let (status, report) = side.json();
        assert_eq!(status, Some(0), "{report}");
        assert_eq!((&report["new_bytes"], &report["resumed_bytes"]), (&bytes.into(), &0.into()), "{report}");
        assert_eq!(names(dir.path()), ["top"]);
        expect_tree(&dir.path().join("top"), &top);
    }
}

#[test]
fn receivers_at_the_loopback_address_of_ipv6_are_reached() {
    if let Err(error) = std::net::UdpSocket::bind("[::1]:0") {
        return eprintln!("SKIPPED receivers_at_the_loopback_address_of_ipv6_are_reached: {error}");
    }
    let (into, from) = (places(2), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(100_000)).unwrap();
    let receivers: Vec<(Side, String)> = into
        .iter()
        .map(|dir| Side::receiver(recv(dir.path(), &group()).args(["--bind", "[::1]:0"])))
        .collect();
    let members: Vec<&str> = receivers.iter().map(|(_, addr)| addr.as_str()).collect();
    let mut command = denrei();
    command.args(["cast", "send", "--json", "--members", &members.join(",")]).arg(&file);
    let (status, report) = Side::start(&mut command).json();
    assert_eq!(status, Some(0), "{report}");
    for ((side, _), dir) in receivers.into_iter().zip(&into) {
        assert_eq!(side.json().0, Some(0));
        assert!(fs::read(dir.path().join("file")).unwrap() == content(100_000));
    }
}

#[test]
fn receivers_that_announce_themselves_and_one_that_is_late() {
    let (group, into, from) = (group(), places(3), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(6_000_000)).unwrap();
    let mut command = send(&[&file], &group);
    command.args(["--min-members=2", "--rate=3M", "--bind=127.0.0.1:0"]);
    let sender = Side::start(&mut command);
    let mut receivers: Vec<Side> =
        into[..2].iter().map(|dir| Side::receiver(&mut on_loopback(recv(dir.path(), &group))).0).collect();
    wait_until("the cast begins", || begun(into[0].path()) > 1_000_000);
    receivers.push(Side::receiver(&mut on_loopback(recv(into[2].path(), &group))).0);
    let (status, report) = sender.json();
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(report["members"].as_array().unwrap().len(), 3, "{report}");
    for (side, dir) in receivers.into_iter().zip(&into) {
        assert_eq!(side.json().0, Some(0));
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), content(6_000_000));
    }
    // A rate of 3 MiB/s: never faster, however slow the machine.
    assert!(report["seconds"].as_f64().unwrap() > 1.5, "{report}");
}

#[test]
fn one_that_is_killed_and_started_again_gets_only_what_it_misses() {
    let (group, into, from) = (group(), places(2), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(8_000_000)).unwrap();
    let (steady, steady_addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let (mut killed, addr) = Side::receiver(&mut on_loopback(recv(into[1].path(), &group)));
    let members = format!("{steady_addr},{addr}");
    let sender = Side::start(send(&[&file], &group).args(["--rate=4M", "--members", &members]));
    wait_until("a quarter is there", || begun(into[1].path()) > 2_000_000);
    killed.kill();
    assert!(!into[1].path().join("file").exists(), "nothing has a name before it is complete");
    let mut again = recv(into[1].path(), &group);
    again.args(["--bind", &addr]);
    let (again, _) = Side::receiver(&mut again);
    let (status, report) = sender.json();
    assert_eq!(status, Some(0), "{report}");
    let (status, resumed) = again.json();
    assert_eq!(status, Some(0), "{resumed}");
    let figure = |name: &str| resumed[name].as_u64().unwrap();
    assert!(figure("resumed_bytes") > 1_500_000, "{resumed}");
    assert_eq!(figure("resumed_bytes") + figure("new_bytes"), 8_000_000, "{resumed}");
    assert_eq!(steady.json().0, Some(0));
    for dir in &into {
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), content(8_000_000));
    }
}

#[test]
fn a_pipe_goes_to_two_pipes_and_a_directory() {
    let (group, into) = (group(), places(1));
    let receivers: Vec<(Side, String)> =
        (0..2).map(|_| Side::receiver(&mut on_loopback(recv(Path::new("-"), &group)))).collect();
    let (filed, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let members: Vec<&str> = receivers.iter().map(|(_, addr)| addr.as_str()).chain([addr.as_str()]).collect();
    let mut command = send(&[Path::new("-")], &group);
    command.args(["--name=archive", "--members", &members.join(",")]);
    let mut sender = Side::start(&mut command);
    // What they bring is read while it comes: a pipe holds little.
    let readers: Vec<_> = receivers
        .into_iter()
        .map(|(mut side, _)| {
            let mut out = side.0.as_mut().unwrap().stdout.take().unwrap();
            std::thread::spawn(move || {
                let mut got = Vec::new();
                out.read_to_end(&mut got).unwrap();
                (side, got)
            })
        })
        .collect();
    let text = content(5_000_001);
    let mut stdin = sender.0.as_mut().unwrap().stdin.take().unwrap();
    stdin.write_all(&text).unwrap();
    drop(stdin);
    let (status, report) = sender.json();
    assert_eq!((status, &report["bytes"]), (Some(0), &5_000_001.into()), "{report}");
    assert!(report["wire_bytes"].as_u64().unwrap() < 7_500_000, "once for all three: {report}");
    for reader in readers {
        let (side, got) = reader.join().unwrap();
        assert!(got == text, "{} bytes of {}", got.len(), text.len());
        assert_eq!(side.end().status.code(), Some(0));
    }
    assert_eq!(filed.json().0, Some(0));
    assert_eq!(fs::read(into[0].path().join("archive")).unwrap(), text);
}

#[test]
fn a_full_disk_is_named_and_the_others_go_on() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!(
            "SKIPPED a_full_disk_is_named_and_the_others_go_on: mounting a small disk needs root"
        );
    }
    let (group, into, from) = (group(), places(2), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(4_000_000)).unwrap();
    let (good, good_addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    // The disk is gone with the process that has mounted it.
    let mut small = Command::new("unshare");
    let script = r#"mount -t tmpfs -o size=2m none "$0" && exec "$@""#;
    small.args(["--mount", "sh", "-c", script]).arg(into[1].path()).arg(env!("CARGO_BIN_EXE_denrei"));
    small
        .args(["cast", "recv", "--json", "--group", &group, "--bind=127.0.0.1:0", "--into"])
        .arg(into[1].path());
    let (small, small_addr) = Side::receiver(&mut small);
    let members = format!("{good_addr},{small_addr}");
    let (status, report) = Side::start(send(&[&file], &group).args(["--members", &members])).json();
    assert_eq!((status, &report["complete"]), (Some(1), &Value::Bool(false)), "{report}");
    let failed =
        report["members"].as_array().unwrap().iter().find(|member| member["state"] == "failed").unwrap();
    assert_eq!(failed["addr"], small_addr.as_str(), "{report}");
    assert!(failed["error"].as_str().unwrap().contains("No space left on device"), "{report}");
    let (status, told) = small.json();
    assert_eq!(status, Some(1));
    assert!(told["error"].as_str().unwrap().contains("make room"), "{told}");
    assert_eq!(good.json().0, Some(0));
    assert_eq!(fs::read(into[0].path().join("file")).unwrap(), content(4_000_000));
}

/// By one rename nothing gets from one file system to another: said before all of it has come.
#[test]
fn a_directory_that_is_on_another_disk_is_named_before_anything_is_sent() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!(
            "SKIPPED a_directory_that_is_on_another_disk_is_named_before_anything_is_sent: mounting a disk needs root"
        );
    }
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let top = from.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), content(1_000_000)).unwrap();
    let other = into[0].path().join("top");
    fs::create_dir(&other).unwrap();
    let mut mounted = Command::new("unshare");
    mounted.args(["--mount", "sh", "-c", r#"mount -t tmpfs none "$0" && exec "$@""#]).arg(&other);
    mounted.arg(env!("CARGO_BIN_EXE_denrei"));
    mounted
        .args(["cast", "recv", "--json", "--group", &group, "--bind=127.0.0.1:0", "--into"])
        .arg(into[0].path());
    let (side, addr) = Side::receiver(&mut mounted);
    let (status, report) = Side::start(send(&[&top], &group).args(["--members", &addr])).json();
    assert_eq!((status, &report["members"][0]["state"]), (Some(1), &"failed".into()), "{report}");
    assert_eq!(begun(into[0].path()), 0);
    let (status, told) = side.json();
    assert_eq!(status, Some(1));
    let error = told["error"].as_str().unwrap();
    assert!(error.contains("top is there and is on another file system"), "{error}");
}

#[test]
fn who_is_absent_is_named_and_the_others_are_served() {
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, "an order").unwrap();
    let (side, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let absent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = send(&[&file], &group);
    command.args(["--wait=1", "--patience=0.5", "--members", &format!("{addr},{absent}")]);
    let (status, report) = Side::start(&mut command).json();
    assert_eq!(status, Some(1), "{report}");
    assert_eq!(
        (&report["members"][0]["state"], &report["members"][1]["state"]),
        (&"complete".into(), &"absent".into())
    );
    let error = report["members"][1]["error"].as_str().unwrap();
    assert!(error.contains("run `denrei cast recv` there"), "{error}");
    assert_eq!(side.json().0, Some(0));
}

#[test]
fn one_that_vanishes_is_waited_for_as_long_as_patience_says_after_the_others_are_served() {
    let (group, into, from) = (group(), places(3), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(6_000_000)).unwrap();
    let mut receivers: Vec<(Side, String)> =
        into.iter().map(|dir| Side::receiver(&mut on_loopback(recv(dir.path(), &group)))).collect();
    let members: Vec<String> = receivers.iter().map(|(_, addr)| addr.clone()).collect();
    let mut command = send(&[&file], &group);
    command.args(["--rate=3M", "--patience=3", "--members", &members.join(",")]);
    let sender = Side::start(&mut command);
    wait_until("a quarter is there", || begun(into[2].path()) > 1_500_000);
    receivers.pop().unwrap().0.kill();
    for (side, _) in receivers {
        assert_eq!(side.json().0, Some(0));
    }
    let served = Instant::now();
    let (status, report) = sender.json();
    assert_eq!(status, Some(1), "{report}");
    assert_eq!(report["members"][2]["state"], "vanished", "{report}");
    let waited = served.elapsed();
    // Till its session counts as lost, and patience then, it would be nine seconds and more.
    assert!((2.0..7.0).contains(&waited.as_secs_f64()), "{waited:?}");
}

#[test]
fn the_only_one_that_vanishes_is_waited_for_as_long_as_patience_says() {
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(6_000_000)).unwrap();
    let (mut receiver, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let mut command = send(&[&file], &group);
    command.args(["--rate=3M", "--patience=3", "--members", &addr]);
    let sender = Side::start(&mut command);
    wait_until("a quarter is there", || begun(into[0].path()) > 1_500_000);
    receiver.kill();
    let killed = Instant::now();
    let (status, report) = sender.json();
    assert_eq!((status, &report["members"][0]["state"]), (Some(1), &"vanished".into()), "{report}");
    let waited = killed.elapsed();
    // Till its session counts as lost it would be six seconds, and patience then.
    assert!((2.0..6.0).contains(&waited.as_secs_f64()), "{waited:?}");
}

#[test]
fn what_cannot_work_is_said_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (file, top) = (dir.path().join("file"), dir.path().join("top"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&top).unwrap();
    symlink("/etc/passwd", top.join("link")).unwrap();
    let path = |path: &PathBuf| path.display().to_string();
    for (args, status, hint) in [
        (vec!["send".into(), path(&file)], 2, "--members"),
        (vec!["send".into(), path(&file)], 2, "--min-members"),
        (vec!["send".into(), path(&file), "--members=127.0.0.1,127.0.0.1".into()], 2, "twice"),
        (
            vec!["send".into(), path(&file), "--min-members=1".into(), "--group=10.0.0.1:5".into()],
            2,
            "multicast",
        ),
        (
            vec!["send".into(), path(&file), "--min-members=1".into(), "--group=239.1.1.1:65535".into()],
            2,
            "no port for announcements",
        ),
        (vec!["send".into(), "-".into(), path(&file), "--min-members=1".into()], 2, "alone"),
        (vec!["send".into(), path(&file), "--min-members=0".into()], 2, "from 1 to 16384"),
        (
            vec!["send".into(), path(&file), "--members=127.0.0.1:9".into(), "--wait=0.3".into()],
            3,
            "cast recv",
        ),
        (vec!["send".into(), path(&file), "--members=10.99.99.99:9".into()], 3, "--insecure"),
        (vec!["send".into(), path(&top), "--members=127.0.0.1".into()], 3, "--dereference"),
        (
            vec!["send".into(), "/none/such".into(), "--members=127.0.0.1".into()],
            3,
            "cannot send: cannot find /none/such",
        ),
        (
            vec!["send".into(), path(&file), "--members=127.0.0.1:0".into()],
            2,
            "--members: \"127.0.0.1:0\" has port 0",
        ),
        (vec!["send".into(), path(&file), "--members=239.1.1.1".into()], 2, "single host"),
        (vec!["send".into(), path(&file), "--members=0.0.0.0:7".into()], 2, "single host"),
        (
            vec!["send".into(), path(&file), "--min-members=1".into(), "--bind=".into()],
            2,
            "--bind: \"\" is no host",
        ),
        (vec!["send".into(), path(&file), path(&file), "--min-members=1".into()], 2, "two of that name"),
        (vec!["send".into(), "-".into(), "--name=a/b".into(), "--min-members=1".into()], 2, "--name: "),
        (
            vec!["send".into(), path(&file), "--members=127.0.0.1:9".into(), "--wait=0".into()],
            3,
            "answered within 0 s:",
        ),
        (vec!["send".into(), path(&file), "--members=127.0.0.1,,".into()], 2, "is no host"),
        (
            vec!["send".into(), path(&file), "--min-members=1".into(), "--retain=1M".into()],
            2,
            "standard input",
        ),
        (vec!["send".into(), "-L".into(), "-".into(), "--min-members=1".into()], 2, "files and directories"),
        (vec!["recv".into(), "--into=-".into(), "--fsync".into()], 2, "--fsync is for a directory"),
        (vec!["recv".into()], 2, "--into"),
        (vec!["recv".into(), "--into".into(), path(&top), "--from=127.0.0.1:0".into()], 2, "--from: "),
        (vec!["recv".into(), "--into".into(), path(&top), "--from=[::]".into()], 2, "single host"),
        (vec!["recv".into(), "--into".into(), path(&top), "--from=127.0.0.1".into()], 2, "has no port"),
        // At once: it does not become possible by waiting.
        (
            vec![
                "recv".into(),
                "--into".into(),
                path(&top),
                "--bind=127.0.0.1:0".into(),
                "--from=[::1]:9".into(),
                "--wait=20".into(),
            ],
            3,
            "bind to [::] for both",
        ),
        (vec!["recv".into(), "--into".into(), path(&file)], 2, "--into: "),
        (vec!["recv".into(), "--into=/none/such".into()], 3, "/none/such"),
        // Not even root can make files there.
        (vec!["recv".into(), "--into=/proc/self".into()], 3, "cannot receive into /proc/self"),
        (vec!["recv".into(), "--into".into(), path(&top), "--bind=0.0.0.0:0".into()], 3, "--insecure"),
    ] {
        let output = denrei().arg("cast").args(&args).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
        assert!(error.contains(hint), "{args:?}: {error}");
    }
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    let output = on_loopback(recv(&into, &group())).arg("--wait=0.2").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--min-members"), "{output:?}");
    let asked =
        on_loopback(recv(&into, &group())).args(["--wait=0.2", "--from=127.0.0.1:9"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&asked.stderr).contains("at 127.0.0.1:9, which --from names"),
        "{asked:?}"
    );
}

#[test]
fn a_file_that_is_removed_while_it_is_sent_is_named_and_the_cast_is_not_whole() {
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let top = from.path().join("top");
    fs::create_dir(&top).unwrap();
    for name in ["a", "b"] {
        fs::write(top.join(name), content(3_000_000)).unwrap();
    }
    let (side, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let sender = Side::start(send(&[&top], &group).args(["--rate=2M", "--members", &addr]));
    wait_until("a part is there", || begun(into[0].path()) > 500_000);
    fs::remove_file(top.join("b")).unwrap();
    for (status, report) in [sender.json(), side.json()] {
        assert_eq!(status, Some(1), "{report}");
        assert!(report["error"].as_str().unwrap().contains("top/b was removed"), "{report}");
    }
}

#[test]
fn of_two_receivers_in_one_directory_the_second_says_so() {
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(4_000_000)).unwrap();
    let receiver = || Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let ((one, one_addr), (other, other_addr)) = (receiver(), receiver());
    let members = format!("{one_addr},{other_addr}");
    let (status, report) =
        Side::start(send(&[&file], &group).args(["--rate=4M", "--members", &members])).json();
    assert_eq!(status, Some(1), "{report}");
    let ends = [one.json(), other.json()];
    let refused: Vec<_> = ends.iter().filter(|(status, _)| *status == Some(1)).collect();
    assert_eq!(refused.len(), 1, "{ends:?}");
    assert!(refused[0].1["error"].as_str().unwrap().contains("another receiver uses"), "{ends:?}");
    assert_eq!(fs::read(into[0].path().join("file")).unwrap(), content(4_000_000));
}

#[test]
fn what_comes_to_nothing_is_an_object_too() {
    let (into, group) = (tempfile::tempdir().unwrap(), group());
    let file = into.path().join("file");
    fs::write(&file, "x").unwrap();
    let mut nobody_sends = on_loopback(recv(into.path(), &group));
    let mut nobody_listens = send(&[&file], &group);
    nobody_listens.args(["--members=127.0.0.1:9", "--patience=0.3"]);
    for (command, hint) in [(&mut nobody_sends, "--min-members"), (&mut nobody_listens, "cast recv")] {
        let (status, report) = Side::start(command.arg("--wait=0.3")).json();
        assert_eq!((status, &report["complete"]), (Some(3), &Value::Bool(false)), "{report}");
        assert!(report["error"].as_str().unwrap().contains(hint), "{report}");
    }
}

/// A sender that dies and is started again goes on where it was: receivers wait for it.
#[test]
fn a_sealed_sender_that_is_killed_and_started_again_sends_only_what_is_missing() {
    let (group, into, from) = (group(), places(2), tempfile::tempdir().unwrap());
    let (file, key) = (from.path().join("file"), from.path().join("key"));
    fs::write(&file, content(6_000_000)).unwrap();
    let made = denrei().args(["keygen", "--out"]).arg(&key).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let with_key = |mut command: Command| {
        command.env("DENREI_KEY_FILE", &key);
        command
    };
    let receivers: Vec<(Side, String)> =
        into.iter().map(|dir| Side::receiver(&mut with_key(on_loopback(recv(dir.path(), &group))))).collect();
    let members: Vec<&str> = receivers.iter().map(|(_, addr)| addr.as_str()).collect();
    let sender = |more: &str| {
        let mut command = with_key(on_loopback(send(&[&file], &group)));
        Side::start(command.args(["--members", &members.join(","), more]))
    };
    let mut first = sender("--rate=3M");
    wait_until("a quarter is there", || into.iter().all(|dir| begun(dir.path()) > 1_500_000));
    first.kill();
    let (status, report) = sender("--backend=unicast").json();
    assert_eq!(status, Some(0), "{report}");
    // To two, one by one, of what one of them would need twice.
    assert!(report["wire_bytes"].as_u64().unwrap() < 2 * 6_000_000, "{report}");
    for ((side, _), dir) in receivers.into_iter().zip(&into) {
        let (status, received) = side.json();
        assert_eq!((status, &received["new_bytes"]), (Some(0), &6_000_000.into()), "{received}");
        assert!(fs::read(dir.path().join("file")).unwrap() == content(6_000_000));
    }
}

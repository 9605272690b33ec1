//! That what benchmarks say is what they measured, and that what they were told is what they do.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
    command.arg("bench").args(args);
    command
}

fn bench(args: &[&str]) -> Output {
    command(args).output().expect("the command runs")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The lines of `--json`.
fn lines(args: &[&str]) -> Vec<serde_json::Value> {
    let output = bench(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn figure(line: &serde_json::Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"))
}

#[test]
fn a_stream_that_time_ends_takes_until_its_last_message() {
    let args = ["stream", "--sizes=4", "--iters=500000", "--seconds=0.001", "--transports=tcp", "--repeat=1"];
    for line in lines(&args) {
        assert!(figure(&line, "n") < 500_000.0, "its time ends it: {line}");
        // Two processes of one thread each: they cannot have computed for more than twice the time that it took,
        // but for what they do before the first message and after the last.
        let busy_cores = figure(&line, "cpu_us_per_msg") * figure(&line, "msgs_per_s") / 1e6;
        assert!(busy_cores < 6.0, "{busy_cores} cores: {line}");
    }
}

#[test]
fn a_paced_stream_ends_after_its_time() {
    let args = ["stream", "--sizes=64", "--rate=100", "--iters=400", "--seconds=0.3", "--repeat=1"];
    for line in lines(&args) {
        assert!(figure(&line, "n") <= 32.0, "a hundred a second, for three tenths of one: {line}");
    }
}

#[test]
fn rates_have_no_options_that_would_have_no_effect() {
    for option in ["--iters=5", "--seconds=1", "--repeat=3", "--wait=poll", "--drive=thread", "--sealed"] {
        let output = bench(&["rate", "--parts=accuracy", "--accuracy-seconds=1", option]);
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("unexpected argument"), "{option}: {}", text(&output.stderr));
    }
}

#[test]
fn the_environment_does_not_decide_who_drives_what_is_measured() {
    let args =
        ["pingpong", "--transports=denrei", "--sizes=64", "--iters=10", "--repeat=1", "--drive=inline"];
    let output = command(&args).env("DENREI_DRIVE", "nobody").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn nothing_is_left_of_a_key_that_was_made_for_a_measurement() {
    let place = tempfile::tempdir().unwrap();
    let args = ["stream", "--transports=denrei-sealed", "--sizes=64", "--iters=100000000", "--seconds=60"];
    let mut bench = command(&args);
    let mut bench = bench.arg("--sealed").env("TMPDIR", place.path()).stdout(Stdio::null()).spawn().unwrap();
    let id = bench.id().to_string();
    let children = format!("/proc/{id}/task/{id}/children");
    // Two sides have been started, so there is a key.
    while std::fs::read_to_string(&children).unwrap().split_whitespace().count() < 2 {
        assert!(bench.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    bench.wait().unwrap();
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_broadcast_without_loss_needs_nothing_that_makes_losses() {
    let tools = tempfile::tempdir().unwrap();
    let ip = ["/sbin/ip", "/usr/sbin/ip", "/bin/ip"].into_iter().find(|ip| std::path::Path::new(ip).exists());
    let Some(ip) = ip else { return eprintln!("SKIPPED a_broadcast_without_loss_...: there is no ip") };
    std::os::unix::fs::symlink(ip, tools.path().join("ip")).unwrap();
    let args =
        ["bcast", "--netns", "--nodes=1", "--sizes=16", "--iters=3", "--repeat=1", "--backend=unicast"];
    let output = command(&args).env("PATH", tools.path()).output().unwrap();
    let error = text(&output.stderr);
    if error.contains("need root") {
        return eprintln!("SKIPPED a_broadcast_without_loss_needs_nothing_that_makes_losses: {error}");
    }
    assert!(output.status.success(), "{error}");
}

#[test]
fn an_mpi_over_which_nothing_could_be_measured_is_no_result() {
    let mpi = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = mpi.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("mpichversion", "");
    script("mpicc.mpich", "");
    script("mpiexec.mpich", "echo no network >&2; exit 1");
    script("libdenrei-fi.so", "");
    let place = mpi.path().to_str().unwrap();
    // Groups carry no latency, so that of them nothing is tried.
    let args = ["mpi", "--kind=latency", "--transports=denrei,denrei-groups", "--mpich", place];
    let output = bench(&[&args[..], &["--provider", place]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("no network") && said.contains("nothing could be measured"), "{said}");
}

//! That what benchmarks say is what they measured, and that what they were told is what they do.

use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_denrei")).arg("bench").args(args).output().expect("the command runs")
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
fn rates_refuse_options_that_they_have_no_use_for() {
    for option in ["--iters=5", "--seconds=1", "--repeat=3", "--wait=poll", "--drive=thread", "--sealed"] {
        let output = bench(&["rate", "--parts=accuracy", "--accuracy-seconds=1", option]);
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("has no effect here"), "{option}: {}", text(&output.stderr));
    }
}

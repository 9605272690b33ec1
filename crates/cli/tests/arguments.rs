//! The command's arguments, help and ends: what is wrong is refused at once, in words that help.

mod common;

use common::{denrei, stderr, stdout};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

const ROUTE: &str = "127.0.0.1:0=127.0.0.1:9";

#[test]
fn wrong_arguments_end_with_2_and_say_what_is_possible() {
    for (args, hint) in [
        (&["bench", "stream", "--sizes", "3"][..], "from 4 to 1G"),
        (&["bench", "gather", "--transports", "udp"], "choose from denrei, denrei-sealed, tcp"),
        (&["bench", "mesh", "--connect", "127.0.0.1:9", "--nodes", "17"], "has at most 16"),
        (&["bench", "pingpong", "--wait", "spin"], "possible values: sleep, poll"),
        (&["bench", "pingpong", "--loss", "3"], "--netns"),
        (&["bench", "rate", "--sizes", "1K,2K"], "of one size"),
        (&["bench", "rate", "--svg", "/no/such/folder/x.svg"], "no folder /no/such/folder"),
        (&["bench", "rate", "--identity-file", "x"], "unexpected argument '--identity-file'"),
        (&["bench", "rate", "--svg", "/"], "cannot write / for --svg"),
        (&["bench", "rate", "--parts", "sharing", "--svg", "x.svg"], "it takes tracking in --parts"),
        (&["bench", "rate", "--parts", "accuracy", "--rates", "1M"], "it takes tracking in --parts"),
        (&["bench", "rate", "--auto", "--bursts", "4K"], "and no --auto"),
        (&["bench", "rate", "--parts", "accuracy", "--buffer", "4K"], "it takes a slow receiver"),
        (&["bench", "gather", "--netns", "--link", "1gbit", "--queue", "100"], "from 6056 to 1G bytes"),
        (&["bench", "stream", "--netns", "--link", "100mbit", "--queue", "100"], "from 6056 to 1G bytes"),
        (&["bench", "stream", "--netns", "--link", "100kbit"], "such as 100mbit, 1gbit or 2.5gbit"),
        (&["bench", "mesh", "--link", "1gbit"], "--netns"),
        (&["bench", "stream", "--svg", "/no/such/folder/x.svg"], "no folder /no/such/folder"),
        (&["bench", "layers", "--svg", "/no/such/folder/x.svg"], "no folder /no/such/folder"),
        (&["bench", "stream", "--connect", "there"], "such as node1:7411"),
        (&["bench", "stream", "--seconds", "0"], "no time from 0.001 to 600 s"),
        (&["bench", "pingpong", "--repeat", "-1"], "no whole number from 1 to 1000"),
        (&["demo", "--nodes", "1"], "no whole number from 2 to 64"),
        (&["demo", "--nodes", "2.5"], "no whole number from 2 to 64"),
        (&["mpirun-env", "mpich", "--provider", "/no/such"], "libdenrei-fi.so is not in /no/such"),
        (&["bench", "mpi", "--provider", "/no/such"], "libdenrei-fi.so is not in /no/such"),
        (
            &["bench", "mpi", "--transports", "denrei-groups", "--kind", "latency"],
            "carry collective operations",
        ),
        (&["cast", "recv", "--into", ".", "--wait", "-1"], "from 0 to 1000000"),
        (&["cast", "recv", "--into", ".", "--identity-file", "x"], "--key-file or DENREI_KEY_FILE"),
        (&["demo", "--allow-file", "x"], "--key-file or DENREI_KEY_FILE"),
        (&["demo", "--insecure", "--identity-file", "x"], "--key-file or DENREI_KEY_FILE"),
        (&["bench", "stream", "--identity-file", "x"], "for the row denrei-sealed"),
        (
            &["bench", "stream", "--allow-file", "x", "--listen", "127.0.0.1:0"],
            "--key-file or DENREI_KEY_FILE",
        ),
        (&["bench", "bcast", "--allow-file", "x"], "for the row denrei-sealed"),
        (&["bench", "bcast", "--insecure"], "--insecure has no effect here"),
        (&["bench", "mesh", "--insecure"], "--insecure has no effect here"),
        (&["bench", "rate", "--no-pin"], "unexpected argument '--no-pin'"),
        (&["bench", "mpi", "--kind", "barrier", "--sizes", "64"], "--sizes has no effect here"),
        (&["bench", "burst", "--listen", "127.0.0.1:0", "--read-after", "5"], "cannot be used with"),
        (&["bench", "mesh", "--listen", "127.0.0.1:0", "--nodes", "5"], "cannot be used with"),
        (&["bench", "stream", "--listen", "127.0.0.1:0", "--repeat", "5"], "cannot be used with"),
        (&["bench", "stream", "--listen", "127.0.0.1:0", "--svg", "x.svg"], "--svg has no effect"),
        (&["bench", "stream", "--listen", "127.0.0.1:0", "--sealed"], "--key-file FILE, on both"),
        (&["bench", "gather", "--connect", "127.0.0.1:9"], "unexpected argument '--connect'"),
        (&["bench", "stream", "--connect", "127.0.0.1:9", "--netns"], "cannot be used with"),
        (&["bench", "stream", "--connect", "192.0.2.1:9"], "takes --insecure, on both"),
        (&["bench", "stream", "--sealed", "--identity-file", "x"], "--identity-file takes --allow-file"),
        (&["bench", "mpi", "--mpich", "/none"], "--mpich: MPICH with its mpicc is not in /none"),
        (&["relay"], "--route <LISTEN=TARGET>"),
        (&["relay", "--route", "127.0.0.1:0"], "give a route as LISTEN=TARGET"),
        (&["relay", "--route", ROUTE, "--pair-bytes", "1K"], "from 65536 to 1G bytes"),
        (&["relay", "--route", ROUTE, "--max-pairs", "1025"], "no whole number from 1 to 1024"),
        (&["relay", "--route", ROUTE, "--failure-timeout", "0"], "no time from 0.01 to 86400 s"),
        (&["relay", "--route", ROUTE, "--status", "0"], "no whole number from 1 to 86400"),
        (&["relay", "--route", ROUTE, "--insecure", "--allow-file", "x"], "--key-file or DENREI_KEY_FILE"),
    ] {
        let output = denrei(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(hint), "{args:?}: {}", stderr(&output));
    }
    for more in [&["stream"][..], &["bcast"], &["mesh", "--netns"], &["burst", "--listen", "127.0.0.1:0"]] {
        let output = denrei(&[&["bench"], more, &["--key-file", "/none/such"]].concat());
        assert_eq!(output.status.code(), Some(3));
        let said = stderr(&output);
        assert!(
            said.matches("No such file").count() == 1 && said.contains("/none/such"),
            "said once: {said}"
        );
        // At once: before anything is measured.
        assert!(stdout(&output).is_empty() && !said.contains("side 0"), "{said}");
    }
    for no_level in [&b"chatty"[..], b"\xff"] {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_denrei"));
        doctor.arg("doctor").env("DENREI_LOG", OsStr::from_bytes(no_level));
        let output = doctor.output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("levels are off, error, warn"), "{}", stderr(&output));
    }
    let nothing_there =
        Command::new(env!("CARGO_BIN_EXE_denrei")).args(["bench", "mpi"]).env("PATH", "/none").output();
    let output = nothing_there.expect("the command runs");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("is not installed"), "{}", stderr(&output));
    let output = denrei(&["bench", "pingpong", "--connect", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("--listen 127.0.0.1:1"), "{}", stderr(&output));
}

#[test]
fn help_names_the_exit_statuses_and_hides_what_is_for_packagers() {
    let help = stdout(&denrei(&["--help"]));
    assert!(help.contains("Exit status:") && help.contains("demo") && help.contains("doctor"), "{help}");
    assert!(!help.contains("__") && !help.contains("completions"), "{help}");
    // What a benchmark has not.
    for (bench, hidden) in
        [("rate", "--seconds --repeat --transports --insecure"), ("gather", "--listen --connect")]
    {
        let help = stdout(&denrei(&["bench", bench, "--help"]));
        assert!(help.contains("--netns") && hidden.split(' ').all(|option| !help.contains(option)), "{help}");
    }
    let rate = stdout(&denrei(&["bench", "rate", "--help"]));
    assert!(rate.contains("--sizes <BYTES>") && rate.contains("Message size in bytes, one"), "{rate}");
}

#[test]
fn manual_pages_and_completions_are_written() {
    let place = tempfile::tempdir().unwrap();
    let output = denrei(&["man", "--into", place.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let pages: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|page| page.unwrap().path()).collect();
    for page in &pages {
        let (name, text) =
            (page.file_stem().unwrap().to_str().unwrap(), std::fs::read_to_string(page).unwrap());
        let called = concat!("\" \" \"denrei ", env!("CARGO_PKG_VERSION"), "\"");
        assert!(text.contains(&format!(".TH {name} 1 {called}")), "{text}");
        assert!(text.contains(&format!(".SH NAME\n{} \\- ", name.replace('-', "\\-"))), "{text}");
        assert!(text.contains(".SH SYNOPSIS\n\\fBdenrei"), "{text}");
        assert!(text.contains(".SH \"EXIT STATUS\"\n") && !text.contains("Exit status"), "{text}");
        let above = name.rsplit_once('-').map(|(above, _)| above.replace("denrei-mpirun", "denrei"));
        let also = above.map(|above| format!("{}(1)\n", above.replace('-', "\\-")));
        assert!(also.is_none_or(|also| text.ends_with(&also)), "{text}");
    }
    assert_eq!(pages.len(), 22, "{pages:?}");
    let relay = std::fs::read_to_string(place.path().join("denrei-relay.1")).unwrap();
    assert!(relay.contains("\\fBdenrei relay\\fR [OPTIONS] \\-\\-route <LISTEN=TARGET>\n"), "{relay}");
    assert!(relay.contains(".TP\n\\fB141\\fR\nnobody reads"), "{relay}");
    for shell in ["bash", "zsh", "fish"] {
        let completions = stdout(&denrei(&["completions", shell]));
        assert!(completions.contains("pingpong") && completions.contains("mpirun-env"), "{shell}");
        // What runs as a part of other commands is nobody's to type.
        for hidden in ["bench-peer", "bcast-side", "demo-node", "bench__peer"] {
            assert!(!completions.contains(hidden), "{shell}: {hidden}");
        }
    }
}

#[test]
fn a_command_whose_output_nobody_reads_ends_without_a_word() {
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("plan.toml");
    std::fs::write(&plan, "name = 'two'\n[axes]\nmessages = [1, 2]\nmessage_bytes = 10\n").unwrap();
    let plan = plan.to_str().unwrap();
    for args in [
        &["doctor", "--json"][..],
        &["completions", "bash"],
        &["sim", "--csv", plan],
        &["sim", plan],
        &["keygen"],
        &["keygen", "--identity"],
        &["--help"],
        &["bench", "stream", "--help"],
        &["--version"],
    ] {
        let (nobody, closed_pipe) = std::io::pipe().unwrap();
        drop(nobody);
        let output =
            Command::new(env!("CARGO_BIN_EXE_denrei")).args(args).stdout(closed_pipe).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_plan_without_an_end_is_refused() {
    let output = denrei(&["sim", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("/dev/zero is no plan"), "{}", stderr(&output));
}

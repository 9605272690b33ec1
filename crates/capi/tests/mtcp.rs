//! The paper's program for groups (M8), a process for the sender and each member: linked with the
//! library, and as an ordinary program under the preloaded one.

mod common;

use common::{Installed, group_address, is_there};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than the programs give each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes that do not outlive the test.
struct Cast(Vec<(String, Child)>);

impl Drop for Cast {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // Those that have ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How one program of the cast is run.
struct Stage<'a> {
    program: &'a Path,
    preload: bool,
    group: String,
}

impl Stage<'_> {
    fn start(&self, role: &str, number: &str) -> (String, Child) {
        let installed = Installed::get();
        let (ip, port) = self.group.split_once(':').unwrap();
        let mut command = Command::new(self.program);
        command.args([role, number, ip, port]).env("LD_LIBRARY_PATH", installed.prefix().join("lib"));
        if self.preload {
            command.env("LD_PRELOAD", installed.prefix().join("lib/libdenrei-mtcp.so"));
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (format!("{role} {number}"), child)
    }
}

/// What each has said, once all have ended well.
fn finish(mut cast: Cast) -> String {
    let deadline = Instant::now() + PATIENCE;
    let mut said = String::new();
    for (name, child) in &mut cast.0 {
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                None => panic!("{name} has not ended within {PATIENCE:?}; so far: {said}"),
            }
        };
        let mut complaint = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success(), "{name}: {status}: {complaint}");
    }
    said
}

fn play(stage: &Stage<'_>) {
    let parts = [("member", "1"), ("sender", "2"), ("member", "2")];
    let said = finish(Cast(parts.map(|(role, number)| stage.start(role, number)).into()));
    for expected in [
        "sender: all 3000000 bytes are with all 2 members",
        "member 1: 3000000 bytes",
        "member 2: 3000000 bytes",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_papers_sequence_of_calls_works_as_printed() {
    let installed = Installed::get();
    for (last, compiler) in [(11, "gcc"), (12, "g++")] {
        if let Some(program) = installed.compile("mtcp", compiler, "examples/mtcp.c", &[]) {
            play(&Stage { program: &program, preload: false, group: group_address(last) });
        }
    }
}

#[test]
fn ordinary_programs_speak_to_groups_through_ordinary_descriptors() {
    if let Some(program) = Installed::get().compile_ordinary("ordinary", "examples/mtcp.c") {
        play(&Stage { program: &program, preload: true, group: group_address(13) });
    }
}

#[test]
fn what_ordinary_programs_do_with_descriptors_concerns_no_other() {
    let installed = Installed::get();
    if let Some(program) = installed.compile_ordinary("descriptors", "tests/ordinary.c") {
        let group = group_address(15);
        let (ip, port) = group.split_once(':').unwrap();
        let preloaded = installed.prefix().join("lib/libdenrei-mtcp.so");
        let mut command = Command::new(program);
        assert_eq!(installed.run(command.args([ip, port]).env("LD_PRELOAD", preloaded)), "ok\n");
    }
}

#[test]
fn calls_out_of_order_and_lost_members_are_told() {
    let installed = Installed::get();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    if let Some(program) = installed.compile("mtcp-calls", "gcc", "tests/mtcp.c", &flags) {
        let group = group_address(14);
        let (ip, port) = group.split_once(':').unwrap();
        assert_eq!(installed.run(Command::new(program).args([ip, port])), "ok\n");
    }
}

#[test]
fn a_child_is_not_held_up_by_what_its_parents_threads_were_doing() {
    let installed = Installed::get();
    if let Some(program) = installed.compile("mtcp-forks", "gcc", "tests/mtcp_forks.c", &["-pthread"]) {
        assert_eq!(installed.run(&mut Command::new(program)), "ok\n");
    }
}

#[test]
fn valgrind_finds_nothing_in_a_sender() {
    if !is_there("valgrind", "valgrind") {
        return;
    }
    let installed = Installed::get();
    let Some(program) = installed.compile("mtcp-valgrind", "gcc", "tests/mtcp.c", &[]) else { return };
    let group = group_address(15);
    let (ip, port) = group.split_once(':').unwrap();
    let mut command = Command::new("valgrind");
    command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    assert_eq!(installed.run(command.arg(program).args([ip, port])), "ok\n");
}

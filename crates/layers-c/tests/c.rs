//! The C calls, used by a C program that the system's compiler builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seconds that the program may take: it moves 20,000 buffers through three threads that never sleep,
/// on cores that other tests use too.
const LIMIT_S: &str = "60";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library that cargo built along with this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let places = [here.parent().unwrap(), here.parent().unwrap().parent().unwrap()];
    let found = places.iter().map(|place| place.join("libdenrei_layers_c.a")).find(|path| path.exists());
    found.expect("cargo builds the static library together with the tests")
}

fn compile(source: &str, into: &Path) -> PathBuf {
    let program = into.join("program");
    let output = Command::new("gcc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-I"])
        .arg(package().join("include"))
        .arg(package().join("tests").join(source))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// What the program does; `None`, and says so, if there is no C compiler.
fn run(test: &str, source: &str) -> Option<Output> {
    if Command::new("gcc").arg("--version").output().is_err() {
        println!("SKIPPED {test}: gcc is not installed");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    Some(Command::new("timeout").arg(LIMIT_S).arg(compile(source, place.path())).output().unwrap())
}

#[test]
fn layers_in_c_hand_buffers_down_and_up() {
    let Some(output) = run("layers_in_c_hand_buffers_down_and_up", "pipeline.c") else { return };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "20000 primitives came back\n");
}

#[test]
fn layers_start_and_wait_for_others() {
    let Some(output) = run("layers_start_and_wait_for_others", "nested.c") else { return };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_queues_name_is_free_when_both_its_ends_are_gone() {
    let Some(output) = run("a_queues_name_is_free_when_both_its_ends_are_gone", "names.c") else { return };
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_buffer_freed_twice_ends_the_program_with_a_message() {
    let Some(output) = run("a_buffer_freed_twice_ends_the_program_with_a_message", "double_free.c") else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the buffer is freed twice"), "{output:?}");
}

#[test]
fn what_c_runs_when_a_thread_or_the_program_ends_may_free_buffers() {
    let test = "what_c_runs_when_a_thread_or_the_program_ends_may_free_buffers";
    let Some(output) = run(test, "endings.c") else { return };
    assert_eq!(output.status.code(), Some(42), "{output:?}");
}

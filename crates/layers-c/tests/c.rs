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

fn run(program: &Path) -> Output {
    Command::new("timeout").arg(LIMIT_S).arg(program).output().unwrap()
}

/// Whether there is a C compiler; says so if not.
fn has_compiler(test: &str) -> bool {
    let found = Command::new("gcc").arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED {test}: gcc is not installed");
    }
    found
}

#[test]
fn layers_in_c_hand_buffers_down_and_up() {
    if !has_compiler("layers_in_c_hand_buffers_down_and_up") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let output = run(&compile("pipeline.c", place.path()));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "20000 primitives came back\n");
}

#[test]
fn layers_start_and_wait_for_others() {
    if !has_compiler("layers_start_and_wait_for_others") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let output = run(&compile("nested.c", place.path()));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_buffer_freed_twice_ends_the_program_with_a_message() {
    if !has_compiler("a_buffer_freed_twice_ends_the_program_with_a_message") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let output = run(&compile("double_free.c", place.path()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the buffer is freed twice"), "{output:?}");
}

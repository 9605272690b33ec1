//! The provider under libfabric: a program in C that makes every call. Needs libfabric's headers and a C
//! compiler; `./test` installs them.

mod common;

use common::{assert_good, limited, provider, sources};
use std::path::Path;
use std::process::Command;

#[test]
fn every_call_does_what_libfabric_says_or_is_refused() {
    run("every_call_does_what_libfabric_says_or_is_refused", "provider");
}

#[test]
fn every_other_form_of_a_call_does_the_same() {
    run("every_other_form_of_a_call_does_the_same", "forms");
}

#[test]
fn the_rules_of_the_manual_are_kept() {
    run("the_rules_of_the_manual_are_kept", "rules");
}

/// Compiles and runs a program in C.
fn run(test: &str, name: &str) {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        return println!("SKIPPED {test}: libfabric-dev is not installed");
    }
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let program = place.path().join(name);
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(sources().join("c").join(name).with_extension("c"))
        .arg("-lfabric")
        .output()
        .unwrap();
    assert_good("cc", &built);
    assert_good(name, &limited(60, &program, &provider).output().unwrap());
}

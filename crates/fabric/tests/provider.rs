//! The provider under libfabric: a program in C that makes every call. Needs libfabric's headers and a C
//! compiler; `./test` installs them.

mod common;

use common::{assert_good, limited, provider, sources};
use std::path::Path;
use std::process::Command;

#[test]
fn every_call_does_what_libfabric_says_or_is_refused() {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        println!("SKIPPED every_call_does_what_libfabric_says_or_is_refused: libfabric-dev is not installed");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let program = place.path().join("provider");
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(sources().join("c/provider.c"))
        .arg("-lfabric")
        .output()
        .unwrap();
    assert_good("cc", &built);
    assert_good("provider.c", &limited(60, &program, &provider).output().unwrap());
}

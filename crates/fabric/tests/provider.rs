//! The provider under libfabric: a program in C that makes every call, and MPI programs.
//!
//! The first needs libfabric's headers and a C compiler, the second a Python environment with MPICH and
//! mpi4py, named by `DENREI_MPI_VENV`; `./test` installs both.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The provider that cargo has built beside this test, under the name that libfabric looks for.
fn provider(into: &Path) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let beside = here.ancestors().skip(1).map(|directory| directory.join("libdenrei_fi.so"));
    let built =
        beside.take(2).find(|path| path.is_file()).expect("cargo builds the library before its tests");
    std::fs::copy(built, into.join("libdenrei-fi.so")).unwrap();
    into.to_owned()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// A command that ends after so many seconds, with only the provider's own settings.
fn limited(seconds: u32, program: &Path, provider: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]).arg(program);
    command.env("FI_PROVIDER_PATH", provider).env("FI_PROVIDER", "denrei");
    command.env_remove("DENREI_KEY_FILE").env_remove("FI_DENREI_INSECURE");
    command
}

fn assert_good(what: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{text}\n{errors}", output.status);
}

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

#[test]
fn mpich_programs_run_on_two_and_four_ranks() {
    let Some(venv) = std::env::var_os("DENREI_MPI_VENV").map(PathBuf::from) else {
        println!(
            "SKIPPED mpich_programs_run_on_two_and_four_ranks: DENREI_MPI_VENV names no Python environment"
        );
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    for ranks in ["2", "4"] {
        let output = limited(100, &venv.join("bin/mpiexec"), &provider)
            .args(["-n", ranks])
            .arg(venv.join("bin/python"))
            .arg(sources().join("mpi/checks.py"))
            .env("MPIR_CVAR_CH4_NETMOD", "ofi")
            .env("MPIR_CVAR_NOLOCAL", "1")
            .env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1")
            .output()
            .unwrap();
        assert_good(&format!("checks.py on {ranks} ranks"), &output);
        let good = format!("{ranks} ranks: all checks hold");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&good), "{output:?}");
    }
}

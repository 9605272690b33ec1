//! The Debian package, unpacked into a clean root and used there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

fn text(command: &mut Command) -> String {
    String::from_utf8(succeed(command).stdout).unwrap()
}

/// Where cargo has put what it has built; `None` if a part of it is not there, which it has said.
fn binaries() -> Option<PathBuf> {
    let task = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let directory = task.parent().unwrap().to_owned();
    for file in ["denrei", "deps/libdenrei_c.a", "deps/libdenrei_fi.so"] {
        if !directory.join(file).exists() {
            println!("SKIPPED package: {file} was not built: cargo test --workspace");
            return None;
        }
    }
    for tool in ["dpkg", "dpkg-deb", "strip", "cc"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("SKIPPED package: {tool} is not installed");
            return None;
        }
    }
    Some(directory)
}

/// Makes the package and unpacks it below a directory.
fn unpacked(binaries: &Path, directory: &Path) -> PathBuf {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("package").arg("--into").arg(directory.join("package")).arg("--binaries").arg(binaries);
    let package = PathBuf::from(text(&mut command).lines().last().unwrap());
    let fields = text(Command::new("dpkg-deb").arg("--field").arg(&package));
    assert!(fields.contains("Package: denrei\n") && fields.contains("Depends: libc6"), "{fields}");
    let clean = directory.join("clean");
    succeed(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&clean));
    clean
}

#[test]
fn the_package_works_in_a_clean_root() {
    let Some(binaries) = binaries() else { return };
    let directory = tempfile::tempdir().unwrap();
    let root = unpacked(&binaries, directory.path());
    let usr = root.join("usr");
    for file in [
        "bin/denrei",
        "lib/libdenrei.a",
        "lib/libdenrei-fi.so",
        "lib/libdenrei-mtcp.so",
        "lib/cmake/denrei/denrei-config.cmake",
        "include/denrei/denrei.h",
        "include/denrei/suci.h",
        "include/denrei/mtcp.h",
        "share/man/man1/denrei.1",
        "share/man/man1/denrei-demo.1",
        "share/bash-completion/completions/denrei",
        "share/fish/vendor_completions.d/denrei.fish",
        "share/zsh/site-functions/_denrei",
    ] {
        assert!(usr.join(file).is_file(), "{file}");
    }
    assert!(text(Command::new(usr.join("bin/denrei")).arg("--version")).starts_with("denrei "));
    let variables = text(Command::new(usr.join("bin/denrei")).arg("mpirun-env"));
    assert!(variables.contains("FI_PROVIDER_PATH"), "it finds the provider of its own package: {variables}");
    let pc = std::fs::read_to_string(usr.join("lib/pkgconfig/denrei.pc")).unwrap();
    assert!(pc.contains("prefix=/usr\n"), "nothing of the place where it was made: {pc}");

    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/capi/examples/hello.c");
    let program = directory.path().join("hello");
    let mut compile = Command::new("cc");
    compile.arg(example).arg("-o").arg(&program).arg("-I").arg(usr.join("include"));
    succeed(compile.arg("-L").arg(usr.join("lib")).arg("-ldenrei"));
    let said = text(Command::new(program).env("LD_LIBRARY_PATH", usr.join("lib")));
    assert!(said.contains("thanks"), "{said}");
}

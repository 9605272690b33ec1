//! The Debian package, by cargo-deb where it is installed and by dpkg-deb, in a clean root, and used there.

use std::collections::BTreeSet;
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

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
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
    for tool in ["dpkg", "dpkg-deb", "strip", "objdump", "gzip", "cc"] {
        if !is_there(tool) {
            println!("SKIPPED package: {tool} is not installed");
            return None;
        }
    }
    Some(directory)
}

/// Has a tool make the package.
fn packaged(binaries: &Path, into: &Path, tool: &str) -> PathBuf {
    // It is for all, as those who make it may want nothing else of theirs to be.
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_xtask")]);
    command.args(["package", "--fast", "--tool", tool]).arg("--into").arg(into);
    let package = PathBuf::from(text(command.arg("--binaries").arg(binaries)).lines().last().unwrap());
    let fields = text(Command::new("dpkg-deb").arg("--field").arg(&package));
    assert!(fields.contains("Package: denrei\n") && fields.contains("Depends: libc6"), "{fields}");
    let control = text(Command::new("dpkg-deb").arg("--info").arg(&package).arg("triggers"));
    assert_eq!(control, "activate-noawait ldconfig\n");
    let list = text(Command::new("dpkg-deb").arg("--contents").arg(&package));
    let closed = list.lines().filter(|line| !["r--", "r-x", "rwx"].contains(&&line[7..10]));
    assert_eq!(closed.collect::<Vec<_>>(), [""; 0], "whoever did not make it may read it");
    package
}

/// Modes, owners, names and links of all files in a package.
fn contents(package: &Path) -> BTreeSet<String> {
    let list = text(Command::new("dpkg-deb").arg("--contents").arg(package));
    let files = list.lines().filter(|line| !line.starts_with('d'));
    // Neither size nor time.
    let told = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        format!("{} {} {}", fields[0], fields[1].replace("root/root", "0/0"), fields[5..].join(" "))
    };
    files.map(told).collect()
}

/// Installs into a root in which nothing else is; as one who may not, unpacks there.
fn install(package: &Path, root: &Path) {
    std::fs::create_dir_all(root).unwrap();
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED installing the package: needs root; it is unpacked instead");
        succeed(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root));
        return;
    }
    let state = root.join("var/lib/dpkg");
    for directory in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(state.join(directory)).unwrap();
    }
    std::fs::write(state.join("status"), "").unwrap();
    dpkg(root, "--install", package.as_os_str());
    let status = text(Command::new("dpkg-query").arg("--admindir").arg(state).args(["--status", "denrei"]));
    assert!(status.contains("Status: install ok "), "{status}");
}

/// Runs dpkg in a root without the packages that this one depends on.
fn dpkg(root: &Path, verb: &str, argument: &std::ffi::OsStr) {
    let mut command = Command::new("dpkg");
    command.arg("--root").arg(root).arg("--log=/dev/null").arg("--force-depends");
    succeed(command.args(["--force-script-chrootless", verb]).arg(argument));
}

#[test]
fn the_package_works_in_a_clean_root() {
    let Some(binaries) = binaries() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut package = packaged(&binaries, &directory.path().join("dpkg-deb"), "dpkg-deb");
    let dependent = package.clone();
    if is_there("cargo-deb") {
        let other = packaged(&binaries, &directory.path().join("cargo-deb"), "cargo-deb");
        assert_eq!(contents(&other), contents(&package), "both tools make the same package");
        package = other;
    } else {
        println!("SKIPPED package by cargo-deb: it is not installed; dpkg-deb has made the package");
    }
    let root = directory.path().join("clean");
    install(&package, &root);
    is_complete(&root.join("usr"));
    // What cargo-deb names is what is in the metadata.
    needs_no_newer_libc_than_it_says(&dependent, &root.join("usr"));
    is_used(&root.join("usr"), directory.path());
    if nix::unistd::geteuid().is_root() {
        dpkg(&root, "--purge", "denrei".as_ref());
        assert!(!root.join("usr/bin/denrei").exists() && !root.join("usr/include/denrei").exists());
    }
}

fn is_complete(usr: &Path) {
    for file in [
        "bin/denrei",
        "lib/libdenrei.so",
        "lib/libdenrei.a",
        "lib/libdenrei-fi.so",
        "lib/libdenrei-mtcp.so",
        "lib/pkgconfig/denrei.pc",
        "lib/cmake/denrei/denrei-config.cmake",
        "include/denrei/denrei.h",
        "include/denrei/suci.h",
        "include/denrei/mtcp.h",
        "share/man/man1/denrei.1.gz",
        "share/man/man1/denrei-demo.1.gz",
        "share/doc/denrei/copyright",
        "share/bash-completion/completions/denrei",
        "share/fish/vendor_completions.d/denrei.fish",
        "share/zsh/vendor-completions/_denrei",
    ] {
        assert!(usr.join(file).is_file(), "{file}");
    }
}

/// Where the C library is older dpkg would install what the loader then refuses.
fn needs_no_newer_libc_than_it_says(package: &Path, usr: &Path) {
    let version = |text: &str| -> Vec<u32> { text.split('.').filter_map(|part| part.parse().ok()).collect() };
    let depends = text(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"));
    let (_, from) = depends.split_once("libc6 (>= ").expect("it depends on a version of it");
    let (said, _) = from.split_once(')').unwrap();
    for file in ["bin/denrei", "lib/libdenrei.so", "lib/libdenrei-fi.so", "lib/libdenrei-mtcp.so"] {
        let symbols = text(Command::new("objdump").arg("-T").arg(usr.join(file)));
        let wanted = symbols.split("GLIBC_").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let newest = wanted.max_by_key(|wanted| version(wanted)).expect("it uses the C library");
        assert!(
            version(newest) <= version(said),
            "{file} needs version {newest} of the C library, not {said}"
        );
    }
}

fn is_used(usr: &Path, scratch: &Path) {
    assert!(text(Command::new(usr.join("bin/denrei")).arg("--version")).starts_with("denrei "));
    let variables = text(Command::new(usr.join("bin/denrei")).arg("mpirun-env"));
    assert!(variables.contains("FI_PROVIDER_PATH"), "it finds the provider of its own package: {variables}");
    let pc = std::fs::read_to_string(usr.join("lib/pkgconfig/denrei.pc")).unwrap();
    assert!(pc.contains("prefix=/usr\n"), "nothing of the place where it was made: {pc}");
    let page = text(Command::new("gzip").arg("-dc").arg(usr.join("share/man/man1/denrei.1.gz")));
    assert!(page.contains(".TH denrei"), "{page}");

    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/capi/examples/hello.c");
    let program = scratch.join("hello");
    let mut compile = Command::new("cc");
    compile.arg(example).arg("-o").arg(&program).arg("-I").arg(usr.join("include"));
    succeed(compile.arg("-L").arg(usr.join("lib")).arg("-ldenrei"));
    let said = text(Command::new(program).env("LD_LIBRARY_PATH", usr.join("lib")));
    assert!(said.contains("thanks"), "{said}");
}

//! C and C++ programs against the installed library: every warning an error, by pkg-config and by
//! CMake, under AddressSanitizer and valgrind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// A prefix that the library is installed to, made once for all tests of this process.
struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    fn get() -> &'static Self {
        static INSTALLED: OnceLock<Installed> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let installed = Self { dir: tempfile::tempdir().unwrap() };
            // Where cargo has put this test it has put the library before.
            let beside = std::env::current_exe().unwrap();
            let library = beside.parent().unwrap().join("libdenrei_c.a");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install");
            succeed(Command::new(script).arg(library).arg(installed.prefix()));
            installed
        })
    }

    fn prefix(&self) -> PathBuf {
        self.dir.path().join("prefix")
    }

    fn pkg_config(&self) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig"));
        let flags = succeed(command.args(["--cflags", "--libs", "denrei"]));
        String::from_utf8(flags.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program; `None` if the compiler is not there, which it has said.
    fn compile(&self, test: &str, compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        if !is_there(test, compiler) || !is_there(test, "pkg-config") {
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.dir.path().join(format!("{test}-{compiler}"));
        let language = if compiler == "g++" { "c++" } else { "c" };
        let mut command = Command::new(compiler);
        command.args(WARNINGS).args(flags).args(["-g", "-x", language]).arg(source).args(["-x", "none"]);
        succeed(command.arg("-o").arg(&program).args(self.pkg_config()));
        Some(program)
    }

    fn run(&self, program: &mut Command) -> String {
        let output = succeed(program.env("LD_LIBRARY_PATH", self.prefix().join("lib")));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn is_there(test: &str, command: &str) -> bool {
    let there = Command::new(command).arg("--version").output().is_ok();
    if !there {
        println!("SKIPPED {test}: {command} is not installed");
    }
    there
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

#[test]
fn every_call_works_from_c_and_from_cpp() {
    let installed = Installed::get();
    for compiler in ["gcc", "g++"] {
        if let Some(program) = installed.compile("interface", compiler, "tests/interface.c", &[]) {
            assert_eq!(installed.run(&mut Command::new(program)), "ok\n", "{compiler}");
        }
    }
}

#[test]
fn the_example_says_hello() {
    let installed = Installed::get();
    for compiler in ["gcc", "g++"] {
        if let Some(program) = installed.compile("hello", compiler, "examples/hello.c", &[]) {
            let said = installed.run(&mut Command::new(program));
            assert!(said.contains("bob received 18 bytes: one order for many"), "{said}");
            assert!(said.contains("alice received 6 bytes: thanks"), "{said}");
        }
    }
}

#[test]
fn sucis_sample_loop_runs() {
    let installed = Installed::get();
    // A port of the kernel's choice, and the next: both free with all likelihood.
    let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = (probe.local_addr().unwrap().port() & !1).to_string();
    drop(probe);
    for compiler in ["gcc", "g++"] {
        if let Some(program) = installed.compile("suci", compiler, "examples/suci.c", &[]) {
            let said = installed.run(Command::new(program).arg(&port));
            assert_eq!(said.matches("200 blocks sent, 200 received").count(), 2, "{said}");
        }
    }
}

#[test]
fn nothing_is_touched_that_should_not_be() {
    let installed = Installed::get();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    if let Some(program) = installed.compile("asan", "gcc", "tests/interface.c", &flags) {
        assert_eq!(installed.run(&mut Command::new(program)), "ok\n");
    }
}

#[test]
fn valgrind_finds_nothing() {
    let installed = Installed::get();
    if !is_there("valgrind", "valgrind") {
        return;
    }
    if let Some(program) = installed.compile("valgrind", "gcc", "examples/hello.c", &[]) {
        let mut command = Command::new("valgrind");
        command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        let said = installed.run(command.arg(program));
        assert!(said.contains("thanks"), "{said}");
    }
}

#[test]
fn cmake_finds_the_package() {
    let installed = Installed::get();
    if !is_there("cmake", "cmake") || !is_there("cmake", "gcc") {
        return;
    }
    let project = installed.dir.path().join("cmake");
    std::fs::create_dir_all(&project).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hello.c");
    let lists = format!(
        "cmake_minimum_required(VERSION 3.10)\nproject(hello C)\nfind_package(denrei 0.1 REQUIRED)\n\
         add_executable(shared {0})\ntarget_link_libraries(shared denrei::denrei)\n\
         add_executable(static {0})\ntarget_link_libraries(static denrei::denrei_static)\n",
        source.display()
    );
    std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", installed.prefix().display());
    succeed(Command::new("cmake").args(["-S", ".", "-B", "build", &prefix]).current_dir(&project));
    succeed(Command::new("cmake").args(["--build", "build"]).current_dir(&project));
    for program in ["shared", "static"] {
        let said = installed.run(&mut Command::new(project.join("build").join(program)));
        assert!(said.contains("thanks"), "{program}: {said}");
    }
}

#[test]
fn symbols_have_versions_and_nothing_else_is_shown() {
    if !is_there("symbols", "objdump") {
        return;
    }
    let library = Installed::get().prefix().join("lib/libdenrei.so");
    let table = succeed(Command::new("objdump").arg("-T").arg(library)).stdout;
    let table = String::from_utf8(table).unwrap();
    let defined = table.lines().filter(|line| line.contains(" g ") && !line.contains("*ABS*"));
    let mut count = 0;
    for line in defined {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [.., version, name] = fields[..] else { panic!("{line}") };
        let ours = name.starts_with("denrei_") && version == "DENREI_0.1";
        assert!(ours || name.starts_with("datagram") && version == "SUCI_0.1", "{line}");
        count += 1;
    }
    assert!(count > 40, "{count} calls");
}

//! An installed library for C programs, and compilers for them.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Every warning is an error.
const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// A prefix that the library is installed to, made once for all tests of this process.
pub struct Installed {
    /// The prefix is in it, and what is compiled. Nothing is dropped at the end of a process that a
    /// static has, so it is no temporary directory, but one of cargo's that the next run empties.
    dir: PathBuf,
}

impl Installed {
    pub fn get() -> &'static Self {
        static INSTALLED: OnceLock<Installed> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!("capi-", env!("CARGO_CRATE_NAME")));
            if dir.exists() {
                std::fs::remove_dir_all(&dir).unwrap();
            }
            std::fs::create_dir_all(&dir).unwrap();
            let installed = Self { dir };
            // Where cargo has put this test it has put the library before.
            let beside = std::env::current_exe().unwrap();
            let library = beside.parent().unwrap().join("libdenrei_c.a");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install");
            // A relative prefix is written into denrei.pc whole.
            succeed(Command::new(script).current_dir(&installed.dir).arg(library).arg("prefix"));
            installed
        })
    }

    pub fn prefix(&self) -> PathBuf {
        self.join("prefix")
    }

    /// A place beside the prefix.
    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn pkg_config(&self) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig"));
        let flags = succeed(command.args(["--cflags", "--libs", "denrei"]));
        String::from_utf8(flags.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program; `None` if the compiler is not there, which it has said.
    pub fn compile(&self, test: &str, compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        if !is_there(test, compiler) || !is_there(test, "pkg-config") {
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.join(&format!("{test}-{compiler}"));
        let language = if compiler == "g++" { "c++" } else { "c" };
        let mut command = Command::new(compiler);
        command.args(WARNINGS).args(flags).args(["-g", "-x", language]).arg(source).args(["-x", "none"]);
        succeed(command.arg("-o").arg(&program).args(self.pkg_config()));
        Some(program)
    }

    /// Compiles a program that knows of the headers and is not linked with the library.
    pub fn compile_ordinary(&self, test: &str, source: &str) -> Option<PathBuf> {
        if !is_there(test, "gcc") {
            return None;
        }
        let program = self.join(test);
        let mut command = Command::new("gcc");
        command.args(WARNINGS).args(["-g", "-DORDINARY", "-I"]).arg(self.prefix().join("include"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        succeed(command.arg(source).arg("-o").arg(&program));
        Some(program)
    }

    pub fn run(&self, program: &mut Command) -> String {
        let output = succeed(program.env("LD_LIBRARY_PATH", self.prefix().join("lib")));
        String::from_utf8(output.stdout).unwrap()
    }
}

pub fn is_there(test: &str, command: &str) -> bool {
    let there = Command::new(command).arg("--version").output().is_ok();
    if !there {
        println!("SKIPPED {test}: {command} is not installed");
    }
    there
}

pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// A group's address that no other test uses: a port of the kernel's choice.
pub fn group_address(last: u8) -> String {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("239.255.79.{last}:{port}")
}

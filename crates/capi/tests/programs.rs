//! C and C++ programs against the installed library: every warning an error, by pkg-config and by
//! CMake, under AddressSanitizer and valgrind.

mod common;

use common::{Installed, group_address, is_there, succeed};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

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
fn what_c_runs_when_a_thread_or_the_program_ends_may_use_nodes() {
    let installed = Installed::get();
    if let Some(program) = installed.compile("endings", "gcc", "tests/endings.c", &["-pthread"]) {
        assert_eq!(installed.run(&mut Command::new(program)), "ok\n");
    }
}

#[test]
fn a_forked_child_does_not_speak_for_its_parent() {
    let installed = Installed::get();
    let asan = ["-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for (number, (test, flags)) in [("forks", &asan[..1]), ("asan-forks", &asan)].into_iter().enumerate() {
        if let Some(program) = installed.compile(test, "gcc", "tests/forks.c", flags) {
            let group = group_address(20 + number as u8);
            assert_eq!(installed.run(Command::new(program).arg(group)), "ok\n", "{test}");
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

/// A free port whose next one is free too, for a program that takes both: no port of those that the kernel gives to
/// whoever asks for any (from 32,768 on, ip(7)), and each call's are others.
fn two_ports() -> String {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * 100;
    let free = |port: u16| std::net::UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let mut pairs = (0..50).map(|_| first + 2 * TAKEN.fetch_add(1, Ordering::Relaxed));
    pairs.find(|&port| free(port) && free(port + 1)).expect("no two ports in a row are free").to_string()
}

#[test]
fn lengths_that_no_memory_has_are_refused() {
    let installed = Installed::get();
    for (number, compiler) in ["gcc", "g++"].into_iter().enumerate() {
        if let Some(program) = installed.compile("lengths", compiler, "tests/lengths.c", &["-pthread"]) {
            let group = group_address(30 + number as u8);
            assert_eq!(installed.run(Command::new(program).arg(group)), "ok\n", "{compiler}");
        }
    }
}

#[test]
fn threads_share_a_socket_of_sucis() {
    let installed = Installed::get();
    if let Some(program) = installed.compile("shared-suci", "gcc", "tests/suci.c", &["-pthread"]) {
        assert_eq!(installed.run(Command::new(program).arg(two_ports())), "ok\n");
    }
}

#[test]
fn sucis_sample_loop_runs() {
    let installed = Installed::get();
    let port = two_ports();
    for compiler in ["gcc", "g++"] {
        if let Some(program) = installed.compile("suci", compiler, "examples/suci.c", &[]) {
            let said = installed.run(Command::new(program).arg(&port));
            assert_eq!(said.matches("200 blocks sent, 200 received").count(), 2, "{said}");
        }
    }
}

#[test]
fn every_call_about_groups_works_from_c_and_from_cpp() {
    let installed = Installed::get();
    for compiler in ["gcc", "g++"] {
        if let Some(program) = installed.compile("groups", compiler, "tests/groups.c", &["-pthread"]) {
            assert_eq!(installed.run(Command::new(program).arg(group_address(1))), "ok\n", "{compiler}");
        }
    }
}

#[test]
fn the_example_of_groups_gives_orders() {
    let installed = Installed::get();
    for compiler in ["gcc", "g++"] {
        if let Some(program) = installed.compile("group", compiler, "examples/group.c", &[]) {
            let said = installed.run(Command::new(program).arg(group_address(2)));
            assert_eq!(said.matches("order 2: to the left").count(), 3, "{said}");
            assert_eq!(said.matches("the group was closed in order").count(), 3, "{said}");
        }
    }
}

#[test]
fn casts_and_relays_work_from_c_and_from_cpp() {
    let installed = Installed::get();
    let asan = ["-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let ways = [("cast", "gcc", &asan[..1]), ("cast", "g++", &asan[..1]), ("asan-cast", "gcc", &asan)];
    for (number, (test, compiler, flags)) in ways.into_iter().enumerate() {
        if let Some(program) = installed.compile(test, compiler, "tests/cast.c", flags) {
            let directory = tempfile::tempdir().unwrap();
            let group = group_address(10 + number as u8);
            let said = installed.run(Command::new(program).arg(directory.path()).arg(group));
            assert_eq!(said, "ok\n", "{test} {compiler}");
        }
    }
}

#[test]
fn nothing_is_touched_that_should_not_be() {
    let installed = Installed::get();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"];
    for (test, source) in [("asan", "tests/interface.c"), ("asan-groups", "tests/groups.c")] {
        if let Some(program) = installed.compile(test, "gcc", source, &flags) {
            assert_eq!(installed.run(Command::new(program).arg(group_address(3))), "ok\n", "{source}");
        }
    }
}

#[test]
fn valgrind_finds_nothing() {
    let installed = Installed::get();
    if !is_there("valgrind", "valgrind") {
        return;
    }
    let examples = [("hello", "thanks"), ("group", "member 2: the group was closed in order")];
    for (example, expected) in examples {
        let test = format!("valgrind-{example}");
        let source = format!("examples/{example}.c");
        let Some(program) = installed.compile(&test, "gcc", &source, &[]) else { return };
        let mut command = Command::new("valgrind");
        command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        let said = installed.run(command.arg(program).arg(group_address(4)));
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn cmake_finds_the_package() {
    let installed = Installed::get();
    if !is_there("cmake", "cmake") || !is_there("cmake", "gcc") {
        return;
    }
    let project = installed.join("cmake");
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
        let ours = [("denrei_", "DENREI_0.1"), ("datagram", "SUCI_0.1"), ("mtcp_", "MTCP_0.1")];
        let is_ours = ours.iter().any(|(prefix, ours)| name.starts_with(prefix) && version == *ours);
        assert!(is_ours, "{line}");
        count += 1;
    }
    assert!(count > 40, "{count} calls");
}

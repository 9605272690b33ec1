//! MPI programs over the provider, and collective operations over groups.
//!
//! Needs a Python environment with MPICH and mpi4py, named by `DENREI_MPI_VENV`, mpi4py's sources, named by
//! `DENREI_MPI4PY`, and for some tests Debian's Open MPI and hpcc; `./test` gets them. One wants Intel MPI, which
//! `DENREI_INTEL_MPI` names. With `DENREI_MPI=full` the long list is run as well: messages of 1 GiB among more
//! ranks, two to eight hosts, every wait for the dead, and all of mpi4py's own tests.

mod common;
#[path = "mpi/launch.rs"]
mod launch;
#[path = "mpi/reach.rs"]
mod reach;
#[path = "mpi/suite.rs"]
mod suite;

use common::{assert_good, provider, sources};
use denrei_netlab::Lab;
use launch::{IntelMpi, LIMIT, LONG_LIMIT, Mpich, OpenMpi, compile, is_full, lab};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use suite::Suite;

/// The longest messages, in bytes: of the long list, and of the short one.
const LARGEST: &str = "1073741824";
const LARGE: &str = "8388608";

fn assert_says(what: &str, output: &Output, words: &str) {
    assert_good(what, output);
    assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{what}: {output:?}");
}

#[test]
fn mpich_programs_run_on_two_and_four_ranks() {
    let Some(mpich) = Mpich::find("mpich_programs_run_on_two_and_four_ranks") else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    for ranks in [2, 4] {
        let output = mpich.python(&provider, ranks, "checks.py");
        assert_says("checks.py", &output, &format!("{ranks} ranks: all checks hold"));
    }
    let program = place.path().join("checks");
    compile(&mpich.program("mpicc"), &sources().join("mpi/checks.c"), &[], &program);
    let output = mpich.run(LIMIT, &provider, 2).arg(&program).arg(LARGEST).output().unwrap();
    assert_says("checks.c", &output, "2 ranks: all checks hold");
}

#[test]
fn ranks_of_mpich_start_ranks() {
    let Some(mpich) = Mpich::find("ranks_of_mpich_start_ranks") else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    for ranks in [1, 2] {
        let output = mpich.python(&provider, ranks, "spawn.py");
        assert_says("spawn.py", &output, &format!("{ranks} ranks: their children answered"));
    }
}

#[test]
fn ranks_that_disconnected_end_without_each_other() {
    const NAME: &str = "ranks_that_disconnected_end_without_each_other";
    let Some(mpi) = OverGroups::find(NAME, "disconnect") else { return };
    let left = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let mut command = mpi.run(2);
    command.env("DENREI_MPI_USE", "always").arg(&mpi.groups.program).arg(&left);
    let output = command.output().unwrap();
    assert_says("disconnect", &output, "all have ended by themselves");
}

#[test]
fn mpich_programs_run_across_hosts_with_loss() {
    const NAME: &str = "mpich_programs_run_across_hosts_with_loss";
    let Some(mpich) = Mpich::find(NAME) else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, shell) = (provider(place.path()), place.path().join("shell"));
    for hosts in if is_full() { vec![2, 3, 4] } else { vec![3] } {
        let Some(lab) = lab(NAME, hosts, &shell) else { return };
        lab.loss(1, 10).unwrap();
        let output = mpich
            .run_on_hosts(LIMIT, &provider, &lab, &shell)
            .arg(mpich.program("python"))
            .arg(sources().join("mpi/checks.py"))
            .output()
            .unwrap();
        assert_says("checks.py", &output, &format!("{hosts} ranks: all checks hold"));
    }
}

/// `libdenrei-mpi.so` for an MPI, and a program.
struct Groups {
    library: PathBuf,
    program: PathBuf,
}

impl Groups {
    /// Builds both into the provider's directory.
    fn build(compiler: &Path, provider: &Path, program: &str) -> Self {
        let new = Self { library: provider.join("libdenrei-mpi.so"), program: provider.join(program) };
        let beside = provider.display().to_string();
        let link = ["-shared", "-fPIC", "-L", &beside, "-l:libdenrei-fi.so", "-Wl,-rpath,$ORIGIN"];
        compile(compiler, &sources().join("../mpi/denrei_mpi.c"), &link, &new.library);
        let source = sources().join("mpi").join(program).with_extension("c");
        compile(compiler, &source, &[], &new.program);
        new
    }

    /// Runs the program, which has to find no difference, and groups in use at every rank.
    fn check(&self, command: &mut Command, ranks: usize) {
        command.arg(&self.program).env("DENREI_MPI_USE", "always").env("DENREI_MPI_VERBOSE", "1");
        let output = command.output().unwrap();
        assert_says("collectives", &output, &format!("{ranks} ranks: all collectives agree"));
        let said = String::from_utf8_lossy(&output.stderr);
        let carried = said.matches("denrei-mpi: groups carried").count();
        assert!(carried == ranks && !said.contains("carried 0 "), "{said}");
    }
}

/// MPICH, the provider, and the library and a program for it.
struct OverGroups {
    mpich: Mpich,
    provider: PathBuf,
    groups: Groups,
    place: tempfile::TempDir,
}

impl OverGroups {
    /// For the test of that name; `None` where there is no MPICH.
    fn find(test: &str, program: &str) -> Option<Self> {
        let (mpich, place) = (Mpich::find(test)?, tempfile::tempdir().unwrap());
        let provider = provider(place.path());
        let groups = Groups::build(&mpich.program("mpicc"), &provider, program);
        Some(Self { mpich, provider, groups, place })
    }

    /// So many ranks, without the program yet.
    fn run(&self, ranks: usize) -> Command {
        let mut command = self.mpich.run(LIMIT, &self.provider, ranks);
        command.env("LD_PRELOAD", &self.groups.library);
        command
    }

    /// What starts ranks on other hosts.
    fn shell(&self) -> PathBuf {
        self.place.path().join("shell")
    }

    /// A rank on each of the hosts that the shell reaches.
    fn run_on_hosts(&self, lab: &Lab) -> Command {
        let mut command = self.mpich.run_on_hosts(LIMIT, &self.provider, lab, &self.shell());
        command.env("LD_PRELOAD", &self.groups.library);
        command
    }
}

#[test]
fn collective_operations_over_groups_are_those_of_the_mpi() {
    const NAME: &str = "collective_operations_over_groups_are_those_of_the_mpi";
    let Some(mpi) = OverGroups::find(NAME, "collectives") else { return };
    mpi.groups.check(&mut mpi.run(4), 4);
    let hosts = if is_full() { 8 } else { 4 };
    let Some(lab) = lab(NAME, hosts, &mpi.shell()) else { return };
    mpi.groups.check(&mut mpi.run_on_hosts(&lab), hosts);
}

#[test]
fn wrong_calls_over_groups_return_the_errors_of_the_mpi_at_all_ranks() {
    const NAME: &str = "wrong_calls_over_groups_return_the_errors_of_the_mpi_at_all_ranks";
    let Some(mpi) = OverGroups::find(NAME, "errors") else { return };
    for (way, what) in [("always", None), ("auto", Some("short"))] {
        let mut command = mpi.run(3);
        let output = command.env("DENREI_MPI_USE", way).arg(&mpi.groups.program).args(what).output().unwrap();
        assert_says(way, &output, "3 ranks: all errors agree");
    }
}

/// Three ranks, of which the first has a variable set otherwise.
fn mixed(mpi: &OverGroups, name: &str, [first, others]: [&str; 2]) -> Command {
    let mut command = mpi.mpich.run(LIMIT, &mpi.provider, 1);
    command.args(["-env", name, first]).arg(&mpi.groups.program);
    command.args([":", "-n", "2", "-env", name, others]).arg(&mpi.groups.program);
    command
}

#[test]
fn ranks_that_wish_for_different_ways_are_left_to_the_mpi() {
    const NAME: &str = "ranks_that_wish_for_different_ways_are_left_to_the_mpi";
    let Some(mpi) = OverGroups::find(NAME, "collectives") else { return };
    for (variable, values) in [
        ("DENREI_MPI_USE", ["never", "always"]),
        ("DENREI_MPI_USE", ["always", "auto"]),
        ("DENREI_MPI_MIN_RANKS", ["4", "2"]),
    ] {
        let mut command = mixed(&mpi, variable, values);
        command.env("LD_PRELOAD", &mpi.groups.library).env("DENREI_MPI_VERBOSE", "1");
        let output = command.output().unwrap();
        assert_says(variable, &output, "3 ranks: all collectives agree");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches("groups carried 0 ").count(), 3, "{said}");
        assert_eq!(said.matches("is not the same at all ranks").count(), 1, "{said}");
    }
}

#[test]
fn a_wish_that_cannot_be_read_is_named_once() {
    const NAME: &str = "a_wish_that_cannot_be_read_is_named_once";
    let Some(mpi) = OverGroups::find(NAME, "collectives") else { return };
    for (variable, value) in [("DENREI_MPI_USE", "allways"), ("DENREI_MPI_MIN_RANKS", "4x")] {
        let output = mpi.run(3).env(variable, value).arg(&mpi.groups.program).output().unwrap();
        assert_says(variable, &output, "3 ranks: all collectives agree");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches(&format!("{variable}={value} is not")).count(), 1, "{said}");
    }
}

#[test]
fn ranks_that_wait_for_one_without_the_library_say_so() {
    const NAME: &str = "ranks_that_wait_for_one_without_the_library_say_so";
    let Some(mpi) = OverGroups::find(NAME, "collectives") else { return };
    let library = mpi.groups.library.display().to_string();
    let mut command = mixed(&mpi, "LD_PRELOAD", ["", &library]);
    let mut waiting = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_said = said.into_iter().any(|line| line.contains("LD_PRELOAD has to name libdenrei-mpi.so"));
    // They wait until then, or for ever.
    nix::sys::signal::kill(Pid::from_raw(waiting.id() as i32), Signal::SIGTERM).unwrap();
    waiting.wait().unwrap();
    assert!(is_said);
}

#[test]
fn communicators_over_groups_are_the_applications_alone() {
    const NAME: &str = "communicators_over_groups_are_the_applications_alone";
    let Some(mpi) = OverGroups::find(NAME, "communicators") else { return };
    let output = mpi.run(3).env("DENREI_MPI_VERBOSE", "1").arg(&mpi.groups.program).output().unwrap();
    assert_says("communicators", &output, "3 ranks: nothing is seen");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("groups carried") && !said.contains("carried 0 "), "{said}");
}

#[test]
fn open_mpi_programs_run_on_two_and_four_ranks() {
    let Some(open_mpi) = OpenMpi::find("open_mpi_programs_run_on_two_and_four_ranks") else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let program = place.path().join("checks");
    compile(open_mpi.compiler, &sources().join("mpi/checks.c"), &[], &program);
    for ranks in [2, 4] {
        let mut command = open_mpi.run(if is_full() { LONG_LIMIT } else { LIMIT }, &provider, ranks);
        let output = OpenMpi::over_denrei(&mut command)
            .arg(&program)
            .arg(if ranks == 2 || is_full() { LARGEST } else { LARGE })
            .output()
            .unwrap();
        assert_says("checks.c", &output, &format!("{ranks} ranks: all checks hold"));
    }
}

#[test]
fn open_mpi_programs_run_across_hosts_with_loss() {
    const NAME: &str = "open_mpi_programs_run_across_hosts_with_loss";
    let Some(open_mpi) = OpenMpi::find(NAME) else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, shell) = (provider(place.path()), place.path().join("shell"));
    let program = place.path().join("checks");
    compile(open_mpi.compiler, &sources().join("mpi/checks.c"), &[], &program);
    for (hosts, ranks) in if is_full() { vec![(2, 2), (2, 4), (4, 4)] } else { vec![(2, 3)] } {
        let Some(lab) = lab(NAME, hosts, &shell) else { return };
        lab.loss(1, 10).unwrap();
        for way in [OpenMpi::over_denrei, OpenMpi::all_over_denrei] {
            let mut command = open_mpi.run_on_hosts(LIMIT, &provider, &lab, &shell, ranks);
            let output = way(&mut command).arg(&program).arg(LARGE).output().unwrap();
            assert_says("checks.c", &output, &format!("{ranks} ranks: all checks hold"));
        }
    }
}

#[test]
fn open_mpis_collectives_over_groups_are_its_own() {
    let Some(open_mpi) = OpenMpi::find("open_mpis_collectives_over_groups_are_its_own") else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let groups = Groups::build(open_mpi.compiler, &provider, "collectives");
    let preload = format!("LD_PRELOAD={}", groups.library.display());
    let mut command = open_mpi.run(LIMIT, &provider, 4);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]);
    command.args(["-x", &preload, "-x", "DENREI_MPI_USE", "-x", "DENREI_MPI_VERBOSE"]);
    groups.check(&mut command, 4);
}

/// Runs `finalize.c`, whose four ranks have to come to the end.
fn assert_all_end(groups: &Groups, mut run: impl FnMut() -> Command) {
    for which in ["some", "all"] {
        let mut command = run();
        command.env("DENREI_MPI_USE", "always").env("DENREI_MPI_VERBOSE", "1");
        let output = command.arg(&groups.program).arg(which).output().unwrap();
        assert_good("finalize", &output);
        let (said, noted) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(said.matches("has ended well").count(), 4, "{which}: {output:?}");
        // That of the last rank, which was in no communicator with a group.
        let idle = noted.matches("groups carried 0 ").count();
        assert_eq!(idle, (which == "some") as usize, "{which}: {noted}");
    }
}

#[test]
fn mpich_programs_end_though_ranks_left_communicators_behind() {
    const NAME: &str = "mpich_programs_end_though_ranks_left_communicators_behind";
    let Some(mpi) = OverGroups::find(NAME, "finalize") else { return };
    assert_all_end(&mpi.groups, || mpi.run(4));
}

#[test]
fn open_mpi_programs_end_though_ranks_left_communicators_behind() {
    const NAME: &str = "open_mpi_programs_end_though_ranks_left_communicators_behind";
    let Some(open_mpi) = OpenMpi::find(NAME) else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let groups = Groups::build(open_mpi.compiler, &provider, "finalize");
    let preload = format!("LD_PRELOAD={}", groups.library.display());
    assert_all_end(&groups, || {
        let mut command = open_mpi.run(LIMIT, &provider, 4);
        OpenMpi::over_denrei(command.args([
            "-x",
            &preload,
            "-x",
            "DENREI_MPI_USE",
            "-x",
            "DENREI_MPI_VERBOSE",
        ]));
        command
    });
}

#[test]
fn an_mpi_that_begins_anew_with_a_session_takes_no_attribute_of_the_application_for_the_librarys() {
    const NAME: &str =
        "an_mpi_that_begins_anew_with_a_session_takes_no_attribute_of_the_application_for_the_librarys";
    let Some(mpi) = OverGroups::find(NAME, "sessions") else { return };
    let output = mpi.run(3).env("DENREI_MPI_USE", "always").arg(&mpi.groups.program).output().unwrap();
    assert_says("sessions", &output, "3 ranks: all sessions went well");
}

/// Programs of MPICH's ABI, which Intel MPI has too.
#[test]
fn intel_mpi_programs_run_on_two_and_four_ranks() {
    const NAME: &str = "intel_mpi_programs_run_on_two_and_four_ranks";
    let (Some(intel), Some(mpich)) = (IntelMpi::find(NAME), Mpich::find(NAME)) else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, program) = (provider(place.path()), place.path().join("checks"));
    compile(&mpich.program("mpicc"), &sources().join("mpi/checks.c"), &[], &program);
    for ranks in [2, 4] {
        let output = intel.run(LIMIT, &provider, ranks).arg(&program).arg(LARGE).output().unwrap();
        assert_says("checks.c", &output, &format!("{ranks} ranks: all checks hold"));
    }
}

/// Debian's hpcc, an Open MPI program: linear algebra, transposition, random access, transforms; each checks
/// its own results.
#[test]
fn a_real_program_finds_its_own_results_right() {
    const NAME: &str = "a_real_program_finds_its_own_results_right";
    let Some(open_mpi) = OpenMpi::find(NAME) else { return };
    if !Path::new("/usr/bin/hpcc").exists() {
        return println!("SKIPPED {NAME}: hpcc is not installed");
    }
    let input = std::fs::read_to_string(sources().join("mpi/hpccinf.txt")).unwrap();
    let runs = if is_full() { vec![(2, "1 ", 1000), (4, "2 ", 1000)] } else { vec![(2, "1 ", 100)] };
    for (ranks, rows, order) in runs {
        let place = tempfile::tempdir().unwrap();
        let provider = provider(place.path());
        let input = input.replace("ORDER", &order.to_string()).replace("ROWS", rows);
        std::fs::write(place.path().join("hpccinf.txt"), input).unwrap();
        // Beside other jobs that poll it takes its time.
        let mut command = open_mpi.run(LONG_LIMIT, &provider, ranks);
        let run = OpenMpi::over_denrei(&mut command)
            .arg("/usr/bin/hpcc")
            .current_dir(place.path())
            .output()
            .unwrap();
        assert_good("hpcc", &run);
        let said = std::fs::read_to_string(place.path().join("hpccoutf.txt")).unwrap();
        let holds = |line: &str| said.lines().any(|other| other.trim() == line);
        assert!(holds("Success=1") && holds("0 tests completed and failed residual checks,"), "{said}");
        assert!(holds(&format!("HPL_N={order}")) && holds(&format!("CommWorldProcs={ranks}")), "{said}");
    }
}

/// The job has ended by itself, and nobody has gone on without the dead.
fn assert_ended(what: &str, output: &Output) {
    const TIME_IS_UP: i32 = 124;
    let said = String::from_utf8_lossy(&output.stdout);
    assert_ne!(output.status.code(), Some(TIME_IS_UP), "{what} waits for the dead: {output:?}");
    assert!(!said.contains("went on"), "{what}: {said}");
}

/// What survivors are waiting in: all of it, or what takes a way of its own.
fn waits() -> &'static [&'static str] {
    if is_full() { &["any-source", "probe", "barrier", "allreduce"] } else { &["any-source", "allreduce"] }
}

#[test]
fn mpich_jobs_end_when_a_rank_is_silent() {
    let Some(mpich) = Mpich::find("mpich_jobs_end_when_a_rank_is_silent") else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, program) = (provider(place.path()), place.path().join("death"));
    compile(&mpich.program("mpicc"), &sources().join("mpi/death.c"), &[], &program);
    for wait in waits() {
        let mut command = mpich.run(LIMIT, &provider, 3);
        command.env("FI_DENREI_FAILURE_TIMEOUT_MS", "1000").arg(&program).args([wait, "stop"]);
        assert_ended(wait, &command.output().unwrap());
    }
}

#[test]
fn open_mpi_jobs_end_when_a_rank_is_killed() {
    let Some(open_mpi) = OpenMpi::find("open_mpi_jobs_end_when_a_rank_is_killed") else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, program) = (provider(place.path()), place.path().join("death"));
    compile(open_mpi.compiler, &sources().join("mpi/death.c"), &[], &program);
    for wait in waits() {
        let mut command = open_mpi.run(LIMIT, &provider, 3);
        // Without it the launcher itself would end the job.
        command.args(["--enable-recovery", "-x", "FI_DENREI_FAILURE_TIMEOUT_MS"]);
        command.env("FI_DENREI_FAILURE_TIMEOUT_MS", "1000");
        OpenMpi::over_denrei(&mut command).arg(&program).args([wait, "kill"]);
        assert_ended(wait, &command.output().unwrap());
    }
}

/// Runs `handler.c` over groups, and expects that no rank is told of a communicator which is not its own.
fn assert_no_foreign_communicator(groups: &Groups, when: &str, command: &mut Command) -> String {
    command.env("DENREI_MPI_USE", "always").env("FI_DENREI_FAILURE_TIMEOUT_MS", "1000");
    let output = command.output().unwrap();
    assert_ended(&format!("{}, {when}", groups.program.display()), &output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("foreign"), "{said}");
    said
}

#[test]
fn the_loss_of_a_rank_is_told_to_the_handler_of_the_applications_communicator() {
    const NAME: &str = "the_loss_of_a_rank_is_told_to_the_handler_of_the_applications_communicator";
    let Some(open_mpi) = OpenMpi::find(NAME) else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let groups = Groups::build(open_mpi.compiler, &provider, "handler");
    let preload = format!("LD_PRELOAD={}", groups.library.display());
    for when in ["first", "later"] {
        let mut command = open_mpi.run(LIMIT, &provider, 4);
        command.args(["--enable-recovery", "-x", "FI_DENREI_FAILURE_TIMEOUT_MS", "-x", "DENREI_MPI_USE"]);
        OpenMpi::over_denrei(command.args(["-x", &preload])).arg(&groups.program).args([when, "kill"]);
        let said = assert_no_foreign_communicator(&groups, when, &mut command);
        assert!(said.contains("is told of its communicator"), "{when}: {said}");
    }
}

/// MPICH asks for the end of the job before it calls a handler, which may or may not be in time.
#[test]
fn mpich_jobs_over_groups_end_when_a_rank_is_silent() {
    const NAME: &str = "mpich_jobs_over_groups_end_when_a_rank_is_silent";
    let Some(mpi) = OverGroups::find(NAME, "handler") else { return };
    for when in ["first", "later"] {
        let mut command = mpi.run(4);
        command.arg(&mpi.groups.program).args([when, "stop"]);
        assert_no_foreign_communicator(&mpi.groups, when, &mut command);
    }
}

#[test]
fn mpi4pys_own_tests_pass_as_over_tcp() {
    const NAME: &str = "mpi4pys_own_tests_pass_as_over_tcp";
    let Some(mpich) = Mpich::find(NAME) else { return };
    let Some(sources) = std::env::var_os("DENREI_MPI4PY").map(PathBuf::from) else {
        println!("SKIPPED {NAME}: DENREI_MPI4PY names no sources of mpi4py");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let suite = Suite { mpich: &mpich, sources: &sources, provider: &provider };
    let denrei = suite.passed_over("denrei").expect("ranks over denrei do not hang");
    assert!(denrei.len() >= 2000, "{} tests", denrei.len());
    if !Suite::leave_open(&denrei) {
        return;
    }
    let tcp = suite.yardstick("tcp");
    let missing: Vec<_> = tcp.difference(&denrei).collect();
    assert!(missing.is_empty(), "not as over tcp: {missing:?}");
}

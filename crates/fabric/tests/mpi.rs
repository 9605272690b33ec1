//! MPI programs over the provider, and collective operations over groups.
//!
//! Needs a Python environment with MPICH and mpi4py, named by `DENREI_MPI_VENV`, and for one test
//! Debian's Open MPI; `./test` installs them. With `DENREI_MPI=full` the long list is run as well:
//! messages of 1 GiB, eight hosts, and all of mpi4py's own tests, if `DENREI_MPI4PY` names its sources.

mod common;

use common::{assert_good, limited, provider, sources};
use denrei_netlab::{Lab, LabError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The environment, or word that a test is skipped.
fn venv(test: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("DENREI_MPI_VENV").map(PathBuf::from);
    if venv.is_none() {
        println!("SKIPPED {test}: DENREI_MPI_VENV names no Python environment");
    }
    venv
}

/// Whether the long list is wanted.
fn is_full() -> bool {
    std::env::var("DENREI_MPI").is_ok_and(|wish| wish == "full")
}

/// A lab of so many hosts with what stands in for ssh, or word that a test is skipped.
fn lab(test: &str, hosts: usize, shell: &Path) -> Option<Lab> {
    match Lab::bridge(hosts) {
        Ok(lab) => {
            lab.write_remote_shell(shell).unwrap();
            Some(lab)
        }
        Err(error @ (LabError::NotRoot | LabError::MissingTool { .. })) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// MPICH on ranks of one host that do not share memory.
fn mpich(seconds: u32, venv: &Path, provider: &Path, ranks: usize) -> Command {
    let mut command = limited(seconds, &venv.join("bin/mpiexec"), provider);
    command.args(["-n", &ranks.to_string()]);
    tell_mpich(&mut command);
    command
}

/// MPICH on ranks of hosts of their own.
fn mpich_on_hosts(seconds: u32, venv: &Path, provider: &Path, lab: &Lab, shell: &Path) -> Command {
    let hosts: Vec<_> = lab.hosts().map(|host| host.ip().to_string()).collect();
    let mut command = limited(seconds, Path::new("ip"), provider);
    command.args(["netns", "exec", lab.host(0).namespace()]).arg(venv.join("bin/mpiexec"));
    command.args(["-hosts", &hosts.join(","), "-iface", "eth0", "-launcher", "ssh", "-disable-x"]);
    command.arg("-launcher-exec").arg(shell).args(["-n", &lab.len().to_string()]);
    command.env("FI_DENREI_INSECURE", "1");
    tell_mpich(&mut command);
    command
}

fn tell_mpich(command: &mut Command) {
    command.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
    command.env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
}

fn assert_says(what: &str, output: &Output, words: &str) {
    assert_good(what, output);
    assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{what}: {output:?}");
}

/// Compiles a program of this directory.
fn compile(compiler: &Path, source: &Path, arguments: &[&str], program: &Path) {
    let built = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-O1", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .args(arguments)
        .output()
        .unwrap();
    assert_good("mpicc", &built);
}

#[test]
fn mpich_programs_run_on_two_and_four_ranks() {
    let Some(venv) = venv("mpich_programs_run_on_two_and_four_ranks") else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    for ranks in [2, 4] {
        let output = mpich(100, &venv, &provider, ranks)
            .arg(venv.join("bin/python"))
            .arg(sources().join("mpi/checks.py"))
            .output()
            .unwrap();
        assert_says("checks.py", &output, &format!("{ranks} ranks: all checks hold"));
    }
}

#[test]
fn mpich_programs_run_across_hosts_with_loss() {
    const NAME: &str = "mpich_programs_run_across_hosts_with_loss";
    let Some(venv) = venv(NAME) else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, shell) = (provider(place.path()), place.path().join("shell"));
    let Some(lab) = lab(NAME, 3, &shell) else { return };
    lab.loss(1, 10).unwrap();
    let output = mpich_on_hosts(100, &venv, &provider, &lab, &shell)
        .arg(venv.join("bin/python"))
        .arg(sources().join("mpi/checks.py"))
        .output()
        .unwrap();
    assert_says("checks.py", &output, "3 ranks: all checks hold");
}

/// `libdenrei-mpi.so` for an MPI, and the program that compares.
struct Groups {
    library: PathBuf,
    program: PathBuf,
}

impl Groups {
    /// Builds both into the provider's directory.
    fn build(compiler: &Path, provider: &Path) -> Self {
        let new = Self { library: provider.join("libdenrei-mpi.so"), program: provider.join("collectives") };
        let beside = provider.display().to_string();
        let link = ["-shared", "-fPIC", "-L", &beside, "-l:libdenrei-fi.so", "-Wl,-rpath,$ORIGIN"];
        compile(compiler, &sources().join("../mpi/denrei_mpi.c"), &link, &new.library);
        compile(compiler, &sources().join("mpi/collectives.c"), &[], &new.program);
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

#[test]
fn collective_operations_over_groups_are_those_of_the_mpi() {
    const NAME: &str = "collective_operations_over_groups_are_those_of_the_mpi";
    let Some(venv) = venv(NAME) else { return };
    let place = tempfile::tempdir().unwrap();
    let (provider, shell) = (provider(place.path()), place.path().join("shell"));
    let groups = Groups::build(&venv.join("bin/mpicc"), &provider);
    let check =
        |command: &mut Command, ranks| groups.check(command.env("LD_PRELOAD", &groups.library), ranks);
    check(&mut mpich(100, &venv, &provider, 4), 4);
    let hosts = if is_full() { 8 } else { 4 };
    let Some(lab) = lab(NAME, hosts, &shell) else { return };
    check(&mut mpich_on_hosts(100, &venv, &provider, &lab, &shell), hosts);
}

/// Debian's Open MPI, compiler and launcher, or word that a test is skipped.
fn open_mpi(test: &str) -> Option<(&'static Path, &'static Path)> {
    let (compiler, launcher) = (Path::new("/usr/bin/mpicc.openmpi"), Path::new("/usr/bin/mpirun.openmpi"));
    if compiler.exists() && launcher.exists() {
        return Some((compiler, launcher));
    }
    println!("SKIPPED {test}: openmpi-bin and libopenmpi-dev are not installed");
    None
}

/// Open MPI on ranks of this host.
fn mpirun(launcher: &Path, provider: &Path, ranks: usize) -> Command {
    let mut command = limited(100, launcher, provider);
    command.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
    command.args(["--mca", "mpi_yield_when_idle", "1"]);
    command
}

#[test]
fn open_mpi_programs_run_on_two_and_four_ranks() {
    let Some((compiler, launcher)) = open_mpi("open_mpi_programs_run_on_two_and_four_ranks") else { return };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let program = place.path().join("checks");
    compile(compiler, &sources().join("mpi/checks.c"), &[], &program);
    for ranks in [2, 4] {
        let output = mpirun(launcher, &provider, ranks)
            .args([
                "-x",
                "FI_PROVIDER_PATH",
                "-x",
                "FI_PROVIDER",
                "--mca",
                "pml",
                "cm",
                "--mca",
                "mtl",
                "ofi",
            ])
            .args(["--mca", "btl", "^ofi,openib,vader,tcp", "--mca", "mtl_ofi_provider_include", "denrei"])
            .arg(&program)
            .arg(if is_full() { "1073741824" } else { "8388608" })
            .output()
            .unwrap();
        assert_says("checks.c", &output, &format!("{ranks} ranks: all checks hold"));
    }
}

#[test]
fn open_mpis_collectives_over_groups_are_its_own() {
    let Some((compiler, launcher)) = open_mpi("open_mpis_collectives_over_groups_are_its_own") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let groups = Groups::build(compiler, &provider);
    let preload = format!("LD_PRELOAD={}", groups.library.display());
    let mut command = mpirun(launcher, &provider, 4);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]);
    command.args(["-x", &preload, "-x", "DENREI_MPI_USE", "-x", "DENREI_MPI_VERBOSE"]);
    groups.check(&mut command, 4);
}

/// What of mpi4py's tests is run if not all of it is: windows, matched probes.
const QUICK: [&str; 2] = ["test_win", "test_p2p_buf_matched"];

/// The names of mpi4py's tests that pass at rank 0, or are left out there.
fn mpi4pys_tests(venv: &Path, sources: &Path, provider: &Path, name: &str) -> BTreeSet<String> {
    let seconds = if is_full() { 1800 } else { 300 };
    let mut command = mpich(seconds, venv, provider, 2);
    let said = provider.join(name);
    // Each rank's words in a file of its own.
    command.arg("-errfile-pattern").arg(provider.join(format!("{name}.%r")));
    command.arg(venv.join("bin/python")).arg(sources.join("test/main.py")).arg("-v");
    // Spawned processes would share memory; the last one fails now and then over MPICH's tcp too.
    command.args(["-e", "spawn", "-e", "dynproc"]);
    command.args(["-x", "*.testGetFortranInfo", "-x", "*.testDistgraphcomm"]);
    if !is_full() {
        command.args(QUICK.iter().flat_map(|module| ["-i", module]));
    }
    // They write files and have each flushed: in memory that takes no time.
    let output = command.env("FI_PROVIDER", name).env("TMPDIR", "/dev/shm").output().unwrap();
    let words = std::fs::read_to_string(said.with_extension("0")).unwrap_or_default();
    assert!(output.status.success(), "mpi4py's tests over {name}: {}\n{words}", output.status);
    let outcome = |line: &str| {
        let (test, outcome) = line.rsplit_once(" ... ")?;
        (outcome == "ok" || outcome.starts_with("skipped")).then(|| format!("{test}: {outcome}"))
    };
    words.lines().filter_map(outcome).collect()
}

#[test]
fn mpi4pys_own_tests_pass_as_over_tcp() {
    const NAME: &str = "mpi4pys_own_tests_pass_as_over_tcp";
    let Some(venv) = venv(NAME) else { return };
    let Some(sources) = std::env::var_os("DENREI_MPI4PY").map(PathBuf::from) else {
        println!("SKIPPED {NAME}: DENREI_MPI4PY names no sources of mpi4py");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let provider = provider(place.path());
    let tcp = mpi4pys_tests(&venv, &sources, &provider, "tcp");
    let denrei = mpi4pys_tests(&venv, &sources, &provider, "denrei");
    assert!(tcp.len() >= if is_full() { 1500 } else { 20 }, "{} tests", tcp.len());
    let missing: Vec<_> = tcp.difference(&denrei).collect();
    assert!(missing.is_empty(), "not as over tcp: {missing:?}");
}

//! mpi4py's own tests over a provider, which tell of each as it ends.
//!
//! Inputs → outputs: MPICH, mpi4py's sources, a provider → which tests pass, or where the ranks hang.

use crate::launch::{LONG_LIMIT, Mpich, is_full};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Which of mpi4py's modules are left out if not all is run, for they take more than half of the time: types that ranks
/// make for themselves, of which a provider sees nothing; and starting ranks, which `spawn.py` does too.
const LEFT_OUT: [&str; 3] = ["test_datatype", "test_util_dtlib", "test_spawn"];
/// Longest run of all the rest, in seconds: beside other work it takes minutes. Ranks that hang are ended long before.
const SHORT_LIMIT: u32 = 700;
/// Ranks that tell of nothing for so long hang: the longest test takes a second.
const SILENCE: Duration = Duration::from_secs(60);
/// How often the yardstick is tried that hangs, as MPICH over tcp has been seen to.
const TRIES: u32 = 3;
/// Why tests are left out that ask for a module which is not installed, for another number of ranks, or for what MPICH has
/// not over any provider.
const NOT_THE_PROVIDERS: [&str; 9] = [
    "'numpy'",
    "'numba'",
    "'cupy'",
    "'cffi'",
    "'yaml'",
    "'dill'",
    "'comm.size==1'",
    "'mpi-world-size>1'",
    "'mpi-comm_revoke'",
];

/// The tests, and what they run on.
pub struct Suite<'a> {
    pub mpich: &'a Mpich,
    pub sources: &'a Path,
    pub provider: &'a Path,
}

impl Suite<'_> {
    /// The tests that pass over what denrei is compared with.
    pub fn yardstick(&self, name: &str) -> BTreeSet<String> {
        (0..TRIES).find_map(|_| self.passed_over(name)).expect("the yardstick does not hang each time")
    }

    /// The names of the tests that pass at rank 0, or are left out there; `None`, and what rank 0 said is printed, if the
    /// ranks hang.
    pub fn passed_over(&self, name: &str) -> Option<BTreeSet<String>> {
        let said = self.provider.join(name).with_extension("0");
        let status = end_of(self.command(name).spawn().unwrap(), &said);
        let words = std::fs::read_to_string(&said).unwrap_or_default();
        let Some(status) = status else {
            println!("mpi4py's tests over {name} told of nothing for {SILENCE:?}\n{words}");
            return None;
        };
        assert!(status.success(), "mpi4py's tests over {name}: {status}\n{words}");
        Some(words.lines().filter_map(outcome).collect())
    }

    /// Whether the provider may be why one of these tests was left out: then they say little without the yardstick.
    pub fn leave_open(passed: &BTreeSet<String>) -> bool {
        let mut why = passed.iter().filter_map(|line| line.split_once(": skipped "));
        is_full() || why.any(|(_, why)| !NOT_THE_PROVIDERS.contains(&why))
    }

    fn command(&self, name: &str) -> Command {
        let seconds = if is_full() { LONG_LIMIT } else { SHORT_LIMIT };
        let mut command = self.mpich.run(seconds, self.provider, 2);
        // Each rank's words in a file of its own.
        command.arg("-errfile-pattern").arg(self.provider.join(format!("{name}.%r")));
        command.arg(self.mpich.program("python")).arg(self.sources.join("test/main.py")).arg("-v");
        // The last one fails now and then over MPICH's tcp too.
        command.args(["-x", "*.testGetFortranInfo", "-x", "*.testDistgraphcomm"]);
        if !is_full() {
            command.args(LEFT_OUT.iter().flat_map(|module| ["-e", module]));
        }
        // They write files and have each flushed: in memory that takes no time.
        command.env("FI_PROVIDER", name).env("TMPDIR", "/dev/shm").stdout(Stdio::null());
        command
    }
}

/// How the ranks ended; `None` if they stopped telling of tests in the file `said`, and were ended.
fn end_of(mut ranks: Child, said: &Path) -> Option<ExitStatus> {
    let mut length = 0;
    let mut since = Instant::now();
    loop {
        if let Some(status) = ranks.try_wait().unwrap() {
            return Some(status);
        }
        let now = said.metadata().map_or(0, |file| file.len());
        if now != length {
            (length, since) = (now, Instant::now());
        } else if since.elapsed() > SILENCE {
            // `timeout`, which hands it on.
            kill(Pid::from_raw(ranks.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
            ranks.wait().unwrap();
            return None;
        }
        sleep(Duration::from_millis(200));
    }
}

/// A line's test and what became of it, if that is well.
fn outcome(line: &str) -> Option<String> {
    let (test, outcome) = line.rsplit_once(" ... ")?;
    (outcome == "ok" || outcome.starts_with("skipped")).then(|| format!("{test}: {outcome}"))
}

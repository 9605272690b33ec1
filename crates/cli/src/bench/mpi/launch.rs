//! Programs under an MPI: compiled on demand, started here or across namespaces.
//!
//! Inputs → outputs: an [`Mpi`] and a [`Route`] → a process of the MPI's launcher → what it printed, or
//! why there is nothing.

use super::routes::{Family, Mpi, Route};
use crate::cmd::signals::Ending;
use anyhow::{Context, Result, bail, ensure};
use denrei_netlab::{Lab, LabConfig};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What runs.
const PROGRAM: &str = include_str!("bench.c");
/// What carries collective operations over groups; like the program, made with each MPI's own compiler.
const GROUPS: &str = include_str!("../../../../fabric/mpi/denrei_mpi.c");
/// What it includes.
const GROUPS_HEADERS: [(&str, &str); 6] = [
    ("denrei_address.h", include_str!("../../../../fabric/mpi/denrei_address.h")),
    ("denrei_arguments.h", include_str!("../../../../fabric/mpi/denrei_arguments.h")),
    ("denrei_choice.h", include_str!("../../../../fabric/mpi/denrei_choice.h")),
    ("denrei_coll.h", include_str!("../../../../fabric/mpi/denrei_coll.h")),
    ("denrei_state.h", include_str!("../../../../fabric/mpi/denrei_state.h")),
    ("denrei_wishes.h", include_str!("../../../../fabric/mpi/denrei_wishes.h")),
];
/// How often it is looked whether a run is over.
const LOOK: Duration = Duration::from_millis(20);
/// What a launcher may need beside the measurement.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where programs run.
pub struct Launcher {
    lab: Option<Lab>,
    ranks: usize,
    provider: Option<PathBuf>,
    /// Programs, what stands in for ssh, output.
    scratch: TempDir,
    /// Runs are not known to the namespaces, nor do they end with this process.
    ending: Ending,
    made: BTreeMap<(Family, &'static str), PathBuf>,
}

impl Launcher {
    /// For `ranks` ranks, each in a namespace of its own if `netns`.
    pub fn new(ranks: usize, netns: bool, provider: Option<PathBuf>) -> Result<Self> {
        let scratch = tempfile::tempdir().context("cannot make a directory for programs")?;
        let lab = match netns {
            true => {
                Some(Lab::with_config(ranks, LabConfig::default()).context("cannot build the namespaces")?)
            }
            false => None,
        };
        let ending = Ending::watch()?;
        let launcher = Self { lab, ranks, provider, scratch, ending, made: BTreeMap::new() };
        if let Some(lab) = &launcher.lab {
            lab.write_remote_shell(&launcher.agent()).context("cannot write what stands in for ssh")?;
        }
        Ok(launcher)
    }

    /// What stands in for ssh.
    fn agent(&self) -> PathBuf {
        self.scratch.path().join("agent")
    }

    /// Compiles a source for an MPI, once; where the result is.
    fn compile(&mut self, mpi: &Mpi, name: &'static str, source: &str, options: &[&str]) -> Result<PathBuf> {
        if let Some(made) = self.made.get(&(mpi.family, name)) {
            return Ok(made.clone());
        }
        let file = self.scratch.path().join(name).with_extension("c");
        fs::write(&file, source)?;
        let made = self.scratch.path().join(format!("{name}-{:?}", mpi.family));
        let output = Command::new(&mpi.compiler)
            .args(["-O2", "-o"])
            .args([&made, &file])
            .args(options)
            .output()
            .with_context(|| format!("cannot start {}", mpi.compiler.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {said}", mpi.compiler.display());
        self.made.insert((mpi.family, name), made.clone());
        Ok(made)
    }

    /// Makes what carries collective operations over groups.
    fn groups(&mut self, mpi: &Mpi) -> Result<PathBuf> {
        let directory = self.provider()?.display().to_string();
        let run_path = format!("-Wl,-rpath,{directory}");
        for (name, header) in GROUPS_HEADERS {
            fs::write(self.scratch.path().join(name), header)?;
        }
        let options = ["-shared", "-fPIC", "-pthread", "-L", &directory, "-l:libdenrei-fi.so", &run_path];
        self.compile(mpi, "groups", GROUPS, &options)
    }

    fn provider(&self) -> Result<&Path> {
        self.provider.as_deref().context(
            "libdenrei-fi.so is not there: build it with `cargo xtask fabric` and name its directory by --provider",
        )
    }

    /// Runs the program over a route; what rank 0 printed.
    ///
    /// # Errors
    /// The MPI or the route does not work here, or the run took longer than `limit` beyond its start.
    pub fn run(&mut self, mpi: &Mpi, route: &Route, arguments: &[String], limit: Duration) -> Result<String> {
        let program = self.compile(mpi, "bench", PROGRAM, &[])?;
        let preload = if route.groups { Some(self.groups(mpi)?) } else { None };
        let mut command = match &self.lab {
            Some(lab) => lab.host(0).command(&mpi.launcher),
            None => Command::new(&mpi.launcher),
        };
        self.tell(&mut command, route)?;
        if let Some(library) = preload {
            // For the ranks alone: the launcher has no MPI in it.
            match mpi.family {
                Family::Mpich => command.args(["-env", "LD_PRELOAD"]).arg(library),
                Family::OpenMpi => command.arg("-x").arg(format!("LD_PRELOAD={}", library.display())),
            };
        }
        command.arg(&program).args(arguments);
        let (out, said) = (self.scratch.path().join("out"), self.scratch.path().join("said"));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&said)?);
        let child = command.spawn().with_context(|| format!("cannot start {}", mpi.launcher.display()))?;
        let done = self.wait(child, START_LIMIT + limit)?;
        let words = tail(&said);
        match done {
            Some(true) => Ok(fs::read_to_string(&out)?),
            Some(false) => bail!("{} failed: {words}", mpi.family.name()),
            None => bail!("{} did not end in time: {words}", mpi.family.name()),
        }
    }

    /// Waits for a process to end well or not; `None`: it did not in time, and was killed.
    fn wait(&mut self, mut child: Child, limit: Duration) -> Result<Option<bool>> {
        let end = Instant::now() + limit;
        let mut signal = None;
        while Instant::now() < end && signal.is_none() {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status.success()));
            }
            signal = self.ending.wait(LOOK);
        }
        // Its ranks end with it.
        child.kill()?;
        child.wait()?;
        if let Some(signal) = signal {
            // What cannot be removed is a temporary file, in a directory for such.
            let _ = fs::remove_dir_all(self.scratch.path());
            // The removal of namespaces ends the process by itself.
            drop(self.lab.take());
            signal.end_process();
        }
        Ok(None)
    }

    fn tell(&self, command: &mut Command, route: &Route) -> Result<()> {
        let device = if self.lab.is_some() { "eth0" } else { "lo" };
        let mut variables: Vec<(&str, String)> =
            route.variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        if self.lab.is_some() {
            // On one host UCX finds its own way, which loopback is not.
            variables.push(("UCX_NET_DEVICES", device.to_owned()));
        }
        if route.is_denrei() {
            let directory = self.provider()?;
            variables.push(("FI_PROVIDER_PATH", directory.display().to_string()));
            variables.push(("FI_DENREI_IFACE", device.to_owned()));
            // These namespaces, and loopback, are alone with each other.
            variables.push(("FI_DENREI_INSECURE", "1".to_owned()));
        }
        match route.family {
            Family::Mpich => self.tell_mpich(command, &mut variables),
            Family::OpenMpi => self.tell_open_mpi(command, route, device, &variables),
        }
        command.envs(variables);
        Ok(())
    }

    fn hosts(&self, suffix: &str) -> Option<String> {
        let hosts: Vec<String> =
            self.lab.as_ref()?.hosts().map(|host| format!("{}{suffix}", host.ip())).collect();
        Some(hosts.join(","))
    }

    fn tell_mpich(&self, command: &mut Command, variables: &mut Vec<(&str, String)>) {
        // Ranks of one host would use shared memory.
        variables.push(("MPIR_CVAR_NOLOCAL", "1".to_owned()));
        if let Some(hosts) = self.hosts("") {
            command.args(["-hosts", &hosts, "-iface", "eth0", "-launcher", "ssh", "-disable-x"]);
            command.arg("-launcher-exec").arg(self.agent());
        }
        command.args(["-n", &self.ranks.to_string()]);
    }

    fn tell_open_mpi(
        &self,
        command: &mut Command,
        route: &Route,
        device: &str,
        variables: &[(&str, String)],
    ) {
        command.args(["--allow-run-as-root", "--oversubscribe", "--mca", "btl_tcp_if_include", device]);
        // Each "host" would bind its rank to the first core, which is the same for all. MPICH binds none.
        command.args(["--bind-to", "none"]);
        if let Some(hosts) = self.hosts(":1") {
            command.args(["--host", &hosts, "--map-by", "node", "--mca", "plm_rsh_no_tree_spawn", "1"]);
            command.args(["--mca", "oob_tcp_if_include", device, "--mca", "plm_rsh_agent"]).arg(self.agent());
        }
        command.args(route.arguments).args(["-np", &self.ranks.to_string()]);
        for (name, _) in variables {
            command.args(["-x", name]);
        }
    }
}

/// The last lines of what was said.
fn tail(path: &Path) -> String {
    const LINES: usize = 4;
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

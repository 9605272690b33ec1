//! Programs under an MPI: compiled on demand, started here or across namespaces.
//!
//! Inputs → outputs: an [`Mpi`] and a [`Route`] → a process of the MPI's launcher → what it printed, or
//! why there is nothing.

use super::routes::{Family, Mpi, Route};
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
    programs: BTreeMap<Family, PathBuf>,
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
        let launcher = Self { lab, ranks, provider, scratch, programs: BTreeMap::new() };
        if let Some(lab) = &launcher.lab {
            lab.write_remote_shell(&launcher.agent()).context("cannot write what stands in for ssh")?;
        }
        Ok(launcher)
    }

    /// What stands in for ssh.
    fn agent(&self) -> PathBuf {
        self.scratch.path().join("agent")
    }

    /// Compiles the program for an MPI, once.
    fn program(&mut self, mpi: &Mpi) -> Result<PathBuf> {
        if let Some(program) = self.programs.get(&mpi.family) {
            return Ok(program.clone());
        }
        let source = self.scratch.path().join("bench.c");
        fs::write(&source, PROGRAM)?;
        let program = self.scratch.path().join(format!("bench-{:?}", mpi.family));
        let output = Command::new(&mpi.compiler)
            .args(["-O2", "-o"])
            .args([&program, &source])
            .output()
            .with_context(|| format!("cannot start {}", mpi.compiler.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {said}", mpi.compiler.display());
        self.programs.insert(mpi.family, program.clone());
        Ok(program)
    }

    /// Runs the program over a route; what rank 0 printed.
    ///
    /// # Errors
    /// The MPI or the route does not work here, or the run took longer than `limit` beyond its start.
    pub fn run(&mut self, mpi: &Mpi, route: &Route, arguments: &[String], limit: Duration) -> Result<String> {
        let program = self.program(mpi)?;
        let mut command = match &self.lab {
            Some(lab) => lab.host(0).command(&mpi.launcher),
            None => Command::new(&mpi.launcher),
        };
        self.tell(&mut command, route)?;
        command.arg(&program).args(arguments);
        let (out, said) = (self.scratch.path().join("out"), self.scratch.path().join("said"));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&said)?);
        let child = command.spawn().with_context(|| format!("cannot start {}", mpi.launcher.display()))?;
        let done = wait(child, START_LIMIT + limit)?;
        let words = tail(&said);
        match done {
            Some(true) => Ok(fs::read_to_string(&out)?),
            Some(false) => bail!("{} failed: {words}", mpi.family.name()),
            None => bail!("{} did not end in time: {words}", mpi.family.name()),
        }
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
            let directory = self.provider.as_ref().context(
                "libdenrei-fi.so is not there: build it with `cargo xtask fabric` and name its directory by --provider",
            )?;
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

/// Waits for a process to end well or not; `None`: it did not in time, and was killed.
fn wait(mut child: Child, limit: Duration) -> Result<Option<bool>> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(LOOK);
    }
    // Its ranks end with it.
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The last lines of what was said.
fn tail(path: &Path) -> String {
    const LINES: usize = 4;
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" | ")
}

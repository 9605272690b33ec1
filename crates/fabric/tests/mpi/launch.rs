//! Programs under the MPIs that are here, over the provider: on this host, and on hosts of their own.

use crate::common::{assert_good, limited, sources};
use denrei_netlab::{Lab, LabError};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Longest run of a program, in seconds; of one in the long list.
pub const LIMIT: u32 = 100;
pub const LONG_LIMIT: u32 = 1800;

/// Whether the long list is wanted.
pub fn is_full() -> bool {
    std::env::var("DENREI_MPI").is_ok_and(|wish| wish == "full")
}

/// A lab of so many hosts with what stands in for ssh, or word that a test is skipped.
pub fn lab(test: &str, hosts: usize, shell: &Path) -> Option<Lab> {
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

/// Addresses of all hosts, each with something behind it.
fn hosts(lab: &Lab, suffix: &str) -> String {
    let hosts: Vec<_> = lab.hosts().map(|host| format!("{}{suffix}", host.ip())).collect();
    hosts.join(",")
}

/// Compiles a program of this directory.
pub fn compile(compiler: &Path, source: &Path, arguments: &[&str], program: &Path) {
    let built = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-O1", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .args(arguments)
        .output()
        .unwrap();
    assert_good("mpicc", &built);
}

/// MPICH in a Python environment.
pub struct Mpich(pub PathBuf);

impl Mpich {
    /// The environment that is named, or word that a test is skipped.
    pub fn find(test: &str) -> Option<Self> {
        let venv = std::env::var_os("DENREI_MPI_VENV").map(PathBuf::from);
        if venv.is_none() {
            println!("SKIPPED {test}: DENREI_MPI_VENV names no Python environment");
        }
        venv.map(Self)
    }

    /// A program of the environment.
    pub fn program(&self, name: &str) -> PathBuf {
        self.0.join("bin").join(name)
    }

    /// Ranks of one host that do not share memory.
    pub fn run(&self, seconds: u32, provider: &Path, ranks: usize) -> Command {
        let mut command = limited(seconds, &self.program("mpiexec"), provider);
        command.args(["-n", &ranks.to_string()]);
        Self::tell(&mut command);
        command
    }

    /// What came of a Python program of this directory.
    pub fn python(&self, provider: &Path, ranks: usize, script: &str) -> Output {
        let mut command = self.run(LIMIT, provider, ranks);
        command.arg(self.program("python")).arg(sources().join("mpi").join(script)).output().unwrap()
    }

    /// A rank on each host.
    pub fn run_on_hosts(&self, seconds: u32, provider: &Path, lab: &Lab, shell: &Path) -> Command {
        let mut command = limited(seconds, Path::new("ip"), provider);
        command.args(["netns", "exec", lab.host(0).namespace()]).arg(self.program("mpiexec"));
        command.args(["-hosts", &hosts(lab, ""), "-iface", "eth0", "-launcher", "ssh", "-disable-x"]);
        command.arg("-launcher-exec").arg(shell).args(["-n", &lab.len().to_string()]);
        command.env("FI_DENREI_INSECURE", "1");
        Self::tell(&mut command);
        command
    }

    fn tell(command: &mut Command) {
        command.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
        command.env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
    }
}

/// Debian's Open MPI.
pub struct OpenMpi {
    pub compiler: &'static Path,
    launcher: &'static Path,
}

impl OpenMpi {
    /// It, or word that a test is skipped.
    pub fn find(test: &str) -> Option<Self> {
        let (compiler, launcher) =
            (Path::new("/usr/bin/mpicc.openmpi"), Path::new("/usr/bin/mpirun.openmpi"));
        if compiler.exists() && launcher.exists() {
            return Some(Self { compiler, launcher });
        }
        println!("SKIPPED {test}: openmpi-bin and libopenmpi-dev are not installed");
        None
    }

    /// Ranks of this host.
    pub fn run(&self, seconds: u32, provider: &Path, ranks: usize) -> Command {
        let mut command = limited(seconds, self.launcher, provider);
        Self::tell(&mut command, ranks);
        command
    }

    /// Ranks on hosts, in turn.
    pub fn run_on_hosts(
        &self,
        seconds: u32,
        provider: &Path,
        lab: &Lab,
        shell: &Path,
        ranks: usize,
    ) -> Command {
        let mut command = limited(seconds, Path::new("ip"), provider);
        command.args(["netns", "exec", lab.host(0).namespace()]).arg(self.launcher);
        command.args(["--host", &hosts(lab, ":9"), "--map-by", "node"]);
        command.args(["--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", "eth0"]);
        command.args(["--mca", "plm_rsh_agent"]).arg(shell);
        command.env("FI_DENREI_INSECURE", "1").args(["-x", "FI_DENREI_INSECURE"]);
        Self::tell(&mut command, ranks);
        command
    }

    fn tell(command: &mut Command, ranks: usize) {
        command.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
        command.args(["--mca", "mpi_yield_when_idle", "1"]);
    }

    /// The ranks' messages go over the provider, and one-sided operations by messages.
    pub fn over_denrei(command: &mut Command) -> &mut Command {
        // What else carries one-sided operations goes past the provider.
        Self::messages_over_denrei(command).args(["--mca", "osc", "^rdma,ucx,sm"]).args([
            "--mca",
            "btl",
            "^ofi,openib,vader,tcp",
        ])
    }

    /// The ranks' messages go over the provider, and one-sided operations by its RMA and atomics.
    pub fn all_over_denrei(command: &mut Command) -> &mut Command {
        let command = Self::messages_over_denrei(command).args(["--mca", "osc", "rdma"]);
        command.args(["--mca", "btl", "ofi,self,vader", "--mca", "osc_rdma_btls", "ofi"])
    }

    fn messages_over_denrei(command: &mut Command) -> &mut Command {
        command.args([
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
        ]);
        command.args(["--mca", "mtl_ofi_provider_include", "denrei"])
    }
}

/// Intel MPI, as of `pip install impi-rt`.
pub struct IntelMpi(PathBuf);

impl IntelMpi {
    /// The environment that is named, or word that a test is skipped.
    pub fn find(test: &str) -> Option<Self> {
        let root = std::env::var_os("DENREI_INTEL_MPI").map(PathBuf::from);
        if root.is_none() {
            println!("SKIPPED {test}: DENREI_INTEL_MPI names no Python environment with impi-rt");
        }
        root.map(Self)
    }

    /// Ranks of this host that do not share memory, as `denrei mpirun-env intel` has it.
    pub fn run(&self, seconds: u32, provider: &Path, ranks: usize) -> Command {
        let own = self.0.join("lib");
        let mut command = limited(seconds, &self.0.join("bin/mpiexec.hydra"), provider);
        command.env("I_MPI_ROOT", &self.0).env("LD_LIBRARY_PATH", &own);
        command.env("FI_PROVIDER_PATH", format!("{}:{}", provider.display(), own.display()));
        command.env("I_MPI_FABRICS", "ofi").env("I_MPI_OFI_PROVIDER", "denrei");
        command.env("I_MPI_OFI_LIBRARY_INTERNAL", "1").env("I_MPI_THREAD_YIELD", "2");
        command.args(["-n", &ranks.to_string()]);
        command
    }
}

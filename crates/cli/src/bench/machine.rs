//! What machine this is, and which of its cores a process uses.

use anyhow::{Context, Result};
use denrei_layers::pin;
use std::fmt;
use std::fs;

/// The machine a figure was measured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu: model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(f, "{}, {} core{plural}, Linux {}", self.cpu, self.cores, self.kernel)
    }
}

/// The core for side `index` of a pair: each its own where there are two, else none in particular.
pub fn core_for(index: usize) -> Option<usize> {
    let cores = pin::allowed_cores();
    if cores.len() < 2 { None } else { cores.get(index).copied() }
}

/// Binds this thread, and those it starts from now on, to a core.
pub fn pin_to(core: usize) -> Result<()> {
    pin::to_core(core)
        .with_context(|| format!("cannot bind to core {core}: leave the choice to the kernel with --no-pin"))
}

//! `cargo xtask install`: everything users get, below a prefix.
//!
//! Inputs → outputs: what cargo has built, or builds now → command, libraries, headers, manual pages
//! and shell completions, where a distribution has them. `DESTDIR` goes before the prefix, as usual.

use crate::fabric::root;
use anyhow::{Context, bail};
use clap::Args;
use nix::sys::stat::{Mode, umask};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Shells, and where below `share` they look for completions of `denrei`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/denrei"),
    ("fish", "fish/vendor_completions.d/denrei.fish"),
    ("zsh", "zsh/site-functions/_denrei"),
];

/// Where from and where to.
#[derive(Args)]
pub struct InstallArgs {
    /// Directory to install below
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    #[command(flatten)]
    built: Built,
}

/// What is installed.
#[derive(Args)]
pub struct Built {
    /// Take what cargo has already built into this directory, such as target/debug; not given: build it,
    /// optimised
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

/// Installs.
pub fn run(arguments: &InstallArgs) -> anyhow::Result<ExitCode> {
    let binaries = arguments.built.directory()?;
    for_all();
    let destination = std::env::var_os("DESTDIR").map(PathBuf::from).unwrap_or_default();
    // It is written into files that are used from elsewhere.
    let prefix = std::path::absolute(&arguments.prefix).context("where the prefix is cannot be told")?;
    install(&binaries, &destination, &prefix)?;
    crate::say!("{}", joined(&destination, &prefix).display());
    Ok(ExitCode::SUCCESS)
}

impl Built {
    /// The directory with the binaries, which are built if need be.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        if let Some(directory) = &self.binaries {
            return Ok(directory.clone());
        }
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let packages = ["-p", "denrei-cli", "-p", "denrei-capi", "-p", "denrei-fabric"];
        succeed(Command::new(cargo).args(["build", "--release", "--locked"]).args(packages))?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        Ok(target.join("release"))
    }
}

/// Runs a command that has to succeed.
pub fn succeed(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    Ok(output.stdout)
}

/// An absolute path below another directory.
fn joined(destination: &Path, path: &Path) -> PathBuf {
    if destination.as_os_str().is_empty() {
        return path.to_owned();
    }
    destination.join(path.strip_prefix("/").unwrap_or(path))
}

/// Cargo leaves libraries beside the binaries, or, when it builds them for tests, in `deps`.
fn library(binaries: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let candidates = [binaries.join(name), binaries.join("deps").join(name)];
    let found = candidates.into_iter().find(|path| path.is_file());
    found.with_context(|| format!("{name} is not in {}: cargo build --workspace", binaries.display()))
}

/// Installs what is in `binaries` below `prefix` in `destination`.
pub fn install(binaries: &Path, destination: &Path, prefix: &Path) -> anyhow::Result<()> {
    let top = joined(destination, prefix);
    let command = binaries.join("denrei");
    copy(&command, &top.join("bin/denrei"))?;
    let script = root().join("crates/capi/install");
    let library_file = library(binaries, "libdenrei_c.a")?;
    succeed(Command::new(script).env("DESTDIR", destination).arg(library_file).arg(prefix))?;
    copy(&library(binaries, "libdenrei_fi.so")?, &top.join("lib/libdenrei-fi.so"))?;
    succeed(Command::new(&command).arg("man").arg("--into").arg(top.join("share/man/man1")))?;
    for (shell, place) in COMPLETIONS {
        let completions = succeed(Command::new(&command).args(["completions", shell]))?;
        let place = top.join("share").join(place);
        make_parent(&place)?;
        std::fs::write(&place, completions).with_context(|| format!("cannot write {}", place.display()))?;
    }
    Ok(())
}

/// What is made from now on is for all users of the host, as whoever installs it may want nothing else of theirs to be.
pub fn for_all() {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
}

fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

/// Copies a file in place of another. Programs that run the other, or have it mapped, keep what they have.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_parent(to)?;
    if let Err(error) = std::fs::remove_file(to)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot replace {}", to.display()));
    }
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    std::fs::copy(from, to).with_context(failed)?;
    std::fs::set_permissions(to, Permissions::from_mode(0o755)).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_replaced_and_runs_on() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        copy(Path::new("/bin/sleep"), &program).unwrap();
        let mut running = Command::new(&program).arg("60").spawn().unwrap();
        let replaced = copy(Path::new("/bin/sleep"), &program);
        let ended = running.try_wait();
        running.kill().unwrap();
        running.wait().unwrap();
        replaced.unwrap();
        assert!(ended.unwrap().is_none());
    }
}

//! `cargo xtask fabric`: builds `libdenrei-fi.so`, for `FI_PROVIDER_PATH`, and with `--mpicc` also
//! `libdenrei-mpi.so`, for `LD_PRELOAD`.
//!
//! Cargo knows no dash in a library's name, and libfabric's convention is `lib<provider>-fi.so`: the
//! library is built as `libdenrei_fi.so` and copied.

use crate::install::copy;
use anyhow::{Context, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What to do with it.
#[derive(Args)]
pub struct FabricArgs {
    /// Directory to put it into, made if need be; not given: beside where cargo builds it
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,

    /// An MPI's compiler: builds libdenrei-mpi.so for that MPI beside it, which carries collective
    /// operations by multicast
    #[arg(long, value_name = "MPICC")]
    mpicc: Option<PathBuf>,
}

/// Builds and copies it; prints where it is.
pub fn run(arguments: &FabricArgs) -> anyhow::Result<ExitCode> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let build =
        Command::new(cargo).args(["build", "--release", "--locked", "-p", "denrei-fabric"]).status()?;
    if !build.success() {
        bail!("cargo build failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let built = target.join("release/libdenrei_fi.so");
    let into = arguments.into.clone().unwrap_or_else(|| target.join("release"));
    let place = into.join("libdenrei-fi.so");
    copy(&built, &place)?;
    crate::say!("{}", place.display());
    if let Some(mpicc) = &arguments.mpicc {
        crate::say!("{}", build_mpi(mpicc, &into)?.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds `libdenrei-mpi.so`, which finds `libdenrei-fi.so` beside itself.
fn build_mpi(mpicc: &Path, into: &Path) -> anyhow::Result<PathBuf> {
    let place = into.join("libdenrei-mpi.so");
    let built = Command::new(mpicc)
        .args(["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"])
        .arg(&place)
        .arg(root().join("crates/fabric/mpi/denrei_mpi.c"))
        .arg("-L")
        .arg(into)
        .args(["-l:libdenrei-fi.so", "-Wl,-rpath,$ORIGIN", "-pthread"])
        .status()
        .with_context(|| format!("cannot start {}", mpicc.display()))?;
    if !built.success() {
        bail!("{} failed", mpicc.display());
    }
    Ok(place)
}

/// The workspace's directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

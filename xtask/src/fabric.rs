//! `cargo xtask fabric`: builds `libdenrei-fi.so`, for `FI_PROVIDER_PATH`.
//!
//! Cargo knows no dash in a library's name, and libfabric's convention is `lib<provider>-fi.so`: the
//! library is built as `libdenrei_fi.so` and copied.

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
    std::fs::create_dir_all(&into).with_context(|| format!("cannot make {}", into.display()))?;
    let place = into.join("libdenrei-fi.so");
    std::fs::copy(&built, &place)
        .with_context(|| format!("cannot copy {} to {}", built.display(), place.display()))?;
    println!("{}", place.display());
    Ok(ExitCode::SUCCESS)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

//! `cargo xtask package`: a Debian package of what `cargo xtask install` installs.
//!
//! Inputs → outputs: binaries, and `[package.metadata.deb]` of the command → `denrei_VERSION_ARCH.deb`.
//! The tree that goes into it stays beside it, in `root`, where the metadata's assets point: so
//! `cargo deb -p denrei-cli --no-build` makes the same package (ADR 35).

use crate::fabric::root;
use crate::install::{Built, install, succeed};
use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Where from and where to.
#[derive(Args)]
pub struct PackageArgs {
    /// Directory to put the package into, made if need be
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    into: PathBuf,
    #[command(flatten)]
    built: Built,
}

/// The parts of a manifest that matter here.
#[derive(Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    description: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    deb: Deb,
}

/// What cargo-deb reads.
#[derive(Deserialize)]
struct Deb {
    name: String,
    maintainer: String,
    section: String,
    priority: String,
    depends: String,
    #[serde(rename = "extended-description")]
    extended_description: String,
}

/// Makes the package; prints where it is.
pub fn run(arguments: &PackageArgs) -> anyhow::Result<ExitCode> {
    let binaries = arguments.built.directory()?;
    let into = &arguments.into;
    let tree = into.join("root");
    if tree.exists() {
        std::fs::remove_dir_all(&tree).with_context(|| format!("cannot empty {}", tree.display()))?;
    }
    std::fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let tree = tree.canonicalize()?;
    install(&binaries, &tree, Path::new("/usr"))?;
    strip(&tree.join("usr"))?;

    let architecture = String::from_utf8(succeed(Command::new("dpkg").arg("--print-architecture"))?)?;
    let architecture = architecture.trim();
    let manifest = std::fs::read_to_string(root().join("crates/cli/Cargo.toml"))?;
    let package = toml::from_str::<Manifest>(&manifest).context("crates/cli/Cargo.toml")?.package;
    let version = env!("CARGO_PKG_VERSION");
    let file = into.join(format!("{}_{version}_{architecture}.deb", package.metadata.deb.name));

    // The control files are no part of the tree that cargo-deb takes.
    let stage = tree.join("DEBIAN");
    std::fs::create_dir_all(&stage)?;
    std::fs::write(stage.join("control"), control(&package, version, architecture))?;
    std::fs::write(stage.join("triggers"), "activate-noawait ldconfig\n")?;
    let built =
        succeed(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&tree).arg(&file));
    std::fs::remove_dir_all(&stage)?;
    built?;
    println!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Takes debug information out of commands and libraries, as Debian's policy wants (§10.1, §10.2).
fn strip(usr: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for directory in ["bin", "lib"] {
        for entry in std::fs::read_dir(usr.join(directory))? {
            let entry = entry?;
            // Links lead to what is here too.
            if entry.file_type()?.is_file() {
                files.push(entry.path());
            }
        }
    }
    succeed(Command::new("strip").arg("--strip-debug").args(files)).map(drop)
}

/// The package's control file.
fn control(package: &Package, version: &str, architecture: &str) -> String {
    let deb = &package.metadata.deb;
    let mut text = format!(
        "Package: {}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\nSection: {}\n\
         Priority: {}\nDepends: {}\nDescription: {}\n",
        deb.name, deb.maintainer, deb.section, deb.priority, deb.depends, package.description
    );
    for line in deb.extended_description.lines() {
        // A line without text is a dot: nothing at all ends the field.
        let line = if line.trim().is_empty() { "." } else { line };
        let _ = writeln!(text, " {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_makes_a_control_file() {
        let manifest = std::fs::read_to_string(root().join("crates/cli/Cargo.toml")).unwrap();
        let package = toml::from_str::<Manifest>(&manifest).unwrap().package;
        let control = control(&package, "1.2.3", "amd64");
        assert!(control.starts_with("Package: denrei\nVersion: 1.2.3\nArchitecture: amd64\n"), "{control}");
        assert!(control.ends_with('\n') && !control.contains("\n\n"), "{control}");
        for field in ["Maintainer: ", "Depends: libc6", "Description: "] {
            assert!(control.contains(&format!("\n{field}")), "{field}: {control}");
        }
    }
}

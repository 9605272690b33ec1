//! `cargo xtask package`: a Debian package of what `cargo xtask install` installs.
//!
//! Inputs → outputs: binaries, and `[package.metadata.deb]` of the command → `denrei_VERSION_ARCH.deb`.
//! The tree that goes into it is left in `target/package/root`, where the metadata's assets point;
//! cargo-deb makes the package of it, or, where that is not installed, dpkg-deb the same one (ADR 35).

use crate::fabric::root;
use crate::install::{Built, for_all, install, succeed};
use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Where from and where to.
#[derive(Args)]
pub struct PackageArgs {
    /// Directory to put the package into, made if need be
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    into: PathBuf,
    /// What makes the package; not given: cargo-deb if it is installed, else dpkg-deb
    #[arg(long)]
    tool: Option<Tool>,
    /// Compress little: the package is larger, and there sooner
    #[arg(long)]
    fast: bool,
    #[command(flatten)]
    built: Built,
}

/// What makes packages of trees.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tool {
    /// `cargo deb`
    CargoDeb,
    /// `dpkg-deb`, which every Debian has
    DpkgDeb,
}

impl Tool {
    fn found() -> Self {
        let there = Command::new("cargo-deb").arg("--version").output().is_ok();
        if there { Self::CargoDeb } else { Self::DpkgDeb }
    }
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
    #[serde(rename = "triggers-file")]
    triggers_file: PathBuf,
}

/// Makes the package; prints where it is.
pub fn run(arguments: &PackageArgs) -> anyhow::Result<ExitCode> {
    let binaries = arguments.built.directory()?;
    for_all();
    // The assets of the metadata are there and nowhere else.
    let tree = root().join("target/package/root");
    if tree.exists() {
        std::fs::remove_dir_all(&tree).with_context(|| format!("cannot empty {}", tree.display()))?;
    }
    for directory in [&tree, &arguments.into] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    install(&binaries, &tree, Path::new("/usr"))?;
    strip(&tree.join("usr"))?;
    let share = tree.join("usr/share");
    document(&share)?;
    // Debian's zsh looks for what packages bring in a place of its own.
    std::fs::rename(share.join("zsh/site-functions"), share.join("zsh/vendor-completions"))?;
    let file = match arguments.tool.unwrap_or_else(Tool::found) {
        Tool::CargoDeb => by_cargo_deb(&arguments.into, arguments.fast)?,
        Tool::DpkgDeb => by_dpkg_deb(&tree, &arguments.into, arguments.fast)?,
    };
    crate::say!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Has cargo-deb make the package, which takes everything from the metadata.
fn by_cargo_deb(into: &Path, fast: bool) -> anyhow::Result<PathBuf> {
    let into = into.canonicalize()?;
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.current_dir(root()).args(["deb", "--package", "denrei-cli", "--quiet"]);
    // Built and stripped it is already, so that both tools make the same.
    command.args(["--no-build", "--no-strip", "--no-dbgsym", "--deb-revision", ""]);
    command.args(fast.then_some("--fast")).arg("--output").arg(&into);
    let said = String::from_utf8(succeed(&mut command)?)?;
    let file = said.lines().last().context("cargo deb does not say where the package is")?;
    Ok(PathBuf::from(file))
}

/// Has dpkg-deb make the package, with control files made of the metadata.
fn by_dpkg_deb(tree: &Path, into: &Path, fast: bool) -> anyhow::Result<PathBuf> {
    let architecture = String::from_utf8(succeed(Command::new("dpkg").arg("--print-architecture"))?)?;
    let architecture = architecture.trim();
    let directory = root().join("crates/cli");
    let manifest = std::fs::read_to_string(directory.join("Cargo.toml"))?;
    let mut package = toml::from_str::<Manifest>(&manifest).context("crates/cli/Cargo.toml")?.package;
    let depends = &mut package.metadata.deb.depends;
    *depends = with_libc(depends, &libc_version(&tree.join("usr"))?);
    let version = env!("CARGO_PKG_VERSION");
    let deb = &package.metadata.deb;
    let file = into.join(format!("{}_{version}_{architecture}.deb", deb.name));

    // The control files are no part of the tree that cargo-deb takes.
    let stage = tree.join("DEBIAN");
    std::fs::create_dir_all(&stage)?;
    std::fs::write(stage.join("control"), control(&package, version, architecture))?;
    std::fs::copy(directory.join(&deb.triggers_file), stage.join("triggers"))?;
    let mut command = Command::new("dpkg-deb");
    command.args(fast.then_some(["-Zgzip", "-z1"]).into_iter().flatten()).arg("--root-owner-group");
    let built = succeed(command.arg("--build").arg(tree).arg(&file));
    std::fs::remove_dir_all(&stage)?;
    built?;
    Ok(file)
}

/// The version of the C library whose symbols commands and libraries need, which grows with that of the machine that they
/// were built on.
fn libc_version(usr: &Path) -> anyhow::Result<Vec<u32>> {
    let files = shipped(usr)?.into_iter().filter(|file| file.extension().is_none_or(|suffix| suffix != "a"));
    let symbols =
        String::from_utf8_lossy(&succeed(Command::new("objdump").arg("-T").args(files))?).into_owned();
    let versions = symbols.split("GLIBC_").skip(1).map(|rest| {
        let end = rest.find(|letter: char| letter != '.' && !letter.is_ascii_digit());
        numbers(&rest[..end.unwrap_or(rest.len())])
    });
    versions.max().context("nothing in the package uses the C library")
}

/// The numbers of a version, most significant first.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// These dependencies, with no older C library than this.
fn with_libc(depends: &str, least: &[u32]) -> String {
    let newer = |dependency: &str| {
        let said = dependency.strip_prefix("libc6 (>= ")?.strip_suffix(')')?;
        let version: Vec<_> = least.iter().map(u32::to_string).collect();
        (numbers(said) < least.to_vec()).then(|| format!("libc6 (>= {})", version.join(".")))
    };
    let dependencies =
        depends.split(", ").map(|dependency| newer(dependency).unwrap_or_else(|| dependency.into()));
    dependencies.collect::<Vec<_>>().join(", ")
}

/// Takes debug information out of commands and libraries, and the right to run the latter, as Debian's
/// policy wants (§8.1, §10.1, §10.2).
fn strip(usr: &Path) -> anyhow::Result<()> {
    let files = shipped(usr)?;
    for file in &files {
        let mode = if file.starts_with(usr.join("bin")) { 0o755 } else { 0o644 };
        std::fs::set_permissions(file, Permissions::from_mode(mode))?;
    }
    succeed(Command::new("strip").arg("--strip-debug").args(files)).map(drop)
}

/// Commands and libraries.
fn shipped(usr: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
    Ok(files)
}

/// Compresses manual pages and says who may do what, as Debian's policy wants (§12.1, §12.5).
fn document(share: &Path) -> anyhow::Result<()> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(share.join("man/man1"))? {
        pages.push(entry?.path());
    }
    succeed(Command::new("gzip").args(["-9", "-n"]).args(pages))?;
    let place = share.join("doc/denrei");
    std::fs::create_dir_all(&place)?;
    let mut text = String::from("denrei is under either of two licences, as you like.\n");
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        text += "\n";
        text += &std::fs::read_to_string(root().join(licence))?;
    }
    std::fs::write(place.join("copyright"), text)?;
    Ok(())
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
    fn no_older_c_library_will_do_than_the_files_need() {
        for (least, said) in [("2.35", "libc6 (>= 2.35), libgcc-s1"), ("2.4", "libc6 (>= 2.34), libgcc-s1")] {
            assert_eq!(with_libc("libc6 (>= 2.34), libgcc-s1", &numbers(least)), said);
        }
    }

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

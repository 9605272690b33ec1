//! `denrei mpirun-env`: the variables that make an MPI run over denrei.
//!
//! Inputs → outputs: which MPI → lines to evaluate in a shell, or to give to a launcher.

use super::wrong_arguments;
use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use denrei_output::say;
use std::path::{Path, PathBuf};

/// File name of the provider: libfabric takes what ends in `fi.so`.
const PROVIDER: &str = "libdenrei-fi.so";

/// An MPI that loads libfabric providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mpi {
    /// MPICH 4 and later, as of `pip install mpich`
    Mpich,
    /// Open MPI 4 and 5
    Openmpi,
    /// Intel MPI 2021
    Intel,
}

/// Print the variables that make an MPI run over denrei
///
/// Use it as: eval "$(denrei mpirun-env mpich)"; mpiexec -n 2 PROGRAM
#[derive(Args, Debug)]
pub struct MpirunEnvCommand {
    /// The MPI
    #[arg(value_enum, default_value_t = Mpi::Mpich)]
    mpi: Mpi,

    /// Directory that libdenrei-fi.so is in; not given: beside this command, or ../lib
    #[arg(long, value_name = "DIR")]
    provider: Option<PathBuf>,
}

impl MpirunEnvCommand {
    /// Prints them.
    pub fn run(&self) -> Result<()> {
        let directory = find_provider(self.provider.as_deref())?
            .ok_or_else(|| anyhow!(missing("neither beside this command nor in ../lib")))?;
        for (name, word) in variables(self.mpi, &directory.display().to_string()) {
            say!("export {name}={word}");
        }
        Ok(())
    }
}

/// The directory of the provider, from the root: the one that was named, or where it was installed with this
/// command, if it was.
///
/// # Errors
/// The one that was named does not hold it; libfabric cannot be told of it.
pub fn find_provider(named: Option<&Path>) -> Result<Option<PathBuf>> {
    let holds_it = |directory: &PathBuf| directory.join(PROVIDER).is_file();
    if let Some(directory) = named {
        // Programs run elsewhere.
        let whole = std::path::absolute(directory)
            .with_context(|| format!("where {} is cannot be told", directory.display()))?;
        let place = || format!("not in {}", directory.display());
        ensure!(holds_it(&whole), wrong_arguments(missing(&place())));
        ensure!(!splits(&whole), wrong_arguments(split(&whole)));
        return Ok(Some(whole));
    }
    let program = std::env::current_exe().ok();
    let here = program.as_deref().and_then(Path::parent);
    let found = here.and_then(|here| [here.to_owned(), here.join("../lib")].into_iter().find(holds_it));
    if let Some(found) = &found {
        ensure!(!splits(found), split(found));
    }
    Ok(found)
}

/// Whether libfabric takes a directory for several.
fn splits(directory: &Path) -> bool {
    directory.as_os_str().as_encoded_bytes().contains(&b':')
}

fn split(directory: &Path) -> String {
    format!(
        "{} has a colon in its name, at which libfabric splits FI_PROVIDER_PATH: copy {PROVIDER} to another \
         directory and name that by --provider",
        directory.display()
    )
}

fn missing(place: &str) -> String {
    format!(
        "{PROVIDER} is {place}: build it with `cargo xtask fabric --into DIR` and name that directory by --provider"
    )
}

/// Names, and values as words of a POSIX shell.
fn variables(mpi: Mpi, directory: &str) -> Vec<(&'static str, String)> {
    let mut all = vec![("FI_PROVIDER_PATH", quoted(directory)), ("FI_PROVIDER", quoted("denrei"))];
    let more: &[(&str, &str)] = match mpi {
        Mpi::Mpich => &[("MPIR_CVAR_CH4_NETMOD", "ofi")],
        Mpi::Openmpi => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "denrei"),
            ("OMPI_MCA_opal_common_ofi_provider_include", "denrei"),
        ],
        Mpi::Intel => {
            &[("I_MPI_FABRICS", "ofi"), ("I_MPI_OFI_PROVIDER", "denrei"), ("I_MPI_OFI_LIBRARY_INTERNAL", "1")]
        }
    };
    all.extend(more.iter().map(|(name, value)| (*name, quoted(value))));
    if mpi == Mpi::Intel {
        // Its own providers, which its libfabric wants to find too: the shell knows where.
        all[0].1.push_str(r#":"${I_MPI_ROOT:-/opt/intel/oneapi/mpi/latest}/lib""#);
    }
    all
}

/// A value as a word of a POSIX shell, which changes nothing in it.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mpi_is_told_of_the_provider() {
        for mpi in [Mpi::Mpich, Mpi::Openmpi, Mpi::Intel] {
            let all = variables(mpi, "/opt/denrei/lib");
            assert!(all.iter().any(|(name, word)| *name == "FI_PROVIDER" && word == "'denrei'"));
            assert!(
                all.iter()
                    .any(|(name, word)| *name == "FI_PROVIDER_PATH" && word.starts_with("'/opt/denrei/lib'"))
            );
            assert!(all.len() > 2, "{mpi:?} has to be told to use libfabric");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_shell_takes_any_directory_as_it_is_and_finds_intels_own() {
        let odd = r#"/a b/c'd"e/$HOME/`id`/$(id)/\x/*"#;
        for (mpi, more) in [(Mpi::Mpich, ""), (Mpi::Intel, ":/opt/impi/lib")] {
            let (_, word) = variables(mpi, odd).remove(0);
            let script = format!("I_MPI_ROOT=/opt/impi; export P={word}; printf %s \"$P\"");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{odd}{more}"));
        }
    }

    #[test]
    fn a_directory_that_libfabric_would_split_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("a:b");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join(PROVIDER), "").unwrap();
        let said = find_provider(Some(&odd)).unwrap_err().to_string();
        assert!(said.contains("a:b") && said.contains("colon"), "{said}");
    }

    #[test]
    fn a_relative_directory_is_named_from_the_root() {
        let place = tempfile::tempdir_in(".").unwrap();
        std::fs::write(place.path().join(PROVIDER), "").unwrap();
        let named = Path::new(place.path().file_name().unwrap());
        let found = find_provider(Some(named)).unwrap().unwrap();
        assert!(found.is_absolute() && found.ends_with(named), "{}", found.display());
    }
}

//! `denrei mpirun-env`: the variables that make an MPI run over denrei.
//!
//! Inputs → outputs: which MPI → lines to evaluate in a shell, or to give to a launcher.

use super::wrong_arguments;
use crate::output::say;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
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
            .ok_or_else(|| missing("neither beside this command nor in ../lib"))?;
        for (name, value) in variables(self.mpi, &directory.display().to_string()) {
            say!("export {name}={}", quoted(&value));
        }
        Ok(())
    }
}

/// The directory of the provider: the one that was named, or where it was installed with this command, if it was.
///
/// # Errors
/// The one that was named does not hold it.
pub fn find_provider(named: Option<&Path>) -> Result<Option<PathBuf>> {
    let holds_it = |directory: &PathBuf| directory.join(PROVIDER).is_file();
    if let Some(directory) = named {
        let directory = directory.to_owned();
        ensure!(holds_it(&directory), missing(&format!("not in {}", directory.display())));
        return Ok(Some(directory));
    }
    let program = std::env::current_exe().ok();
    let here = program.as_deref().and_then(Path::parent);
    Ok(here.and_then(|here| [here.to_owned(), here.join("../lib")].into_iter().find(holds_it)))
}

fn missing(place: &str) -> anyhow::Error {
    wrong_arguments(format!(
        "{PROVIDER} is {place}: build it with `cargo xtask fabric --into DIR` and name that directory by --provider"
    ))
}

/// Names and values.
fn variables(mpi: Mpi, directory: &str) -> Vec<(&'static str, String)> {
    let mut all = vec![("FI_PROVIDER_PATH", directory.to_owned()), ("FI_PROVIDER", "denrei".to_owned())];
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
    all.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    if mpi == Mpi::Intel {
        // Its own providers, which its libfabric wants to find too.
        all[0].1 = format!("{directory}:{}", "${I_MPI_ROOT:-/opt/intel/oneapi/mpi/latest}/lib");
    }
    all
}

/// A value as a POSIX shell reads it; variables in it are left to the shell.
fn quoted(value: &str) -> String {
    let escaped: String = value
        .chars()
        .flat_map(|c| matches!(c, '"' | '\\' | '`').then_some('\\').into_iter().chain([c]))
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mpi_is_told_of_the_provider() {
        for mpi in [Mpi::Mpich, Mpi::Openmpi, Mpi::Intel] {
            let all = variables(mpi, "/opt/denrei/lib");
            assert!(all.iter().any(|(name, value)| *name == "FI_PROVIDER" && value == "denrei"));
            assert!(
                all.iter()
                    .any(|(name, value)| *name == "FI_PROVIDER_PATH" && value.starts_with("/opt/denrei/lib"))
            );
            assert!(all.len() > 2, "{mpi:?} has to be told to use libfabric");
        }
        assert_eq!(quoted(r#"a "b" \ c"#), r#""a \"b\" \\ c""#);
    }
}

//! What carries an MPI's messages, and how the MPI is told.

use std::path::{Path, PathBuf};

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// MPICH 4 and later.
    Mpich,
    /// Open MPI 4 and later.
    OpenMpi,
}

impl Family {
    /// Its name, as in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        }
    }

    /// Names of its compiler and of its launcher, the most specific first.
    fn programs(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Mpich => [("mpicc.mpich", "mpiexec.mpich"), ("mpicc", "mpiexec.hydra")],
            Self::OpenMpi => [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc", "mpirun")],
        }
    }
}

/// An implementation of MPI that is installed here.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// Which.
    pub family: Family,
    /// Its compiler.
    pub compiler: PathBuf,
    /// What starts programs.
    pub launcher: PathBuf,
}

impl Mpi {
    /// Looks for an MPI in `directories`.
    pub fn find(family: Family, directories: &[PathBuf]) -> Option<Self> {
        // Open MPI's programs without a suffix are also MPICH's: what tells them apart stands beside.
        let marker = match family {
            Family::Mpich => "mpichversion",
            Family::OpenMpi => "ompi_info",
        };
        let is_there = |path: &Path| path.is_file();
        directories.iter().filter(|directory| is_there(&directory.join(marker))).find_map(|directory| {
            family.programs().into_iter().find_map(|(compiler, launcher)| {
                let (compiler, launcher) = (directory.join(compiler), directory.join(launcher));
                (is_there(&compiler) && is_there(&launcher)).then_some(Self { family, compiler, launcher })
            })
        })
    }
}

/// One way for an MPI's messages.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// As in `--transports` and JSON.
    pub name: &'static str,
    /// The MPI that takes it.
    pub family: Family,
    /// Variables that select it.
    pub variables: &'static [(&'static str, &'static str)],
    /// Arguments of the launcher that select it.
    pub arguments: &'static [&'static str],
    /// Collective operations go over denrei's groups, by `libdenrei-mpi.so`.
    pub groups: bool,
}

impl Route {
    /// Whether it needs the provider.
    pub fn is_denrei(&self) -> bool {
        self.name.contains("denrei")
    }
}

const fn mpich(name: &'static str, variables: &'static [(&'static str, &'static str)]) -> Route {
    Route { name, family: Family::Mpich, variables, arguments: &[], groups: false }
}

const DENREI: Route = mpich("denrei", &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "denrei")]);
const OPEN_MPI_DENREI: Route = Route {
    name: "openmpi-denrei",
    family: Family::OpenMpi,
    variables: &[("FI_PROVIDER", "denrei")],
    arguments: &[
        "--mca",
        "pml",
        "cm",
        "--mca",
        "mtl",
        "ofi",
        "--mca",
        "btl",
        "^ofi,openib,vader,tcp",
        "--mca",
        "mtl_ofi_provider_include",
        "denrei",
    ],
    groups: false,
};

/// All that can be compared; the first is what the others are compared with.
pub const ROUTES: &[Route] = &[
    DENREI,
    Route { name: "denrei-groups", groups: true, ..DENREI },
    mpich("tcp", &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")]),
    mpich("tcp;ofi_rxm", &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp;ofi_rxm")]),
    mpich("udp;ofi_rxd", &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "udp;ofi_rxd")]),
    mpich("ucx-tcp", &[("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "tcp,self")]),
    OPEN_MPI_DENREI,
    Route { name: "openmpi-denrei-groups", groups: true, ..OPEN_MPI_DENREI },
    Route {
        name: "openmpi-tcp",
        family: Family::OpenMpi,
        variables: &[],
        arguments: &["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"],
        groups: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_is_known_by_what_stands_beside_its_compiler() {
        let directory = tempfile::tempdir().unwrap();
        let here = [directory.path().to_owned()];
        for name in ["mpicc", "mpirun", "mpiexec.hydra", "ompi_info"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        assert!(Mpi::find(Family::Mpich, &here).is_none());
        let found = Mpi::find(Family::OpenMpi, &here).unwrap();
        assert_eq!(found.launcher, directory.path().join("mpirun"));
    }

    #[test]
    fn routes_have_names_of_their_own() {
        let mut names: Vec<_> = ROUTES.iter().map(|route| route.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROUTES.len());
        assert!(ROUTES[0].is_denrei());
    }
}

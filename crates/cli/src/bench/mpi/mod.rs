//! `denrei bench mpi`: MPI programs over denrei, and over what else carries MPI.
//!
//! Inputs → outputs: [`MpiArgs`] → for every benchmark, interleaved runs over all [`routes`], each a job
//! of its own ([`launch`]) → a table, or JSON lines with the fields of all benchmarks. What is not
//! installed, or does not work here, is said and left out.

mod launch;
mod routes;

use super::Machine;
use super::args::{RUN_SECONDS, parse_length};
use super::result::{Row, Run};
use crate::cells::{dash, human_bytes, number, right};
use crate::cmd::mpirun_env::find_provider;
use crate::cmd::values::{seconds, whole};
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use comfy_table::Cell;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use denrei_output::{say, tell};
use launch::Launcher;
use routes::{Family, Mpi, ROUTES, Route};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than this a measurement of one size may not take: so many times what was asked for.
const PATIENCE: u32 = 20;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Half a round trip of two ranks
    Latency,
    /// 64 messages one way, then an answer: bandwidth, and at small sizes the message rate
    Bandwidth,
    /// 16 messages one way while both ranks compute for 10 ms between two MPI_Testall: the time until they are there
    Overlap,
    /// MPI_Bcast until the last rank has it
    Bcast,
    /// MPI_Gather until rank 0 has all
    Gather,
    /// MPI_Allreduce of integers until the last rank has the sum
    Allreduce,
    /// MPI_Barrier until the last rank is through
    Barrier,
}

impl Kind {
    /// As the program and JSON call it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Latency => ("latency", "mpi-latency"),
            Self::Bandwidth => ("bandwidth", "mpi-bandwidth"),
            Self::Overlap => ("overlap", "mpi-overlap"),
            Self::Bcast => ("bcast", "mpi-bcast"),
            Self::Gather => ("gather", "mpi-gather"),
            Self::Allreduce => ("allreduce", "mpi-allreduce"),
            Self::Barrier => ("barrier", "mpi-barrier"),
        }
    }

    /// Whether it is an operation of all ranks.
    fn is_collective(self) -> bool {
        !matches!(self, Self::Latency | Self::Bandwidth | Self::Overlap)
    }

    fn default_sizes(self) -> Vec<u64> {
        match self {
            Self::Latency => vec![1, 16, 64, 256, 1024, 16_384, 65_536],
            Self::Bandwidth => vec![64, 1024, 65_536, 524_288, 4 << 20],
            Self::Overlap => vec![16_384, 65_536, 1 << 20],
            Self::Barrier => vec![0],
            Self::Bcast | Self::Gather | Self::Allreduce => vec![16, 1024, 65_536, 1 << 20],
        }
    }
}

/// Options of `denrei bench mpi`.
#[derive(Args, Debug)]
pub struct MpiArgs {
    /// What to measure, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "latency,bandwidth",
        value_name = "NAME,..."
    )]
    kind: Vec<Kind>,

    /// Message sizes in bytes, separated by commas; K, M and G are powers of 1024 [default: by what is measured]
    #[arg(long, value_delimiter = ',', value_parser = parse_length, value_name = "BYTES,...")]
    sizes: Vec<u64>,

    /// Ranks; latency, bandwidth and overlap are between the first two
    #[arg(long, default_value_t = 2, value_parser = whole(2_u64..=64), value_name = "N")]
    ranks: u64,

    /// Time to measure one size in one run
    #[arg(long, default_value = "0.5", value_parser = seconds(RUN_SECONDS), value_name = "S")]
    seconds: Duration,

    /// Runs per transport, interleaved; figures are medians over the runs
    #[arg(long, default_value_t = 3, value_parser = whole(1_u32..=100), value_name = "N")]
    repeat: u32,

    /// What to compare, separated by commas: denrei, denrei-groups, tcp, "tcp;ofi_rxm", "udp;ofi_rxd",
    /// ucx-tcp (MPICH), openmpi-denrei, openmpi-denrei-groups, openmpi-tcp [default: all; those with groups
    /// for collective operations alone]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    transports: Vec<String>,

    /// Directory of MPICH's mpicc and mpiexec; not given: the search path
    #[arg(long, value_name = "DIR")]
    mpich: Option<PathBuf>,

    /// Directory of Open MPI's mpicc and mpirun; not given: the search path
    #[arg(long, value_name = "DIR")]
    openmpi: Option<PathBuf>,

    /// Directory that libdenrei-fi.so is in; not given: beside this command, or ../lib
    #[arg(long, value_name = "DIR")]
    provider: Option<PathBuf>,

    /// Each rank in a network namespace on a bridge, built and removed by this program; needs root
    #[arg(long)]
    netns: bool,

    /// Print one JSON object per line and per (transport, size) instead of a table
    #[arg(long)]
    json: bool,
}

/// Measures, and prints.
pub fn run(args: &MpiArgs) -> Result<()> {
    check_kinds(args)?;
    let mut routes = chosen_routes(args)?;
    let provider = find_provider(args.provider.as_deref())?;
    let mut launcher = Launcher::new(args.ranks as usize, args.netns, provider)?;
    let (mut table, mut is_empty) = (Table::new(), true);
    for kind in &args.kind {
        for row in measure(args, *kind, &mut routes, &mut launcher)? {
            is_empty = false;
            match args.json {
                true => say!("{}", serde_json::to_string(&row)?),
                false => table.add(&row),
            }
        }
    }
    if is_empty {
        bail!("nothing could be measured: see what was skipped, and why");
    }
    if !args.json {
        say!("{}\n{}", Machine::this(), table.0);
    }
    Ok(())
}

/// That what was asked for can do what was asked for: groups carry operations of all ranks alone, and a barrier is of
/// no size.
fn check_kinds(args: &MpiArgs) -> Result<()> {
    if !args.sizes.is_empty() && args.kind.iter().all(|kind| *kind == Kind::Barrier) {
        return Err(wrong_arguments("--sizes has no effect here: a barrier has no message"));
    }
    let is_of_groups = |name: &String| ROUTES.iter().any(|route| route.groups && route.name == name);
    if args.transports.is_empty() || !args.transports.iter().all(is_of_groups) {
        return Ok(());
    }
    match args.kind.iter().find(|kind| !kind.is_collective()) {
        None => Ok(()),
        Some(kind) => Err(wrong_arguments(format!(
            "{} carry collective operations alone, no {}: name denrei as well, or choose --kind from bcast, gather, \
             allreduce and barrier",
            args.transports.join(" and "),
            kind.names().0,
        ))),
    }
}

/// The routes asked for whose MPI is here.
fn chosen_routes(args: &MpiArgs) -> Result<Vec<(Route, Mpi)>> {
    if let Some(unknown) = args.transports.iter().find(|name| ROUTES.iter().all(|route| route.name != **name))
    {
        let names: Vec<_> = ROUTES.iter().map(|route| route.name).collect();
        return Err(wrong_arguments(format!("no transport {unknown:?}: choose from {}", names.join(", "))));
    }
    let wanted =
        |route: &&Route| args.transports.is_empty() || args.transports.iter().any(|name| name == route.name);
    let path: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let directories = |family| match family {
        Family::Mpich => ("--mpich", &args.mpich),
        Family::OpenMpi => ("--openmpi", &args.openmpi),
    };
    let mut routes = Vec::new();
    for route in ROUTES.iter().filter(wanted) {
        let (option, given) = directories(route.family);
        let name = route.family.name();
        match (Mpi::find(route.family, given.as_ref().map_or(&path[..], std::slice::from_ref)), given) {
            (Some(mpi), _) => routes.push((*route, mpi)),
            (None, None) => skipped(route, &format!("{name} with its mpicc is not installed")),
            (None, Some(given)) => {
                let given = given.display();
                return Err(wrong_arguments(format!("{option}: {name} with its mpicc is not in {given}")));
            }
        }
    }
    Ok(routes)
}

fn skipped(route: &Route, why: &str) {
    tell!("SKIPPED {}: {why}", route.name);
}

/// All runs of one benchmark, interleaved; a route that does not work is left out from there on.
fn measure(
    args: &MpiArgs,
    kind: Kind,
    routes: &mut Vec<(Route, Mpi)>,
    launcher: &mut Launcher,
) -> Result<Vec<Row>> {
    let sizes = match args.sizes.is_empty() || kind == Kind::Barrier {
        true => kind.default_sizes(),
        false => args.sizes.clone(),
    };
    let (program_name, name) = kind.names();
    let mut arguments = vec![program_name.to_owned(), args.seconds.as_secs_f64().to_string()];
    arguments.extend(sizes.iter().map(u64::to_string));
    let limit = args.seconds * PATIENCE * sizes.len() as u32;
    let mut runs: BTreeMap<(usize, &str), Vec<Run>> = BTreeMap::new();
    for _ in 0..args.repeat {
        let mut failed = Vec::new();
        for (route, mpi) in routes.iter().filter(|(route, _)| !route.groups || kind.is_collective()) {
            match launcher.run(mpi, route, &arguments, limit).and_then(|printed| parse(&printed, sizes.len()))
            {
                Ok(figures) => {
                    for (size, run) in figures {
                        runs.entry((size, route.name)).or_default().push(run);
                    }
                }
                Err(error) => {
                    skipped(route, &format!("{name}: {}", denrei_output::in_words(&error)));
                    failed.push(route.name);
                }
            }
        }
        routes.retain(|(route, _)| !failed.contains(&route.name));
    }
    let row = |size: u64, route: &Route| {
        let runs = runs.get(&(size as usize, route.name))?;
        Some(Row::named(name, route.name, size as usize, runs))
    };
    Ok(sizes.iter().flat_map(|size| routes.iter().filter_map(|(route, _)| row(*size, route))).collect())
}

/// Sizes and figures from what the program printed.
fn parse(printed: &str, count: usize) -> Result<Vec<(usize, Run)>> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("RESULT "));
    let all = lines.map(parse_line).collect::<Option<Vec<_>>>();
    all.filter(|all| all.len() == count).with_context(|| format!("the program said {printed:?}"))
}

fn parse_line(line: &str) -> Option<(usize, Run)> {
    let fields: Vec<f64> = line.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [size, n, median_us, p99_us, msgs_per_s, cpu_us_per_msg] = fields[..] else { return None };
    let run = Run {
        n: n as u64,
        median_us: Some(median_us),
        p99_us: Some(p99_us),
        msgs_per_s: Some(msgs_per_s),
        bytes_per_s: Some(msgs_per_s * size),
        cpu_us_per_msg,
        ..Run::default()
    };
    Some((size as usize, run))
}

struct Table(comfy_table::Table);

impl Table {
    fn new() -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header([
            "benchmark",
            "size",
            "transport",
            "n",
            "median µs",
            "p99 µs",
            "msg/s",
            "B/s",
            "CPU µs/msg",
        ]);
        Self(table)
    }

    fn add(&mut self, row: &Row) {
        self.0.add_row(vec![
            Cell::new(row.bench),
            right(human_bytes(row.size as f64)),
            Cell::new(row.transport),
            right(row.n.to_string()),
            right(number(row.median_us, 1)),
            right(number(row.p99_us, 1)),
            right(number(row.msgs_per_s, 0)),
            right(row.bytes_per_s.map_or_else(dash, human_bytes)),
            right(number(row.cpu_us_per_msg, 2)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_the_program_prints() {
        let printed = "noise\nRESULT 64 1000 1.5 9.25 200000.0 2.5\nRESULT 128 9 2.0 3.0 4.0 5.0\n";
        let figures = parse(printed, 2).unwrap();
        assert_eq!((figures[0].0, figures[0].1.n, figures[0].1.median_us), (64, 1000, Some(1.5)));
        assert_eq!((figures[0].1.bytes_per_s, figures[1].1.cpu_us_per_msg), (Some(12_800_000.0), 5.0));
        assert!(parse(printed, 3).is_err());
        assert!(parse("RESULT 64 1 2 3 4", 1).is_err());
    }
}

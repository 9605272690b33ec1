//! What developers run that is not the program: `cargo xtask sim`, `cargo xtask instructions`,
//! `cargo xtask fabric`, `cargo xtask install`, `cargo xtask package`.

mod fabric;
mod install;
mod instructions;
mod package;
mod sim;

use clap::{Parser, Subcommand};
use std::fmt;
use std::process::ExitCode;

/// Prints a line, like `println!`; where nobody reads any more (`cargo xtask … | head -1`) that is the end, whichever
/// thread it is: nothing has to be cleaned up.
macro_rules! say {
    ($($line:tt)*) => { $crate::line(format_args!($($line)*)) };
}
use say;

fn line(line: fmt::Arguments<'_>) {
    if let Err(error) = denrei_output::write(&format!("{line}\n")) {
        std::process::exit(denrei_output::end("xtask", &error).into());
    }
}

/// Tasks of denrei's development.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Simulates random operations and faults, one scenario per seed.
    Sim(sim::SimArgs),
    /// Counts the instructions of one small message under valgrind and compares them with the record.
    Instructions(instructions::InstructionsArgs),
    /// Builds the libfabric provider under the name that libfabric looks for.
    Fabric(fabric::FabricArgs),
    /// Installs command, libraries, headers, manual pages and completions below a prefix.
    Install(install::InstallArgs),
    /// Makes a Debian package of what `install` installs.
    Package(package::PackageArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().task {
        Task::Sim(arguments) => sim::run(&arguments),
        Task::Instructions(arguments) => instructions::run(&arguments),
        Task::Fabric(arguments) => fabric::run(&arguments),
        Task::Install(arguments) => install::run(&arguments),
        Task::Package(arguments) => package::run(&arguments),
    }
}

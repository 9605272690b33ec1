//! What developers run that is not the program: `cargo xtask sim`.

mod sim;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().task {
        Task::Sim(arguments) => sim::run(&arguments),
    }
}

//! `denrei`: the command of the transport: a demonstration, benchmarks, a look at the host.
//!
//! Inputs → outputs: a command line → tables or JSON on standard output, everything else on
//! standard error, and an exit status (see [`EXIT_STATUS`]).

#![forbid(unsafe_code)]

mod bench;
mod cells;
mod cmd;
mod demo;
mod log;
mod orders;
mod process;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use denrei_output::{ending_with_its_reader, in_words, tell, unwritable};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// What the exit status says.
const EXIT_STATUS: &str = "Exit status:
    0  all is well
    1  what was tried did not hold: a message was lost, repeated or out of order; a check failed
    2  the command line is wrong; the message says what is possible
    3  it could not be tried: something is missing or refused; the message says what
  130  it was interrupted by Ctrl-C; as a rule 128 and the number of the signal
  141  nobody reads what it prints any more, as after SIGPIPE";

/// Messages between the machines of a cluster, over one UDP port each.
#[derive(Parser, Debug)]
#[command(name = "denrei", version, after_help = EXIT_STATUS, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(cmd::demo::DemoCommand),
    Bench(Box<cmd::bench::BenchCommand>),
    Cast(Box<cmd::cast::CastCommand>),
    Keygen(cmd::keygen::KeygenCommand),
    Doctor(cmd::doctor::DoctorCommand),
    MpirunEnv(cmd::mpirun_env::MpirunEnvCommand),
    Sim(cmd::sim::SimCommand),
    Relay(cmd::relay::RelayCommand),
    Top(cmd::top::TopCommand),
    Dump(cmd::dump::DumpCommand),
    #[command(hide = true)]
    Completions(cmd::generate::CompletionsCommand),
    #[command(hide = true)]
    Man(cmd::generate::ManCommand),
    /// One side of a benchmark; started by `denrei bench`.
    #[command(name = bench::PEER_COMMAND, hide = true)]
    BenchPeer(cmd::key::KeyArgs),
    /// One side of a broadcast; started by `denrei bench bcast`.
    #[command(name = bench::bcast::SIDE_COMMAND, hide = true)]
    BcastSide(cmd::key::KeyArgs),
    /// One node of the demonstration; started by `denrei demo`.
    #[command(name = demo::NODE_COMMAND, hide = true)]
    DemoNode(cmd::key::KeyArgs),
}

fn main() -> ExitCode {
    let matches = with_negative_values(Cli::command()).try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    ending_with_its_reader("denrei", || match cli.map_or_else(help, |cli| run(cli.command)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            if !error.is::<orders::Told>() {
                tell!("denrei: {}", with_advice(in_words(&error), &error));
            }
            ExitCode::from(if error.is::<cmd::WrongArguments>() { 2 } else { 3 })
        }
    })
}

/// What went wrong in `words`, and what to do where that is the same whatever the file was for.
fn with_advice(words: String, error: &anyhow::Error) -> String {
    const TOO_MANY_FILES: [i32; 2] = [nix::libc::EMFILE, nix::libc::ENFILE];
    let mut numbers = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    if numbers.any(|number| TOO_MANY_FILES.contains(&number)) && !words.contains("ulimit -n") {
        return format!("{words}: let this process open more files (ulimit -n)");
    }
    words
}

/// Prints the help or the version that was asked for; what is no command line ends the command.
fn help(error: clap::Error) -> Result<bool> {
    if error.use_stderr() {
        error.exit();
    }
    error.print().and_then(|()| std::io::stdout().flush()).unwrap_or_else(|error| unwritable(error));
    Ok(true)
}

/// Has `-1` after an option read as its value, so that the answer is what that value may be, and not
/// that there is no option of this name.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &clap::Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_values)
}

/// Whether what was tried holds.
fn run(command: Command) -> Result<bool> {
    log::start(&command)?;
    match command {
        Command::Demo(command) => command.run(),
        Command::Bench(command) => command.run().map(|()| true),
        Command::Cast(command) => command.run(),
        Command::Keygen(command) => command.run().map(|()| true),
        Command::Doctor(command) => command.run(),
        Command::MpirunEnv(command) => command.run().map(|()| true),
        Command::Sim(command) => command.run(),
        Command::Relay(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Dump(command) => command.run().map(|()| true),
        Command::Completions(command) => {
            command.run::<Cli>();
            Ok(true)
        }
        Command::Man(command) => command.run::<Cli>().map(|()| true),
        Command::BenchPeer(keys) => bench::peer::run(&keys).map(|()| true),
        Command::BcastSide(keys) => bench::bcast::side::run(&keys).map(|()| true),
        Command::DemoNode(keys) => demo::run_node(&keys).map(|()| true),
    }
}

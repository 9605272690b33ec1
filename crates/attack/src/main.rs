//! `attack`: lists and runs the attacks on a Node; see the library's documentation.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use denrei_attack::{ATTACKS, Attack, Effort};
use denrei_output::{ending_with_its_reader, say, tell, text};
use std::process::ExitCode;

/// What the exit status says.
const EXIT_STATUS: &str = "Exit status:
  0  all attacks were in vain
  1  one was not: something was delivered, lost, stalled, or cost more than it may
  2  the command line is wrong
  3  it could not be tried: no root, a tool is missing
141  nobody reads what it prints any more, as after SIGPIPE";

/// Attack a Node in network namespaces, and say what came of it. Needs root.
#[derive(Parser, Debug)]
#[command(name = "attack", version, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Name all attacks
    List,
    /// Carry out attacks, all if none is named
    Run {
        /// Which
        attacks: Vec<String>,
        /// A second or two each, rather than ten and whole sweeps
        #[arg(long)]
        short: bool,
        /// Print one JSON object per attack
        #[arg(long)]
        json: bool,
        /// What random choices follow from
        #[arg(long, default_value_t = 1, value_name = "NUMBER")]
        seed: u64,
    },
    /// An honest process; started by `attack run`.
    #[command(name = denrei_attack::ROLE_COMMAND, hide = true)]
    Role {
        /// Of `denrei_e2e::roles`.
        role: String,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Command::Run { attacks, .. } = &command
        && let Err(error) = chosen(attacks)
    {
        tell!("attack: {error}");
        return ExitCode::from(2);
    }
    ending_with_its_reader("attack", || match run(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            tell!("attack: {error:#}");
            ExitCode::from(3)
        }
    })
}

fn run(command: Command) -> Result<bool> {
    match command {
        Command::Role { role } => denrei_e2e::roles::run(Some(&role)).map(|()| true),
        Command::List => {
            for attack in ATTACKS {
                say!("{:24} {}", attack.name, attack.summary);
            }
            Ok(true)
        }
        Command::Run { attacks, short, json, seed } => {
            let effort = if short { Effort::Short } else { Effort::Full };
            let program = std::env::current_exe().context("cannot find this program")?;
            let mut held = true;
            for attack in chosen(&attacks)? {
                let outcome = denrei_attack::run(attack, effort, &program, seed)?;
                held &= outcome.held;
                match json {
                    true => say!("{}", serde_json::to_string(&outcome)?),
                    false => text(&outcome.to_string()),
                }
            }
            Ok(held)
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Attack>> {
    if names.is_empty() {
        return Ok(ATTACKS.iter().collect());
    }
    let find = |name: &String| match ATTACKS.iter().find(|attack| attack.name == name) {
        Some(attack) => Ok(attack),
        None => bail!("there is no attack {name}: `attack list` names all"),
    };
    names.iter().map(find).collect()
}

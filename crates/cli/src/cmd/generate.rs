//! Completions and manual pages, for packagers; hidden from the help.

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use denrei_output as output;
use std::fs;
use std::path::PathBuf;

/// Write a shell's completions to standard output.
#[derive(Args, Debug)]
pub struct CompletionsCommand {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    /// Runs it for the command line `C`.
    pub fn run<C: CommandFactory>(&self) {
        let mut completions = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "denrei", &mut completions);
        output::text(&String::from_utf8_lossy(&completions));
    }
}

/// Write a manual page per command.
#[derive(Args, Debug)]
pub struct ManCommand {
    /// Directory, made if it does not exist
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
}

impl ManCommand {
    /// Runs it for the command line `C`.
    pub fn run<C: CommandFactory>(&self) -> Result<()> {
        let place = self.into.display();
        fs::create_dir_all(&self.into).with_context(|| format!("cannot make {place}"))?;
        clap_mangen::generate_to(C::command(), &self.into)
            .with_context(|| format!("cannot write manual pages into {place}"))
    }
}

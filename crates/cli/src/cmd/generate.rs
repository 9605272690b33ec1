//! Completions and manual pages, for packagers; hidden from the help.

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use denrei_output as output;
use std::path::PathBuf;
use std::{fs, io};

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
        clap_complete::generate(self.shell, &mut shown(&C::command()), "denrei", &mut completions);
        output::text(&String::from_utf8_lossy(&completions));
    }
}

/// The command line without the commands that its help hides, which completions would offer all the same.
fn shown(whole: &Command) -> Command {
    let parts = whole.get_subcommands().filter(|part| !part.is_hide_set()).cloned();
    let version = env!("CARGO_PKG_VERSION");
    Command::new("denrei").version(version).propagate_version(true).subcommands(parts)
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
        let mut whole = C::command().disable_help_subcommand(true);
        whole.build();
        self.write(&whole, &whole, &[]).with_context(|| format!("cannot write manual pages into {place}"))
    }

    /// Writes the page of `command`, which is part of `above`, and those of its parts.
    fn write(&self, whole: &Command, command: &Command, above: &[&str]) -> io::Result<()> {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let mut page = Vec::new();
        render(whole, command, above, &mut page)?;
        fs::write(self.into.join(format!("{name}.1")), page)?;
        let above = [above, &[name]].concat();
        let mut parts = command.get_subcommands().filter(|part| !part.is_hide_set());
        parts.try_for_each(|part| self.write(whole, part, &above))
    }
}

/// The page of one command. What `clap_mangen` makes of a whole page calls a subcommand by its last word, and
/// shows of its arguments neither which are needed nor what they take.
fn render(whole: &Command, command: &Command, above: &[&str], page: &mut Vec<u8>) -> io::Result<()> {
    let version = whole.get_version().unwrap_or_default();
    // No date: pages are the same whenever they are made. Nothing at all would not be a field.
    let man = Man::new(command.clone()).date(" ").source(format!("{} {version}", whole.get_name()));
    man.render_title(page)?;
    man.render_name_section(page)?;
    synopsis(command).to_writer(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    let own = command.get_after_help().or(whole.get_after_help());
    exit_status(&own.map(ToString::to_string).unwrap_or_default()).to_writer(page)?;
    if !above.is_empty() {
        let pages: Vec<_> = above.iter().map(|name| format!("{name}(1)")).collect();
        let mut also = Roff::new();
        also.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
        also.to_writer(page)?;
    }
    Ok(())
}

/// The usage that the help shows.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(name), roman(usage.strip_prefix(name).unwrap_or(usage))]);
    roff
}

/// The section of what stands behind a command's help: a line for each status, or a sentence.
fn exit_status(help: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for line in help.trim_start_matches("Exit status:").lines().map(str::trim).filter(|line| !line.is_empty())
    {
        match line.split_once("  ") {
            Some((status, means)) => roff.control("TP", []).text([bold(status)]).text([roman(means)]),
            None => roff.text([roman(line)]),
        };
    }
    roff
}

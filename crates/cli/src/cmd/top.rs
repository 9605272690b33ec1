//! `denrei top`: what the Nodes of this host do, as they say themselves.

mod screen;
mod tables;

use crate::cmd::values::seconds;
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result};
use clap::Args;
use denrei::environment::STATUS_DIRECTORY;
use denrei::status::{Seen, read};
use denrei_output::{say, tell};
use screen::Screen;
use std::path::PathBuf;
use std::time::Duration;
use tables::{Tables, unreadable};

/// Show what the nodes of this host do: sessions, round trips, windows, queues, losses, groups.
///
/// Nodes tell of themselves if they are started with the setting `status_directory`,
/// or in an environment where DENREI_STATUS_DIRECTORY names a directory, programs that
/// know nothing of it included:
///
///     export DENREI_STATUS_DIRECTORY=/dev/shm/denrei-$USER
///
/// in the shells where they and this command are started. What a second brings is the
/// difference between two looks. The busiest sessions come first. Nothing is gathered
/// while nobody looks.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct TopCommand {
    /// Where the nodes tell of themselves [default: DENREI_STATUS_DIRECTORY]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Look this often
    #[arg(long, default_value = "1", value_parser = seconds(0.1..=3600.0), value_name = "S")]
    interval: Duration,

    /// Look twice, an interval apart, show that, and end; the exit status is 1 if no node is there
    #[arg(long)]
    once: bool,

    /// Print what each node says, an object of JSON a line, instead of tables; with --once after one look
    #[arg(long)]
    json: bool,
}

impl TopCommand {
    /// Shows it until a signal comes, or once; then whether anybody was there.
    pub fn run(self) -> Result<bool> {
        let directory = self.directory();
        let directory = directory.ok_or_else(|| {
            wrong_arguments(format!(
                "where nodes tell of themselves is not known: name the directory by --directory or {STATUS_DIRECTORY}, \
                 and have programs started with the same {STATUS_DIRECTORY}, such as /dev/shm/denrei-$USER"
            ))
        })?;
        let look = || read(&directory).with_context(|| format!("cannot look into {}", directory.display()));
        if self.json {
            return self.print_objects(look);
        }
        let mut tables = Tables::new(directory.clone());
        tables.take(look()?);
        if self.once {
            std::thread::sleep(self.interval);
            let seen = look()?;
            let is_anybody = !seen.nodes.is_empty();
            tables.take(seen);
            say!("{}", tables.whole().trim_end());
            return Ok(is_anybody);
        }
        let screen = Screen::open()?;
        loop {
            screen.show(&tables, self.interval);
            tables.take(look()?);
        }
    }

    fn directory(&self) -> Option<PathBuf> {
        let named =
            || std::env::var_os(STATUS_DIRECTORY).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.directory.clone().or_else(named)
    }

    fn print_objects(&self, look: impl Fn() -> Result<Seen>) -> Result<bool> {
        loop {
            let seen = look()?;
            for node in &seen.nodes {
                say!("{}", serde_json::to_string(node).context("cannot print what a node says")?);
            }
            for path in &seen.silent {
                tell!("no answer from {}", path.display());
            }
            if let Some(words) = unreadable(&seen) {
                tell!("{words}");
            }
            if self.once {
                return Ok(!seen.nodes.is_empty());
            }
            std::thread::sleep(self.interval);
        }
    }
}

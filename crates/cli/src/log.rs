//! What the libraries warn of, on standard error.
//!
//! Inputs → outputs: the command, `DENREI_LOG` → lines of that level and above. Commands that run for
//! long show warnings by themselves; the others say what is wrong in their results.

use crate::Command;
use crate::cmd::wrong_arguments;
use anyhow::Result;
use tracing::level_filters::LevelFilter;

/// Which lines are shown: off, error, warn, info, debug or trace.
const VARIABLE: &str = "DENREI_LOG";

/// Shows what is logged from now on.
///
/// # Errors
/// The variable names no level.
pub fn start(command: &Command) -> Result<()> {
    let usual = match command {
        Command::Cast(_) | Command::Relay(_) => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    };
    let level = match std::env::var_os(VARIABLE).map(|level| level.to_string_lossy().into_owned()) {
        Some(level) if !level.is_empty() => level.parse().map_err(|_| {
            wrong_arguments(format!("{VARIABLE}={level}: levels are off, error, warn, info, debug and trace"))
        })?,
        _ => usual,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // It would say that on the same standard error, and panic.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .init();
    Ok(())
}

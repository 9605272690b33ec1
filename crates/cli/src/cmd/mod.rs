//! The subcommands: each parses its options and calls what does the work.

use anyhow::Error;

pub mod bench;
pub mod cast;
pub mod demo;
pub mod doctor;
pub mod dump;
pub mod generate;
pub mod key;
pub mod keygen;
pub mod mpirun_env;
pub mod patient;
pub mod relay;
pub mod signals;
pub mod sim;
pub mod top;
pub mod values;

/// Arguments that clap alone cannot refuse.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongArguments(String);

/// The error for arguments that do not go together; the message says what is possible.
pub fn wrong_arguments(message: impl Into<String>) -> Error {
    WrongArguments(message.into()).into()
}

//! Why a lab could not be built or changed.

use std::io;
use thiserror::Error;

/// Why a lab could not be built or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// Namespaces and links are root's.
    #[error("network namespaces need root: run this as root, for example with sudo")]
    NotRoot,
    /// A program that does the work is not installed.
    #[error("`{tool}` is not installed: install the package {package} (apt-get install {package})")]
    MissingTool {
        /// The program.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program refused.
    #[error("`{command}` failed: {stderr}")]
    Refused {
        /// The command line, or its input where it was given a batch.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// A program could not be run.
    #[error("cannot run `{tool}`: {source}")]
    Run {
        /// The program.
        tool: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Not a possible setting.
    #[error("{setting} is {value}, but has to be {expected}")]
    BadSetting {
        /// Which.
        setting: &'static str,
        /// What it was.
        value: u64,
        /// What is possible.
        expected: &'static str,
    },
    /// The signal handler that removes the lab could not be installed.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

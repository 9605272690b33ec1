//! Why a plan is refused.

use super::MAX_CELLS;
use thiserror::Error;

/// Why a plan cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Not a plan, or a field of a wrong name or type.
    #[error("the plan cannot be read: {0}")]
    Parse(#[from] toml::de::Error),
    /// Too many combinations.
    #[error("the plan has {0} combinations, more than {MAX_CELLS}: shorten an axis")]
    TooManyCells(usize),
    /// An axis without values.
    #[error("axis `{0}` has no values")]
    EmptyAxis(String),
    /// Timed faults among the axes.
    #[error("faults are tables of their own, `[[faults]]`, and no axis")]
    FaultsAsAxis,
    /// A timed fault that cannot be.
    #[error("fault {number} of the plan: {error}")]
    Fault {
        /// Which, counted from 1.
        number: usize,
        /// What is wrong with it.
        error: Box<PlanError>,
    },
    /// A fault of the kind `link` without anything that happens on it.
    #[error("a fault of the kind `link` has to say what happens: `loss`, `corrupt`, ...")]
    NoLinkFault,
    /// What happens on a link, in a fault of another kind.
    #[error("only a fault of the kind `link` says what happens to datagrams")]
    LinkFault,
    /// A value out of range.
    #[error("{field} is {value}, but has to be {expected}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// No axis has this name.
    #[error("{said}")]
    UnknownAxis {
        /// The name.
        axis: String,
        /// That, and which there are.
        said: String,
    },
    /// A value of another kind.
    #[error("{axis} is {value}, but has to be {expected}")]
    Kind {
        /// The axis.
        axis: String,
        /// Its value.
        value: String,
        /// What is possible.
        expected: String,
    },
    /// Where it is that something is wrong.
    #[error("line {line}: {error}")]
    At {
        /// The plan's line, counted from 1.
        line: usize,
        /// What is wrong there.
        error: Box<PlanError>,
    },
    /// The core does not take the settings.
    #[error("the settings do not work: {0}")]
    Config(#[from] denrei_proto::ConfigError),
}

//! The subcommands: each parses its options and calls what does the work.

pub mod bench;
pub mod doctor;
pub mod generate;

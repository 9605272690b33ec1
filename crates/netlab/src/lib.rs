//! Several hosts on one machine: network namespaces on a bridge, built and removed by the program itself.
//!
//! Inputs → outputs: a number of hosts → a [`Lab`] whose [`Host`]s run processes, lose packets, lose
//! their link, or have a slow one. The bridge has a namespace of its own, so the machine's own
//! network is never touched. Everything is removed when the [`Lab`] is dropped, on a panic, and on
//! SIGINT, SIGTERM and SIGHUP; what a killed program left behind is swept by the next one.
//!
//! Needs Linux, root and the tools `ip` and, for a slow link, `tc` (package iproute2), for loss
//! `nft` (package nftables). Every error says what is missing.
//!
//! ```no_run
//! let lab = denrei_netlab::Lab::bridge(2)?;
//! lab.loss(1, 10)?; // host 1 loses 1 % of what it receives
//! let target = lab.host(1).ip().to_string();
//! let output = lab.host(0).command("ping").args(["-c1", &target]).output()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cleanup;
mod error;
mod lab;
mod shell;
mod tool;

pub use cleanup::ending_signals;
pub use error::LabError;
pub use lab::{Host, Lab, LabConfig, MAX_HOSTS};

//! Tries on this host what the backends use, and says what to change.
//!
//! Inputs → outputs: this host → a list of [`Check`]s. What can be tried is tried, on loopback only;
//! the rest is read from the system's own description. Nothing is changed, nothing needs
//! privileges, and no check takes longer than `PATIENCE`.

mod host;
mod links;
mod network;

use std::io;
use std::time::Duration;

/// Longest wait for a datagram on loopback, where it takes microseconds.
const PATIENCE: Duration = Duration::from_millis(300);

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, but slower or with less than this hardware could do.
    Warn,
    /// denrei cannot work like this.
    Fail,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How good it is.
    pub status: Status,
    /// What was found, in one line.
    pub found: String,
    /// What to do about it; with [`Status::Ok`], what might be done.
    pub advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), advice: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, found: found.into(), advice: Some(advice.into()) }
    }

    fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Whether datagrams arrive on loopback: without, nothing between processes of this host does.
pub fn loopback() -> Check {
    network::udp()
}

/// What to do about `error`: where descriptors have run out that, whatever was to be tried.
fn advice_for<'a>(error: &io::Error, advice: &'a str) -> &'a str {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "let this process open more files: ulimit -n 256",
        _ => advice,
    }
}

/// All checks, in the order in which a reader wants them. Takes well under a second where all is
/// well.
pub fn checks() -> Vec<Check> {
    let mut checks = network::checks();
    checks.extend(host::checks());
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_finding_has_a_name_and_every_complaint_an_advice() {
        let checks = checks();
        let names: BTreeSet<_> = checks.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), checks.len(), "names are unique");
        for check in &checks {
            assert!(!check.found.is_empty(), "{check:?}");
            assert!(check.status == Status::Ok || check.advice.is_some(), "{check:?}");
        }
        for name in ["udp", "gso", "gro", "ecn", "multicast", "receive buffer", "ipv6", "clock", "cpus"] {
            assert!(names.contains(name), "{name} is missing from {names:?}");
        }
        let udp = checks.iter().find(|check| check.name == "udp").unwrap();
        assert_eq!(udp.status, Status::Ok, "this test ran over loopback: {udp:?}");
    }
}

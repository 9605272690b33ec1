//! What goes wrong in an experiment, as a plan says it: on all links and all the time, by the axes; of some
//! hosts and for a while, by tables `[[faults]]`.
//!
//! Inputs → outputs: fields of a [`Cell`] → the [`Faults`] of its links, or what is wrong with them.

use super::{Cell, PlanError, Workload};
use crate::net::faults::{Burst, FaultCounts, Faults};
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What goes wrong with some hosts for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// They reach each other and nobody else.
    #[default]
    Partition,
    /// Their processes are killed, and started again at the end.
    Crash,
    /// Their processes are stopped, as by SIGSTOP, and go on at the end.
    Pause,
    /// Datagrams on the way to them meet other faults than the axes say.
    Link,
}

macro_rules! timed_fault {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// A table `[[faults]]` of a plan.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct TimedFault {
            /// What goes wrong.
            pub kind: FaultKind,
            /// With which hosts, counted from 0.
            pub hosts: Vec<u32>,
            /// Since when, s after the first send.
            pub from_s: f64,
            /// Until when, s after the first send; at most `time_limit_s`.
            pub to_s: f64,
            $(
                $(#[$doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $name: Option<$kind>,
            )*
        }

        impl TimedFault {
            /// Whether it says what happens to datagrams, which is for the kind `link`.
            fn names_faults_of_links(&self) -> bool {
                [$(self.$name.is_some()),*].contains(&true)
            }

            /// The combination with this fault's values instead of the axes'.
            fn laid_over(&self, cell: &Cell) -> Cell {
                let mut cell = Cell { faults: Vec::new(), ..cell.clone() };
                $(cell.$name = self.$name.unwrap_or(cell.$name);)*
                cell
            }
        }

        /// `crash hosts=1+2 from_s=0.1 to_s=0.2`: without a comma, so that it fits into a CSV.
        impl fmt::Display for TimedFault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let hosts: Vec<_> = self.hosts.iter().map(u32::to_string).collect();
                let kind = format!("{:?}", self.kind).to_lowercase();
                write!(f, "{kind} hosts={} from_s={} to_s={}", hosts.join("+"), self.from_s, self.to_s)?;
                $(if let Some(value) = self.$name {
                    write!(f, " {}={value}", stringify!($name))?;
                })*
                Ok(())
            }
        }
    };
}

timed_fault! {
    /// Kind `link`: see [`Cell::loss`].
    loss: f64,
    /// Kind `link`: see [`Cell::burst_datagrams`].
    burst_datagrams: f64,
    /// Kind `link`: see [`Cell::burst_loss`].
    burst_loss: f64,
    /// Kind `link`: see [`Cell::duplicate`].
    duplicate: f64,
    /// Kind `link`: see [`Cell::reorder`].
    reorder: f64,
    /// Kind `link`: see [`Cell::reorder_us`].
    reorder_us: f64,
    /// Kind `link`: see [`Cell::corrupt`].
    corrupt: f64,
    /// Kind `link`: see [`Cell::jitter_us`].
    jitter_us: f64,
    /// Kind `link`: see [`Cell::black_hole_above_bytes`].
    black_hole_above_bytes: u16,
}

impl TimedFault {
    fn check(&self, cell: &Cell) -> Result<(), PlanError> {
        let range = |holds: bool, field, value: String, expected| {
            if holds { Ok(()) } else { Err(PlanError::Range { field, value, expected }) }
        };
        let hosts = || format!("{:?}", self.hosts);
        range(!self.hosts.is_empty(), "hosts", hosts(), "at least one host")?;
        let exist = self.hosts.iter().all(|&host| host < cell.hosts);
        range(exist, "hosts", hosts(), "below the number of hosts")?;
        range(
            self.kind != FaultKind::Partition || (0..cell.hosts).any(|host| !self.hosts.contains(&host)),
            "hosts",
            hosts(),
            "some of the hosts and not all, for there to be another side",
        )?;
        range(
            self.kind != FaultKind::Crash || cell.workload != Workload::Multicast || !self.hosts.contains(&0),
            "hosts",
            hosts(),
            "without 0, with whose process the group of the workload `multicast` ends",
        )?;
        range((0.0..=1e6).contains(&self.from_s), "from_s", self.from_s.to_string(), "between 0 and 1e6")?;
        range(
            self.to_s > self.from_s && self.to_s <= cell.time_limit_s,
            "to_s",
            self.to_s.to_string(),
            "after from_s and at most time_limit_s",
        )?;
        match (self.kind, self.names_faults_of_links()) {
            (FaultKind::Link, false) => Err(PlanError::NoLinkFault),
            (FaultKind::Link, true) => self.laid_over(cell).check(),
            (_, true) => Err(PlanError::LinkFault),
            (_, false) => Ok(()),
        }
    }
}

impl Cell {
    /// Checks the timed faults.
    pub(super) fn check_faults(&self) -> Result<(), PlanError> {
        let mut numbered = (1..).zip(&self.faults);
        numbered.try_for_each(|(number, fault)| {
            let wrong = |error| PlanError::Fault { number, error: Box::new(error) };
            fault.check(self).map_err(wrong)
        })
    }

    /// Columns that say what the faults did.
    pub(super) fn telling(&self) -> BTreeSet<&'static str> {
        let mut telling = BTreeSet::new();
        for cell in self.faults.iter().map(|fault| fault.laid_over(self)).chain([self.clone()]) {
            telling.extend((cell.duplicate > 0.0).then_some("duplicated"));
            telling.extend((cell.reorder > 0.0).then_some("reordered"));
            telling.extend((cell.corrupt > 0.0).then_some("corrupted"));
            telling.extend((cell.black_hole_above_bytes > 0).then_some("black_holed"));
        }
        for fault in &self.faults {
            telling.extend(match fault.kind {
                FaultKind::Partition => Some("cut"),
                FaultKind::Crash => Some("host_down"),
                FaultKind::Pause | FaultKind::Link => None,
            });
            telling.extend(["messages_delivered", "messages_lost", "messages_unacknowledged"]);
        }
        telling
    }

    /// The timed faults as one text without a comma, for a CSV and for people.
    pub(super) fn faults_as_text(&self) -> String {
        self.faults.iter().map(TimedFault::to_string).collect::<Vec<_>>().join("; ")
    }

    /// What happens on the way to a host while these timed faults of its link hold, each laid over those before.
    pub(super) fn faults_under<'a>(&self, holding: impl Iterator<Item = &'a TimedFault>) -> Faults {
        let plain = Cell { faults: Vec::new(), ..self.clone() };
        holding.fold(plain, |cell, fault| fault.laid_over(&cell)).faults_of_links()
    }

    /// What happens on the way to a host.
    pub(super) fn faults_of_links(&self) -> Faults {
        Faults {
            duplicate: self.duplicate,
            reorder: self.reorder,
            reorder_delay: micros(self.reorder_us),
            corrupt: self.corrupt,
            black_hole_above: (self.black_hole_above_bytes > 0).then_some(self.black_hole_above_bytes),
            ..self.losing(self.loss)
        }
    }

    /// Faults of a cable on which datagrams are lost with this chance.
    pub(super) fn losing(&self, loss: f64) -> Faults {
        let healthy = Faults { jitter: micros(self.jitter_us), ..Faults::default() };
        if self.burst_datagrams <= 1.0 || loss >= 1.0 {
            return Faults { loss, ..healthy };
        }
        // In the long run the link is bad for enter / (enter + leave) of the datagrams.
        let bad = loss / self.burst_loss;
        let leave = 1.0 / self.burst_datagrams;
        let enter = leave * bad / (1.0 - bad);
        Faults { burst: (loss > 0.0).then_some(Burst { enter, leave, loss: self.burst_loss }), ..healthy }
    }

    /// Whether so much can be lost in bursts of this length: the best link is good for one datagram
    /// between two.
    pub(super) fn has_room_between_bursts(&self, loss: f64) -> bool {
        let most = self.burst_loss * self.burst_datagrams / (self.burst_datagrams + 1.0);
        self.burst_datagrams <= 1.0 || loss >= 1.0 || loss <= most
    }
}

fn micros(time_us: f64) -> Duration {
    Duration::from_nanos((time_us * 1e3) as u64)
}

/// Datagrams to which something happened, beside those that `lost_share` counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Suffered {
    /// Datagrams that arrived twice.
    pub duplicated: u64,
    /// Datagrams held back, while later ones overtook.
    pub reordered: u64,
    /// Datagrams of which bits were flipped: dropped by whom they were for, as their checksum fails.
    pub corrupted: u64,
    /// Datagrams that vanished for their size, those included that looked for the size a path carries.
    pub black_holed: u64,
    /// Datagrams sent from one side of a partition to the other.
    pub cut: u64,
    /// Datagrams that arrived at a host whose process was dead.
    pub host_down: u64,
}

impl Suffered {
    /// What happened between two looks.
    pub(super) fn between(before: &FaultCounts, after: &FaultCounts) -> Self {
        Self {
            duplicated: after.duplicated - before.duplicated,
            reordered: after.reordered - before.reordered,
            corrupted: after.corrupted - before.corrupted,
            black_holed: after.black_holed - before.black_holed,
            cut: after.cut - before.cut,
            host_down: after.host_down - before.host_down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursty_loss_has_the_share_asked_for() {
        for burst_loss in [1.0, 0.25] {
            let burst =
                Cell { burst_datagrams: 5.0, burst_loss, ..Cell::default() }.losing(0.02).burst.unwrap();
            let bad = burst.enter / (burst.enter + burst.leave);
            assert!((bad * burst.loss - 0.02).abs() < 1e-12);
        }
    }

    #[test]
    fn a_fault_of_a_link_is_laid_over_the_axes_and_over_those_before_it() {
        let fault = |loss| TimedFault {
            kind: FaultKind::Link,
            hosts: vec![1, 2],
            to_s: 0.5,
            loss: Some(loss),
            ..TimedFault::default()
        };
        let (first, last) = (fault(0.2), TimedFault { corrupt: Some(0.1), ..fault(0.3) });
        let cell = Cell { loss: 0.1, duplicate: 0.5, ..Cell::default() };
        let of = |holding: &[&TimedFault]| cell.faults_under(holding.iter().copied());
        assert_eq!((of(&[]).loss, of(&[&first]).loss, of(&[&first]).duplicate), (0.1, 0.2, 0.5));
        assert_eq!((of(&[&last, &first]).loss, of(&[&last, &first]).corrupt), (0.2, 0.1));
        assert_eq!(last.to_string(), "link hosts=1+2 from_s=0 to_s=0.5 loss=0.3 corrupt=0.1");
    }
}

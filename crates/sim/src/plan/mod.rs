//! Experiments as data: a plan names axes, every combination of their values is simulated.
//!
//! Inputs → outputs: a TOML plan → one [`Row`] per combination, printed as CSV or JSON here and as
//! a table by the command. An axis is any field of [`Cell`], given as a value or a list of values:
//!
//! ```toml
//! name = "incast"
//! [axes]
//! workload = "incast"
//! hosts = [9, 33]
//! message_bytes = [65_536, 1_048_576]
//! seed = [1, 2, 3]
//! ```

mod greeting;
mod group;
mod load;
mod run;

pub use group::GroupOutcome;
pub use run::Outcome;

use denrei_proto::CongestionAlgorithm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// Most combinations of one plan: beyond it, an axis was probably given by mistake.
const MAX_CELLS: usize = 10_000;

/// Most hosts that all send to all: a run remembers something of each pair.
const MAX_MESH_HOSTS: u32 = 2_000;

/// Largest message, bytes: each sender holds one.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// Most messages of each sender to each of its receivers: days of simulating.
const MAX_MESSAGES: u64 = 1_000_000_000;

/// Who sends what to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Host 1 sends to host 0.
    #[default]
    Stream,
    /// Hosts 0 and 1 exchange messages, one under way at a time.
    PingPong,
    /// All others send to host 0 at once.
    Incast,
    /// Everyone sends to everyone.
    Mesh,
    /// Host 0 sends to a group of all others.
    Multicast,
}

/// What keeps the reports of a group few (M10); each with all that come before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feedback {
    /// Every member acknowledges every packet, as in the paper.
    AllAck,
    /// Every k-th packet.
    Thinned,
    /// Members take turns, and answer questions one after the other.
    Staggered,
    /// Members wait before they say what they miss.
    Suppressed,
    /// Reports are joined along a tree.
    Tree,
    /// Parity.
    #[default]
    Parity,
}

/// Which controller; the names in plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// See [`CongestionAlgorithm::Delay`].
    #[default]
    Delay,
    /// See [`CongestionAlgorithm::Cubic`].
    Cubic,
    /// See [`CongestionAlgorithm::RateOnly`].
    RateOnly,
}

impl From<Congestion> for CongestionAlgorithm {
    fn from(name: Congestion) -> Self {
        match name {
            Congestion::Delay => Self::Delay,
            Congestion::Cubic => Self::Cubic,
            Congestion::RateOnly => Self::RateOnly,
        }
    }
}

/// One combination: everything that determines a run. Fields that a plan does not name have the
/// values of [`Cell::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cell {
    /// Who sends what to whom.
    pub workload: Workload,
    /// Whether all sessions are open, and their paths' sizes known, before time begins. Else the
    /// first messages open them.
    pub warm: bool,
    /// How many hosts, at one switch. 2 ..= 20,000, with the workload `mesh` 2 ..= 2,000.
    pub hosts: u32,
    /// Messages that each sender sends to each of its receivers.
    pub messages: u64,
    /// Their size, bytes; at most 1 GiB.
    pub message_bytes: u64,
    /// Channels they are spread over, in turn.
    pub channels: u16,
    /// Rate of every link, Mbit/s.
    pub link_mbit: u64,
    /// Rate of the hosts' links to the switch where it is another one, Mbit/s; 0: `link_mbit`.
    pub uplink_mbit: u64,
    /// Propagation delay from host to host, µs.
    pub delay_us: f64,
    /// Longest extra delay of a datagram on the way to a host, µs; order is kept.
    pub jitter_us: f64,
    /// Queue of every switch port, bytes.
    pub queue_bytes: u64,
    /// Queue above which the switch marks, bytes; 0: never.
    pub ecn_above_bytes: u64,
    /// Largest datagram that the links carry, bytes of UDP payload.
    pub link_datagram_bytes: u16,
    /// Loss of datagrams on the way to a host, 0.0 ..= 1.0.
    pub loss: f64,
    /// Loss of datagrams on host 0's own cable, which all miss that it was for, 0.0 ..= 1.0.
    pub shared_loss: f64,
    /// What keeps the reports of the workload `multicast` few.
    pub feedback: Feedback,
    /// Mean length of a burst of lost datagrams, 1 ..= 10⁶; 1: losses are independent.
    pub burst_datagrams: f64,
    /// Receive buffer of every socket, bytes.
    pub receive_buffer_bytes: u64,
    /// Time a host spends on each datagram it receives, ns.
    pub service_ns: u64,
    /// Most datagrams in one transmit.
    pub segments: usize,
    /// Congestion controller.
    pub congestion: Congestion,
    /// `Config::learn_rates`.
    pub learn_rates: bool,
    /// Whether datagrams are ECN-capable.
    pub ecn: bool,
    /// `Config::channel_credit_bytes`.
    pub channel_credit_bytes: u64,
    /// `Config::offer_above_bytes`.
    pub offer_above_bytes: u64,
    /// `Config::send_buffer_bytes`.
    pub send_buffer_bytes: u64,
    /// `Config::max_ack_delay`, µs.
    pub max_ack_delay_us: u64,
    /// Virtual time after which a run is given up, s.
    pub time_limit_s: f64,
    /// Seed of the run.
    pub seed: u64,
}

impl Default for Cell {
    fn default() -> Self {
        let config = denrei_proto::Config::default();
        Self {
            workload: Workload::Stream,
            warm: false,
            hosts: 2,
            messages: 1000,
            message_bytes: 65_536,
            channels: 1,
            link_mbit: 10_000,
            uplink_mbit: 0,
            delay_us: 4.0,
            jitter_us: 0.0,
            queue_bytes: 1 << 20,
            ecn_above_bytes: 100_000,
            link_datagram_bytes: 1472,
            loss: 0.0,
            shared_loss: 0.0,
            feedback: Feedback::Parity,
            burst_datagrams: 1.0,
            receive_buffer_bytes: 4 << 20,
            service_ns: 0,
            segments: 16,
            congestion: Congestion::Delay,
            learn_rates: config.learn_rates,
            ecn: config.ecn,
            channel_credit_bytes: config.channel_credit_bytes,
            offer_above_bytes: config.offer_above_bytes,
            send_buffer_bytes: config.send_buffer_bytes,
            max_ack_delay_us: config.max_ack_delay.as_micros() as u64,
            time_limit_s: 60.0,
            seed: 1,
        }
    }
}

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
    /// The core does not take the settings.
    #[error("the settings do not work: {0}")]
    Config(#[from] denrei_proto::ConfigError),
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// All combinations, the last axis (in alphabetical order) changing fastest.
    pub cells: Vec<Cell>,
    /// The axes that have more than one value.
    pub varying: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    name: String,
    axes: toml::Table,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let PlanFile { name, axes } = toml::from_str(text)?;
        let mut combinations = vec![toml::Table::new()];
        let mut varying = BTreeSet::new();
        for (axis, value) in axes {
            let values = match value {
                toml::Value::Array(values) => values,
                value => vec![value],
            };
            match values.len() {
                0 => return Err(PlanError::EmptyAxis(axis)),
                1 => {}
                _ => drop(varying.insert(axis.clone())),
            }
            let count = combinations.len().saturating_mul(values.len());
            if count > MAX_CELLS {
                return Err(PlanError::TooManyCells(count));
            }
            let with = |table: &toml::Table, value: &toml::Value| {
                let mut table = table.clone();
                table.insert(axis.clone(), value.clone());
                table
            };
            combinations =
                combinations.iter().flat_map(|table| values.iter().map(|value| with(table, value))).collect();
        }
        let cells = combinations.into_iter().map(|table| {
            let cell: Cell = toml::Value::Table(table).try_into()?;
            cell.check()?;
            Ok(cell)
        });
        Ok(Self { name, cells: cells.collect::<Result<_, PlanError>>()?, varying })
    }
}

impl Cell {
    /// Checks that the values are possible.
    ///
    /// # Errors
    /// The first that is not, with what it would have to be.
    pub fn check(&self) -> Result<(), PlanError> {
        let range = |holds: bool, field, value: &dyn core::fmt::Display, expected| {
            if holds { Ok(()) } else { Err(PlanError::Range { field, value: value.to_string(), expected }) }
        };
        range((2..=20_000).contains(&self.hosts), "hosts", &self.hosts, "between 2 and 20000")?;
        range(
            self.workload != Workload::Mesh || self.hosts <= MAX_MESH_HOSTS,
            "hosts",
            &self.hosts,
            "at most 2000 with the workload `mesh`",
        )?;
        range((1..=MAX_MESSAGES).contains(&self.messages), "messages", &self.messages, "between 1 and 1e9")?;
        range(
            self.message_bytes <= MAX_MESSAGE_BYTES,
            "message_bytes",
            &self.message_bytes,
            "at most 1073741824",
        )?;
        range(self.link_datagram_bytes > 0, "link_datagram_bytes", &self.link_datagram_bytes, "at least 1")?;
        range(self.channels > 0, "channels", &self.channels, "at least 1")?;
        range(
            (1..=1_000_000).contains(&self.link_mbit),
            "link_mbit",
            &self.link_mbit,
            "between 1 and 1000000",
        )?;
        range(self.uplink_mbit <= 1_000_000, "uplink_mbit", &self.uplink_mbit, "at most 1000000")?;
        range((0.0..=1.0).contains(&self.loss), "loss", &self.loss, "between 0.0 and 1.0")?;
        range(
            (0.0..=1.0).contains(&self.shared_loss),
            "shared_loss",
            &self.shared_loss,
            "between 0.0 and 1.0",
        )?;
        range(
            (1.0..=1e6).contains(&self.burst_datagrams),
            "burst_datagrams",
            &self.burst_datagrams,
            "between 1 and 1e6",
        )?;
        range((0.0..=1e9).contains(&self.delay_us), "delay_us", &self.delay_us, "between 0 and 1e9")?;
        range((0.0..=1e9).contains(&self.jitter_us), "jitter_us", &self.jitter_us, "between 0 and 1e9")?;
        range(
            (0.0..=1e6).contains(&self.time_limit_s),
            "time_limit_s",
            &self.time_limit_s,
            "between 0 and 1e6",
        )?;
        range(self.segments > 0, "segments", &self.segments, "at least 1")?;
        Ok(self.config().validate()?)
    }

    /// Simulates this combination.
    pub fn run(&self) -> Row {
        Row { cell: self.clone(), outcome: run::run(self) }
    }
}

/// A combination and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The combination.
    #[serde(flatten)]
    pub cell: Cell,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Row {
    /// Names and values of all columns, the combination's first.
    pub fn columns(&self) -> Vec<(String, String)> {
        let plain = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            value => value.to_string(),
        };
        let fields = |value: serde_json::Value| match value {
            serde_json::Value::Object(fields) => fields,
            _ => unreachable!("structs serialise to objects"),
        };
        let cell = serde_json::to_value(&self.cell).map(fields).unwrap_or_default();
        let outcome = serde_json::to_value(&self.outcome).map(fields).unwrap_or_default();
        cell.into_iter().chain(outcome).map(|(name, value)| (name, plain(value))).collect()
    }

    /// One JSON object, on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and names serialise")
    }

    /// The values of all columns, separated by commas. No value contains one.
    pub fn to_csv(&self) -> String {
        self.columns().into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(",")
    }

    /// The names of all columns, separated by commas.
    pub fn csv_header(&self) -> String {
        self.columns().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_multiply() {
        let plan = Plan::parse(
            "name = 'p'\n[axes]\nloss = [0.0, 0.1]\nseed = [1, 2, 3]\nhosts = 4\ncongestion = 'cubic'",
        )
        .unwrap();
        assert_eq!(plan.cells.len(), 6);
        assert!(plan.cells.iter().all(|cell| cell.hosts == 4 && cell.congestion == Congestion::Cubic));
        let pairs: Vec<_> = plan.cells.iter().map(|cell| (cell.loss, cell.seed)).collect();
        assert_eq!(pairs, [(0.0, 1), (0.0, 2), (0.0, 3), (0.1, 1), (0.1, 2), (0.1, 3)]);
        assert_eq!(plan.varying.into_iter().collect::<Vec<_>>(), ["loss", "seed"]);
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let error = |text: &str| Plan::parse(text).unwrap_err().to_string();
        assert!(error("name = 'p'\n[axes]\nlos = 1").contains("unknown field `los`"));
        assert_eq!(error("name = 'p'\n[axes]\nhosts = 1"), "hosts is 1, but has to be between 2 and 20000");
        assert_eq!(error("name = 'p'\n[axes]\nhosts = []"), "axis `hosts` has no values");
        for (axes, field) in [
            ("link_datagram_bytes = 0", "link_datagram_bytes is 0, but has to be at least 1"),
            ("message_bytes = 1_000_000_000_000", "message_bytes is 1000000000000, but has to be at most"),
            ("messages = 9_000_000_000", "messages is 9000000000, but has to be between 1 and 1e9"),
            ("burst_datagrams = inf", "burst_datagrams is inf, but has to be between 1 and 1e6"),
            ("workload = 'mesh'\nhosts = 2_001", "hosts is 2001, but has to be at most 2000"),
        ] {
            assert!(error(&format!("name = 'p'\n[axes]\n{axes}")).starts_with(field), "{axes}");
        }
        assert!(error("name = 'p'\n[axes]\nchannel_credit_bytes = 1").contains("channel_credit_bytes is 1"));
    }

    #[test]
    fn a_row_is_one_line_of_each_format() {
        let row = Cell { messages: 3, message_bytes: 100, ..Cell::default() }.run();
        let json: serde_json::Value = serde_json::from_str(&row.to_json()).unwrap();
        assert_eq!(json["messages"], 3);
        assert_eq!(json["finished"], true);
        assert_eq!(row.csv_header().split(',').count(), row.to_csv().split(',').count());
        assert!(!row.to_csv().contains('\n'));
    }
}

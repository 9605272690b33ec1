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
//! [[faults]]
//! kind = "partition"
//! hosts = [1, 2]
//! from_s = 0.01
//! to_s = [0.02, 0.5]
//! ```
//!
//! `docs/sim.md` is the page for users.

mod cell;
mod choices;
mod error;
mod faults;
mod greeting;
mod group;
mod limits;
mod lines;
mod load;
mod outcome;
mod run;
mod schedule;

pub use cell::Cell;
pub use choices::{Congestion, Feedback, Workload};
pub use error::PlanError;
pub use faults::{FaultKind, Suffered, TimedFault};
pub use outcome::{GroupOutcome, Outcome};

use lines::Lines;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

/// Most combinations of one plan: beyond it, an axis was probably given by mistake.
const MAX_CELLS: usize = 10_000;

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

impl Plan {
    /// Columns that say what the faults of this plan did.
    pub fn telling(&self) -> BTreeSet<&'static str> {
        self.cells.iter().flat_map(Cell::telling).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    name: String,
    axes: BTreeMap<Spanned<String>, toml::Value>,
    #[serde(default)]
    faults: Vec<Spanned<toml::Table>>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let PlanFile { name, axes, faults } = toml::from_str(text)?;
        let lines = Lines::new(text, axes.keys(), &faults);
        let axes = axes.into_iter().map(|(axis, value)| (axis.into_inner(), value)).collect();
        let faults = faults.into_iter().map(Spanned::into_inner).collect();
        Self::of(name, axes, faults).map_err(|error| lines.tell(error))
    }

    fn of(name: String, mut axes: toml::Table, faults: Vec<toml::Table>) -> Result<Self, PlanError> {
        if axes.contains_key(FAULTS) {
            return Err(PlanError::FaultsAsAxis);
        }
        axes.iter().try_for_each(|(axis, value)| check_axis(axis, value))?;
        if !faults.is_empty() {
            axes.insert(FAULTS.to_owned(), toml::Value::Array(combinations_of_faults(faults)?));
        }
        let several = |value: &toml::Value| value.as_array().is_some_and(|values| values.len() > 1);
        let varying = axes.iter().filter(|(_, value)| several(value)).map(|(axis, _)| axis.clone()).collect();
        let cells = combinations(axes)?.into_iter().map(|table| {
            let cell: Cell = toml::Value::Table(table).try_into()?;
            cell.check()?;
            Ok(cell)
        });
        Ok(Self { name, cells: cells.collect::<Result<_, PlanError>>()?, varying })
    }
}

/// Whether each value of an axis is of its kind.
fn check_axis(axis: &str, value: &toml::Value) -> Result<(), PlanError> {
    let mut values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice).iter();
    values.try_for_each(|value| {
        let kind = check_kind::<Cell>(toml::Table::new(), axis, value);
        kind.map_err(|error| lines::limits_of(axis, value).unwrap_or(error))
    })
}

/// Whether each value of a fault is of its kind, and none is missing.
fn check_fault(fault: &toml::Table) -> Result<(), PlanError> {
    let possible = toml::Table::try_from(TimedFault::default()).expect("plain values have a text");
    fault.iter().try_for_each(|(field, value)| check_kind::<TimedFault>(possible.clone(), field, value))?;
    fault.clone().try_into::<TimedFault>()?;
    Ok(())
}

/// Whether a value is of its field's kind. `others` has those fields that may not be missing.
fn check_kind<T: DeserializeOwned>(
    mut others: toml::Table,
    field: &str,
    value: &toml::Value,
) -> Result<(), PlanError> {
    others.insert(field.to_owned(), value.clone());
    others.try_into::<T>().map(drop).map_err(|error| lines::kind_of(field, value, error))
}

/// The field of a [`Cell`] that holds its timed faults.
const FAULTS: &str = "faults";

/// Every combination of the values of fields, the last field changing fastest.
fn combinations(fields: toml::Table) -> Result<Vec<toml::Table>, PlanError> {
    let mut combinations = vec![toml::Table::new()];
    for (field, value) in fields {
        let values = match value {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        if values.is_empty() {
            return Err(PlanError::EmptyAxis(field));
        }
        combinations = products(&combinations, &values, |table, value| {
            let mut table = table.clone();
            table.insert(field.clone(), value.clone());
            table
        })?;
    }
    Ok(combinations)
}

/// Every combination of the values of all faults, each a list of faults.
fn combinations_of_faults(faults: Vec<toml::Table>) -> Result<Vec<toml::Value>, PlanError> {
    let mut lists: Vec<Vec<toml::Value>> = vec![Vec::new()];
    for (number, mut fault) in (1..).zip(faults) {
        // A list of hosts is one value, a list of such lists several.
        if let Some(toml::Value::Array(hosts)) = fault.get_mut("hosts")
            && !hosts.iter().any(toml::Value::is_array)
        {
            *hosts = vec![toml::Value::Array(core::mem::take(hosts))];
        }
        let wrong = |error| PlanError::Fault { number, error: Box::new(error) };
        let faults = combinations(fault).map_err(wrong)?;
        faults.iter().try_for_each(check_fault).map_err(wrong)?;
        lists = products(&lists, &faults, |list, fault| {
            list.iter().cloned().chain([toml::Value::Table(fault.clone())]).collect()
        })?;
    }
    Ok(lists.into_iter().map(toml::Value::Array).collect())
}

/// Each of the first with each of the second, unless these are too many.
fn products<A, B, C>(
    first: &[A],
    second: &[B],
    join: impl Fn(&A, &B) -> C + Copy,
) -> Result<Vec<C>, PlanError> {
    let count = first.len().saturating_mul(second.len());
    if count > MAX_CELLS {
        return Err(PlanError::TooManyCells(count));
    }
    Ok(first.iter().flat_map(|a| second.iter().map(move |b| join(a, b))).collect())
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
        // The only list is that of the timed faults.
        let plain = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Array(_) => self.cell.faults_as_text(),
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
        // On which line, if it is one that does not go with another.
        let error = |text: &str| {
            let said = Plan::parse(text).unwrap_err().to_string();
            said.strip_prefix("line 3: ").or(said.strip_prefix("line 4: ")).unwrap_or(&said).to_owned()
        };
        assert!(error("name = 'p'\n[axes]\nlos = 1").contains("unknown field `los`"));
        assert_eq!(error("name = 'p'\n[axes]\nhosts = 1"), "hosts is 1, but has to be between 2 and 20000");
        assert_eq!(error("name = 'p'\n[axes]\nhosts = []"), "axis `hosts` has no values");
        for (axes, field) in [
            ("link_datagram_bytes = 575", "link_datagram_bytes is 575, but has to be at least 576"),
            ("channels = 0", "channels is 0, but has to be between 1 and 1024"),
            ("channels = 1_025", "channels is 1025, but has to be between 1 and 1024"),
            ("receive_buffer_bytes = 1_471", "receive_buffer_bytes is 1471, but has to be at least 1472"),
            ("message_bytes = 1_000_000_000_000", "message_bytes is 1000000000000, but has to be at most"),
            ("messages = 9_000_000_000", "messages is 9000000000, but has to be between 1 and 1e9"),
            ("queue_bytes = 0", "queue_bytes is 0, but has to be at least 1538"),
            ("queue_bytes = 1_537", "queue_bytes is 1537, but has to be at least 1538"),
            ("time_limit_s = 0", "time_limit_s is 0, but has to be above 0 and at most 1e6"),
            ("time_limit_s = nan", "time_limit_s is NaN, but has to be above 0"),
            ("burst_datagrams = inf", "burst_datagrams is inf, but has to be between 1 and 1e6"),
            ("workload = 'mesh'\nhosts = 2_001", "hosts is 2001, but has to be at most 2000"),
            ("failure_timeout_ms = 100_001", "failure_timeout_ms is 100001, but has to be at most 100000"),
            ("duplicate = 1.5", "duplicate is 1.5, but has to be between 0.0 and 1.0"),
            ("reorder = -0.1", "reorder is -0.1, but has to be between 0.0 and 1.0"),
            ("reorder_us = inf", "reorder_us is inf, but has to be between 0 and 1e9"),
            ("corrupt = nan", "corrupt is NaN, but has to be between 0.0 and 1.0"),
            ("shared_loss = 0.5", "shared_loss is 0.5, but has to be 0.0 unless `workload` is `multicast`"),
            (
                "feedback = 'all-ack'",
                "feedback is \"all-ack\", but has to be \"parity\" (the default) unless",
            ),
            ("workload = ['multicast', 'mesh']\nshared_loss = 0.1", "shared_loss is 0.1, but has to be"),
            ("burst_loss = 0", "burst_loss is 0, but has to be above 0.0 and at most 1.0"),
            (
                "burst_datagrams = 2\nloss = 0.7",
                "loss is 0.7, but has to be at most burst_loss * burst_datagrams",
            ),
        ] {
            assert!(error(&format!("name = 'p'\n[axes]\n{axes}")).starts_with(field), "{axes}");
        }
        assert!(error("name = 'p'\n[axes]\nchannel_credit_bytes = 1").contains("channel_credit_bytes is 1"));
    }

    #[test]
    fn the_least_and_the_most_can_be_simulated() {
        for axes in [
            "queue_bytes = 9_223_372_036_854_775_807",
            "ecn_above_bytes = 9_223_372_036_854_775_807",
            "receive_buffer_bytes = [1_472, 9_223_372_036_854_775_807]",
            "segments = [1, 9_223_372_036_854_775_807]",
            "send_buffer_bytes = [1, 9_223_372_036_854_775_807]",
            "link_datagram_bytes = [576, 65_535]",
            "link_mbit = [1, 1_000_000]",
            "uplink_mbit = [1, 1_000_000]",
            "channels = [1, 1_024]",
            "message_bytes = [0, 1_000_000]",
            "seed = [0, 9_223_372_036_854_775_807]",
        ] {
            let text =
                format!("name = 'p'\n[axes]\nwarm = true\nmessages = 1_030\nmessage_bytes = 50\n{axes}");
            let text = if axes.starts_with("message_bytes") {
                text.replacen("message_bytes = 50", "", 1)
            } else {
                text
            };
            for cell in Plan::parse(&text).unwrap().cells {
                let messages = if cell.message_bytes > 1_000 { 3 } else { cell.messages };
                let Row { cell, outcome } = Cell { messages, ..cell }.run();
                assert!(outcome.finished && outcome.converged, "{axes}: {cell:?}");
            }
        }
    }

    #[test]
    fn values_of_faults_multiply_like_axes() {
        let plan = Plan::parse(
            "name = 'p'\naxes = { seed = [1, 2] }\n
             [[faults]]\nkind = 'crash'\nhosts = [[0], [0, 1]]\nfrom_s = 1\nto_s = [2, 3]\n
             [[faults]]\nkind = 'link'\nhosts = [1]\nfrom_s = 0\nto_s = 1\nloss = 0.5",
        )
        .unwrap();
        assert_eq!(plan.varying.into_iter().collect::<Vec<_>>(), ["faults", "seed"]);
        assert_eq!(plan.cells.len(), 8);
        let link = "; link hosts=1 from_s=0 to_s=1 loss=0.5";
        for (at, crash) in [(0, "hosts=0 from_s=1 to_s=2"), (2, "hosts=0 from_s=1 to_s=3")] {
            assert_eq!(plan.cells[at].faults_as_text(), format!("crash {crash}{link}"));
        }
        assert_eq!(plan.cells[7].faults[0].hosts, [0, 1]);
    }

    #[test]
    fn errors_of_faults_say_which_and_what_is_possible() {
        let plan = |axes: &str, fault: &str| format!("name = 'p'\n[axes]\n{axes}\n[[faults]]\n{fault}");
        let error = |axes: &str, fault: &str| Plan::parse(&plan(axes, fault)).unwrap_err().to_string();
        let timed = |kind: &str, rest: &str| format!("kind = '{kind}'\nfrom_s = 1\nto_s = 2\n{rest}");
        let says = |fault: &str| error("", fault).strip_prefix("line 4: ").map(str::to_owned).unwrap();
        for (fault, what) in [
            (timed("crash", "hosts = [2]"), "hosts is [2], but has to be below the number of hosts"),
            (timed("crash", "hosts = [[]]"), "hosts is [], but has to be at least one host"),
            (timed("partition", "hosts = [0, 1]"), "hosts is [0, 1], but has to be some of the hosts"),
            (timed("link", "hosts = [1]"), "a fault of the kind `link` has to say what happens"),
            (timed("pause", "hosts = [1]\nloss = 0.5"), "only a fault of the kind `link` says"),
            (timed("link", "hosts = [1]\nloss = 2"), "loss is 2, but has to be between 0.0 and 1.0"),
            (timed("link", "hosts = [1]\nloss = []"), "axis `loss` has no values"),
            (
                "kind = 'crash'\nhosts = [1]\nfrom_s = 2\nto_s = 2".into(),
                "to_s is 2, but has to be after from_s",
            ),
            (
                "kind = 'crash'\nhosts = [1]\nfrom_s = 2\nto_s = 61".into(),
                "to_s is 61, but has to be after from_s",
            ),
            ("kind = 'crash'\nhosts = [1]\nfrom_s = -1\nto_s = 2".into(), "from_s is -1, but has to be"),
        ] {
            let said = says(&fault);
            assert!(said.starts_with(&format!("fault 1 of the plan: {what}")), "{fault}: {said}");
        }
        assert!(error("", &timed("crash", "hosts = [1]\nlos = 1")).contains("unknown field `los`"));
        assert!(error("", "kind = 'crash'\nhosts = [1]\nfrom_s = 1").contains("missing field `to_s`"));
        let crash = timed("crash", "hosts = [1]");
        assert_eq!(Plan::parse(&plan("workload = 'multicast'", &crash)).unwrap().cells.len(), 1);
        let opener = timed("crash", "hosts = [1, 0]");
        assert!(
            error("workload = 'multicast'", &opener).contains("hosts is [1, 0], but has to be without 0")
        );
        assert!(error("faults = 1", &crash).contains("no axis"));
    }

    #[test]
    fn a_row_is_one_line_of_each_format() {
        let cell = Cell { messages: 3, message_bytes: 100, ..Cell::default() };
        let fault = TimedFault { hosts: vec![0], to_s: 0.1, ..TimedFault::default() };
        let row = Cell { faults: vec![fault.clone(), fault], ..cell }.run();
        let json: serde_json::Value = serde_json::from_str(&row.to_json()).unwrap();
        assert_eq!(json["messages"], 3);
        assert_eq!(json["finished"], true);
        assert_eq!(row.csv_header().split(',').count(), row.to_csv().split(',').count());
        assert!(!row.to_csv().contains('\n'));
    }
}

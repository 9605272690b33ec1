//! Where in a plan something is wrong.
//!
//! Inputs → outputs: a plan's text, and where in it its axes and faults are → an error with its line.

use super::{Cell, PlanError};
use std::collections::BTreeMap;
use toml::Spanned;

/// The lines of axes, by name, and of faults, in order.
pub(super) struct Lines {
    axes: BTreeMap<String, usize>,
    faults: Vec<usize>,
}

impl Lines {
    pub fn new<'a>(
        text: &str,
        axes: impl Iterator<Item = &'a Spanned<String>>,
        faults: &[Spanned<toml::Table>],
    ) -> Self {
        let line = |start: usize| 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
        Self {
            axes: axes.map(|axis| (axis.get_ref().clone(), line(axis.span().start))).collect(),
            faults: faults.iter().map(|fault| line(fault.span().start)).collect(),
        }
    }

    /// The same error, with the line of what it names, if the plan has that.
    pub fn tell(&self, error: PlanError) -> PlanError {
        let axis = match &error {
            PlanError::Fault { number, .. } => {
                let line = self.faults.get(number.wrapping_sub(1));
                return at(line, error);
            }
            PlanError::EmptyAxis(axis) | PlanError::Kind { axis, .. } => axis,
            PlanError::UnknownAxis { axis, .. } => axis,
            PlanError::Range { field, .. } => *field,
            PlanError::Config(error) => self.axis_of(error.setting),
            PlanError::FaultsAsAxis => super::FAULTS,
            _ => return error,
        };
        at(self.axes.get(axis), error)
    }

    /// The axis of a setting, which may have a unit in its name.
    fn axis_of<'a>(&'a self, setting: &'a str) -> &'a str {
        let is_it =
            |axis: &&String| ["_us", "_ms"].iter().any(|unit| axis.strip_suffix(unit) == Some(setting));
        self.axes.keys().find(is_it).map_or(setting, String::as_str)
    }
}

fn at(line: Option<&usize>, error: PlanError) -> PlanError {
    match line {
        Some(line) => PlanError::At { line: *line, error: Box::new(error) },
        None => error,
    }
}

/// What `value` should have been, in words, by what serde says.
pub(super) fn kind_of(axis: &str, value: &toml::Value, error: toml::de::Error) -> PlanError {
    let said = error.message();
    if said.starts_with("unknown field") {
        return PlanError::UnknownAxis { axis: axis.to_owned(), said: said.to_owned() };
    }
    let expected = said.rsplit_once(", expected ").map_or(said, |(_, expected)| expected);
    let expected = match expected {
        "u16" | "u32" | "u64" | "usize" if !value.is_integer() => "a whole number".to_owned(),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        // All that a plan can name.
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        other => other.replace('`', "\""),
    };
    PlanError::Kind { axis: axis.to_owned(), value: value.to_string(), expected }
}

/// What is possible, where a whole number is more or less than its field holds: what the nearest that it holds is told.
pub(super) fn limits_of(axis: &str, value: &toml::Value) -> Option<PlanError> {
    let largest = [u32::MAX.into(), u16::MAX.into()];
    let nearest = if value.as_integer()? < 0 { &[0] } else { &largest[..] };
    nearest.iter().find_map(|nearest| {
        let fields = toml::Table::from_iter([(axis.to_owned(), toml::Value::Integer(*nearest))]);
        match fields.try_into::<Cell>().ok()?.check() {
            Err(PlanError::Range { field, expected, .. }) if field == axis => {
                Some(PlanError::Range { field, value: value.to_string(), expected })
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;

    #[test]
    fn errors_name_the_line_and_what_is_possible() {
        for (axes, said) in [
            ("messages = 'ten'", "line 4: messages is \"ten\", but has to be a whole number"),
            ("messages = [1,\n 2.5]", "line 4: messages is 2.5, but has to be a whole number"),
            ("messages = -1", "line 4: messages is -1, but has to be between 1 and 1e9"),
            ("seed = -1", "line 4: seed is -1, but has to be a whole number from 0"),
            ("seed = 1\nloss = 'much'", "line 5: loss is \"much\", but has to be a number"),
            ("ecn = 1", "line 4: ecn is 1, but has to be true or false"),
            (
                "congestion = 'bbr'",
                "line 4: congestion is \"bbr\", but has to be one of \"delay\", \"cubic\", ",
            ),
            ("workload = 7", "line 4: workload is 7, but has to be "),
            ("\nmesages = 1", "line 5: unknown field `mesages`, expected one of "),
            ("seed = 1\nlink_mbit = 0", "line 5: link_mbit is 0, but has to be between 1 and 1000000"),
            ("messages = []", "line 4: axis `messages` has no values"),
            ("channel_credit_bytes = 1", "line 4: the settings do not work: channel_credit_bytes is 1"),
            ("seed = 1\nfailure_timeout_ms = 1", "line 5: the settings do not work: failure_timeout is 1ms"),
            ("channels = 65_536", "line 4: channels is 65536, but has to be between 1 and 1024"),
            ("hosts = 4_294_967_296", "line 4: hosts is 4294967296, but has to be between 2 and 20000"),
            (
                "[[faults]]\nkind = 'flood'",
                "line 4: fault 1 of the plan: kind is \"flood\", but has to be one of \"partition\", ",
            ),
            ("[[faults]]\nfrom_s = 'now'", "line 4: fault 1 of the plan: from_s is \"now\", but has to be a"),
            (
                "[[faults]]\nform_s = 1",
                "line 4: fault 1 of the plan: unknown field `form_s`, expected one of",
            ),
            (
                "[[faults]]\nkind = 'pause'\nhosts = [1]",
                "line 4: fault 1 of the plan: the plan cannot be read: ",
            ),
            ("faults = 1", "line 4: faults are tables of their own"),
            (
                "[[faults]]\nkind = 'crash'\nhosts = [9]\nfrom_s = 1\nto_s = 2",
                "line 4: fault 1 of the plan: hosts is",
            ),
        ] {
            let error =
                Plan::parse(&format!("# A plan.\nname = 'p'\n[axes]\n{axes}")).unwrap_err().to_string();
            assert!(error.starts_with(said), "{axes}: {error}");
            assert!(!said.ends_with("a whole number") || error == said, "{axes}: {error}");
        }
    }
}

//! Settings of groups by name.

use super::{SIZE, SWITCH, Setting, TIME, number, set_by_name, size, switch, time};
use denrei_proto::ConfigError;
use denrei_proto::group::{GroupBackend, GroupOptions, GroupPolicy, POLICY_TIMES};
use std::time::Duration;

macro_rules! option {
    ($name:ident, $values:expr, $parse:expr) => {
        Setting::new(stringify!($name), $values, |options, text| {
            options.$name = $parse(text)?;
            Some(())
        })
    };
}

/// All settings of a group. Each is described at the field of [`GroupOptions`] that has its name.
pub const GROUP_SETTINGS: &[Setting<GroupOptions>] = &[
    option!(
        policy,
        "wait, eject:TIME or lag:TIME, such as eject:2s, with a TIME from 10ms to 1440min",
        policy
    ),
    option!(backend, "auto, multicast, unicast or tree", backend),
    option!(open_timeout, TIME, time),
    option!(history_bytes, SIZE, size),
    option!(admit, SWITCH, switch),
    option!(fan_out, "a whole number from 0 to 4294967295, 0 to have it chosen", number),
    option!(parity, SWITCH, switch),
    option!(sign, SWITCH, switch),
];

/// Sets one option of a group by its name in [`GROUP_SETTINGS`].
///
/// # Errors
/// No option has this name, or the text is no value of it; both say what would be possible.
///
/// ```
/// let mut options = denrei::GroupOptions::default();
/// denrei::set_group_option(&mut options, "policy", "eject:2s")?;
/// denrei::set_group_option(&mut options, "history_bytes", "1MiB")?;
/// assert_eq!(options.history_bytes, 1 << 20);
/// # Ok::<(), denrei::ConfigError>(())
/// ```
pub fn set_group_option(options: &mut GroupOptions, name: &str, value: &str) -> Result<(), ConfigError> {
    set_by_name(GROUP_SETTINGS, options, name, value)
}

fn policy(text: &str) -> Option<GroupPolicy> {
    match text.split_once(':') {
        None if text == "wait" => Some(GroupPolicy::Wait),
        Some(("eject", after)) => Some(GroupPolicy::Eject { after: policy_time(after)? }),
        Some(("lag", after)) => Some(GroupPolicy::Lag { after: policy_time(after)? }),
        _ => None,
    }
}

/// A time that a policy can have: with another one, no group would open.
fn policy_time(text: &str) -> Option<Duration> {
    time(text).filter(|after| POLICY_TIMES.contains(after))
}

/// How a group's messages travel, by name.
pub fn backend(text: &str) -> Option<GroupBackend> {
    match text {
        "auto" => Some(GroupBackend::Auto),
        "multicast" => Some(GroupBackend::Multicast),
        "unicast" => Some(GroupBackend::Unicast),
        "tree" => Some(GroupBackend::Tree),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_option_of_that_name() {
        let mut options = GroupOptions::default();
        for (name, value) in [
            ("policy", "lag:250ms"),
            ("backend", "tree"),
            ("admit", "off"),
            ("fan_out", "4"),
            ("open_timeout", "1s"),
            ("parity", "off"),
            ("sign", "on"),
        ] {
            set_group_option(&mut options, name, value).unwrap();
        }
        assert_eq!(options.policy, GroupPolicy::Lag { after: Duration::from_millis(250) });
        assert_eq!((options.backend, options.admit, options.fan_out), (GroupBackend::Tree, false, 4));
        assert_eq!(options.open_timeout, Duration::from_secs(1));
        assert!(options.sign && !options.parity);
    }

    #[test]
    fn what_is_no_option_is_refused_with_what_would_be_one() {
        let mut options = GroupOptions::default();
        for wrong in ["eject", "eject:soon", "eject:0s", "lag:9ms", "lag:1441min", "wait:1s", ""] {
            let error = set_group_option(&mut options, "policy", wrong).unwrap_err();
            assert!(error.to_string().contains("eject:2s"), "{error}");
        }
        let error = set_group_option(&mut options, "speed", "1").unwrap_err();
        assert!(error.to_string().contains("history_bytes"), "{error}");
    }
}

//! Settings of the provider, from the environment: `FI_DENREI_*`.
//!
//! Inputs → outputs: environment → [`Settings`], with defaults that are right; what cannot be read is
//! named in libfabric's log and the default taken.

use crate::engine::{Limits, header};
use crate::error::Errno;
use crate::log::{self, Level, Subsystem};
use denrei::{ClusterKey, Config, OfferPolicy};
use std::ffi::CStr;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A parameter: its name in libfabric's spelling, and what it does, default last.
pub struct Parameter {
    /// Without `FI_DENREI_`, in small letters.
    pub name: &'static CStr,
    pub help: &'static CStr,
}

const fn parameter(name: &'static CStr, help: &'static CStr) -> Parameter {
    Parameter { name, help }
}

/// All parameters, as `fi_info -e` shows them.
pub const PARAMETERS: &[Parameter] = &[
    parameter(c"iface", c"Interface name or address to use (default: all that are up, loopback where there is no other)"),
    parameter(c"key_file", c"File with the cluster key; peers without it are kept out (default: DENREI_KEY_FILE)"),
    parameter(
        c"insecure",
        c"1: use other interfaces than loopback without a cluster key, on networks that you trust (default: 0)",
    ),
    parameter(
        c"eager_bytes",
        c"Messages up to this size are copied and sent at once, the first of a row up to eight times that; larger \
          ones are offered and placed once (1024 to 32768, default: 16384)",
    ),
    parameter(
        c"unexpected_bytes",
        c"Memory for messages nobody has asked for; above it peers have to wait (at least 1048576, \
          default: 268435456)",
    ),
    parameter(
        c"failure_timeout_ms",
        c"A peer that is silent for so long is lost, and its operations fail (at least 100, default: 20000)",
    ),
    parameter(
        c"linger_ms",
        c"How long closing an endpoint waits for what was sent to be acknowledged (default: 2000)",
    ),
    parameter(
        c"keep_any_source",
        c"1: receives from any source stay posted when a peer is lost, for servers whose clients come and go \
          (default: 0, they fail, so that MPI jobs end)",
    ),
    parameter(
        c"progress_thread",
        c"1: a thread makes progress all the time, whatever the program asks for; 0: none does unless the program asks \
          for it (default: one does while the program has not called for a millisecond)",
    ),
];

/// Messages up to this size are sent at once, unless set otherwise.
const EAGER_BYTES: usize = 16 * 1024;
/// Least and most that may be set: headers must fit below, the least channel credit above.
const EAGER_RANGE: RangeInclusive<usize> = 1024..=32 * 1024;
/// Unexpected bytes, unless set otherwise.
const UNEXPECTED_BYTES: usize = 256 << 20;
/// Least that may be set: with less, what a receive waits for may never be taken behind what it does not want.
const LEAST_UNEXPECTED_BYTES: usize = 1 << 20;
/// How long a peer may be silent, unless set otherwise, in milliseconds.
const FAILURE_TIMEOUT_MS: u64 = 20_000;
/// Least that may be set: a busy host does not answer sooner.
const LEAST_FAILURE_TIMEOUT_MS: u64 = 100;
/// Sent at once to one peer and not acknowledged.
const UNACKNOWLEDGED_BYTES: usize = 8 << 20;
/// What cannot be a message: the application's own bounds hold, not the transport's.
const NO_LIMIT: u64 = 1 << 60;

/// Settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub iface: Option<String>,
    pub key_file: Option<String>,
    pub insecure: bool,
    pub failure_timeout: Duration,
    /// `None`: while the program is away.
    pub progress_thread: Option<bool>,
    pub limits: Limits,
}

impl Settings {
    /// What the environment says now.
    pub fn from_environment() -> Self {
        Self::from(|name| std::env::var(name).ok())
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| get(&format!("FI_DENREI_{name}")).filter(|value| !value.is_empty());
        let failure_timeout =
            within(LEAST_FAILURE_TIMEOUT_MS..=u64::MAX, &text, "FAILURE_TIMEOUT_MS", FAILURE_TIMEOUT_MS);
        Self {
            iface: text("IFACE"),
            key_file: text("KEY_FILE").or_else(|| get("DENREI_KEY_FILE").filter(|value| !value.is_empty())),
            insecure: flag(&text, "INSECURE"),
            failure_timeout: Duration::from_millis(failure_timeout),
            progress_thread: choice(&text, "PROGRESS_THREAD"),
            limits: Limits {
                eager_bytes: within(EAGER_RANGE, &text, "EAGER_BYTES", EAGER_BYTES),
                unexpected_bytes: within(
                    LEAST_UNEXPECTED_BYTES..=usize::MAX,
                    &text,
                    "UNEXPECTED_BYTES",
                    UNEXPECTED_BYTES,
                ),
                unacknowledged_bytes: UNACKNOWLEDGED_BYTES,
                linger: Duration::from_millis(number(&text, "LINGER_MS", 2_000)),
                keeps_any_source: flag(&text, "KEEP_ANY_SOURCE"),
            },
        }
    }

    /// Whether addresses beyond loopback may be used.
    pub fn may_leave_the_host(&self) -> bool {
        self.insecure || self.key_file.is_some()
    }

    /// The cluster key, if one is named.
    ///
    /// # Errors
    /// `EACCES`: its file cannot be read; the log says why.
    pub fn cluster_key(&self) -> Result<Option<ClusterKey>, Errno> {
        let Some(path) = &self.key_file else { return Ok(None) };
        denrei::key_file::read_cluster_key(path.as_ref()).map(Some).map_err(|error| {
            log::say(Level::Warn, Subsystem::EndpointControl, || error.to_string());
            Errno(libc::EACCES)
        })
    }

    /// The address to open a Node at where none is asked for: the most useful one, any free port.
    pub fn first_address(&self) -> SocketAddr {
        let first = crate::interfaces::list(self.iface.as_deref(), self.may_leave_the_host());
        SocketAddr::new(first.first().map_or([127, 0, 0, 1].into(), |interface| interface.address), 0)
    }

    /// The configuration of an endpoint's Node. The key's file is read by whoever opens the Node.
    pub fn node_config(&self) -> Config {
        let mut config = self.common_config();
        let protocol = &mut config.protocol;
        protocol.offers = OfferPolicy::Ask;
        // Nothing that goes there comes before somebody asks for it.
        protocol.offer_above_bytes = 0;
        protocol.offering_channel = Some(header::BULK);
        // The bytes of a large message are the application's: what is bounded is in the engine.
        protocol.send_buffer_bytes = NO_LIMIT;
        protocol.max_message_bytes = NO_LIMIT;
        config
    }

    /// What the Nodes for groups have as well: whom they speak with, and when a peer is lost.
    pub fn common_config(&self) -> Config {
        // A key goes before carelessness.
        let insecure = self.insecure && self.key_file.is_none();
        let mut config = Config { insecure, ..Config::default() };
        let protocol = &mut config.protocol;
        protocol.failure_timeout = self.failure_timeout;
        protocol.connect_timeout = self.failure_timeout;
        protocol.keepalive = Some((self.failure_timeout / 4).min(Duration::from_secs(5)));
        config
    }
}

fn flag(text: &impl Fn(&str) -> Option<String>, name: &str) -> bool {
    choice(text, name).unwrap_or(false)
}

fn choice(text: &impl Fn(&str) -> Option<String>, name: &str) -> Option<bool> {
    let value = text(name)?;
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" | "on" | "true" => Some(true),
        "0" | "no" | "off" | "false" => Some(false),
        _ => {
            ignored(name, &value, "neither 1 nor 0");
            None
        }
    }
}

fn number<T: FromStr>(text: &impl Fn(&str) -> Option<String>, name: &str, default: T) -> T {
    let Some(value) = text(name) else { return default };
    value.parse().unwrap_or_else(|_| {
        ignored(name, &value, "not a number");
        default
    })
}

fn within<T: Copy + FromStr + PartialOrd + Display>(
    range: RangeInclusive<T>,
    text: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: T,
) -> T {
    let value = number(text, name, default);
    let why = if value < *range.start() {
        format!("less than {}", range.start())
    } else if value > *range.end() {
        format!("more than {}", range.end())
    } else {
        return value;
    };
    ignored(name, &value.to_string(), &why);
    default
}

fn ignored(name: &str, value: &str, why: &str) {
    log::say(Level::Warn, Subsystem::Core, || {
        format!("FI_DENREI_{name}={value} is {why}: the default is taken")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: &[(&str, &str)]) -> Settings {
        Settings::from(|name| values.iter().find(|(known, _)| *known == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn the_environment_is_read_and_nonsense_ignored() {
        let default = settings(&[]);
        assert!(!default.insecure && !default.may_leave_the_host());
        assert_eq!(default.limits.eager_bytes, EAGER_BYTES);
        let set = settings(&[
            ("FI_DENREI_INSECURE", "1"),
            ("FI_DENREI_EAGER_BYTES", "2048"),
            ("FI_DENREI_LINGER_MS", "a while"),
            ("FI_DENREI_FAILURE_TIMEOUT_MS", "3000"),
        ]);
        assert!(set.may_leave_the_host());
        assert_eq!(set.limits.eager_bytes, 2048);
        assert_eq!(set.limits.linger, Duration::from_secs(2));
        assert_eq!(set.failure_timeout, Duration::from_secs(3));
        assert!(!settings(&[("FI_DENREI_INSECURE", "0")]).insecure);
        assert!(settings(&[("DENREI_KEY_FILE", "/etc/key")]).may_leave_the_host());
    }

    #[test]
    fn a_switch_is_one_of_a_few_words_and_off_otherwise() {
        let opens = |value: &str| settings(&[("FI_DENREI_INSECURE", value)]).may_leave_the_host();
        assert!(["1", "yes", "on", "true", "TRUE", "On"].into_iter().all(opens));
        assert!(!["", "0", "no", "off", "false", "banana", "n", "00", "2", " 1"].into_iter().any(opens));
    }

    #[test]
    fn what_is_out_of_range_is_ignored() {
        let unexpected = |value| settings(&[("FI_DENREI_UNEXPECTED_BYTES", value)]).limits.unexpected_bytes;
        assert_eq!(
            ["0", "1048575", "1048576"].map(unexpected),
            [UNEXPECTED_BYTES, UNEXPECTED_BYTES, 1_048_576]
        );
        let eager = |value| settings(&[("FI_DENREI_EAGER_BYTES", value)]).limits.eager_bytes;
        assert_eq!(["0", "1023", "32769", "18446744073709551615"].map(eager), [EAGER_BYTES; 4]);
        assert_eq!(["1024", "32768"].map(eager), [1024, 32_768]);
        let failure =
            |value| settings(&[("FI_DENREI_FAILURE_TIMEOUT_MS", value)]).failure_timeout.as_millis() as u64;
        assert_eq!(["0", "99", "100"].map(failure), [FAILURE_TIMEOUT_MS, FAILURE_TIMEOUT_MS, 100]);
    }

    #[test]
    fn the_nodes_configuration_is_valid_at_both_ends() {
        for (eager, timeout) in [("1024", "100"), ("32768", "18446744073709551615")] {
            let settings =
                settings(&[("FI_DENREI_EAGER_BYTES", eager), ("FI_DENREI_FAILURE_TIMEOUT_MS", timeout)]);
            settings.node_config().validate().unwrap();
        }
    }

    #[test]
    fn every_parameter_is_one_that_is_read() {
        let source = include_str!("settings.rs");
        for parameter in PARAMETERS {
            let name = parameter.name.to_str().unwrap().to_uppercase();
            assert!(source.contains(&format!("\"{name}\"")), "{name} is not read");
        }
    }
}

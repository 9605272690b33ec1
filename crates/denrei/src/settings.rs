//! Settings by name, for those who have text and no Rust: C, Python, environment variables.
//!
//! Inputs → outputs: a name of [`SETTINGS`] and a value as text → the field of that name in
//! [`Config`], set. Sizes take KiB, MiB, GiB; times take ns, us, ms, s, min; switches on and off.

mod group;

pub use group::{GROUP_SETTINGS, backend as group_backend, set_group_option};

use crate::config::{Config, Drive};
use crate::key_file::{KeyFileError, read_allow_list, read_cluster_key, read_identity};
use crate::pipeline;
use denrei_io::BackendChoice;
use denrei_proto::{ConfigError, CongestionAlgorithm, OfferPolicy};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// One setting of a `T` that has a name.
#[derive(Debug)]
pub struct Setting<T = Config> {
    /// Its name.
    pub name: &'static str,
    /// What values look like.
    pub values: &'static str,
    set: Set<T>,
}

/// How a setting is made.
#[derive(Debug)]
enum Set<T> {
    /// Of the text; `None` if that is no value.
    Text(fn(&mut T, &str) -> Option<()>),
    /// Of what is in the file that the text names, which is read once: what comes by a pipe is not there any more to be
    /// asked what was wrong with it.
    File(fn(&mut T, &Path) -> Result<(), KeyFileError>),
}

impl<T> Setting<T> {
    /// A setting that `set` makes of text; `None` if the text is no value of it.
    pub const fn new(name: &'static str, values: &'static str, set: fn(&mut T, &str) -> Option<()>) -> Self {
        Self { name, values, set: Set::Text(set) }
    }

    const fn of_file(
        name: &'static str,
        values: &'static str,
        set: fn(&mut T, &Path) -> Result<(), KeyFileError>,
    ) -> Self {
        Self { name, values, set: Set::File(set) }
    }
}

/// Sets the one of `settings` that has this name.
///
/// # Errors
/// None has this name, or the text is no value of it; both say what would be possible.
pub fn set_by_name<T>(
    settings: &[Setting<T>],
    target: &mut T,
    name: &str,
    value: &str,
) -> Result<(), ConfigError> {
    let Some(setting) = settings.iter().find(|setting| setting.name == name) else {
        let names: Vec<_> = settings.iter().map(|setting| setting.name).collect();
        return Err(ConfigError {
            setting: "the setting's name",
            value: format!("{name:?}"),
            expected: format!("one of {}", names.join(", ")),
        });
    };
    let refused = |why: &str| ConfigError {
        setting: setting.name,
        value: format!("{value:?}{why}"),
        expected: setting.values.to_owned(),
    };
    match setting.set {
        Set::Text(set) => set(target, value.trim()).ok_or_else(|| refused("")),
        Set::File(set) => set(target, Path::new(value.trim())).map_err(|why| refused(&format!(" ({why})"))),
    }
}

/// What [`size`] takes.
pub const SIZE: &str = "a size, such as 65536, 64KiB, 4MiB or 1GiB";
/// What [`time`] takes.
pub const TIME: &str = "a time, such as 50us, 20ms, 1.5s or 2min";
/// What a socket's buffer may be.
const SOCKET_BUFFER: &str = "a size, such as 64KiB or 4MiB; 0 leaves it to the system";
/// What [`switch`] takes.
pub const SWITCH: &str = "on or off";

macro_rules! setting {
    ($name:ident, $values:expr, $parse:expr, $($path:ident).+) => {
        Setting::new(stringify!($name), $values, |config, text| {
            config.$($path).+ = $parse(text)?;
            Some(())
        })
    };
}

/// All of them. Each is described at the field of [`Config`], [`ProtocolConfig`](crate::ProtocolConfig)
/// or [`SocketConfig`](crate::SocketConfig) that has its name; the socket's buffers have `socket_`
/// before theirs.
pub const SETTINGS: &[Setting] = &[
    setting!(channel_credit_bytes, "a size from 64KiB to 1TiB", size, protocol.channel_credit_bytes),
    setting!(
        receive_memory_bytes,
        "a size from channel_credit_bytes times shards, such as 1GiB",
        size,
        protocol.receive_memory_bytes
    ),
    setting!(max_message_bytes, "a size from 1, such as 64KiB or 16GiB", size, protocol.max_message_bytes),
    setting!(
        offer_above_bytes,
        "a size to channel_credit_bytes less 64, such as 1MiB",
        size,
        protocol.offer_above_bytes
    ),
    setting!(offers, "automatic or ask", offers, protocol.offers),
    setting!(send_buffer_bytes, "a size from 1, such as 64KiB or 8MiB", size, protocol.send_buffer_bytes),
    setting!(max_channels, "a whole number from 16 to 65535", number, protocol.max_channels),
    setting!(max_peers, "a whole number from 1 to 16777215", number, protocol.max_peers),
    setting!(
        failure_timeout,
        "a time from 10ms, such as 250ms, 1.5s or 2min",
        time,
        protocol.failure_timeout
    ),
    setting!(
        keepalive,
        "a time from 1ms to half of failure_timeout, or off",
        time_or_off,
        protocol.keepalive
    ),
    setting!(
        connect_timeout,
        "a time from 10ms, such as 250ms, 1.5s or 2min",
        time,
        protocol.connect_timeout
    ),
    setting!(
        max_ack_delay,
        "a time from 0ms to 50ms, and to a quarter of failure_timeout",
        time,
        protocol.max_ack_delay
    ),
    setting!(initial_rtt, "a time from 1us to 3s", time, protocol.initial_rtt),
    setting!(
        max_datagram_bytes,
        "a whole number from 576 to 65507, and from min_datagram_bytes",
        number,
        protocol.max_datagram_bytes
    ),
    setting!(min_datagram_bytes, "a whole number from 576 to 1472", number, protocol.min_datagram_bytes),
    setting!(first_flight_bytes, SIZE, size, protocol.first_flight_bytes),
    setting!(
        rate_request_bytes_per_s,
        "a whole number from 0 to 1125899906842624 (1 PiB)",
        number,
        protocol.rate_request.bytes_per_s
    ),
    setting!(rate_request_burst_bytes, "a size from 0 to 1024TiB", size, protocol.rate_request.burst_bytes),
    setting!(learn_rates, SWITCH, switch, protocol.learn_rates),
    setting!(congestion, "delay, cubic or rate-only", congestion, protocol.congestion),
    Setting::new("ecn", SWITCH, |config, text| {
        config.protocol.ecn = switch(text)?;
        config.socket.ecn = config.protocol.ecn;
        Some(())
    }),
    setting!(socket_recv_buffer_bytes, SOCKET_BUFFER, size, socket.recv_buffer_bytes),
    setting!(socket_send_buffer_bytes, SOCKET_BUFFER, size, socket.send_buffer_bytes),
    setting!(backend, "auto, batched or plain", backend, socket.backend),
    setting!(gso, SWITCH, switch, socket.gso),
    setting!(gro, SWITCH, switch, socket.gro),
    setting!(connected_sockets, "a whole number from 0 to 31", number, socket.connected_sockets),
    Setting::new(
        "multicast_interface",
        "an IPv4 address of this host, of the interface that groups are on",
        |config, text| {
            config.socket.multicast_interface = if text.is_empty() { None } else { Some(number(text)?) };
            Some(())
        },
    ),
    setting!(drive, "inline, thread or pipelined", drive, drive),
    setting!(
        pipeline,
        "groups of rx, open, proto, seal, tx, such as rx+open|proto|seal+tx",
        pipeline::parse,
        pipeline
    ),
    setting!(shards, "a whole number from 1 to 128, 1 unless drive is pipelined", number, shards),
    setting!(spin, "a time from 0s to 10s", time, spin),
    setting!(insecure, SWITCH, switch, insecure),
    Setting::new("host_directory", "a directory that this host's Nodes share", |config, text| {
        config.host_directory = (!text.is_empty()).then(|| text.into());
        Some(())
    }),
    setting!(host_bytes_per_s, "a whole number from 0 to 1125899906842624 (1 PiB)", number, host_bytes_per_s),
    Setting::new("status_directory", "a directory where this Node says how it is", |config, text| {
        config.status_directory = (!text.is_empty()).then(|| text.into());
        Some(())
    }),
    setting!(
        max_handshakes_per_s,
        "a whole number from 1 to 4294967295",
        number,
        protocol.max_handshakes_per_s
    ),
    setting!(rekey_after_packets, "a whole number from 16 to 4194304", number, protocol.rekey_after_packets),
    Setting::of_file(
        "key_file",
        "a file that `denrei keygen` wrote and its owner alone can read",
        |config, path| read_cluster_key(path).map(|key| config.cluster_key = Some(key)),
    ),
    Setting::of_file(
        "identity_file",
        "a file that `denrei keygen --identity` wrote and its owner alone can read",
        |config, path| read_identity(path).map(|identity| config.identity = Some(identity)),
    ),
    Setting::of_file(
        "allow_file",
        "a file with a public identity of `denrei keygen --identity` on each line",
        |config, path| read_allow_list(path).map(|allowed| config.allowed = allowed),
    ),
];

impl Config {
    /// Sets one setting by its name in [`SETTINGS`].
    ///
    /// # Errors
    /// No setting has this name, or the text is no value of it; both say what would be possible.
    /// Whether the value is *allowed* is for [`validate`](Self::validate).
    ///
    /// ```
    /// let mut config = denrei::Config::default();
    /// config.set("failure_timeout", "2.5s")?;
    /// config.set("channel_credit_bytes", "1MiB")?;
    /// assert_eq!(config.protocol.channel_credit_bytes, 1 << 20);
    /// # Ok::<(), denrei::ConfigError>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        set_by_name(SETTINGS, self, name, value)
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Splits "1.5GiB" into number and unit.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit.trim()))
}

/// A size, bytes.
pub fn size<T: TryFrom<u64>>(text: &str) -> Option<T> {
    if let Ok(bytes) = text.parse::<u64>() {
        return bytes.try_into().ok();
    }
    let (count, unit) = quantity(text)?;
    let scale: u64 = match unit {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        _ => return None,
    };
    let bytes = count * scale as f64;
    // More is no number of bytes, and the nearest that is one is not what was meant.
    if bytes < u64::MAX as f64 { (bytes as u64).try_into().ok() } else { None }
}

/// A time with its unit.
pub fn time(text: &str) -> Option<Duration> {
    let (count, unit) = quantity(text)?;
    let seconds = match unit {
        "ns" => count / 1e9,
        "us" | "µs" => count / 1e6,
        "ms" => count / 1e3,
        "s" => count,
        "min" => count * 60.0,
        "" if count == 0.0 => 0.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn time_or_off(text: &str) -> Option<Option<Duration>> {
    if text == "off" { Some(None) } else { time(text).map(Some) }
}

/// On or off.
pub fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn offers(text: &str) -> Option<OfferPolicy> {
    match text {
        "automatic" => Some(OfferPolicy::Automatic),
        "ask" => Some(OfferPolicy::Ask),
        _ => None,
    }
}

fn congestion(text: &str) -> Option<CongestionAlgorithm> {
    match text {
        "delay" => Some(CongestionAlgorithm::Delay),
        "cubic" => Some(CongestionAlgorithm::Cubic),
        "rate-only" => Some(CongestionAlgorithm::RateOnly),
        _ => None,
    }
}

fn backend(text: &str) -> Option<BackendChoice> {
    match text {
        "auto" => Some(BackendChoice::Auto),
        "batched" => Some(BackendChoice::Batched),
        "plain" => Some(BackendChoice::Plain),
        _ => None,
    }
}

fn drive(text: &str) -> Option<Drive> {
    match text {
        "inline" => Some(Drive::Inline),
        "thread" => Some(Drive::Thread),
        "pipelined" => Some(Drive::Pipelined),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_proto::Rate;
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::os::fd::AsRawFd;

    #[test]
    fn why_a_file_of_keys_is_not_taken_is_said() {
        let mut config = Config::default();
        for name in ["key_file", "identity_file", "allow_file"] {
            let missing = config.set(name, "/nowhere/denrei").unwrap_err().to_string();
            assert!(missing.contains("No such file"), "{missing}");
            let odd = config.set(name, "/").unwrap_err().to_string();
            assert!(odd.contains("`denrei keygen") && odd.contains("/ is not a file"), "{odd}");
        }
        // What comes by a pipe can be read only once.
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"words").unwrap();
        drop(write);
        let piped = config.set("key_file", &format!("/dev/fd/{}", read.as_raw_fd())).unwrap_err();
        assert!(piped.to_string().contains("line 1: this is no key"), "{piped}");
    }

    #[test]
    fn text_becomes_the_field_of_that_name() {
        let mut config = Config::default();
        for (name, value) in [
            ("channel_credit_bytes", "1.5MiB"),
            ("failure_timeout", "250ms"),
            ("keepalive", "off"),
            ("offers", "ask"),
            ("max_channels", "64"),
            ("drive", "thread"),
            ("pipeline", "rx+open|proto|seal+tx"),
            ("shards", "4"),
            ("ecn", "off"),
            ("socket_recv_buffer_bytes", "1000000"),
            ("multicast_interface", "127.0.0.1"),
        ] {
            config.set(name, value).unwrap();
        }
        assert_eq!(config.protocol.channel_credit_bytes, 3 << 19);
        assert_eq!(config.protocol.failure_timeout, Duration::from_millis(250));
        assert_eq!(config.protocol.keepalive, None);
        assert_eq!(config.protocol.offers, OfferPolicy::Ask);
        assert_eq!(config.protocol.max_channels, 64);
        assert_eq!(config.drive, Drive::Thread);
        assert_eq!(config.pipeline.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 2]);
        assert_eq!(config.shards, 4);
        assert!(!config.protocol.ecn && !config.socket.ecn);
        assert_eq!(config.socket.recv_buffer_bytes, 1_000_000);
        assert_eq!(config.socket.multicast_interface, Some(Ipv4Addr::LOCALHOST));
        config.set("multicast_interface", "").unwrap();
        assert_eq!(config.socket.multicast_interface, None);
    }

    /// The bounds that are numbers: "a whole number from 16 to 65535" has two, "a size from 1, such as 64KiB" one.
    fn bounds_of(setting: &Setting) -> (Option<&'static str>, Option<&'static str>) {
        let what = setting.values.split(',').next().unwrap_or_default();
        let behind = |word: &str| {
            let bound = what.split_once(word)?.1.split(' ').next()?;
            bound.starts_with(|first: char| first.is_ascii_digit()).then_some(bound)
        };
        let is_range = ["a whole number ", "a size ", "a time "].iter().any(|kind| what.starts_with(kind));
        if is_range { (behind(" from "), behind(" to ")) } else { (None, None) }
    }

    /// A bound a little further out; `None`: there is nothing beyond it.
    fn beyond(bound: &str, up: bool) -> Option<String> {
        if let Some(bytes) = size::<u64>(bound) {
            return if up { bytes.checked_add(1) } else { bytes.checked_sub(1) }
                .map(|bytes| bytes.to_string());
        }
        let (time, ns) = (time(bound).unwrap(), Duration::from_nanos(1));
        let further = if up { time.checked_add(ns) } else { time.checked_sub(ns) };
        further.map(|time| format!("{}ns", time.as_nanos()))
    }

    #[test]
    fn the_ranges_that_are_named_are_those_that_are_possible() {
        let refusal = |name: &str, value: &str| {
            let mut config = Config { drive: Drive::Pipelined, ..Config::default() };
            for (name, value) in [("learn_rates", "on"), ("host_directory", "/dev/shm/denrei")] {
                config.set(name, value).unwrap();
            }
            // What others are bound by is out of the way.
            config.protocol.min_datagram_bytes = 576;
            config.protocol.offer_above_bytes = 0;
            config.protocol.receive_memory_bytes = u64::MAX;
            config.protocol.keepalive = None;
            config.protocol.max_ack_delay = Duration::ZERO;
            if name.starts_with("rate_request") {
                config.protocol.rate_request = Rate { bytes_per_s: 1, burst_bytes: 1 };
            }
            let refused = match config.set(name, value) {
                Ok(()) => config.validate().err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            // No rate goes with a burst, and no burst with the largest rate.
            refused.filter(|why| !why.contains("set too where"))
        };
        let mut count = 0;
        for setting in SETTINGS {
            let (name, (least, most)) = (setting.name, bounds_of(setting));
            for (bound, up) in [(least, false), (most, true)] {
                let Some(bound) = bound else { continue };
                assert_eq!(refusal(name, bound), None, "{name}: {bound}");
                let Some(further) = beyond(bound, up) else { continue };
                let why = refusal(name, &further).unwrap_or_else(|| panic!("{name}: {further} is taken"));
                let field = name.replace("rate_request_", "rate_request.");
                assert!(why.starts_with(name) || why.starts_with(&field), "{why}");
                count += 1;
            }
        }
        assert_eq!(count, 29);
    }

    #[test]
    fn what_is_no_value_is_refused_with_what_would_be_one() {
        let mut config = Config::default();
        let error = config.set("failure_timeout", "soon").unwrap_err();
        assert_eq!(
            (error.setting, error.expected.as_str()),
            ("failure_timeout", "a time from 10ms, such as 250ms, 1.5s or 2min")
        );
        for (name, value, range) in [
            ("max_channels", "70000", "from 16 to 65535"),
            ("max_channels", "-1", "from 16 to 65535"),
            ("max_datagram_bytes", "70000", "from 576 to 65507, and from min_datagram_bytes"),
            ("max_peers", "5000000000", "from 1 to 16777215"),
        ] {
            let error = config.set(name, value).unwrap_err().to_string();
            assert!(error.contains(value) && error.ends_with(range), "{error}");
        }
        // Of the last two the nearest number of bytes is 2^64 - 1.
        for wrong in ["1 parsec", "100000000000000000000000", "99999999T"] {
            assert!(config.set("max_message_bytes", wrong).is_err(), "{wrong}");
        }
        let error = config.set("chanel_credit", "1").unwrap_err();
        assert!(error.to_string().contains("channel_credit_bytes"), "{error}");
    }
}

//! Every setting with every value that somebody may come upon: it is refused with what would be possible, or works.

mod common;

use common::background;
use denrei::{ChannelId, Config, Node, SETTINGS};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// What is no value of any setting.
const STRANGE: [&str; 14] = [
    "-1",
    "+-1",
    "soon",
    "1e3",
    "NaN",
    "inf",
    "0x10",
    "1.2.3s",
    "KiB",
    ".",
    "1 parsec",
    "\u{0}",
    "\u{661}",
    "18446744073709551616",
];

/// The least there is, the most there is, and what is between.
const EXTREME: [&str; 20] = [
    "0",
    "1",
    "2",
    "16",
    "576",
    "1472",
    "65507",
    "65535",
    "65536",
    "16777215",
    "4294967295",
    "1125899906842624",
    "18446744073709551615",
    "1TiB",
    "16777215TiB",
    "0s",
    "1ns",
    "1ms",
    "10s",
    "9300000000000000000s",
];

/// Two Nodes with these settings exchange a message, or the second hears why there is none.
fn exchange(config: &Config, what: &str) {
    let [one, two] = [(); 2].map(|()| {
        let config = Config { drive: background(), ..config.clone() };
        Node::bind("127.0.0.1:0", config).unwrap_or_else(|error| panic!("{what}: {error}"))
    });
    let peer = one.connect(two.local_addr()).unwrap();
    one.send(ChannelId { peer, channel: 0 }, vec![7]).unwrap_or_else(|error| panic!("{what}: {error}"));
    let times = [config.protocol.failure_timeout, config.protocol.connect_timeout];
    if times.into_iter().any(|time| time <= Duration::from_secs(10)) {
        return; // a session may be lost because this machine is slow
    }
    if one.flow(peer).unwrap().rate.bytes_per_s == 0 {
        return; // no data at all, as it wished
    }
    let message = two.recv_timeout(SOON).unwrap().unwrap_or_else(|| panic!("{what}: nothing comes"));
    assert_eq!(message.data.as_ref(), [7]);
    two.send(message.channel, vec![8]).unwrap_or_else(|error| panic!("{what}: {error}"));
    let answer = one.recv_timeout(SOON).unwrap().unwrap_or_else(|| panic!("{what}: no answer comes"));
    assert_eq!(answer.data.as_ref(), [8]);
}

#[test]
fn strange_values_are_refused_with_what_is_possible() {
    for setting in SETTINGS {
        let is_path = setting.name == "host_directory";
        for value in STRANGE.into_iter().filter(|_| !is_path) {
            let error = Config::default().set(setting.name, value).map_err(|error| error.to_string());
            let error = error.expect_err(&format!("{} takes {value:?}", setting.name));
            assert!(error.starts_with(setting.name) && error.ends_with(setting.values), "{error}");
        }
    }
}

#[test]
fn extreme_values_work_or_are_refused_with_what_is_possible() {
    let mut worked = 0;
    for setting in SETTINGS.iter().filter(|setting| !setting.name.ends_with("_file")) {
        for value in EXTREME {
            let what = format!("{} = {value}", setting.name);
            let mut config = Config::default();
            let Ok(()) = config.set(setting.name, value) else { continue };
            match config.validate().map_err(|error| error.to_string()) {
                Ok(()) => {
                    exchange(&config, &what);
                    worked += 1;
                }
                Err(error) => assert!(error.contains(", but has to be "), "{what}: {error}"),
            }
        }
    }
    assert!(worked > 100, "{worked} worked");
}

//! Every setting with every value that somebody may come upon: it is refused with what would be possible, or works.

use crate::common::background;
use denrei::{BindError, ChannelId, Config, GROUP_SETTINGS, GroupOptions, Node, SETTINGS, set_group_option};
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
    let config = &Config { drive: background(), ..config.clone() };
    let [one, two] = match [(); 2].map(|()| Node::bind("127.0.0.1:0", config.clone())) {
        [Ok(one), Ok(two)] => [one, two],
        // With the shards that the environment asks for.
        [Err(BindError::Config(error)), _] => {
            return assert!(error.to_string().contains(", but has to be "), "{what}: {error}");
        }
        [one, two] => panic!("{what}: {one:?}, {two:?}"),
    };
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
        let is_path = setting.name.ends_with("_directory");
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
    for setting in SETTINGS
        .iter()
        .filter(|setting| !setting.name.ends_with("_file") && setting.name != "status_directory")
    {
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

/// A group with these options, by unicast or what they say: a member gets a message, or is none any more.
fn exchange_in_a_group(options: GroupOptions, what: &str) {
    let node = || Node::bind("127.0.0.1:0", Config { drive: background(), ..Config::default() }).unwrap();
    let (opener, member) = (node(), node());
    let address = std::net::SocketAddr::from(([239, 255, 82, 1], opener.local_addr().port()));
    let listener = member.join_group(address).unwrap();
    let reader = std::thread::spawn(move || listener.accept(SOON).map(|member| member.recv_timeout(SOON)));
    let never_opens = options.open_timeout < Duration::from_secs(1);
    let ejects = matches!(options.policy, denrei::GroupPolicy::Eject { after } | denrei::GroupPolicy::Lag { after } if after < SOON);
    match opener.open_group(address, &[member.local_addr()], options) {
        Ok(group) => {
            group.send(vec![7]).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(group.flush(SOON) || ejects, "{what}: {:?}", group.status());
            group.close(SOON);
            let got = reader.join().unwrap().unwrap_or_else(|| panic!("{what}: no member"));
            assert!(ejects || got.unwrap().unwrap().data.as_ref() == [7], "{what}");
        }
        Err(error) => {
            let error = error.to_string();
            let says = ["has to be between 10ms and 86400s", "set Config::cluster_key"];
            assert!(never_opens || says.iter().any(|what| error.contains(what)), "{what}: {error}");
        }
    }
}

#[test]
fn extreme_options_of_groups_work_or_are_refused_with_what_is_possible() {
    let mut worked = 0;
    for setting in GROUP_SETTINGS {
        let policies =
            EXTREME.iter().flat_map(|time| ["eject:", "lag:"].map(|policy| format!("{policy}{time}")));
        for value in EXTREME.iter().map(|value| (*value).to_owned()).chain(policies) {
            let what = format!("{} = {value}", setting.name);
            let mut options = GroupOptions::default();
            match set_group_option(&mut options, setting.name, &value) {
                Ok(()) => {
                    exchange_in_a_group(options, &what);
                    worked += 1;
                }
                Err(error) => assert!(error.to_string().ends_with(setting.values), "{what}: {error}"),
            }
        }
        for value in STRANGE {
            let error = set_group_option(&mut GroupOptions::default(), setting.name, value).unwrap_err();
            assert!(error.to_string().ends_with(setting.values), "{error}");
        }
    }
    assert!(worked > 20, "{worked} worked");
}

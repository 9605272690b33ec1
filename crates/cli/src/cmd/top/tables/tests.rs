//! Looks of which everything is known, as tables.

use super::*;
use serde_json::json;

fn peer(number: u64, sent: u64) -> serde_json::Value {
    let mut counters = serde_json::Map::new();
    for name in [
        "packets_sent",
        "packets_received",
        "bytes_received",
        "messages_sent",
        "messages_received",
        "recoveries",
        "retransmissions",
        "probes",
        "excess",
        "duplicates",
        "ecn_marks",
        "packets_lost",
    ] {
        counters.insert(name.to_owned(), json!(0));
    }
    counters.insert("bytes_sent".to_owned(), json!(sent));
    json!({
        "peer": number, "address": format!("10.0.0.{number}:7000"), "incarnation": null, "phase": "open",
        "srtt_ns": 1_500_000, "min_rtt_ns": null, "rtt_var_ns": 0, "window_bytes": 12_000,
        "in_flight_bytes": 0, "credit_bytes": 0, "rate": {"bytes_per_s": 0, "burst_bytes": 0}, "rate_set": null,
        "weight": 100, "queued_messages": 0, "queued_bytes": 0, "unread_bytes": 0, "datagram_bytes": 1_200,
        "relays": 0, "counters": counters,
    })
}

/// Three sessions, of which each has sent so much by then.
fn seen(uptime_ms: u64, sent: [u64; 3]) -> Seen {
    let mut counters = serde_json::Map::new();
    for name in [
        "datagrams",
        "malformed",
        "corrupted",
        "unknown_session",
        "foreign_version",
        "refused_sessions",
        "crowds",
        "overruns",
        "suppressed_replies",
        "strange_keys",
        "strangers",
        "unsealed",
        "repeated_group_packets",
        "sealed_unread",
        "limited",
        "retries",
        "dropped_events",
    ] {
        counters.insert(name.to_owned(), json!(1));
    }
    let peers: Vec<_> = sent.iter().zip(1..).map(|(sent, number)| peer(number, *sent)).collect();
    let mut seen = Seen::default();
    let node = json!({
        "process": 4711, "command": "solver", "address": "10.0.0.9:7000", "incarnation": "00", "drive": "inline",
        "uptime_ms": uptime_ms, "sealed": true, "counters": counters, "peers": peers, "groups": [],
        "memberships": [],
    });
    seen.nodes.push(serde_json::from_value(node).unwrap());
    seen
}

#[test]
fn the_busiest_come_first_and_all_others_are_counted() {
    let mut tables = Tables::new("/nowhere".into());
    tables.take(seen(1_000, [0; 3]));
    assert!(tables.whole().contains("–"), "nothing is known of a second yet");
    tables.take(seen(3_000, [4_096, 40_960, 409_600]));
    let text = tables.fitting(8);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 8, "{text}");
    assert!(
        lines[3].contains("4711") && lines[3].contains("222 KiB") && lines[3].contains("solver"),
        "{text}"
    );
    assert!(lines[6].contains("10.0.0.3:7000") && lines[6].contains("200 KiB"), "{text}");
    assert!(lines[6].contains("1500") && lines[6].contains("stopped"), "{text}");
    assert_eq!(lines[7], "and 2 more sessions");
    let all = tables.whole();
    assert!(
        all.find("10.0.0.3") < all.find("10.0.0.2") && all.find("10.0.0.2") < all.find("10.0.0.1"),
        "{all}"
    );
}

#[test]
fn what_groups_move_is_of_what_a_node_moves() {
    let mut tables = Tables::new("/nowhere".into());
    for (uptime_ms, bytes_sent, bytes_received) in [(1_000, 1 << 20, 0), (2_000, 11 << 20, 7 << 20)] {
        let mut look = seen(uptime_ms, [0, 0, 2 << 10]);
        let group = json!({
            "group": "01", "address": "239.1.2.3:7000", "open": true, "messages_sent": 3,
            "messages_acknowledged": 2, "queued_bytes": 0, "window_bytes": 0, "bytes_sent": bytes_sent,
            "repairs": 0, "members": [],
        });
        let of = json!({
            "group": "02", "address": "239.4.5.6:7000", "opener": "10.0.0.4:7000", "member": 5,
            "bytes_received": bytes_received,
        });
        look.nodes[0].groups.push(serde_json::from_value(group).unwrap());
        look.nodes[0].memberships.push(serde_json::from_value(of).unwrap());
        tables.take(look);
    }
    let text = tables.whole();
    let says = |what: &str, rate: &str| text.lines().any(|line| line.contains(what) && line.contains(rate));
    assert!(says("solver", "10 MiB") && says("239.1.2.3", "10 MiB"), "{text}");
    assert!(says("solver", "7 MiB") && says("239.4.5.6", "7 MiB"), "{text}");
}

#[test]
fn many_nodes_leave_room_for_sessions() {
    let mut tables = Tables::new("/nowhere".into());
    for (uptime_ms, busy) in [(1_000, 0), (2_000, 1 << 20)] {
        let mut look = Seen::default();
        for process in 0..100 {
            let mut node = seen(uptime_ms, [0, 0, if process == 77 { busy } else { 0 }]).nodes.remove(0);
            (node.process, node.incarnation) = (process, process.to_string());
            look.nodes.push(node);
        }
        tables.take(look);
    }
    let text = tables.fitting(24);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 24, "{text}");
    assert!(lines[3].contains("77") && lines[3].contains("1 MiB"), "{text}");
    assert_eq!(lines[15], "and 88 more nodes");
    assert!(lines[18].contains("77") && lines[18].contains("10.0.0.3"), "{text}");
    assert_eq!(lines[23], "and 295 more sessions");
}

/// As where each rank of an MPI has groups of its own, and is a member of the others'.
#[test]
fn many_nodes_groups_and_memberships_leave_room_for_sessions() {
    let mut tables = Tables::new("/nowhere".into());
    let mut look = Seen::default();
    for process in 0..50 {
        let mut node = seen(1_000, [0; 3]).nodes.remove(0);
        (node.process, node.incarnation) = (process, process.to_string());
        let group = json!({
            "group": "01", "address": "239.1.2.3:7000", "open": true, "messages_sent": 3,
            "messages_acknowledged": 2, "queued_bytes": 0, "window_bytes": 0, "bytes_sent": 0,
            "repairs": 0, "members": [],
        });
        node.groups.push(serde_json::from_value(group).unwrap());
        let of = json!({
            "group": "02", "address": "239.1.2.4:7000", "opener": "10.0.0.4:7000", "member": 5,
            "bytes_received": 0,
        });
        node.memberships.push(serde_json::from_value(of).unwrap());
        look.nodes.push(node);
    }
    tables.take(look);
    for lines in 16..100 {
        let text = tables.fitting(lines);
        let rows_with = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert!(text.lines().count() <= lines, "on {lines} lines: {text}");
        for what in ["solver", "239.1.2.3", "239.1.2.4", "10.0.0.1:7000"] {
            assert!(rows_with(what) > 0 || lines < 24, "on {lines} lines no {what}: {text}");
        }
        for what in ["nodes", "groups", "memberships", "sessions"] {
            assert!(text.lines().any(|line| line.starts_with("and ") && line.ends_with(what)), "{text}");
        }
    }
}

#[test]
fn a_command_gives_the_terminal_no_orders() {
    let mut tables = Tables::new("/nowhere".into());
    let mut hostile = seen(1_000, [0; 3]);
    hostile.nodes[0].command = "sh -c\n\u{1b}[2Jecho\tyes".to_owned();
    tables.take(hostile);
    let text = tables.whole();
    assert!(text.contains("sh -c\u{fffd}\u{fffd}[2Jecho\u{fffd}yes"), "{text}");
    assert!(!text.contains(|sign: char| sign.is_control() && sign != '\n'), "{text}");
}

#[test]
fn who_does_not_answer_is_not_told_to_be_started() {
    let mut tables = Tables::new("/nowhere".into());
    let mut stopped = Seen::default();
    stopped.silent.push("/nowhere/1-00.socket".into());
    tables.take(stopped);
    assert_eq!(tables.whole(), "/nowhere: 0 nodes, and 1 that does not answer\n");
}

#[test]
fn a_session_that_began_in_between_has_no_pace() {
    let mut tables = Tables::new("/nowhere".into());
    tables.take(Seen::default());
    assert!(tables.whole().contains("DENREI_STATUS_DIRECTORY=/nowhere"));
    tables.take(seen(1_000, [5; 3]));
    assert!(tables.paces.is_empty());
    // Asked twice within a millisecond.
    tables.take(seen(1_000, [9; 3]));
    assert!(tables.paces.is_empty());
}

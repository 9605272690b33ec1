//! The attacks, each with what it needs.

pub mod group;
pub mod member;
pub mod outside;
pub mod path;
mod sweep;

use crate::outcome::Tried;
use crate::stage::{Stage, Wiring};
use anyhow::Result;

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// What it is called on the command line and in reports.
    pub name: &'static str,
    /// What it tries, in a line.
    pub summary: &'static str,
    /// Where the attacker stands.
    pub wiring: Wiring,
    /// How often the honest session changes its keys, packets; `None`: as seldom as by default.
    pub rekey_after_packets: Option<u64>,
    /// Memory that the victim may grow by, honest transfer included, bytes.
    pub most_memory_bytes: u64,
    /// Carries it out.
    pub run: fn(&mut Stage, &mut Tried) -> Result<()>,
}

/// What the honest transfer and a bounded number of unproven sessions may take, bytes.
const LITTLE: u64 = 32 << 20;

const fn outsider(
    name: &'static str,
    summary: &'static str,
    run: fn(&mut Stage, &mut Tried) -> Result<()>,
) -> Attack {
    Attack {
        name,
        summary,
        wiring: Wiring::Direct,
        rekey_after_packets: None,
        most_memory_bytes: LITTLE,
        run,
    }
}

const fn on_path(
    name: &'static str,
    summary: &'static str,
    run: fn(&mut Stage, &mut Tried) -> Result<()>,
) -> Attack {
    Attack { wiring: Wiring::Relayed, ..outsider(name, summary, run) }
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    outsider(
        "blind-injection",
        "packets of all kinds, with guessed tokens, under both sides' addresses",
        outside::blind_injection,
    ),
    outsider(
        "handshake-flood",
        "FIRSTs without end from forged addresses: random, of another key, and recorded",
        outside::handshake_flood,
    ),
    outsider(
        "amplification",
        "FIRSTs from many addresses that only count what comes back",
        outside::amplification,
    ),
    outsider(
        "forged-icmp",
        "port unreachable, in the name of a router, for both sides",
        outside::forged_icmp,
    ),
    outsider(
        "wrong-key",
        "Nodes with another key, and Nodes without, that connect and send",
        outside::wrong_key,
    ),
    on_path(
        "replay-at-once",
        "every packet again, at once and a little later, both ways",
        path::replay_at_once,
    ),
    on_path(
        "replay-first",
        "recorded FIRSTs and ANSWERs again, from their addresses and from others",
        path::replay_first,
    ),
    on_path(
        "replay-after-restart",
        "a whole recorded session again, to a victim that was started anew",
        path::replay_after_restart,
    ),
    Attack {
        rekey_after_packets: Some(64),
        ..on_path(
            "replay-after-rekey",
            "packets of keys that have been given up since",
            path::replay_after_rekey,
        )
    },
    on_path("reflection", "every packet back to the one who sent it", path::reflection),
    on_path("truncation", "copies cut short at every length, before the original", path::truncation),
    on_path("bit-flips", "copies with one bit turned, at every offset, before the original", path::bit_flips),
    on_path(
        "forged-close",
        "RESET, END, RATE 0 and their like with the right token, without the keys",
        path::forged_close,
    ),
    on_path("downgrade", "plain FIRSTs and ANSWERs in place of sealed ones", path::downgrade),
    on_path(
        "version-confusion",
        "other versions' FIRSTs, VERSIONS and RETRYs that nobody sent",
        path::version_confusion,
    ),
    outsider(
        "reassembly-exhaustion",
        "a member's messages that are begun and never completed",
        member::reassembly_exhaustion,
    ),
    outsider(
        "credit-exhaustion",
        "a member that sends beyond the credit it was given",
        member::credit_exhaustion,
    ),
    outsider(
        "request-flood",
        "a member's offers, status requests and parameters without end",
        member::request_flood,
    ),
    outsider("acks-of-unsent", "a member acknowledges packets that were never sent", member::acks_of_unsent),
    outsider("optimistic-acks", "a member acknowledges packets before they arrive", member::optimistic_acks),
    outsider("malformed-frames", "a member's frames that are none", member::malformed_frames),
    outsider(
        "cross-session-close",
        "a member ends sessions of others: END and RATE 0 under the sender's address",
        member::cross_session_close,
    ),
    outsider(
        "replay-group",
        "every packet of a group again, at once and a little later, to the group and to the victim",
        group::replay_at_once,
    ),
    outsider(
        "replay-group-after-restart",
        "a group's recorded packets again, to a victim that was started anew",
        group::replay_after_restart,
    ),
    outsider(
        "replay-group-after-rekey",
        "a group's recorded packets again, when its key has been given up",
        group::replay_after_rekey,
    ),
    outsider(
        "group-forgery",
        "copies of a group's packets cut short and with bits turned, and plain ones, before the next",
        group::forgery,
    ),
    outsider(
        "ejected-member",
        "a member that was ejected listens on, forges with its old key and asks to be let in again",
        group::ejected_member,
    ),
    outsider(
        "refusing-member",
        "the same, by a member that refuses to take part once it has the key",
        group::refusing_member,
    ),
    outsider("session-churn", "a member opens and drops sessions without end", member::session_churn),
];

//! What nodes say, as tables: nodes, groups, and sessions, of which the busiest come first.
//!
//! Inputs → outputs: one look after the other → text. What a second brings is the difference between the last two, by
//! the nodes' own clocks.

use crate::cells::{dash, human_bytes, number, right};
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Table};
use denrei::status::{GroupStatus, MembershipStatus, NodeStatus, PeerStatus, RateLimit, Seen};
use derive_more::Add;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;

/// The part of a screen that groups, and memberships as well, have at most: one in so many lines. Of the rows that are left
/// then one in so many is a session's, or more, the others are nodes'.
const GROUPS_SHARE: usize = 4;
const SESSIONS_SHARE: usize = 3;
/// Lines of a table that are not rows: an empty one, the header, and what is said of those that are left out.
const AROUND_ROWS: usize = 3;

/// What a session, a group or a membership of a node's had moved at a time, bytes and packets.
#[derive(Clone, Copy, Default)]
struct Moved {
    sent: u64,
    received: u64,
    lost: u64,
}

/// What a second brought, bytes and packets.
#[derive(Clone, Copy, Add)]
struct Pace {
    sent: f64,
    received: f64,
    lost: f64,
}

/// A session, a group or a membership, by the incarnation of its node.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Mover {
    Session(String, u64),
    Group(String, String),
    Membership(String, String, u32),
}

impl Mover {
    fn session(node: &NodeStatus, peer: &PeerStatus) -> Self {
        Self::Session(node.incarnation.clone(), peer.peer)
    }

    fn group(node: &NodeStatus, group: &GroupStatus) -> Self {
        Self::Group(node.incarnation.clone(), group.group.clone())
    }

    fn membership(node: &NodeStatus, of: &MembershipStatus) -> Self {
        Self::Membership(node.incarnation.clone(), of.group.clone(), of.member)
    }
}

/// The last look, and what the one before says of it.
pub struct Tables {
    directory: PathBuf,
    seen: Seen,
    /// What was moved, and at which of the node's milliseconds.
    before: HashMap<Mover, (Moved, u64)>,
    paces: HashMap<Mover, Pace>,
}

impl Tables {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, seen: Seen::default(), before: HashMap::new(), paces: HashMap::new() }
    }

    /// Takes in another look.
    pub fn take(&mut self, seen: Seen) {
        let now: HashMap<_, _> = seen.nodes.iter().flat_map(moved_by).collect();
        let paces = now.iter().filter_map(|(mover, now)| {
            let pace = pace(*self.before.get(mover)?, *now)?;
            Some((mover.clone(), pace))
        });
        self.paces = paces.collect();
        (self.before, self.seen) = (now, seen);
    }

    fn pace(&self, mover: &Mover) -> Option<Pace> {
        self.paces.get(mover).copied()
    }

    /// All of it.
    pub fn whole(&self) -> String {
        self.fitting(usize::MAX)
    }

    /// What there is room for on so many lines: the busiest nodes, groups and memberships in a part of them each, and
    /// sessions in what is left.
    pub fn fitting(&self, lines: usize) -> String {
        let mut text = self.headline();
        if self.seen.nodes.is_empty() {
            let is_anybody = !(self.seen.silent.is_empty() && self.seen.unreadable.is_empty());
            return if is_anybody { text } else { text + &self.what_to_do() };
        }
        let room = (lines / GROUPS_SHARE).saturating_sub(AROUND_ROWS);
        let groups = self.groups(room) + &self.memberships(room);
        let others = text.lines().count() + groups.lines().count() + 2 * AROUND_ROWS;
        let rows = lines.saturating_sub(others);
        text += &self.nodes(rows - rows / SESSIONS_SHARE);
        text += &groups;
        let room = lines.saturating_sub(text.lines().count() + AROUND_ROWS);
        text + &self.sessions(room)
    }

    fn headline(&self) -> String {
        let nodes = match self.seen.nodes.len() {
            1 => "1 node".to_owned(),
            nodes => format!("{nodes} nodes"),
        };
        let silent = match self.seen.silent.len() {
            0 => String::new(),
            1 => ", and 1 that does not answer".to_owned(),
            silent => format!(", and {silent} that do not answer"),
        };
        let unreadable = match unreadable(&self.seen) {
            None => String::new(),
            Some(words) => format!("{words}\n"),
        };
        format!("{}: {nodes}{silent}\n{unreadable}", self.directory.display())
    }

    fn what_to_do(&self) -> String {
        format!(
            "\nno node tells of itself there (yet): start programs in an environment with\n\
             DENREI_STATUS_DIRECTORY={}\n",
            self.directory.display()
        )
    }

    fn nodes(&self, room: usize) -> String {
        let header = [
            "pid", "address", "drive", "sealed", "peers", "out/s", "in/s", "queued", "unread", "dropped",
            "command",
        ];
        let nodes = self.seen.nodes.iter().map(|node| {
            let paces = moved_by(node).filter_map(|(mover, _)| self.pace(&mover));
            (paces.reduce(|sum, more| sum + more), node)
        });
        table(header, nodes.collect(), room, "nodes", |pace, node| {
            let sum = |of: fn(&PeerStatus) -> u64| node.peers.iter().map(of).sum::<u64>();
            vec![
                right(node.process.to_string()),
                Cell::new(node.address),
                Cell::new(&node.drive),
                Cell::new(if node.sealed { "yes" } else { "no" }),
                right(node.peers.len().to_string()),
                bytes(pace.map(|pace| pace.sent)),
                bytes(pace.map(|pace| pace.received)),
                bytes(Some(sum(|peer| peer.queued_bytes) as f64)),
                bytes(Some(sum(|peer| peer.unread_bytes) as f64)),
                right(dropped(node).to_string()),
                Cell::new(visible(&node.command)),
            ]
        })
    }

    fn groups(&self, room: usize) -> String {
        let header = [
            "pid",
            "group",
            "members",
            "lagging",
            "out/s",
            "sent",
            "all have",
            "queued",
            "repairs",
            "furthest behind",
        ];
        let all = self.seen.nodes.iter().flat_map(|node| node.groups.iter().map(move |group| (node, group)));
        let groups = all.map(|(node, group)| (self.pace(&Mover::group(node, group)), (node, group)));
        table(header, groups.collect(), room, "groups", |pace, (node, group)| {
            let active = || group.members.iter().filter(|member| member.active);
            vec![
                right(node.process.to_string()),
                Cell::new(group.address),
                right(active().count().to_string()),
                right(active().filter(|member| member.lagging).count().to_string()),
                bytes(pace.map(|pace| pace.sent)),
                right(group.messages_sent.to_string()),
                right(group.messages_acknowledged.to_string()),
                bytes(Some(group.queued_bytes as f64)),
                right(group.repairs.to_string()),
                Cell::new(furthest_behind(group)),
            ]
        })
    }

    fn memberships(&self, room: usize) -> String {
        let header = ["pid", "member of", "opener", "id", "in/s"];
        let all = self.seen.nodes.iter().flat_map(|node| node.memberships.iter().map(move |of| (node, of)));
        let memberships = all.map(|(node, of)| (self.pace(&Mover::membership(node, of)), (node, of)));
        table(header, memberships.collect(), room, "memberships", |pace, (node, of)| {
            vec![
                right(node.process.to_string()),
                Cell::new(of.address),
                Cell::new(of.opener),
                right(of.member.to_string()),
                bytes(pace.map(|pace| pace.received)),
            ]
        })
    }

    fn sessions(&self, room: usize) -> String {
        let header = [
            "pid",
            "peer",
            "phase",
            "rtt, µs",
            "out/s",
            "in/s",
            "window",
            "in flight",
            "queued",
            "unread",
            "lost/s",
            "lost",
            "rate",
        ];
        let all = self.seen.nodes.iter().flat_map(|node| node.peers.iter().map(move |peer| (node, peer)));
        let sessions = all.map(|(node, peer)| (self.pace(&Mover::session(node, peer)), (node, peer)));
        let mut sessions: Vec<_> = sessions.collect();
        // Of those that move as much as each other, first who has most to move.
        sessions.sort_by_key(|(_, (_, peer))| Reverse(peer.queued_bytes + peer.unread_bytes));
        busiest_first(&mut sessions);
        table(header, sessions, room, "sessions", |pace, (node, peer)| row(pace, node, peer))
    }
}

/// Which processes say what cannot be read, in one line, if any do.
pub fn unreadable(seen: &Seen) -> Option<String> {
    let first = seen.unreadable.first()?;
    let mut processes: Vec<_> = seen.unreadable.iter().map(|of| of.process.to_string()).collect();
    processes.dedup();
    let (all, reason) = (processes.join(", "), visible(&first.reason));
    Some(match processes.len() {
        1 => format!("the answer of process {all} cannot be read (another version?): {reason}"),
        _ => format!("the answers of processes {all} cannot be read (another version?): {reason}"),
    })
}

/// Who moves as much as another stays behind it.
fn busiest_first<T>(all: &mut [(Option<Pace>, T)]) {
    let moved = |pace: &Option<Pace>| pace.map_or(0.0, |pace| pace.sent + pace.received);
    all.sort_by(|(one, _), (other, _)| moved(other).total_cmp(&moved(one)));
}

/// A table behind an empty line: all as they come if there is room for them, else those that move most, and how many more
/// there are. Nothing, if there are none. `cells`: what a row says.
fn table<const N: usize, T>(
    header: [&str; N],
    mut all: Vec<(Option<Pace>, T)>,
    room: usize,
    what: &str,
    cells: impl Fn(Option<Pace>, T) -> Vec<Cell>,
) -> String {
    if all.is_empty() {
        return String::new();
    }
    let left_out = all.len().saturating_sub(room);
    if left_out > 0 {
        busiest_first(&mut all);
    }
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(header);
    table.add_rows(all.into_iter().take(room).map(|(pace, of)| cells(pace, of)));
    let more = if left_out > 0 { format!("and {left_out} more {what}\n") } else { String::new() };
    format!("\n{table}\n{more}")
}

fn row(pace: Option<Pace>, node: &NodeStatus, peer: &PeerStatus) -> Vec<Cell> {
    vec![
        right(node.process.to_string()),
        Cell::new(peer.address),
        Cell::new(&peer.phase),
        right(number(peer.srtt_ns.map(|ns| ns as f64 / 1e3), 0)),
        bytes(pace.map(|pace| pace.sent)),
        bytes(pace.map(|pace| pace.received)),
        bytes(Some(peer.window_bytes as f64)),
        bytes(Some(peer.in_flight_bytes as f64)),
        bytes(Some(peer.queued_bytes as f64)),
        bytes(Some(peer.unread_bytes as f64)),
        right(number(pace.map(|pace| pace.lost), 0)),
        right(peer.counters.packets_lost.to_string()),
        right(peer.rate.map_or_else(dash, rate)),
    ]
}

fn rate(limit: RateLimit) -> String {
    match limit.bytes_per_s {
        0 => "stopped".to_owned(),
        rate => format!("{}/s", human_bytes(rate as f64)),
    }
}

/// What others name themselves, without what would break a line or give the terminal orders.
fn visible(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Datagrams that were of no use: damaged, forged, or of sessions that are none.
fn dropped(node: &NodeStatus) -> u64 {
    let counters = &node.counters;
    [
        counters.malformed,
        counters.corrupted,
        counters.unknown_session,
        counters.foreign_version,
        counters.strange_keys,
        counters.strangers,
        counters.unsealed,
        counters.sealed_unread,
        counters.limited,
    ]
    .iter()
    .sum()
}

fn furthest_behind(group: &GroupStatus) -> String {
    let behind = group.members.iter().filter(|member| member.active && member.symbols_behind > 0);
    let last = behind.max_by_key(|member| member.symbols_behind);
    last.map_or_else(dash, |member| format!("{} by {} packets", member.address, member.symbols_behind))
}

/// What the sessions, groups and memberships of a node have moved.
fn moved_by(node: &NodeStatus) -> impl Iterator<Item = (Mover, (Moved, u64))> {
    let sessions = node.peers.iter().map(|peer| {
        let counters = &peer.counters;
        let (sent, received, lost) = (counters.bytes_sent, counters.bytes_received, counters.packets_lost);
        (Mover::session(node, peer), Moved { sent, received, lost })
    });
    let groups = node
        .groups
        .iter()
        .map(|group| (Mover::group(node, group), Moved { sent: group.bytes_sent, ..Moved::default() }));
    let memberships = node.memberships.iter().map(|of| {
        let moved = Moved { received: of.bytes_received, ..Moved::default() };
        (Mover::membership(node, of), moved)
    });
    sessions.chain(groups).chain(memberships).map(|(mover, moved)| (mover, (moved, node.uptime_ms)))
}

/// What a second brought, between two looks at the same.
fn pace(before: (Moved, u64), now: (Moved, u64)) -> Option<Pace> {
    let seconds = now.1.checked_sub(before.1).filter(|ms| *ms > 0)? as f64 / 1e3;
    let per_s = |of: fn(&Moved) -> u64| of(&now.0).saturating_sub(of(&before.0)) as f64 / seconds;
    Some(Pace {
        sent: per_s(|moved| moved.sent),
        received: per_s(|moved| moved.received),
        lost: per_s(|moved| moved.lost),
    })
}

fn bytes(bytes: Option<f64>) -> Cell {
    right(bytes.map_or_else(dash, |bytes| human_bytes(bytes.round())))
}

#[cfg(test)]
mod tests;

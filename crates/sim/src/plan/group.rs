//! One to many: host 0 opens a group of all others and sends; what the members' reports cost it (M10).
//!
//! Inputs → outputs: a [`Cell`] with the workload `multicast` → what arrived, how long it took, and what
//! the opener sent and heard. Endpoints, sessions and packets are the real ones; only the network is not.

use super::outcome::{GroupOutcome, Outcome, lost_share};
use super::schedule::{Experiment, Schedule, lay};
use super::{Cell, Feedback, Suffered};
use crate::net::topology::HostId;
use crate::world::{Application, World};
use bytes::Bytes;
use core::time::Duration;
use denrei_proto::group::{GroupCounters, GroupEvent, GroupFeedback, GroupId, GroupOptions};
use denrei_proto::{Endpoint, Event, PeerId};
use denrei_wire::Instant;
use std::net::SocketAddr;
use std::sync::Arc;

const OPENER: HostId = HostId(0);
/// Virtual time for all to accept: thousands of handshakes at one host.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// Looks at whether all has arrived, over the time limit.
const LOOKS: u32 = 20_000;
/// Messages the opener keeps queued at most: what its send buffer takes.
const QUEUED: u64 = 32;

impl Feedback {
    /// What a plan's name stands for: each scheme has what the one before has, and one thing more.
    fn options(self) -> GroupOptions {
        let feedback = GroupFeedback {
            thin: self >= Self::Thinned,
            stagger: self >= Self::Staggered,
            suppress: self >= Self::Suppressed,
            tree: self >= Self::Tree,
        };
        let parity = self >= Self::Parity;
        GroupOptions { feedback, parity, open_timeout: OPEN_LIMIT, ..GroupOptions::default() }
    }
}

fn group_addr() -> SocketAddr {
    SocketAddr::from(([239, 1, 1, 1], 7400))
}

/// One member, as far as it is known to the experiment.
#[derive(Clone, Default)]
struct Member {
    received: u64,
    /// Messages sent while it was no member, or that its process had not taken when it was killed.
    lost: u64,
    /// The number of the message it takes next.
    next: u64,
    /// The opener has told that it is a member no longer; with the number of messages it had acknowledged.
    departed: Option<u64>,
    /// The session in which it has asked to be a member again.
    asked: Option<PeerId>,
}

/// Counts what arrives, and keeps the opener's queue filled. Who is a member no longer asks to be one again.
struct Members {
    group: Option<GroupId>,
    opened: bool,
    messages: u64,
    message: Bytes,
    sent: u64,
    /// By host; the opener's is not used.
    members: Vec<Member>,
    /// Hosts whose processes were killed, and that have not joined the group's address since.
    crashed: Vec<HostId>,
    departures: u64,
    unacknowledged: u64,
    last_arrival: Instant,
}

impl Members {
    /// Whether every member has taken so many messages, or was told to have lost them.
    fn all_have(&self, messages: u64) -> bool {
        self.members.iter().skip(1).all(|member| member.departed.is_none() && member.next == messages)
    }

    /// Asks once in each session with the opener, for as long as it is no member.
    fn rejoin(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, group: GroupId) {
        if !self.opened || endpoint.membership_end(group).is_none() {
            return;
        }
        let Ok(peer) = endpoint.connect(now, OPENER.addr()) else { return };
        if self.members[host.0 as usize].asked.replace(peer) != Some(peer) {
            endpoint.ask_to_join(now, OPENER.addr(), group_addr(), false);
        }
    }

    fn on_group_event(&mut self, event: &GroupEvent) {
        let member = |addr: &SocketAddr| HostId::at(*addr).map_or(0, |host| host.0 as usize);
        match event {
            GroupEvent::Opened => self.opened = true,
            GroupEvent::Departed { addr, last_acknowledged, .. } => {
                let gone = &mut self.members[member(addr)];
                let acknowledged = last_acknowledged.map_or(0, |last| last + 1);
                // One that departs before it has joined again has acknowledged nothing since.
                gone.departed.get_or_insert(acknowledged);
                self.departures += 1;
            }
            GroupEvent::Joined { addr, first_message, .. } => {
                let back = &mut self.members[member(addr)];
                self.unacknowledged += first_message.saturating_sub(back.departed.take().unwrap_or(0));
                back.lost += first_message.saturating_sub(back.next);
                back.next = back.next.max(*first_message);
            }
            _ => {}
        }
    }

    fn fill(&mut self, endpoint: &mut Endpoint) {
        let Some(group) = self.group.filter(|_| self.opened) else { return };
        let queued = |endpoint: &Endpoint| {
            endpoint
                .group_status(group)
                .map_or(0, |status| status.messages_sent - status.messages_acknowledged)
        };
        while self.sent < self.messages && queued(endpoint) < QUEUED {
            if endpoint.group_send(group, self.message.clone()).is_err() {
                return;
            }
            self.sent += 1;
        }
        if self.sent == self.messages {
            // A group that is over has nobody to hurry.
            let _ = endpoint.group_hurry(group);
        }
    }
}

impl Application for Members {
    fn on_event(&mut self, _: Instant, _: HostId, _: &mut Endpoint, _: Event) {}

    fn on_readable(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        let Some(group) = self.group else { return };
        if host == OPENER {
            while let Some(event) = endpoint.poll_group_event(group) {
                self.on_group_event(&event);
            }
            return self.fill(endpoint);
        }
        endpoint.accept_group(group_addr());
        let member = &mut self.members[host.0 as usize];
        while let Some(message) = endpoint.group_recv(now, group) {
            // Who was a member twice may hold what it has had already.
            if message.number >= member.next {
                member.received += 1;
                member.next = message.number + 1;
                self.last_arrival = now;
            }
        }
        self.rejoin(now, host, endpoint, group);
    }
}

impl Experiment for Members {
    fn crashed(&mut self, host: HostId) {
        self.members[host.0 as usize].asked = None;
        self.crashed.push(host);
    }

    fn turned(&mut self, world: &mut World) {
        for host in core::mem::take(&mut self.crashed) {
            let joined = world.touch(host, self, |_, now, endpoint| endpoint.join_group(now, group_addr()));
            // It is dead or stopped still.
            if joined.is_none() {
                self.crashed.push(host);
            }
        }
        world.touch(OPENER, self, |app, _, endpoint| app.fill(endpoint));
    }

    fn stop(&mut self) {
        self.messages = self.sent;
    }

    fn is_at_rest(&self) -> bool {
        self.all_have(self.sent)
    }
}

pub(super) fn run(cell: &Cell) -> Outcome {
    let mut world = World::new(cell.seed);
    let switch = world.add_switch(None);
    let config = Arc::new(cell.config());
    for _ in 0..cell.hosts {
        let host = world.add_host(switch, cell.host());
        world.start(host, config.clone());
    }
    let members = cell.hosts as u64 - 1;
    let mut app = Members {
        group: None,
        opened: false,
        messages: cell.messages,
        message: vec![7; cell.message_bytes as usize].into(),
        sent: 0,
        members: vec![Member::default(); cell.hosts as usize],
        crashed: Vec::new(),
        departures: 0,
        unacknowledged: 0,
        last_arrival: Instant::ZERO,
    };
    let mut going = open(cell, &mut world, &mut app);
    let (began, before, counts) = (world.now(), counters(&world, &app), *world.counts());
    lay(cell, &[], &mut world);
    let mut schedule = Schedule::new(cell, config, began);
    if !schedule.is_over() {
        going &= schedule.run_for(Duration::ZERO, &mut world, &mut app).is_ok();
    }
    world.touch(OPENER, &mut app, |app, _, endpoint| app.fill(endpoint));
    let step = Duration::from_secs_f64(cell.time_limit_s) / LOOKS;
    for _ in 0..LOOKS {
        if app.all_have(cell.messages) && schedule.is_over() || !going {
            break;
        }
        going = schedule.run_for(step, &mut world, &mut app).is_ok();
        world.touch(OPENER, &mut app, |app, _, endpoint| app.fill(endpoint));
    }
    let after = counters(&world, &app);
    let time_s = app.last_arrival.saturating_since(began).as_secs_f64();
    let received: u64 = app.members.iter().map(|member| member.received).sum();
    let lost: u64 = app.members.iter().map(|member| member.lost).sum();
    let symbols = cell.messages as f64 * cell.message_bytes as f64 / f64::from(SYMBOL_BYTES);
    let reports = after.reports - before.reports;
    let arrived_share = received as f64 / (members * cell.messages) as f64;
    let outcome = Outcome {
        finished: app.all_have(cell.messages) && (lost == 0 || !cell.faults.is_empty()),
        converged: false,
        time_s,
        goodput_bytes_per_s: received as f64 * cell.message_bytes as f64 / members as f64 / time_s.max(1e-12),
        goodput_of_link: cell.goodput_of_link(arrived_share, time_s),
        ideal_us: cell.ideal_us(),
        messages_delivered: received,
        messages_lost: lost,
        messages_unacknowledged: app.unacknowledged,
        lost_peers: app.departures,
        datagrams: world.counts().sent - counts.sent,
        lost_share: lost_share(world.counts(), &counts),
        suffered: Suffered::between(&counts, world.counts()),
        deepest_queue_bytes: world.topology().deepest_queue_bytes(),
        digest: format!("{:016x}", world.digest()),
        group: GroupOutcome {
            group_packets: Some(after.packets_sent - before.packets_sent),
            reports: Some(reports),
            naks: Some(after.reports_with_gaps - before.reports_with_gaps),
            reports_per_100: Some(100.0 * reports as f64 / symbols),
            repairs: Some(
                after.unicast_repairs + after.multicast_repairs
                    - before.unicast_repairs
                    - before.multicast_repairs,
            ),
            parities: Some(after.parity_sent - before.parity_sent),
        },
        ..Outcome::default()
    };
    Outcome { converged: going && schedule.converges(&mut world, &mut app), ..outcome }
}

/// Payload of a symbol in datagrams of 1,472 octets, bytes: what reports are related to.
const SYMBOL_BYTES: u16 = 1386;

/// Opens the group on a network without faults, and lets it come to rest.
fn open(cell: &Cell, world: &mut World, app: &mut Members) -> bool {
    for member in 1..cell.hosts {
        world.touch(HostId(member), app, |_, now, endpoint| endpoint.join_group(now, group_addr()).is_ok());
    }
    let members: Vec<SocketAddr> = (1..cell.hosts).map(|host| HostId(host).addr()).collect();
    let options = cell.feedback.options();
    world.touch(OPENER, app, |app, now, endpoint| {
        app.group = endpoint.open_group(now, group_addr(), &members, options).ok();
    });
    let full = core::mem::replace(&mut app.messages, 0);
    for _ in 0..OPEN_LIMIT.as_secs() * 10 {
        if app.opened || world.run_for(Duration::from_millis(100), app).is_err() {
            break;
        }
    }
    let rested = world.run_for(Duration::from_secs(1), app).is_ok();
    app.messages = full;
    app.opened && rested
}

fn counters(world: &World, app: &Members) -> GroupCounters {
    let endpoint = world.endpoint(OPENER);
    let status = endpoint.zip(app.group).and_then(|(endpoint, group)| endpoint.group_status(group));
    status.map(|status| status.counters).unwrap_or_default()
}

//! What time changes: questions to the silent, and what becomes of those that hold others up.

use super::{Phase, Sender};
use crate::group::Host;
use crate::group::member::{Member, Path};
use crate::group::roll::place;
use crate::group::types::{Departure, GroupBackend, GroupEvent, GroupPolicy};
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::Record;
use std::collections::BTreeSet;

/// Questions to the group's address that a member leaves unanswered before it is asked by its session.
const SILENT_POLLS: u32 = 1;
/// Questions to the group's address, and nothing heard of them, before a member is served otherwise.
const DEAF_POLLS: u32 = 4;
/// … and no progress for this long: a process of a busy host may be off its core for some of it.
const MIN_DEAF: Duration = Duration::from_millis(200);
/// Who lags is waited for at the end, and is served by its session, which what all others got may have kept off the
/// member's link until just now: it probes after half a second (`spec/protocol.md` §5.4), and once more.
const LEAST_PATIENCE_AT_END: Duration = Duration::from_secs(2);
/// Who holds others up has been silent in so many stretches of time at least, between which this side has asked, before
/// it is judged.
const LEAST_STRETCHES: u32 = 8;
/// Longest time between two questions.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Sender {
    /// Does what is due, and all that follows from what has come in.
    pub fn drive(&mut self, now: Instant, host: &mut dyn Host) {
        if matches!(self.phase, Phase::Opening { .. }) {
            self.advance_opening(now, host);
        }
        match self.phase {
            Phase::Opening { .. } => return self.rekey(now, host),
            Phase::Over if self.dismissing => return self.dismiss(now, host),
            Phase::Over => return,
            Phase::Open | Phase::Closing { .. } => {}
        }
        self.send_invitations(now, host);
        // Who is ejected or lags from now on may have been the slowest.
        self.judge(now, host);
        self.review_members(now, host);
        self.pace.look(now, host);
        self.withdraw_invitations(now, host);
        self.admit_joining(now, host);
        self.reprobe(now);
        self.ask_the_silent(now, host);
        self.decide_repairs(now, host);
        self.serve_sessions(now, host);
        self.graft(now, host);
        self.judge_lagging(now, host);
        self.advance_closing(now, host);
        self.rekey(now, host);
    }

    /// When [`drive`](Self::drive) has to be called at the latest.
    pub fn deadline(&self) -> Instant {
        match self.phase {
            Phase::Opening { until, probe_at, .. } if self.probes_somebody() => return until.min(probe_at),
            Phase::Opening { until, .. } => return until,
            Phase::Over => return Instant::FAR_FUTURE,
            Phase::Open | Phase::Closing { .. } => {}
        }
        let worn = self.keys.as_ref().is_some_and(|keys| keys.is_wearing_out());
        let key_at = if worn { self.last_sent_at } else { Instant::FAR_FUTURE };
        let mut deadline = self.poll_at().min(self.repairs_at()).min(key_at).min(self.pace.opens_at());
        if let Some((_, until)) = self.unanswered() {
            deadline = deadline.min(until);
        }
        if self.tries_address() && self.has_astray() {
            deadline = deadline.min(self.reprobe_at);
        }
        if let Some(patience) = self.patience() {
            let judged =
                self.members.iter().filter(|member| self.is_waited_for(member) && self.holds_up(member));
            let judged = judged.map(|member| (member, self.judged_at(member, patience)));
            // Who waits for a relay is judged when that one has moved, or has been judged itself.
            let due = judged.filter(|(member, at)| !self.waits_for_relay(*at, member, patience));
            let first = due.map(|(_, at)| at).min();
            deadline = deadline.min(first.unwrap_or(Instant::FAR_FUTURE));
        }
        deadline
    }

    /// When to ask, if nobody says anything until then.
    fn poll_at(&self) -> Instant {
        let owes = |member: &Member| member.is_active() && self.owes_word(member);
        let apart = || self.has_astray() || self.members.counts().lagging > 0;
        let owed = self.stream.acked() < self.multicast_next
            || (apart() && self.members.iter().any(owes))
            || (self.is_blocked() && self.stream.next_cost().is_some())
            // Who has stopped all, or as good as that, may be dead by now.
            || (self.pace.stands() && self.has_packets());
        if !owed {
            return Instant::FAR_FUTURE;
        }
        let interval = self.probe_timeout * (1 << self.polls_unanswered.min(8));
        self.last_sent_at + interval.min(MAX_POLL_INTERVAL.max(self.patient_probe_timeout()))
    }

    /// How long an answer may take, but not so long that whoever is silent would be judged before it is asked.
    fn patient_probe_timeout(&self) -> Duration {
        let most = self.patience().map(|patience| MAX_POLL_INTERVAL.max(patience / LEAST_STRETCHES));
        most.map_or(self.probe_timeout, |most| self.probe_timeout.min(most))
    }

    /// The first symbol that has not been handed to this member's path.
    fn handed_to(&self, member: &Member) -> u64 {
        match member.path {
            Path::Multicast => self.multicast_next,
            Path::Unicast { next } => next,
            Path::Relay => self.stream.next(),
        }
    }

    /// Whether a member has still to say that it has what it was handed or, if it lags, that it has room for more:
    /// a report that says so may be lost.
    fn owes_word(&self, member: &Member) -> bool {
        let handed = self.handed_to(member);
        member.next < handed || (member.lagging && handed < self.stream.next())
    }

    fn ask_the_silent(&mut self, now: Instant, host: &mut dyn Host) {
        if self.poll_at() > now {
            return;
        }
        self.polls_unanswered += 1;
        self.last_sent_at = now;
        self.poll = self.uses_multicast();
        let blocked = self.is_blocked();
        let interval = self.patient_probe_timeout();
        let suspects = self.suspects();
        for index in 0..self.members.len() {
            let member = &self.members[index];
            let handed = self.handed_to(member);
            let keeps = self.is_kept_by(now, member, host);
            if keeps {
                // It owes nothing, and others may speak for it.
                host.ask_for_life(now, member.peer);
            }
            if !member.is_active() || !(blocked || self.owes_word(member)) {
                continue;
            }
            let mut member = self.members.edit(index);
            member.silent_polls += 1;
            member.deaf_polls += (!keeps && member.path != Path::Unicast { next: handed }) as u32;
            let silent = member.silent_polls > SILENT_POLLS || suspects.contains(&member.id);
            let by_session = member.path != Path::Multicast || silent;
            // Its session repeats the question as long as it has to; asking anew helps only if the
            // answer, which is not repeated, was lost.
            if by_session && member.asked_at.is_none_or(|at| at + interval * 2 <= now) {
                member.asked_at = Some(now);
                self.counters.polls += 1;
                host.send(now, member.peer, Record::Poll { next: handed }.encode(self.id.0).into());
            }
            let deaf = member.deaf_polls >= DEAF_POLLS && member.progress_at + MIN_DEAF <= now;
            drop(member);
            if deaf {
                self.reroute(index);
            }
        }
    }

    /// Where reports are joined: who is said to hold the others up, and who says so: it may be dead, and so
    /// may anyone between it and the opener.
    fn suspects(&self) -> BTreeSet<u32> {
        let named = |member: &&Member| self.tree.joins && member.named && self.holds_up(member);
        let named = self.members.iter().filter(|member| member.is_active()).filter(named);
        named.flat_map(|member| core::iter::once(member.id).chain(self.tree.above(member.id))).collect()
    }

    /// What reaches a member by neither multicast nor relay reaches it by its session.
    pub(super) fn reroute(&mut self, index: usize) {
        let forced = self.options.backend == GroupBackend::Multicast;
        let mut member = self.members.edit(index);
        if !forced && !matches!(member.path, Path::Unicast { .. }) {
            member.path = Path::Unicast { next: member.next };
            member.deaf_polls = 0;
        }
    }

    fn patience(&self) -> Option<Duration> {
        match self.options.policy {
            GroupPolicy::Wait => None,
            GroupPolicy::Eject { after } | GroupPolicy::Lag { after } => Some(after),
        }
    }

    /// When a member that holds the others up is to be judged, if nothing is heard until then.
    fn judged_at(&self, member: &Member, patience: Duration) -> Instant {
        let slow_at = match self.options.policy {
            GroupPolicy::Lag { .. } if self.stops(member) => {
                self.held_at + (patience / 2).saturating_sub(member.held_up)
            }
            _ => Instant::FAR_FUTURE,
        };
        slow_at.min(member.progress_at + Self::standstill(member, patience))
    }

    /// How long a member that holds the others up, or the end, may make no progress.
    fn standstill(member: &Member, patience: Duration) -> Duration {
        if member.lagging { patience.max(LEAST_PATIENCE_AT_END) } else { patience }
    }

    /// Whether a member has something to do, or room to give, that it has not.
    pub(super) fn holds_up(&self, member: &Member) -> bool {
        let owes = member.next < self.handed_to(member).max(self.stream.acked());
        let closing = self.phase == Phase::Closing { said: true };
        let no_room = self
            .stream
            .next_cost()
            .is_some_and(|cost| cost > 0 && !member.may_begin(self.stream.begun_cost(), cost));
        owes || no_room || closing || self.stops(member)
    }

    /// A stretch in which this side did not do what was due, as its process did not run or its application did not
    /// call, says little of the members: what they have said since waits to be read, or was lost where nobody read it.
    fn excuse(&mut self, now: Instant) {
        let told_before = core::mem::replace(&mut self.told_at, now);
        let Some(patience) = self.patience() else { return };
        let most = patience / LEAST_STRETCHES;
        // As a rule time was told just now.
        if now.saturating_since(told_before) <= most {
            return;
        }
        let missed = now.saturating_since(self.deadline().max(told_before));
        let excess = missed.saturating_sub(most);
        if !excess.is_zero() {
            self.held_at = (self.held_at + excess).min(now);
            self.members.edit_all(|member| member.progress_at = (member.progress_at + excess).min(now));
        }
    }

    /// Adds up for how long the others have waited for each member that is slow: it makes progress all the time,
    /// and so does, at its pace, the whole group. Before a report is followed, and after: what it ends counts.
    pub(super) fn add_up_waiting(&mut self, now: Instant) {
        self.excuse(now);
        let GroupPolicy::Lag { after } = self.options.policy else { return };
        let elapsed = now.saturating_since(self.held_at);
        self.held_at = now;
        let held_by = self.held_up_by();
        // What has happened in between is not known: it may have been idle until now.
        for id in self.held_by.iter().filter(|id| held_by.contains(id)) {
            self.members.edit(place(*id)).held_up += elapsed;
        }
        self.held_by = held_by;
        if self.held_since + after * 2 <= now {
            self.held_since = now;
            self.members.edit_all(|member| member.held_up = Duration::ZERO);
        }
    }

    /// The members but for which the next symbol could be cut.
    fn held_up_by(&self) -> Vec<u32> {
        let stopping = self.counting().filter(|member| self.pace.waits_for_rate() && self.stops(member));
        let stopping: Vec<u32> = stopping.map(|member| member.id).collect();
        match self.stream.next_cost() {
            _ if !stopping.is_empty() => stopping,
            Some(_) if !self.has_window() => self.far_behind().into_iter().collect(),
            Some(cost) if cost > 0 => self.short_of_room(cost),
            _ => Vec::new(),
        }
    }

    /// The member that is clearly behind all others that count.
    fn far_behind(&self) -> Option<u32> {
        let last = self.counting().min_by_key(|member| member.next)?;
        let others = self.counting().filter(|member| member.id != last.id).map(|member| member.next).min()?;
        let under_way = self.stream.next() - last.next;
        (others > last.next && (others - last.next) * 2 >= under_way).then_some(last.id)
    }

    /// Those without room for a message of this cost, if somebody has taken more than they: half of their credit
    /// more, and two such messages, for of members that are equally slow one is always the first.
    fn short_of_room(&self, cost: u64) -> Vec<u32> {
        let begun = self.stream.begun_cost();
        if self.members.may_begin(begun, cost) {
            return Vec::new();
        }
        let most = self.counting().map(Member::taken).max().unwrap_or(0);
        let is_short = |member: &&Member| {
            let behind = most - member.taken();
            !member.may_begin(begun, cost) && behind >= (member.credit / 2).max(2 * cost)
        };
        self.counting().filter(is_short).map(|member| member.id).collect()
    }

    /// Whether the others have waited for this member for half of the time that the policy allows.
    fn is_far_behind(&self, index: usize, patience: Duration) -> bool {
        matches!(self.options.policy, GroupPolicy::Lag { .. }) && self.members[index].held_up * 2 >= patience
    }

    /// Applies the policy to those who have made no progress for too long.
    fn judge(&mut self, now: Instant, host: &mut dyn Host) {
        let Some(patience) = self.patience() else { return };
        self.add_up_waiting(now);
        let begins = core::mem::take(&mut self.begins);
        for index in 0..self.members.len() {
            let member = &self.members[index];
            if !member.is_active() {
                continue;
            }
            // Until now it held nobody up. Who has not answered while another did shall not have that time again.
            let idle = !self.holds_up(member) && member.silent_polls <= SILENT_POLLS;
            if begins || idle || self.is_excused(member) {
                self.members.edit(index).progress_at = now;
                continue;
            }
            // As of when it was due, by which it is known when the next is.
            if self.waits_for_relay(self.judged_at(member, patience).min(now), member, patience) {
                continue;
            }
            let is_late = member.progress_at + Self::standstill(member, patience) <= now;
            if self.is_waited_for(member) && (is_late || self.is_far_behind(index, patience)) {
                match self.options.policy {
                    GroupPolicy::Lag { .. } if !self.is_closing() => self.let_lag(now, index, patience, host),
                    _ => self.depart(now, index, Departure::Ejected, host),
                }
            }
        }
    }

    /// Whether anybody waits for a member: in the end for all of them.
    fn is_waited_for(&self, member: &Member) -> bool {
        member.counts() || (member.is_active() && self.phase == Phase::Closing { said: true })
    }

    /// Whether others speak for a member and name somebody else, so that what is known of it is theirs.
    fn is_excused(&self, member: &Member) -> bool {
        let silent = member.asked_at.is_some() || member.silent_polls > SILENT_POLLS;
        self.tree.joins && !self.is_closing() && !member.named && !silent && !self.stops(member)
    }

    /// Whether a member is served by others of whom one has stood still for long itself: that one is judged.
    fn waits_for_relay(&self, now: Instant, member: &Member, patience: Duration) -> bool {
        let stands_still = |above: &Member| {
            self.holds_up(above) && above.progress_at + patience / 2 <= now && above.is_active()
        };
        member.path == Path::Relay
            && self.tree.above(member.id).any(|above| stands_still(&self.members[place(above)]))
    }

    fn let_lag(&mut self, now: Instant, index: usize, patience: Duration, host: &mut dyn Host) {
        let mut member = self.members.edit(index);
        member.let_lag(now, patience);
        member.held_up = Duration::ZERO;
        if !matches!(member.path, Path::Unicast { .. }) {
            member.path = Path::Unicast { next: member.next };
        }
        let (id, addr, last_acknowledged) = (member.id, member.addr, member.last_acknowledged());
        drop(member);
        self.emit(GroupEvent::Lagging { member: id, addr, last_acknowledged });
        self.review_at = now;
        // Nobody waits for it: neither may those whose reports it would join with its own.
        self.adopt_orphans(now, id, host);
        self.settle();
    }

    /// What is retained for those who lag has a bound. Looked at after symbols were cut: where nobody is waited for these
    /// are retained already.
    fn judge_lagging(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some(index) = self.too_far_behind() {
            self.depart(now, index, Departure::TooFarBehind, host);
        }
    }

    /// Somebody who lags, for whom more is retained than may be.
    pub(super) fn too_far_behind(&self) -> Option<usize> {
        let much = self.members.counts().lagging > 0 && self.stream.history() > self.most_retained;
        if !much || self.patience().is_none() {
            return None;
        }
        let base = self.stream.base();
        self.members.iter().position(|member| {
            member.is_active() && !self.is_waited_for(member) && member.next <= base && self.holds_up(member)
        })
    }

    /// Whether as much is kept for those who joined with history as may be, and nobody is removed for that.
    pub(super) fn waits_for_laggards(&self) -> bool {
        self.options.policy == GroupPolicy::Wait
            && self.members.counts().lagging > 0
            && self.stream.history() > self.most_retained
    }
}

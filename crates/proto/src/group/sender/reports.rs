//! What members say: acknowledgements, gaps, limits (M3, M5, M6), round trips (M7).

use super::{MAX_TRAINS, Phase, Sender};
use crate::congestion::{Acked, rtt_without_turns};
use crate::group::member::{Member, Path, Stage};
use crate::group::roll::place;
use crate::group::types::{Departure, GroupEvent};
use crate::group::{Host, MAX_NAMED};
use crate::pacing::Spread;
use core::time::Duration;
use denrei_wire::frame::{Feedback, feedback_flags};
use denrei_wire::{Instant, ids};
use std::collections::VecDeque;

/// A request that was made before the answer went out has climbed a tree within this time.
const CLIMB: Duration = Duration::from_millis(4);
/// A symbol that has gone to the group's address so often goes by session to whom says that it misses it still:
/// what carries it may be too large for the path to that one, as the session will find out.
pub(super) const MAX_TRIES: u8 = 8;
/// Where several miss it, and one speaks for all, it goes to the address again, but no sooner than this.
const IN_VAIN_PAUSE: Duration = Duration::from_millis(100);
/// Symbols under way that make no queue to speak of: the least window is half of that.
const NEXT_TO_NOTHING: u64 = 4;
/// Symbols of one report's gaps that are looked at; the next report names the rest.
const MAX_GAP_SYMBOLS: u64 = 4096;

impl Sender {
    /// A report of the member at `index`, or of it and those below it.
    pub fn on_report(&mut self, now: Instant, index: usize, report: &Feedback<'_>, host: &mut dyn Host) {
        self.counters.reports += 1;
        self.counters.reports_with_gaps += !report.gaps.is_empty() as u64;
        // One that was a member before, and is one again, may have said it then. Others are named by who has some below.
        let id = self.members[index].id;
        let may_name = self.tree.joins && report.covers != 1 && !self.tree.children(id).is_empty();
        let stale = report.member != id && !may_name;
        if stale || report.limit > MAX_NAMED || matches!(self.members[index].stage, Stage::Gone(_)) {
            return;
        }
        self.add_up_waiting(now);
        let in_flight = self.stream.in_flight();
        let before = self.stream.acked();
        let sent = (self.stream.next(), self.stream.message_count());
        // One of a tree that speaks for itself was asked: what it has lost it has lost in all the time since. Nor is it of
        // this round trip what has passed by one that its session served.
        let Member { id, path, .. } = self.members[index];
        let aside =
            (self.tree.joins && self.tree.has_parent(id)) || (path != Path::Multicast && report.covers <= 1);
        let mut member = self.members.edit(index);
        let lost_before = member.lost_now;
        let progress = member.on_report(now, report, sent, self.packet);
        // What was overtaken is lost once the member names it, which it does in time. Parity keeps it from naming most,
        // and in a tree others name it.
        let disorder = member.hearing.is_out_of_order() && !self.tree.joins && !self.protect.is_on();
        if aside || disorder {
            member.lost_now = lost_before;
        }
        let missed_before = member.missed;
        drop(member);
        if let Some(echoed) = progress.echoed {
            self.sample(now, index, echoed, report);
        }
        if report.covers > 1 {
            self.on_joint_report(now, index, report);
        }
        if report.flags & feedback_flags::HEARD != 0 {
            self.on_heard(now, index);
        }
        if self.members[index].is_active() {
            self.take_gaps(now, index, report, host);
        }
        if disorder {
            let mut member = self.members.edit(index);
            member.lost_now += member.missed - missed_before;
        }
        self.catch_up(index);
        self.take_back(now, index, host);
        self.settle();
        // What was cut may wait for the pace, and somebody may say all the same that it has it.
        self.multicast_next = self.multicast_next.max(self.stream.base());
        self.open_window(now, index, before, in_flight);
        if matches!(self.phase, Phase::Opening { .. }) {
            self.advance_opening(now, host);
        }
        // Whoever waits for room or credit has some.
        self.hurried &= self.stream.unacked_bytes() > 0;
    }

    /// The member at `index` leaves, and has what came before these, unless it has not begun: who was a member before,
    /// and is invited again, may have said it then.
    pub fn on_leave(&mut self, now: Instant, index: usize, symbols: u64, messages: u64, host: &mut dyn Host) {
        if self.members[index].is_active() {
            let sent = self.stream.next();
            self.members.edit(index).has(symbols, messages.min(self.stream.message_count()), sent);
            self.settle();
        }
        self.depart(now, index, Departure::Left, host);
    }

    /// What a joint report says holds for all below the one who sent it. Of those it does not name nobody
    /// holds the others up, but for who was asked itself and is silent: others remember of it what it said; and who
    /// lets nothing come, which they do not know.
    fn on_joint_report(&mut self, now: Instant, index: usize, report: &Feedback<'_>) {
        let (sent, messages) = (self.stream.next(), self.stream.message_count());
        let root = self.members[index].id;
        let below = self.tree.below(root);
        // Some below have not reported to those above them yet: their values are not in it.
        if report.covers as usize != below.len() + 1 {
            return;
        }
        // Whom it names may have gone, or have said more since to somebody else: then it could be anyone.
        let has_least =
            |member: &Member| member.is_active() && member.next <= ids::expand(report.next, member.next);
        let knows = self.members.find(report.member).is_some_and(|index| has_least(&self.members[index]));
        for id in core::iter::once(root).chain(below) {
            let mut member = self.members.edit(place(id));
            member.named = !knows || id == report.member;
            let silent = member.asked_at.is_some();
            if !member.named && !silent && !member.stopped {
                member.progress_at = now;
            }
            let next = ids::expand(report.next, member.next);
            if next > member.next && next <= sent {
                member.next = next;
                member.progress_at = now;
                member.deaf_polls = 0;
            }
            member.messages = member.messages.max(member.messages_told(report, messages));
            if report.limit > member.limit {
                member.limit = report.limit;
                member.progress_at = now;
            }
            if !silent {
                member.silent_polls = 0;
            }
        }
    }

    fn sent_at(&self, packet: u64) -> Option<Instant> {
        left_at(&self.trains, packet)
    }

    /// A packet's number is used once, so the sample is unambiguous whatever the packet carried (M7).
    fn sample(&mut self, now: Instant, index: usize, echoed: u64, report: &Feedback<'_>) {
        let Some(at) = self.sent_at(echoed) else { return };
        let held_ns = u64::from(report.delay_us) * 1000;
        let sample_ns = now.nanos_since(at).saturating_sub(held_ns).max(1000);
        let mut member = self.members.edit(index);
        member.rtt.sample(now, sample_ns, 0);
        member.lateness.sample(sample_ns);
    }

    pub(super) fn note_train(&mut self, now: Instant, first_packet: u64) {
        self.trains.push_back((first_packet, now));
        if self.trains.len() > MAX_TRAINS {
            self.trains.pop_front();
        }
    }

    /// Multicast reaches a member that it did not reach before.
    fn on_heard(&mut self, now: Instant, index: usize) {
        let may_change = self.tries_address() && !self.wants_tree();
        // What is on its way by the opener's session arrives there. A relay may have died with what it was handed.
        let handed = match self.members[index].path {
            Path::Unicast { next } => next,
            Path::Relay => self.members[index].next,
            Path::Multicast => return,
        };
        let up_to_date = self.members[index].path == Path::Relay || handed == self.stream.next();
        let mut member = self.members.edit(index);
        // From the next symbol on.
        if may_change && member.counts() && up_to_date && self.multicast_next == self.stream.next() {
            member.goes_by_address(handed, self.packet);
            let id = member.id;
            drop(member);
            // Symbols of sessions are larger.
            self.review_at = now;
            self.serve_below(id);
        }
    }

    /// A relay that the group's address serves has nothing more to hand on.
    fn serve_below(&mut self, relay: u32) {
        for child in self.tree.children(relay).to_vec() {
            if self.members[place(child)].path == Path::Relay {
                self.reroute(place(child));
            }
        }
    }

    /// Who was served apart, and speaks again, is sent what the others are, from the next symbol on.
    fn take_back(&mut self, now: Instant, index: usize, host: &mut dyn Host) {
        let member = &self.members[index];
        let Path::Unicast { next } = member.path else { return };
        if !self.replicates() || !member.is_active() || member.lagging {
            return;
        }
        self.feed(now, index, next, false, host);
        let mut member = self.members.edit(index);
        if member.path == (Path::Unicast { next: self.multicast_next }) {
            member.goes_by_address(self.multicast_next, self.packet);
            // Symbols may be of another size.
            self.review_at = now;
        }
    }

    /// A member that lagged, has everything, and has room for what comes next and lets it come, is one of the others
    /// again.
    pub(super) fn catch_up(&mut self, index: usize) {
        let member = &self.members[index];
        if !member.lagging || !member.is_active() || member.stopped {
            return;
        }
        let (acked, begun) = (self.stream.acked(), self.stream.begun_cost());
        let cost = self.stream.next_cost().unwrap_or(0);
        if member.next >= acked && member.may_begin(begun, cost) {
            let (id, addr) = (member.id, member.addr);
            self.members.edit(index).lagging = false;
            self.emit(GroupEvent::CaughtUp { member: id, addr });
        }
    }

    /// Notes what is missing, unless it is on its way: sent again in a packet that the report
    /// could not know of, or handed to the member's session.
    fn take_gaps(&mut self, now: Instant, index: usize, report: &Feedback<'_>, host: &mut dyn Host) {
        // What is named for several may be missed by any of them. Sessions and relays lose nothing; what has come
        // to a member before it was told of its relay is asked for, and brings it another path.
        let joint = report.covers != 1;
        let served = if joint { self.uses_multicast() } else { self.members[index].path == Path::Multicast };
        if report.gaps.is_empty() || !served {
            return;
        }
        let (replicates, trains) = (self.replicates(), &self.trains);
        let mut alone = Vec::new();
        let mut member = self.members.edit(index);
        let echo = member.echo;
        let mut budget = MAX_GAP_SYMBOLS;
        let had = if joint { 0 } else { member.next.max(member.by_session) };
        let base = self.stream.base().max(had);
        for gap in report.gaps {
            let named = ids::expand(gap.first(), member.next);
            let first = named.max(base);
            let end = (named + gap.count() as u64).min(self.stream.next());
            for number in first..end.max(first).min(first + budget) {
                budget -= 1;
                let symbol = self.stream.symbol(number);
                let sent_in = symbol.and_then(|symbol| symbol.packet);
                // Of what several miss the one who speaks may have missed the answer as well.
                let old = |packet| joint && left_at(trains, packet).is_none_or(|at| at + CLIMB <= now);
                let unheard = |packet| echo.is_none_or(|echo| echo < packet) && !old(packet);
                let under_way = sent_in.is_some_and(unheard) || self.repairs.multicast.contains(&number);
                // Others have it sent again all the time. Who it is that misses it of several, these say when asked in
                // person, as they are when nothing goes on.
                let in_vain = symbol.is_some_and(|symbol| symbol.tries >= MAX_TRIES);
                let of_late = |packet| left_at(trains, packet).is_some_and(|at| now < at + IN_VAIN_PAUSE);
                let waits =
                    if joint && in_vain { sent_in.is_some_and(of_late) } else { under_way && !in_vain };
                if waits {
                    continue;
                }
                if joint {
                    self.repairs.want_for_many(now, number);
                } else if !member.repairing.contains(&number) {
                    member.missed += 1;
                    // What never went to the address was cut for sessions, and may be too large for it.
                    match replicates || in_vain || sent_in.is_none() {
                        true => alone.push(number),
                        false => self.repairs.want(now, number, member.id),
                    }
                }
            }
        }
        drop(member);
        self.repair_alone(now, &alone, index, host);
    }

    /// Tells the congestion controller what has arrived everywhere, and what has been lost in this round
    /// trip: each member's losses are of a path of its own, so they do not add up.
    fn open_window(&mut self, now: Instant, index: usize, before: u64, in_flight: u64) {
        let acked = self.stream.acked();
        if acked == before {
            return;
        }
        let lost = self.newly_lost(now);
        let Member { rtt, lateness, .. } = &self.members[index];
        let without_turns = |rtt_ns| rtt_without_turns(rtt_ns, rtt.min_ns());
        let sent_at = self.members[index].echo.and_then(|echo| self.sent_at(echo)).unwrap_or(now);
        let rtt_ns = without_turns(rtt.latest_ns());
        let few = NEXT_TO_NOTHING * self.symbol_bytes as u64;
        if in_flight <= few && self.window.window() <= few {
            self.base.sample(now, rtt_ns);
        }
        if lost > 0 {
            self.window.on_loss(now, sent_at, lost);
        }
        self.window.on_ack(Acked {
            now,
            cost: in_flight - self.stream.in_flight(),
            packets: acked - before,
            marked: 0,
            rtt_ns,
            lasting_rtt_ns: without_turns(lateness.lasting(rtt.latest_ns())),
            min_rtt_ns: self.base.least(now, rtt.min_ns()),
            srtt_ns: rtt.smoothed_ns(),
            sent_at,
            under_way: in_flight,
            window_limited: in_flight * 2 >= self.window(),
        });
        let (smoothed_ns, least_ns) = (rtt.smoothed_ns(), rtt.min_ns());
        self.pace.spread = Spread::of_group(self.window.window(), smoothed_ns, least_ns);
    }

    /// By how much the losses that count have grown in this round trip.
    fn newly_lost(&mut self, now: Instant) -> u64 {
        // In a tree few speak for themselves: the others lose what these do.
        let heard = self.counting().filter(|member| member.hearing.is_known());
        let fresh = losses_that_count(heard.map(|member| member.lost_now));
        let fresh = fresh.saturating_sub(self.lost_told);
        self.lost_told += fresh;
        if self.round_ends <= now {
            let slowest = self.counting().map(|member| member.rtt.smoothed()).max();
            self.round_ends = now + slowest.unwrap_or_default();
            self.lost_told = 0;
            self.members.edit_all(|member| {
                member.lost_now = 0;
                member.lateness.end_round();
            });
        }
        fresh
    }
}

/// When the train of a packet left.
fn left_at(trains: &VecDeque<(u64, Instant)>, packet: u64) -> Option<Instant> {
    let after = trains.partition_point(|(first, _)| *first <= packet);
    Some(trains.get(after.checked_sub(1)?)?.1)
}

/// What the path has lost, given what each member has: as much as the member that lost most, if that is more
/// than chance brings to one of so many (a bound of the largest of n Poisson variables); else the average. Of
/// a thousand members that lose one packet in a hundred, somebody always loses several of the last ten.
fn losses_that_count(losses: impl Iterator<Item = u64>) -> u64 {
    let (members, sum, worst) = losses
        .fold((0u64, 0u64, 0u64), |(members, sum, worst), lost| (members + 1, sum + lost, worst.max(lost)));
    let mean = sum as f64 / members.max(1) as f64;
    let crowd = (members.max(1) as f64).ln();
    let by_chance = mean + (2.0 * mean * crowd).sqrt() + crowd;
    if worst as f64 > by_chance { worst } else { mean as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_congested_member_counts_and_chance_among_many_does_not() {
        assert_eq!(losses_that_count([7].into_iter()), 7, "the only one");
        assert_eq!(losses_that_count([2; 8].into_iter()), 2, "all miss the same");
        assert_eq!(
            losses_that_count([0, 0, 0, 30, 0, 1, 0, 0].into_iter()),
            30,
            "one is behind a full queue"
        );
        let scattered = (0..1000).map(|member| if member % 100 == 0 { 3 } else { 0 });
        assert_eq!(losses_that_count(scattered), 0);
        assert_eq!(losses_that_count((0..1000).map(|member| 8 + member % 5)), 10);
        assert_eq!(losses_that_count(core::iter::empty()), 0);
    }
}

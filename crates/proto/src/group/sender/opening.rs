//! How a group begins and ends: SYN, SYN+ACK from every member, ACK; FIN, FIN+ACK (M4).
//!
//! SYN goes to every listed member by its session, and to the group's address so often that a member
//! that multicast reaches has heard it; whom it does not reach is served otherwise.

use super::{Joining, Phase, Sender};
use crate::event::PeerId;
use crate::group::member::{Member, Path, Stage};
use crate::group::roll::place;
use crate::group::types::{Departure, GroupBackend, GroupEvent};
use crate::group::{GroupError, Host, MAX_MEMBERS, MAX_NAMED};
use crate::rtt::Rtt;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::{Begin, Record, Removal};

/// SYNs to the group's address after which a member that has answered by its session, and not heard
/// one, counts as out of multicast's reach.
const MAX_PROBES: u32 = 10;
/// From one to the next at first: a datacentre's round trip and a process's wake-up; then doubling.
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// Longest interval of them.
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(40);
/// Members of a crowd answer a SYN one after the other, so far apart: the next one waits for that …
const ANSWER_SPACING: Duration = Duration::from_micros(4);
/// … where there are more than this.
const CROWD: usize = 16;
/// Members out of reach are tried again this often.
const REPROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Whether the group is to open with this member: the application has not removed it.
fn is_listed(member: &Member) -> bool {
    member.stage != Stage::Gone(Departure::Removed)
}

impl Sender {
    /// Adds a member and sends it SYN; its id, if there is room for one more.
    pub fn invite(
        &mut self,
        now: Instant,
        addr: SocketAddr,
        peer: PeerId,
        of: usize,
        host: &mut dyn Host,
    ) -> Option<u32> {
        let id = self.members.next_id()?;
        let delay = self.report_delay(host.config(), of);
        let rtt = host.rtt(peer).unwrap_or(host.config().initial_rtt);
        let mut member =
            Member::new(id, addr, peer, now, Rtt::new(rtt, delay, host.config().failure_timeout));
        member.of = of as u32;
        self.members.push(member);
        self.send_invitations(now, host);
        Some(id)
    }

    /// A member will accept and knows that it cannot hear the group's address: nobody waits until it does.
    pub fn on_unheard(&mut self, index: usize) {
        self.members.edit(index).unheard = true;
    }

    /// Whether this group's address was found not to reach the member with this session, so that another's in the
    /// same network will not, either. That is tried again every so often.
    pub fn misses(&self, peer: PeerId, address: SocketAddr) -> bool {
        let misses = |member: &Member| member.is_active() && member.echo.is_none() && !member.unheard;
        self.options.backend == GroupBackend::Auto
            && self.address.is_ipv4() == address.is_ipv4()
            && self.member_of(peer).is_some_and(|index| misses(&self.members[index]))
    }

    /// It is known of a member that was invited that such addresses do not reach it.
    pub fn note_out_of_reach(&mut self, id: u32) {
        self.members.edit(place(id)).out_of_reach = true;
    }

    /// SYN+ACK. Who does not take messages as large as those that wait for it cannot take part.
    pub fn on_accept(
        &mut self,
        now: Instant,
        index: usize,
        credit: u64,
        max_message: u64,
        host: &mut dyn Host,
    ) {
        let member = &self.members[index];
        if matches!(member.stage, Stage::Gone(_)) {
            // Its LEAVE, of the membership before, has met the invitation.
            return host.send(now, member.peer, Record::Removed(Removal::Wanted).encode(self.id.0).into());
        }
        if member.stage != Stage::Invited {
            return;
        }
        if max_message < self.stream.largest_to_come() {
            return self.withdraw_invitation(now, index, Departure::Refused, host);
        }
        let mut member = self.members.edit(index);
        member.stage = Stage::Accepted;
        member.accepted = true;
        (member.credit, member.max_message) = (credit.min(MAX_NAMED), max_message);
        if self.options.backend == GroupBackend::Tree {
            member.path = Path::Unicast { next: 0 };
        }
        drop(member);
        let spacing = match self.members.len() {
            ..=CROWD => Duration::ZERO,
            crowd => PROBE_INTERVAL + ANSWER_SPACING * crowd as u32,
        };
        if let Phase::Opening { probes, tries, probe_at, .. } = &mut self.phase {
            // Who has just accepted gets its share of SYNs; each is answered by all who have.
            (*probes, *tries) = ((*probes).min(1), (*tries).min(1));
            *probe_at = (*probe_at).min(self.last_sent_at + spacing).max(now);
        }
    }

    /// Whether members can be added now.
    pub fn check_add(&self) -> Result<(), GroupError> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Opening { .. } => {
                Err(GroupError::BadMembers { max: MAX_MEMBERS, problem: "the group is not open yet".into() })
            }
            Phase::Closing { .. } => Err(GroupError::Closing(self.id)),
            Phase::Over => Err(GroupError::Unknown(self.id)),
        }
    }

    /// Adds a member to the open group; its id, or what is wrong.
    pub fn add(
        &mut self,
        now: Instant,
        addr: SocketAddr,
        peer: PeerId,
        history: bool,
        host: &mut dyn Host,
    ) -> Result<u32, String> {
        if self.members.iter().any(|member| member.addr == addr && !member.is_gone()) {
            return Err(format!("{addr} is a member already"));
        }
        let id = self.invite(now, addr, peer, self.members.len() + 1, host);
        let id = id.ok_or("as many are members already")?;
        self.joining.push(Joining { member: place(id), history, until: now + self.options.open_timeout });
        Ok(id)
    }

    /// Looks whether the opening can be completed, has failed, or wants another SYN.
    pub(super) fn advance_opening(&mut self, now: Instant, host: &mut dyn Host) {
        self.send_invitations(now, host);
        let Phase::Opening { until, probes, tries, probe_at } = self.phase else { return };
        let (all_accepted, refused) = (self.all_accepted(), self.is_refused());
        let unheard = self.probes_somebody();
        let forced = self.options.backend == GroupBackend::Multicast;
        // Whoever has not heard the address by then is served otherwise.
        let probed = probes >= MAX_PROBES || until <= now;
        if all_accepted && (!unheard || (probed && !forced)) {
            return self.complete_opening(now, host);
        }
        if refused || until <= now {
            return self.fail_opening(now, host);
        }
        if unheard && probe_at <= now {
            self.poll = true;
            let interval = (PROBE_INTERVAL * (1 << tries.min(10))).min(MAX_PROBE_INTERVAL);
            let (probes, tries) = (probes + all_accepted as u32, tries + 1);
            self.phase = Phase::Opening { until, probes, tries, probe_at: now + interval };
        }
    }

    /// Whether all that the group is to open with have accepted …
    pub(super) fn all_accepted(&self) -> bool {
        self.members.iter().filter(|member| is_listed(member)).all(|member| member.stage == Stage::Accepted)
    }

    /// … and whether one of them will not.
    pub(super) fn is_refused(&self) -> bool {
        let mut listed = self.members.iter().filter(|member| is_listed(member));
        listed.any(|member| matches!(member.stage, Stage::Gone(_)))
    }

    /// Whether somebody who has accepted has still to hear a SYN at the group's address: who has not would not
    /// answer one, and all the others would.
    pub(super) fn probes_somebody(&self) -> bool {
        let probing = self.tries_address();
        let forced = self.options.backend == GroupBackend::Multicast;
        let unheard = |member: &Member| {
            let deaf = member.unheard || member.out_of_reach;
            member.stage == Stage::Accepted && member.echo.is_none() && (forced || !deaf)
        };
        probing && self.members.iter().any(unheard)
    }

    fn complete_opening(&mut self, now: Instant, host: &mut dyn Host) {
        self.phase = Phase::Open;
        self.poll = false;
        for index in 0..self.members.len() {
            if self.members[index].stage != Stage::Accepted {
                continue;
            }
            if self.members[index].echo.is_none() && !self.replicates() {
                self.members.edit(index).path = Path::Unicast { next: 0 };
            }
            let begin = Begin { symbol: 0, message: 0, cost: 0 };
            self.begin_member(now, index, begin, host);
        }
        self.lay_routes(now, host);
        self.review_at = now;
        self.review_members(now, host);
        self.reprobe_at = now + REPROBE_INTERVAL;
        self.emit(GroupEvent::Opened);
    }

    fn fail_opening(&mut self, now: Instant, host: &mut dyn Host) {
        let forced = self.options.backend == GroupBackend::Multicast;
        let came = |member: &Member| member.accepted && (!forced || member.echo.is_some());
        let stayed = |member: &Member| came(member) && member.stage == Stage::Accepted;
        let why = |member: &Member| match &member.stage {
            Stage::Gone(why) => why.clone(),
            _ if member.accepted => Departure::OutOfReach,
            _ => Departure::Silent,
        };
        let all_but = |present: &dyn Fn(&Member) -> bool| -> Vec<(SocketAddr, Departure)> {
            let listed = self.members.iter().filter(|member| is_listed(member));
            listed.filter(|member| !present(member)).map(|member| (member.addr, why(member))).collect()
        };
        // Whoever cannot come ends it before the others had their time. Who came, and went because others did not come,
        // is not to blame.
        let may_come = |member: &Member| member.accepted || !matches!(member.stage, Stage::Gone(_));
        let named = |present: &dyn Fn(&Member) -> bool| Some(all_but(present)).filter(|all| !all.is_empty());
        let missing = named(&may_come).or_else(|| named(&came)).unwrap_or_else(|| all_but(&stayed));
        for member in self.members.iter() {
            host.send(now, member.peer, Record::Removed(Removal::Wanted).encode(self.id.0).into());
        }
        self.failed = Some(missing.clone());
        self.phase = Phase::Over;
        self.emit(GroupEvent::OpenFailed { missing });
    }

    /// M4's ACK: the member's share begins here.
    fn begin_member(&mut self, now: Instant, index: usize, begin: Begin, host: &mut dyn Host) {
        let first_packet = self.packet;
        let mut member = self.members.edit(index);
        member.stage = Stage::Active;
        (member.next, member.messages, member.first_message) = (begin.symbol, begin.message, begin.message);
        member.limit = begin.cost + member.credit;
        member.progress_at = now;
        member.hearing.count_from(first_packet);
        if let Path::Unicast { next } = &mut member.path {
            *next = begin.symbol;
        }
        host.send(now, member.peer, Record::Begin(begin).encode(self.id.0).into());
    }

    /// Lets those begin who wait for a message to begin with.
    pub(super) fn admit_joining(&mut self, now: Instant, host: &mut dyn Host) {
        let ready = |members: &[Member], index: usize| members[index].stage == Stage::Accepted;
        if self.stream.is_within_message() || self.phase != Phase::Open {
            return;
        }
        let accepted = self.joining.extract_if(.., |joining| ready(&self.members, joining.member));
        let accepted: Vec<Joining> = accepted.collect();
        for Joining { member: index, history, .. } in accepted {
            let here = (self.stream.next(), self.stream.next_message(), self.stream.begun_cost());
            let oldest = self.stream.oldest_boundary(self.members[index].max_message);
            let from = oldest.filter(|_| history).unwrap_or(here);
            let begin = Begin { symbol: from.0, message: from.1, cost: from.2 };
            // Served by itself until it is heard that multicast reaches it, and has caught up.
            self.members.edit(index).path = Path::Unicast { next: from.0 };
            self.members.edit(index).lagging = from.0 < here.0;
            self.begin_member(now, index, begin, host);
            let Member { id: member, addr, .. } = self.members[index];
            self.emit(GroupEvent::Joined { member, addr, first_message: begin.message });
            self.reprobe_at = now;
        }
    }

    /// The first invitation that has no answer yet: whose it is, and until when that is waited for.
    pub(super) fn unanswered(&self) -> Option<(usize, Instant)> {
        let invited = |joining: &&Joining| self.members[joining.member].stage == Stage::Invited;
        self.joining.iter().find(invited).map(|joining| (joining.member, joining.until))
    }

    /// Takes back invitations that nobody has answered in time.
    pub(super) fn withdraw_invitations(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some((index, _)) = self.unanswered().filter(|(_, until)| *until <= now) {
            self.withdraw_invitation(now, index, Departure::Silent, host);
        }
    }

    fn withdraw_invitation(&mut self, now: Instant, index: usize, why: Departure, host: &mut dyn Host) {
        host.send(now, self.members[index].peer, Record::Removed(Removal::Wanted).encode(self.id.0).into());
        self.depart(now, index, why, host);
    }

    /// Whether somebody who takes part is not served by the group's address.
    pub(super) fn has_astray(&self) -> bool {
        let counts = self.members.counts();
        counts.by_address < counts.active
    }

    /// Sends a SYN to the group's address for those it did not reach.
    pub(super) fn reprobe(&mut self, now: Instant) {
        if self.reprobe_at > now {
            return;
        }
        self.reprobe_at = now + REPROBE_INTERVAL;
        self.poll |= self.tries_address() && self.has_astray();
    }

    /// Whether the group's address is to serve whom it reaches.
    pub(super) fn tries_address(&self) -> bool {
        matches!(self.options.backend, GroupBackend::Auto | GroupBackend::Multicast)
    }

    /// FIN, once everything has been sent; over, once all have answered.
    pub(super) fn advance_closing(&mut self, now: Instant, host: &mut dyn Host) {
        let Phase::Closing { said } = self.phase else { return };
        // Nobody begins any more, and nobody waits for who has not.
        while let Some(joining) = self.joining.first() {
            self.depart(now, joining.member, Departure::Removed, host);
        }
        if !said && self.stream.is_drained() {
            self.phase = Phase::Closing { said: true };
            let close = Record::Close { symbols: self.stream.next(), messages: self.stream.message_count() };
            let close = bytes::Bytes::from(close.encode(self.id.0));
            self.members.edit_all(|member| {
                if member.is_active() {
                    // From now on it holds up the end, if it lags: before, nobody waited for it.
                    member.progress_at = if member.lagging { now } else { member.progress_at };
                    host.send(now, member.peer, close.clone());
                }
            });
        }
        // Also at once, where nobody is left who could answer.
        if self.phase == (Phase::Closing { said: true }) && self.members.counts().active == 0 {
            self.phase = Phase::Over;
            self.emit(GroupEvent::Closed);
        }
    }

    /// FIN+ACK.
    pub fn on_closed(&mut self, now: Instant, index: usize) {
        let end = self.stream.next();
        if self.members[index].is_active() && (self.phase == Phase::Closing { said: true }) {
            let mut member = self.members.edit(index);
            member.next = end;
            member.messages = self.stream.message_count();
            member.stage = Stage::Closed;
            member.progress_at = now;
            drop(member);
            self.settle();
        }
    }
}

//! One member, as the opener sees it (M3's `tcp_gci`).
//!
//! Inputs → outputs: its reports → what it has, what it may be sent, its round-trip time. Source: M3
//! (one block per member), M6, M7.

use super::hearing::Hearing;
use super::types::{Departure, MemberPath, MemberStatus};
use crate::event::PeerId;
use crate::rtt::Rtt;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::frame::Feedback;
use denrei_wire::{Instant, ids};
use std::collections::BTreeSet;

/// How symbols get to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Multicast,
    /// By its session; the next symbol to hand to it.
    Unicast {
        next: u64,
    },
    /// By another member.
    Relay,
}

/// Where a member is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// OPEN sent.
    Invited,
    /// It has accepted.
    Accepted,
    /// It takes part.
    Active,
    /// FIN+ACK has come.
    Closed,
    Gone(Departure),
}

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    pub id: u32,
    pub addr: SocketAddr,
    pub peer: PeerId,
    pub stage: Stage,
    /// Members there were when it was invited, itself included.
    pub of: u32,
    /// OPEN has been sent: it has the group's key.
    pub told: bool,
    /// Its process was started again before it had answered: there is no session yet with the new one.
    pub restarted: bool,
    /// It has answered OPEN with ACCEPT, whatever became of it since.
    pub accepted: bool,
    /// It has said that it cannot hear the group's address.
    pub unheard: bool,
    /// Another group's address does not reach it: nobody waits until it is known that this one's does not.
    pub out_of_reach: bool,
    pub path: Path,
    /// How far it is on its way from the opener's session to that of a relay.
    pub graft: Graft,
    /// It heard nothing from its relay, which this was, and is not put below another for a while.
    pub shuns: Option<u32>,
    pub strayed: Probation,
    /// It is slow, and the others do not wait for it.
    pub lagging: bool,
    /// It was, and nobody shall wait for what it hands on for a while.
    pub lagged: Probation,
    /// It lets nothing come: the rate that it has told is 0.
    pub stopped: bool,
    /// Symbols below have arrived.
    pub next: u64,
    /// Messages below have arrived, whole and in order, from the first that it gets on.
    pub messages: u64,
    pub first_message: u64,
    /// Cost it has taken beyond what its application has, at most.
    pub credit: u64,
    /// Cost that may have been begun.
    pub limit: u64,
    pub max_message: u64,
    /// Largest packet number it has told of; `None`: it has never heard the group's address.
    pub echo: Option<u64>,
    pub rtt: Rtt,
    /// When it last made progress, or last owed none.
    pub progress_at: Instant,
    /// How long the others have waited for it, of those two times that the policy allows.
    pub held_up: core::time::Duration,
    /// When it was last asked by its session for a report.
    pub asked_at: Option<Instant>,
    /// The last report that spoke for it names it as who holds the others up, or was its own.
    pub named: bool,
    /// Polls of the group it has not answered since its last report.
    pub silent_polls: u32,
    /// Polls of the group since it last told of a packet to the group's address.
    pub deaf_polls: u32,
    /// What it misses below is on its way by its session, which loses nothing.
    pub by_session: u64,
    /// Symbols on their way to it by its session, as repairs.
    pub repairing: BTreeSet<u64>,
    /// How many of the group's packets it gets, and how many it has lost in this round trip.
    pub hearing: Hearing,
    pub lost_now: u64,
    pub lateness: Lateness,
    /// Symbols it has reported missing.
    pub missed: u64,
}

/// Who has lagged hands nothing on for this many times what the others had waited for it, and twice as long each further
/// time.
const TRUST: u32 = 4;
/// Who heard nothing from its relay is served by the opener for so long, and twice as long each further time.
const STAY: Duration = Duration::from_secs(1);
/// How often a time doubles at most.
const MOST_DOUBLINGS: u32 = 6;

/// What a member is not trusted with for a while, which is longer each time.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Probation {
    times: u32,
    until: Option<Instant>,
}

impl Probation {
    /// Once more: for `first` at the first time.
    fn begin(&mut self, now: Instant, first: Duration) {
        self.until = Some(now + first * (1 << self.times.min(MOST_DOUBLINGS)));
        self.times += 1;
    }

    pub fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// How a member that the opener serves comes to be served by a relay, so that nothing is missed in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Graft {
    /// Not at all.
    None,
    /// The relay has been told, and may not have heard it yet: the opener goes on.
    Told,
    /// It has heard it: the opener goes on up to this symbol.
    Until(u64),
}

/// How late a member is at least. A queue on its path delays all of a round's samples, a process that waited for its core some:
/// of several members somebody always did, and each time it is that one whose report is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness {
    /// The least of this round, and of the one before; `u64::MAX`: there was none. Nanoseconds.
    now_ns: u64,
    before_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { now_ns: u64::MAX, before_ns: u64::MAX }
    }
}

impl Lateness {
    /// A round trip was measured.
    pub fn sample(&mut self, rtt_ns: u64) {
        self.now_ns = self.now_ns.min(rtt_ns);
    }

    /// Another round begins.
    pub fn end_round(&mut self) {
        *self = Self { now_ns: u64::MAX, before_ns: self.now_ns };
    }

    /// What of a round trip was there all the time since the round before began.
    pub fn lasting(&self, rtt_ns: u64) -> u64 {
        rtt_ns.min(self.now_ns).min(self.before_ns)
    }
}

/// What a report changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// `next` or `limit` has moved.
    pub moved: bool,
    /// A round-trip sample: the packet's number.
    pub echoed: Option<u64>,
}

impl Member {
    pub fn new(id: u32, addr: SocketAddr, peer: PeerId, now: Instant, rtt: Rtt) -> Self {
        Self {
            id,
            addr,
            peer,
            stage: Stage::Invited,
            of: 1,
            told: false,
            restarted: false,
            accepted: false,
            unheard: false,
            out_of_reach: false,
            path: Path::Multicast,
            graft: Graft::None,
            shuns: None,
            strayed: Probation::default(),
            lagging: false,
            lagged: Probation::default(),
            stopped: false,
            next: 0,
            messages: 0,
            first_message: 0,
            credit: 0,
            limit: 0,
            max_message: u64::MAX,
            echo: None,
            rtt,
            progress_at: now,
            held_up: Duration::ZERO,
            asked_at: None,
            named: true,
            silent_polls: 0,
            deaf_polls: 0,
            by_session: 0,
            repairing: BTreeSet::new(),
            hearing: Hearing::default(),
            lost_now: 0,
            lateness: Lateness::default(),
            missed: 0,
        }
    }

    pub fn is_active(&self) -> bool {
        self.stage == Stage::Active
    }

    /// Whether it is a member no longer.
    pub fn is_gone(&self) -> bool {
        matches!(self.stage, Stage::Gone(_) | Stage::Closed)
    }

    /// Whether the others wait for it.
    pub fn counts(&self) -> bool {
        self.is_active() && !self.lagging
    }

    /// The others wait for it no longer, having waited for `patience`.
    pub fn let_lag(&mut self, now: Instant, patience: Duration) {
        self.lagging = true;
        self.lagged.begin(now, patience * TRUST);
    }

    /// It heard nothing from its relay.
    pub fn stray(&mut self, now: Instant, relay: u32) {
        self.shuns = Some(relay);
        self.strayed.begin(now, STAY);
    }

    /// Takes in a report: `sent` are the first symbol and the first message, `packets` is the first packet not sent.
    pub fn on_report(
        &mut self,
        now: Instant,
        report: &Feedback<'_>,
        sent: (u64, u64),
        packets: u64,
    ) -> Progress {
        let mut progress = Progress::default();
        let next = ids::expand(report.next, self.next);
        progress.moved = self.has(next, self.messages_told(report, sent.1), sent.0);
        if report.limit > self.limit {
            self.limit = report.limit;
            progress.moved = true;
        }
        // Its last echo is of long ago if it is served by its session, and there is none if it joined late.
        let echo = ids::expand(report.echo, packets);
        let heard = report.flags & denrei_wire::frame::feedback_flags::HEARD != 0;
        if heard && echo < packets && self.echo.is_none_or(|before| echo > before) {
            self.echo = Some(echo);
            progress.echoed = Some(echo);
            self.lost_now += self.hearing.on_report(echo, report.received, report.covers);
        }
        self.progress_at = if progress.moved { now } else { self.progress_at };
        // Relays tell of no packets: what comes by them shows in what is acknowledged, whatever is heard beside.
        let reached = if self.path == Path::Relay { progress.moved } else { progress.echoed.is_some() };
        self.deaf_polls = if reached { 0 } else { self.deaf_polls };
        self.silent_polls = 0;
        self.asked_at = None;
        self.named = report.covers == 1;
        progress
    }

    /// It is served by the group's address again, from packet `packet` on: its session was handed what is before symbol
    /// `handed`. What has passed by it until then it has not lost.
    pub fn goes_by_address(&mut self, handed: u64, packet: u64) {
        self.by_session = handed;
        self.path = Path::Multicast;
        self.hearing.count_from(packet);
    }

    /// Messages that it, or all it speaks for, have, of the `sent` ones.
    pub fn messages_told(&self, report: &Feedback<'_>, sent: u64) -> u64 {
        let told = ids::expand(report.messages, self.messages);
        if told <= sent { told } else { self.messages }
    }

    /// It has all symbols before `next` of the `sent` ones, and all messages before `messages`; whether that is news.
    pub fn has(&mut self, next: u64, messages: u64, sent: u64) -> bool {
        self.messages = self.messages.max(messages);
        // M3: taken in if SND.UNA[i] < PKT.ACK[i] ≤ SND.MAX.
        let is_news = next > self.next && next <= sent;
        if is_news {
            self.next = next;
            self.repairing = self.repairing.split_off(&next);
        }
        is_news
    }

    /// Whether a message of this cost may be begun, as far as this member is concerned: within its
    /// limit, or whatever the size if its application has taken all before.
    pub fn may_begin(&self, begun: u64, cost: u64) -> bool {
        begun + cost <= self.limit || begun + self.credit <= self.limit
    }

    /// Cost of what its application has taken, as far as it is known.
    pub fn taken(&self) -> u64 {
        self.limit.saturating_sub(self.credit)
    }

    /// What the application sees.
    pub fn status(&self, sent: u64) -> MemberStatus {
        MemberStatus {
            member: self.id,
            addr: self.addr,
            active: self.is_active(),
            lagging: self.lagging,
            path: match self.path {
                Path::Multicast => MemberPath::Multicast,
                Path::Unicast { .. } => MemberPath::Unicast,
                Path::Relay => MemberPath::Relay,
            },
            messages_acknowledged: self.messages,
            symbols_behind: sent.saturating_sub(self.next),
            srtt_ns: self.rtt.measured().map(denrei_wire::duration_nanos),
            symbols_missed: self.missed,
            loss: self.hearing.share(),
        }
    }

    /// How long to wait for its report before asking.
    pub fn probe_timeout(&self) -> Duration {
        self.rtt.probe_timeout()
    }

    /// The last message it has acknowledged.
    pub fn last_acknowledged(&self) -> Option<u64> {
        self.messages.checked_sub(1).filter(|last| *last >= self.first_message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_delays_some_of_a_rounds_samples_does_not_last() {
        let mut lateness = Lateness::default();
        let sample = |lateness: &mut Lateness, rtt_ns| {
            lateness.sample(rtt_ns);
            lateness.lasting(rtt_ns)
        };
        assert_eq!(sample(&mut lateness, 900), 900, "nothing else is known");
        assert_eq!((sample(&mut lateness, 100), sample(&mut lateness, 800)), (100, 100));
        lateness.end_round();
        assert_eq!(sample(&mut lateness, 700), 100, "not all the time since the round before began");
        lateness.end_round();
        assert_eq!(sample(&mut lateness, 600), 600, "a queue");
        lateness.end_round();
        lateness.end_round();
        assert_eq!(sample(&mut lateness, 500), 500, "it said nothing for a round");
    }

    fn member() -> Member {
        let (addr, peer) = ("10.0.0.1:7".parse().unwrap(), PeerId { slot: 0, generation: 0 });
        let rtt = Rtt::new(Duration::from_micros(100), Duration::ZERO, Duration::from_secs(20));
        Member::new(0, addr, peer, Instant::ZERO, rtt)
    }

    fn heard(echo: u32, messages: u32) -> Feedback<'static> {
        Feedback {
            flags: denrei_wire::frame::feedback_flags::HEARD,
            group: 7,
            member: 0,
            covers: 1,
            echo,
            received: 1,
            delay_us: 0,
            next: 0,
            messages,
            limit: 0,
            gaps: &[],
        }
    }

    #[test]
    fn a_packet_is_known_by_its_low_bits_however_long_ago_the_one_before_was_heard() {
        let mut member = member();
        for packets in [(5 << 32) + 3, (5 << 32) + (3 << 30), 7 << 32] {
            let newest = packets - 1;
            let progress = member.on_report(Instant::ZERO, &heard(newest as u32, 0), (0, 0), packets);
            assert_eq!(progress.echoed, Some(newest));
            let unsent = member.on_report(Instant::ZERO, &heard(packets as u32, 0), (0, 0), packets);
            assert_eq!(unsent.echoed, None);
        }
    }

    #[test]
    fn messages_that_were_never_sent_are_not_taken_for_received() {
        let mut member = member();
        for (told, taken) in [(4, 4), (6, 4), (5, 5), (u32::MAX, 5)] {
            member.on_report(Instant::ZERO, &heard(0, told), (0, 5), 0);
            assert_eq!(member.messages, taken);
        }
    }
}

//! Who has the group's key: OPEN brings it, KEY changes it when somebody has gone or it is worn.
//!
//! Inputs → outputs: members that are invited and members that have gone → records to members' sessions.
//! Source: `spec/protocol.md` §12.6.

use super::Sender;
use crate::event::LostReason;
use crate::group::Host;
use crate::group::member::{Member, Stage};
use crate::group::types::Departure;
use denrei_wire::Instant;
use denrei_wire::group::{Open, Record};

impl Sender {
    /// Whether somebody is still to be sent OPEN.
    pub(super) fn is_inviting(&self) -> bool {
        self.members.counts().uninvited > 0
    }

    /// The session with a member is over. Who was invited and whose process was started again before it answered
    /// has not seen OPEN: it is invited once more, as long as its answer is waited for. Others depart.
    pub fn on_lost(&mut self, now: Instant, index: usize, reason: &LostReason, host: &mut dyn Host) {
        let restarted = matches!(reason, LostReason::Restarted | LostReason::Forgotten);
        let mut member = self.members.edit(index);
        if !restarted || member.stage != Stage::Invited {
            drop(member);
            return self.depart(now, index, Departure::Lost(reason.clone()), host);
        }
        (member.told, member.restarted) = (false, true);
    }

    /// Opens sessions with those whose process was started again.
    fn reconnect(&mut self, now: Instant, host: &mut dyn Host) {
        for index in 0..self.members.len() {
            let member = &self.members[index];
            if member.restarted
                && member.stage == Stage::Invited
                && let Some(peer) = host.connect(now, member.addr)
            {
                self.members.set_peer(index, peer);
                self.members.edit(index).restarted = false;
            }
        }
    }

    /// Whether a member may be sent OPEN now, and has still to be.
    pub(super) fn is_to_be_invited(&self, member: &Member, host: &dyn Host) -> bool {
        let waits = || self.keys.is_some() && !host.is_proven(member.peer);
        member.stage == Stage::Invited && !member.told && !member.restarted && !waits()
    }

    /// Sends OPEN (SYN) to those who have not got it. One that holds a key waits until its member has
    /// proven itself: before, what is said to it can be read by whoever gets the cluster key.
    pub(super) fn send_invitations(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.is_inviting() {
            return;
        }
        self.reconnect(now, host);
        for index in 0..self.members.len() {
            if !self.is_to_be_invited(&self.members[index], host) {
                continue;
            }
            let delay = self.report_delay(host.config(), self.members[index].of as usize);
            let mut member = self.members.edit(index);
            (member.told, member.unheard) = (true, false);
            let key = self.keys.as_ref().map(|keys| keys.for_member(self.packet)).unwrap_or_default();
            let open = Open {
                address: self.address,
                member: member.id,
                members: member.of,
                report_delay_us: delay.as_micros() as u32,
                stagger: self.options.feedback.stagger,
                suppress: self.options.feedback.suppress,
                key: &key,
            };
            host.send(now, member.peer, Record::Open(open).encode(self.id.0).into());
        }
    }

    /// Changes the key if that is due, before another packet is sealed.
    pub(super) fn rekey(&mut self, now: Instant, host: &mut dyn Host) {
        let somebody_has_gone = core::mem::take(&mut self.rekey_due);
        let Some(keys) = &mut self.keys else { return };
        if !somebody_has_gone && !keys.is_wearing_out() {
            return;
        }
        let key = keys.rekey(now, &host.seed(), somebody_has_gone);
        let record = Record::Key { keep_previous: !somebody_has_gone, key: &key }.encode(self.id.0);
        let record = bytes::Bytes::from(record);
        let has_key = |stage: &Stage| matches!(stage, Stage::Invited | Stage::Accepted | Stage::Active);
        for member in self.members.iter().filter(|member| member.told && has_key(&member.stage)) {
            host.send(now, member.peer, record.clone());
        }
    }
}

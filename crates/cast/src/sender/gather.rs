//! Waiting for receivers: who has come, and who may have taken them.

use super::{Members, Sender};
use crate::error::{CastError, in_seconds};
use crate::interfaces;
use crate::message::{Message, VERSION};
use crate::roster::Member;
use crate::silence::ASK_AFTER;
use denrei::PeerId;
use std::time::{Duration, Instant};

/// Who has come, and does not answer within this time, is not waited for: a host that is there answers in less.
const ROLL_CALL: Duration = Duration::from_millis(500);

impl Sender {
    /// Looks who else is announced at the group: receivers take the cast that they hear of first.
    pub(super) fn look_for_others(&mut self, now: Instant) {
        let (Some(finder), Some(beacon)) = (&mut self.finder, &self.beacon) else { return };
        while let Some(heard) = finder.hear(now) {
            if !beacon.is_own(&heard) && self.other.is_none() {
                self.other = Some(heard.addr);
                tracing::warn!("{}", told_of_other(heard.addr));
            }
        }
    }

    /// Begins once those are there who are waited for.
    pub(super) fn start_if_gathered(&mut self, now: Instant) -> Result<(), CastError> {
        let ready = self.roster.members.iter().filter(|member| member.has_come()).count();
        let waited = now.duration_since(self.began);
        let enough = match &self.options.members {
            Members::Listed(members) => ready == members.len(),
            Members::AtLeast(least) => ready >= *least,
        };
        let some = matches!(self.options.members, Members::Listed(_)) && ready > 0;
        if enough || (some && waited >= self.options.wait) {
            if self.all_answer(now) {
                self.source
                    .look_at_those_without_data()
                    .inspect_err(|error| self.abort_all(&error.to_string()))?;
                self.started = Some(now);
                self.finder = None;
            }
            return Ok(());
        }
        self.called = None;
        if waited < self.options.wait {
            return Ok(());
        }
        let wait = in_seconds(self.options.wait);
        match &self.options.members {
            // Some are there, and verify what they have.
            Members::Listed(_) if self.roster.members.iter().any(Member::is_active) => {}
            Members::Listed(_) => {
                return Err(CastError::NoReceivers(format!(
                    "no member answered within {wait}: run `denrei cast recv` on each, at the address that \
                     --members names, with the same key{}",
                    interfaces::reach_of(self.node.local_addr())
                )));
            }
            Members::AtLeast(least) => {
                let others = match self.roster.members.iter().filter(|member| member.elsewhere).count() {
                    0 => String::new(),
                    others => format!(", others ({others}) took another cast or left"),
                };
                let other = self.other.map(|addr| format!("{}; ", told_of_other(addr))).unwrap_or_default();
                let text = format!(
                    "only {ready} of {least} receivers came within {wait}{others}: {other}run `denrei cast recv \
                     --group {}` on them, with the same key, or with --from {} where multicast does not reach{}",
                    interfaces::named(self.options.group),
                    interfaces::told(self.node.local_addr()),
                    interfaces::reach_of(self.node.local_addr())
                );
                self.abort_all(&text);
                return Err(CastError::NoReceivers(text));
            }
        }
        Ok(())
    }

    /// Asks those who have come, if that was some time ago, whether they are there still. Whether they have answered, or
    /// were waited for: who has not would hold a group up that opens with it.
    fn all_answer(&mut self, now: Instant) -> bool {
        let long_ago = |member: &Member| {
            let since = |began| now.saturating_duration_since(began) >= ASK_AFTER;
            member.is_active() && member.began.is_some_and(since)
        };
        let asked = self.peers.iter().filter(|(_, index)| long_ago(&self.roster.members[**index]));
        let asked: Vec<(PeerId, usize)> = asked.map(|(peer, index)| (*peer, *index)).collect();
        let Some(called) = self.called else {
            self.called = Some(now);
            let question = Message::Hello { version: VERSION }.encode();
            for (peer, _) in &asked {
                self.try_say(*peer, &question);
            }
            return asked.is_empty();
        };
        let owes = |peer| self.node.flow(peer).is_some_and(|flow| flow.queued_messages > 0);
        let silent: Vec<usize> =
            asked.into_iter().filter(|(peer, _)| owes(*peer)).map(|(_, index)| index).collect();
        let over = silent.is_empty() || now.saturating_duration_since(called) >= ROLL_CALL;
        if over {
            silent.into_iter().for_each(|index| self.roster.members[index].silent = true);
        }
        over
    }
}

fn told_of_other(addr: std::net::SocketAddr) -> String {
    format!(
        "another cast is announced at this group, from {addr}, and receivers take the one that they hear of first: \
         give each a --group of its own"
    )
}

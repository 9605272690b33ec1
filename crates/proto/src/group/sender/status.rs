//! What the application sees of a group that it has opened.
//!
//! Inputs → outputs: the opener's state → how much is not acknowledged, whether anybody is left, the status.

use super::{Member, Phase, Sender};
use crate::group::error::GroupError;
use crate::group::types::{GroupCounters, GroupStatus, MemberPath, MemberStatus};

impl Sender {
    /// Bytes of messages not acknowledged by all who count.
    pub fn queued_bytes(&self) -> u64 {
        self.stream.unacked_bytes()
    }

    /// Whether those who count have acknowledged everything.
    ///
    /// # Errors
    /// Nobody is left, and not everything was acknowledged.
    pub fn is_flushed(&self) -> Result<bool, GroupError> {
        let flushed = self.stream.unacked_bytes() == 0;
        // One that could not be opened never had anybody.
        let in_vain = self.deserted || (self.is_over() && !flushed);
        if in_vain && self.members.counts().active == 0 {
            return Err(GroupError::Deserted(self.id));
        }
        Ok(flushed)
    }

    /// What the application sees.
    pub fn status(&self) -> GroupStatus {
        let begun = self.stream.begun_cost();
        let credit = self.members.least_limit().map(|limit| limit.saturating_sub(begun));
        GroupStatus {
            group: self.id,
            address: self.address,
            open: self.phase == Phase::Open,
            messages_acknowledged: self.stream.acked_messages(),
            messages_sent: self.stream.message_count(),
            queued_bytes: self.stream.unacked_bytes(),
            credit_bytes: credit.unwrap_or(0),
            window_bytes: self.window(),
            members: self.members.iter().map(|member| self.status_of(member)).collect(),
            counters: GroupCounters { dropped_events: self.events.dropped(), ..self.counters },
        }
    }

    fn status_of(&self, member: &Member) -> MemberStatus {
        let mut status = member.status(self.stream.next());
        if self.replicates() && status.path == MemberPath::Multicast {
            status.path = MemberPath::Unicast;
        }
        status
    }
}

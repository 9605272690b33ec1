//! What members have told their openers: to which operation each of them has come.
//!
//! Inputs → outputs: messages, in whatever order groups and threads wait for them → who has come to which operation.

use bytes::Bytes;
use denrei::{GroupId, PeerId};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Carries them, in the sessions beneath the groups.
pub(super) const CHANNEL: u16 = 0;

/// By group, the last operation that each member has come to, if it has come to any. All groups of a process are in one, as
/// the thread that waits for the members of one takes what those of others have told.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<HashMap<GroupId, HashMap<PeerId, Option<u32>>>>);

/// What a member says: the group's name [8], the operation's number [4].
pub(super) fn message(group: GroupId, turn: u32) -> Bytes {
    let mut message = [0; 12];
    message[..8].copy_from_slice(&group.0.to_le_bytes());
    message[8..].copy_from_slice(&turn.to_le_bytes());
    Bytes::copy_from_slice(&message)
}

impl Told {
    /// A group that this process leads.
    pub fn begin(&self, group: GroupId, members: &[PeerId]) {
        self.0.lock().insert(group, members.iter().map(|member| (*member, None)).collect());
    }

    /// It is over.
    pub fn end(&self, group: GroupId) {
        self.0.lock().remove(&group);
    }

    /// A message has come. Of groups that are over, or are not led here, of who is no member, and of what is none of ours
    /// nothing is kept.
    pub fn take(&self, from: PeerId, message: &[u8]) {
        let Some((group, turn)) = message.split_first_chunk() else { return };
        let Ok(turn) = turn.try_into().map(u32::from_le_bytes) else { return };
        let mut all = self.0.lock();
        let turns = all.get_mut(&GroupId(u64::from_le_bytes(*group)));
        if let Some(last) = turns.and_then(|turns| turns.get_mut(&from)) {
            *last = Some(turn);
        }
    }

    /// Whether a member has come to the operation with this number, or to a later one. Numbers wrap.
    pub fn has_come(&self, group: GroupId, member: PeerId, turn: u32) -> bool {
        let all = self.0.lock();
        let last = all.get(&group).and_then(|turns| *turns.get(&member)?);
        last.is_some_and(|last| last.wrapping_sub(turn) as i32 >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);
    const MEMBER: PeerId = PeerId::from_u64(1);

    #[test]
    fn who_has_told_of_an_operation_has_come_to_those_before_it() {
        let told = Told::default();
        told.begin(GROUP, &[MEMBER]);
        assert!(!told.has_come(GROUP, MEMBER, 5));
        told.take(MEMBER, &message(GROUP, 5));
        assert!(told.has_come(GROUP, MEMBER, 4) && told.has_come(GROUP, MEMBER, 5));
        assert!(!told.has_come(GROUP, MEMBER, 6));
    }

    #[test]
    fn numbers_wrap() {
        let told = Told::default();
        told.begin(GROUP, &[MEMBER]);
        told.take(MEMBER, &message(GROUP, u32::MAX));
        assert!(!told.has_come(GROUP, MEMBER, 0));
        told.take(MEMBER, &message(GROUP, 0));
        assert!(told.has_come(GROUP, MEMBER, u32::MAX) && told.has_come(GROUP, MEMBER, 0));
    }

    #[test]
    fn of_groups_that_are_not_led_here_of_strangers_and_of_anything_else_nothing_is_kept() {
        let told = Told::default();
        told.begin(GROUP, &[MEMBER]);
        let stranger = PeerId::from_u64(2);
        told.take(MEMBER, &message(GroupId(8), 5));
        told.take(stranger, &message(GROUP, 5));
        assert!(!told.has_come(GROUP, stranger, 5));
        for garbage in [&[][..], &[7; 8], &[7; 11], &[7; 13]] {
            told.take(MEMBER, garbage);
        }
        assert_eq!(*told.0.lock(), HashMap::from([(GROUP, HashMap::from([(MEMBER, None)]))]));
        told.end(GROUP);
        told.take(MEMBER, &message(GROUP, 5));
        assert!(told.0.lock().is_empty());
    }
}

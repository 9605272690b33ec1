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

    /// A message has come; of which group. Of groups that are over, or are not led here, of who is no member, and of what
    /// is none of ours nothing is kept.
    pub fn take(&self, from: PeerId, message: &[u8]) -> Option<GroupId> {
        let (group, turn) = message.split_first_chunk()?;
        let (group, turn) = (GroupId(u64::from_le_bytes(*group)), u32::from_le_bytes(turn.try_into().ok()?));
        let mut all = self.0.lock();
        *all.get_mut(&group)?.get_mut(&from)? = Some(turn);
        Some(group)
    }

    /// The first of the members that has not come to the operation with this number, nor to a later one. Numbers wrap.
    pub fn missing(&self, group: GroupId, members: &[PeerId], turn: u32) -> Option<PeerId> {
        let all = self.0.lock();
        let last = |member| all.get(&group).and_then(|turns| *turns.get(member)?);
        let has_come = |member| last(member).is_some_and(|last| last.wrapping_sub(turn) as i32 >= 0);
        members.iter().find(|member| !has_come(*member)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);
    const MEMBER: PeerId = PeerId::from_u64(1);

    fn has_come(told: &Told, member: PeerId, turn: u32) -> bool {
        told.missing(GROUP, &[member], turn).is_none()
    }

    #[test]
    fn who_has_told_of_an_operation_has_come_to_those_before_it() {
        let told = Told::default();
        told.begin(GROUP, &[MEMBER]);
        assert!(!has_come(&told, MEMBER, 5));
        assert_eq!(told.take(MEMBER, &message(GROUP, 5)), Some(GROUP));
        assert!(has_come(&told, MEMBER, 4) && has_come(&told, MEMBER, 5));
        assert!(!has_come(&told, MEMBER, 6));
    }

    #[test]
    fn numbers_wrap() {
        let told = Told::default();
        told.begin(GROUP, &[MEMBER]);
        told.take(MEMBER, &message(GROUP, u32::MAX));
        assert!(!has_come(&told, MEMBER, 0));
        told.take(MEMBER, &message(GROUP, 0));
        assert!(has_come(&told, MEMBER, u32::MAX) && has_come(&told, MEMBER, 0));
    }

    #[test]
    fn of_groups_that_are_not_led_here_of_strangers_and_of_anything_else_nothing_is_kept() {
        let told = Told::default();
        told.begin(GROUP, &[MEMBER]);
        let stranger = PeerId::from_u64(2);
        assert_eq!(told.take(MEMBER, &message(GroupId(8), 5)), None);
        assert_eq!(told.take(stranger, &message(GROUP, 5)), None);
        assert!(!has_come(&told, stranger, 5));
        for garbage in [&[][..], &[7; 8], &[7; 11], &[7; 13]] {
            assert_eq!(told.take(MEMBER, garbage), None);
        }
        assert_eq!(*told.0.lock(), HashMap::from([(GROUP, HashMap::from([(MEMBER, None)]))]));
        told.end(GROUP);
        told.take(MEMBER, &message(GROUP, 5));
        assert!(told.0.lock().is_empty());
    }
}

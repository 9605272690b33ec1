//! What two applications may see of each other, kept beside the endpoints.
//!
//! Inputs → outputs: what was sent, received, reported and ended → a panic if a message is wrong,
//! comes twice, too early or out of order, if a report is false, or if something is missing at the
//! end. Sessions are told apart by a tag that the sender puts into its messages.

use crate::world;
use denrei_proto::{ChannelId, Completion, Message, MessageId, PeerId};
use std::collections::{BTreeMap, BTreeSet};

/// What a node knows as one peer: node, which of its lives, and the peer's name in it.
pub(crate) type SessionKey = (usize, u32, PeerId);

/// One direction of a session, as its sender sees it.
#[derive(Default)]
struct Outgoing {
    /// 0 until a message is sent.
    tag: u32,
    channels: BTreeMap<u16, Vec<Sent>>,
    lost: bool,
    /// Somebody closed or aborted: nothing has to arrive any more.
    closing: bool,
}

#[derive(Clone, Copy)]
struct Sent {
    len: usize,
    completion: Completion,
    reported: bool,
    refused: bool,
}

/// One direction of a session, as its receiver sees it.
#[derive(Default)]
struct Incoming {
    tag: Option<u32>,
    channels: BTreeMap<u16, Received>,
    read_closed: bool,
}

#[derive(Default)]
struct Received {
    /// First number that may still come in order.
    next: u64,
    /// Offers announced and not arrived: the only ones that may come late.
    offered: BTreeMap<u64, u64>,
    refused: BTreeSet<u64>,
    taken: BTreeSet<u64>,
}

/// Both applications' knowledge.
#[derive(Default)]
pub(crate) struct Oracle {
    outgoing: BTreeMap<SessionKey, Outgoing>,
    incoming: BTreeMap<SessionKey, Incoming>,
    tags: u32,
}

impl Oracle {
    /// The tag and the number that the next message of a channel has to carry.
    pub fn next(&mut self, key: SessionKey, channel: u16) -> (u32, u64) {
        let tags = &mut self.tags;
        let session = self.outgoing.entry(key).or_default();
        if session.tag == 0 {
            *tags += 1;
            session.tag = *tags;
        }
        (session.tag, session.channels.get(&channel).map_or(0, |sent| sent.len() as u64))
    }

    /// A message was taken from the application.
    pub fn sent(&mut self, key: SessionKey, id: MessageId, len: usize, completion: Completion) {
        let (_, number) = self.next(key, id.channel.channel);
        assert_eq!(id.number, number, "messages are numbered without a gap");
        let session = self.outgoing.get_mut(&key).expect("made by next");
        assert!(!session.lost, "a lost peer takes no messages");
        let sent = Sent { len, completion, reported: false, refused: false };
        session.channels.entry(id.channel.channel).or_default().push(sent);
    }

    /// A message was handed to the application.
    pub fn received(&mut self, key: SessionKey, message: &Message) {
        let (channel, number) = (message.channel.channel, message.number);
        let tag = world::check_message(channel, number, &message.data);
        let session = self.incoming.entry(key).or_default();
        assert!(!session.read_closed, "a message after close_read");
        if let Some(tag) = tag {
            assert_eq!(*session.tag.get_or_insert(tag), tag, "two senders in one session");
        }
        let received = session.channels.entry(channel).or_default();
        assert!(received.taken.insert(number), "message {number} of channel {channel} came twice");
        if let Some(bytes) = received.offered.remove(&number) {
            assert_eq!(bytes, message.data.len() as u64, "an offer named another size");
        } else {
            assert!(number >= received.next, "message {number} of channel {channel} is out of order");
        }
        let passed = received.skip_to(number);
        let tag = session.tag;
        if let Some(sender) = self.outgoing.values().find(|sender| Some(sender.tag) == tag) {
            sender.check_passed(channel, &passed);
            let sent = sender.channels.get(&channel).and_then(|sent| sent.get(number as usize));
            let sent = sent.unwrap_or_else(|| panic!("message {number} of channel {channel} was never sent"));
            assert_eq!(sent.len, message.data.len(), "message {number} changed its size");
        }
    }

    /// An offer was announced to the application.
    pub fn offered(&mut self, key: SessionKey, channel: u16, number: u64, bytes: u64) {
        let received = self.incoming.entry(key).or_default().channels.entry(channel).or_default();
        // Messages before it may wait to be taken, but none after it has been.
        assert!(number >= received.next, "offer {number} of channel {channel} is out of order");
        assert!(received.offered.insert(number, bytes).is_none(), "offer {number} was announced twice");
    }

    /// The application refused an offer.
    pub fn refuse(&mut self, key: SessionKey, channel: u16, number: u64) {
        let received = self.incoming.entry(key).or_default().channels.entry(channel).or_default();
        received.offered.remove(&number);
        received.refused.insert(number);
    }

    /// The sender was told that the receiver refused.
    pub fn refused(&mut self, key: SessionKey, id: MessageId) {
        let sent = self.message(key, id);
        assert!(!sent.refused && !sent.reported, "{id:?} is refused after its end");
        sent.refused = true;
    }

    /// The sender was told that a message arrived.
    pub fn reported(&mut self, key: SessionKey, id: MessageId, completion: Completion) {
        let sent = self.message(key, id);
        assert_eq!(sent.completion, completion, "{id:?} was reported otherwise than asked");
        assert!(!sent.reported, "{id:?} was reported twice");
        sent.reported = true;
        let refused = sent.refused;
        let tag = self.outgoing[&key].tag;
        if completion == Completion::Delivered && !refused {
            let receiver = self.incoming.values().find(|receiver| receiver.tag == Some(tag));
            let received = receiver.and_then(|receiver| receiver.channels.get(&id.channel.channel));
            let taken = received.is_some_and(|received| received.taken.contains(&id.number));
            let known = received.is_some();
            let discarded = receiver.is_some_and(|receiver| receiver.read_closed);
            assert!(taken || !known || discarded, "{id:?} is said to be delivered and was not taken");
        }
    }

    /// A session ended for one of its sides.
    pub fn lost(&mut self, key: SessionKey, unacknowledged: &[MessageId]) {
        for id in unacknowledged {
            let sent = self.message(key, *id);
            let acknowledged = sent.reported && sent.completion == Completion::Acknowledged;
            assert!(!acknowledged && !sent.refused, "{id:?} was acknowledged, or refused, and is not");
        }
        self.outgoing.entry(key).or_default().lost = true;
    }

    /// An application closes or aborts: both directions may stop short from now on.
    pub fn closing(&mut self) {
        self.outgoing.values_mut().for_each(|session| session.closing = true);
    }

    /// The other side wants no more messages of a session.
    pub fn peer_done_reading(&mut self, key: SessionKey) {
        self.outgoing.entry(key).or_default().closing = true;
    }

    /// An application wants no more messages of a session.
    pub fn close_read(&mut self, key: SessionKey) {
        // What a lost peer sent remains readable.
        if self.outgoing.get(&key).is_none_or(|session| !session.lost) {
            self.incoming.entry(key).or_default().read_closed = true;
        }
    }

    /// A node was killed: whatever its sessions had, they have no more.
    pub fn killed(&mut self, node: usize) {
        self.closing();
        self.outgoing.retain(|key, session| {
            session.lost |= key.0 == node;
            true
        });
    }

    /// Judges a session that lives, after the network was well for long enough: whether all that was
    /// sent has been received.
    pub fn is_complete(&self, key: SessionKey) -> Result<(), String> {
        let Some(session) = self.outgoing.get(&key).filter(|session| !session.lost && !session.closing)
        else {
            return Ok(());
        };
        let receiver = self.incoming.values().find(|receiver| receiver.tag == Some(session.tag));
        for (channel, sent) in &session.channels {
            for (number, sent) in (0u64..).zip(sent) {
                let received = receiver.and_then(|receiver| receiver.channels.get(channel));
                let taken = received.is_some_and(|received| received.taken.contains(&number));
                // Without a single tagged message it is not known which session is which.
                if !taken && !sent.refused && (receiver.is_some() || sent.len >= world::HEADER) {
                    return Err(format!("message {number} of channel {channel} ({} octets)", sent.len));
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, key: SessionKey, id: MessageId) -> &mut Sent {
        let ChannelId { channel, .. } = id.channel;
        let session = self.outgoing.get_mut(&key);
        let sent =
            session.and_then(|session| session.channels.get_mut(&channel)?.get_mut(id.number as usize));
        sent.unwrap_or_else(|| panic!("{id:?} was never sent"))
    }
}

impl Outgoing {
    /// Nothing may be missing in a channel's sequence but what the endpoint refused by itself.
    fn check_passed(&self, channel: u16, numbers: &[u64]) {
        for &number in numbers {
            let sent = self.channels.get(&channel).and_then(|sent| sent.get(number as usize));
            let refused = sent.is_some_and(|sent| sent.len as u64 > world::config().max_message_bytes);
            assert!(refused, "message {number} of channel {channel} was passed over");
        }
    }
}

impl Received {
    /// `number` has had its turn, and all before it: those that were passed over.
    fn skip_to(&mut self, number: u64) -> Vec<u64> {
        let accounted = |passed: &u64| {
            self.taken.contains(passed) || self.offered.contains_key(passed) || self.refused.contains(passed)
        };
        let passed = (self.next..number).filter(|passed| !accounted(passed)).collect();
        self.next = self.next.max(number + 1);
        passed
    }
}

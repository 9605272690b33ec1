//! Who waits for room in a queue, and when that is over.
//!
//! Inputs → outputs: who found none, and the queues as they are → whether somebody has what it waits for.

use denrei_proto::{ChannelId, Endpoint, PeerId};

/// What somebody waits for who found no room. It is over when there is, and not before: who is told too early
/// finds none, and what it waits for is forgotten by then. Of several who wait for the same queue, when there is room
/// for the first: the others look then, and say so again.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    peer: PeerId,
    /// The channel whose own room will do, too, and for how many bytes at least.
    beside: Option<(u16, u64)>,
    /// The queue of the peer at which it is over, bytes.
    level: u64,
}

impl Blocked {
    /// Until everything to `peer` is acknowledged.
    pub fn until_empty(peer: PeerId) -> Self {
        Self { peer, beside: None, level: 0 }
    }

    /// Until there is room for `bytes` in the queue to the peer, which holds `most`, or in that of the channel. Half
    /// empty, not barely not full: or it would be over for each message.
    pub fn until_room(to: ChannelId, bytes: u64, most: u64) -> Self {
        Self { peer: to.peer, beside: Some((to.channel, bytes)), level: most / 2 }
    }

    /// Until a message of `bytes` could be queued.
    pub fn until_room_for(peer: PeerId, bytes: u64, most: u64) -> Self {
        Self { peer, beside: None, level: most.saturating_sub(bytes).max(most / 2) }
    }

    fn queue(&self) -> Queue {
        (self.peer, self.beside.map(|(channel, _)| channel))
    }

    /// Whether it is not over.
    pub fn still_is(&self, endpoint: &Endpoint) -> bool {
        let full = endpoint.flow_queue_bytes(self.peer).is_some_and(|queued| queued > self.level);
        let to = |channel| ChannelId { peer: self.peer, channel };
        full && !self.beside.is_some_and(|(channel, bytes)| endpoint.has_room_beside(to(channel), bytes))
    }
}

/// A peer's, and which channel's own room will do as well.
type Queue = (PeerId, Option<u16>);

/// All who wait for room.
#[derive(Debug, Default)]
pub(crate) struct Queuers {
    /// One for each queue, which is over as soon as it is for anybody who waits for that queue, or before.
    all: Vec<Blocked>,
    /// What was in `all` was over when something took its place there.
    room_came: bool,
    /// Of the queues that nobody watches since the last look: those who wait for them still have to say so again.
    over: Over,
}

#[derive(Debug, Default)]
struct Over {
    any: bool,
    queues: Vec<Queue>,
}

impl Queuers {
    /// Whose time was up is still in the list: one entry for all who wait for the same queue, or calls in vain, each
    /// with a message of another size, would make every look at the list longer than the one before.
    pub fn add(&mut self, mut blocked: Blocked, endpoint: &Endpoint) {
        let Some(same) = self.all.iter_mut().find(|other| other.queue() == blocked.queue()) else {
            self.make_room(endpoint);
            return self.all.push(blocked);
        };
        if same.still_is(endpoint) {
            blocked.level = blocked.level.max(same.level);
            blocked.beside = blocked.beside.min(same.beside);
        } else {
            // Others are told of that still. Taken together it would be over for who has found no room just now.
            self.room_came = true;
        }
        *same = blocked;
    }

    /// While nobody waits nobody looks at what is over: a list that would have to grow holds none of that.
    fn make_room(&mut self, endpoint: &Endpoint) {
        let (before, room) = (self.all.len(), self.all.capacity());
        if before < room {
            return;
        }
        self.all.retain(|blocked| blocked.still_is(endpoint));
        self.room_came |= self.all.len() < before;
        if self.all.len() > room / 2 {
            self.all.reserve(room);
        }
    }

    /// Looks whether for somebody it is over, who is forgotten. Until the next look [`concerns`](Self::concerns) says
    /// who.
    pub fn look(&mut self, endpoint: &Endpoint) -> bool {
        let over = self.all.extract_if(.., |blocked| !blocked.still_is(endpoint));
        self.over.queues.clear();
        self.over.queues.extend(over.map(|blocked| blocked.queue()));
        self.over.any = std::mem::take(&mut self.room_came);
        self.over.any || !self.over.queues.is_empty()
    }

    /// Whether somebody who waits for that has to look again: it is over, or is watched no more.
    pub fn concerns(&self, blocked: &Blocked, endpoint: &Endpoint) -> bool {
        self.over.any || self.over.queues.contains(&blocked.queue()) || !blocked.still_is(endpoint)
    }

    /// Goes on with all that wait in another list.
    pub fn absorb(&mut self, other: &mut Self) {
        self.all.append(&mut other.all);
        self.room_came |= other.room_came;
    }
}

#[cfg(test)]
mod tests {
    use crate::{ChannelId, Completion, Config, Drive, Node};
    use std::time::Duration;

    #[test]
    fn calls_that_wait_in_vain_for_a_full_queue_leave_one_trace_whatever_their_messages() {
        let mut config = Config { drive: Drive::Thread, ..Config::default() };
        config.protocol.send_buffer_bytes = 1 << 20;
        let [node, reader] = [(); 2].map(|()| Node::bind("127.0.0.1:0", config.clone()).unwrap());
        let peer = node.connect(reader.local_addr()).unwrap();
        let to = ChannelId { peer, channel: 0 };
        while node.send_timeout(to, vec![0; 1 << 16], Duration::from_millis(300)).is_ok() {}
        for bytes in 0..1000 {
            assert!(node.send_timeout(to, vec![0; (1 << 16) + bytes], Duration::ZERO).is_err());
            assert_eq!(node.wait(peer, (1 << 19) + bytes as u64, Duration::ZERO), Ok(false));
            assert!(!node.flush(peer, Duration::ZERO));
        }
        let traces = node.with_core(|core, _| core.queuers.all.len());
        assert!(traces <= 2, "{traces}: of the channel's room, and of the peer's");
    }

    #[test]
    fn queues_of_peers_that_are_gone_leave_no_trace_where_nobody_waits() {
        let mut config = Config::default();
        config.protocol.send_buffer_bytes = 1 << 16;
        let node = Node::bind("127.0.0.1:0", config).unwrap();
        for port in 1..500 {
            let peer = node.connect((std::net::Ipv4Addr::LOCALHOST, port).into()).unwrap();
            let to = ChannelId { peer, channel: 0 };
            node.queue(to, vec![0; 1 << 15], Completion::None).unwrap();
            assert_eq!(node.wait(peer, 1 << 16, Duration::ZERO), Ok(false));
            node.abort(peer, 0x8000, "").unwrap();
        }
        let room = node.with_core(|core, _| core.queuers.all.capacity());
        assert!(room <= 16, "for {room}");
    }
}

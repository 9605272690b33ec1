//! Tasks that wait for news of a Node, and what each waits for.
//!
//! Inputs → outputs: a task and what it found missing, and the protocol's state once there is news → which tasks are
//! to look again. With a task for each of a thousand channels a message concerns one of them, and what the others wait
//! for is not looked at.

use crate::blocked::Blocked;
use denrei_proto::{ChannelId, Endpoint};
use std::collections::BTreeMap;
use std::task::Waker;

/// What a task waits for. Told too early it looks in vain and says so again; told too late it would wait for ever: a
/// task whose look would find something is concerned.
#[derive(Clone, Debug)]
pub(crate) enum Interest {
    /// Whatever there is news of.
    Any,
    /// Messages of a channel, or that no more come.
    Channel(ChannelId),
    /// Room in the queue to a peer.
    Room(Blocked),
}

/// The tasks that wait, by number: who came first is told first.
#[derive(Default)]
pub(crate) struct Tasks {
    /// Whatever news there is, or room if that is named.
    others: BTreeMap<u64, (Option<Blocked>, Waker)>,
    channels: BTreeMap<(ChannelId, u64), Waker>,
    /// The protocol's events when those who wait for channels were last looked at: that no more come is one.
    events_seen: u64,
}

impl Tasks {
    /// The task of that number waits. Its waker of before is the caller's to drop.
    #[must_use]
    pub fn wait(&mut self, number: u64, interest: Interest, waker: Waker) -> Option<Waker> {
        match interest {
            Interest::Any => self.others.insert(number, (None, waker)).map(|(_, old)| old),
            Interest::Room(blocked) => self.others.insert(number, (Some(blocked), waker)).map(|(_, old)| old),
            Interest::Channel(channel) => self.channels.insert((channel, number), waker),
        }
    }

    /// The task of that number, which waited for that, waits no more.
    pub fn stop(&mut self, number: u64, interest: &Interest) -> Option<Waker> {
        match interest {
            Interest::Channel(channel) => self.channels.remove(&(*channel, number)),
            Interest::Any | Interest::Room(_) => self.others.remove(&number).map(|(_, waker)| waker),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.others.is_empty() && self.channels.is_empty()
    }

    /// Takes those that are concerned by how things are.
    pub fn take_concerned(&mut self, endpoint: &Endpoint) -> Vec<Waker> {
        let concerned = |blocked: &Option<Blocked>| !blocked.as_ref().is_some_and(|it| it.still_is(endpoint));
        let others = self.others.extract_if(.., |_, (blocked, _)| concerned(blocked));
        let mut wakers: Vec<_> = others.map(|(_, (_, waker))| waker).collect();
        if !self.channels.is_empty() {
            self.take_readers(endpoint, &mut wakers);
        }
        wakers
    }

    /// Takes those whose channel has a message, or will have none.
    fn take_readers(&mut self, endpoint: &Endpoint, wakers: &mut Vec<Waker>) {
        let has_ended = std::mem::replace(&mut self.events_seen, endpoint.events()) != endpoint.events();
        // Whichever are fewer.
        if has_ended || self.channels.len() < endpoint.readable_channels().len() {
            let is_met =
                |channel| endpoint.has_message(channel) || endpoint.check_more_to_come(channel).is_err();
            let readers = self.channels.extract_if(.., |(channel, _), _| is_met(*channel));
            return wakers.extend(readers.map(|(_, waker)| waker));
        }
        for channel in endpoint.readable_channels().filter(|channel| endpoint.has_message(*channel)) {
            let readers = self.channels.extract_if((channel, 0)..=(channel, u64::MAX), |_, _| true);
            wakers.extend(readers.map(|(_, waker)| waker));
        }
    }

    /// Takes all of them.
    pub fn take_all(&mut self) -> Vec<Waker> {
        let others = std::mem::take(&mut self.others).into_values().map(|(_, waker)| waker);
        others.chain(std::mem::take(&mut self.channels).into_values()).collect()
    }
}

//! Tasks that wait for news of a Node, and what each waits for. Threads that wait for another are tasks like others.
//!
//! Inputs → outputs: a task and what it found missing, and the protocol's state once there is news → which tasks are
//! to look again. With a task, or a thread, for each of many channels, or groups, a message concerns one of them; what
//! others wait for at channels is not even looked at.

use crate::blocked::{Blocked, Queuers};
use denrei_proto::group::MembershipId;
use denrei_proto::{ChannelId, Endpoint};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

/// What a task waits for. Told too early it looks in vain and says so again; told too late it would wait for ever: a
/// task whose look would find something is concerned.
#[derive(Clone, Debug)]
pub(crate) enum Interest {
    /// Whatever there is news of.
    Any,
    /// Messages of a channel, or that no more come.
    Channel(ChannelId),
    /// Messages of a group, or that no more come.
    Membership(MembershipId),
    /// Room in the queue to a peer.
    Room(Blocked),
}

impl Interest {
    /// Whether how things are concerns who waits for this; for a channel that is not looked at here.
    fn is_met(&self, endpoint: &Endpoint, queuers: &Queuers) -> bool {
        match self {
            Self::Any | Self::Channel(_) => true,
            Self::Membership(membership) => endpoint.is_membership_ready(*membership),
            Self::Room(blocked) => queuers.concerns(blocked, endpoint),
        }
    }
}

/// Tasks to be woken. Mostly one, for which no memory is asked.
pub(crate) type Wakers = SmallVec<[Waker; 4]>;

/// The tasks that wait, by number: who came first is told first.
#[derive(Default)]
pub(crate) struct Tasks {
    /// All but those that wait for a channel.
    others: BTreeMap<u64, (Interest, Waker)>,
    channels: BTreeMap<(ChannelId, u64), Waker>,
    /// The protocol's events when those who wait for channels were last looked at: that no more come is one.
    events_seen: u64,
}

impl Tasks {
    /// A number that no other task has.
    pub fn number() -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// The task of that number waits. Its waker of before is the caller's to drop.
    #[must_use]
    pub fn wait(&mut self, number: u64, interest: Interest, waker: Waker) -> Option<Waker> {
        match interest {
            Interest::Channel(channel) => self.channels.insert((channel, number), waker),
            other => self.others.insert(number, (other, waker)).map(|(_, old)| old),
        }
    }

    /// The task of that number, which waited for that, waits no more.
    pub fn stop(&mut self, number: u64, interest: &Interest) -> Option<Waker> {
        match interest {
            Interest::Channel(channel) => self.channels.remove(&(*channel, number)),
            _ => self.others.remove(&number).map(|(_, waker)| waker),
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.others.is_empty() && self.channels.is_empty()
    }

    /// Takes those that are concerned by how things are.
    pub fn take_concerned(&mut self, endpoint: &Endpoint, queuers: &Queuers) -> Wakers {
        let others = self.others.extract_if(.., |_, (interest, _)| interest.is_met(endpoint, queuers));
        let mut wakers: Wakers = others.map(|(_, (_, waker))| waker).collect();
        if !self.channels.is_empty() {
            self.take_readers(endpoint, &mut wakers);
        }
        wakers
    }

    /// Takes those whose channel has a message, or will have none.
    fn take_readers(&mut self, endpoint: &Endpoint, wakers: &mut Wakers) {
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

    /// Takes any one of them.
    pub fn take_one(&mut self) -> Option<Waker> {
        let other = self.others.pop_first().map(|(_, (_, waker))| waker);
        other.or_else(|| self.channels.pop_first().map(|(_, waker)| waker))
    }

    /// Takes all of them.
    pub fn take_all(&mut self) -> Wakers {
        let others = std::mem::take(&mut self.others).into_values().map(|(_, waker)| waker);
        others.chain(std::mem::take(&mut self.channels).into_values()).collect()
    }
}

/// Where a thread sleeps that waits like a task.
#[derive(Default)]
pub(crate) struct Bed {
    is_called: Mutex<bool>,
    called: Condvar,
}

impl Bed {
    /// The calling thread's.
    pub fn of_this_thread() -> Arc<Self> {
        thread_local! {
            static BED: Arc<Bed> = Arc::default();
        }
        // A thread that ends has none any more.
        BED.try_with(Arc::clone).unwrap_or_default()
    }

    /// Sleeps until it is called, at most `limit`; not at all if it was called since the last time.
    pub fn sleep(&self, limit: Duration) {
        let mut is_called = self.is_called.lock();
        if !*is_called {
            self.called.wait_for(&mut is_called, limit);
        }
        *is_called = false;
    }
}

impl Wake for Bed {
    fn wake(self: Arc<Self>) {
        *self.is_called.lock() = true;
        self.called.notify_one();
    }
}

//! Events that wait until the application asks for them.
//!
//! Inputs → outputs: events → the same, in order. Of more than [`MAX_EVENTS`] the oldest is dropped and counted:
//! the newest says how things are now.

use std::collections::VecDeque;

/// Events kept for an application that does not ask for them: more than the sessions, or the members of a group,
/// that an endpoint has unless told otherwise.
pub(crate) const MAX_EVENTS: usize = 65_536;

/// A queue of events.
#[derive(Debug)]
pub(crate) struct Events<E> {
    queue: VecDeque<E>,
    /// Events so far.
    pushed: u64,
    dropped: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), pushed: 0, dropped: 0 }
    }
}

impl<E> Events<E> {
    pub fn push(&mut self, event: E) {
        self.queue.push_back(event);
        self.pushed += 1;
        self.limit();
    }

    pub fn pop(&mut self) -> Option<E> {
        self.queue.pop_front()
    }

    /// The next one to be taken.
    pub fn first(&self) -> Option<&E> {
        self.queue.front()
    }

    /// The newest.
    pub fn last_mut(&mut self) -> Option<&mut E> {
        self.queue.back_mut()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Events so far, taken or not.
    pub fn count(&self) -> u64 {
        self.pushed
    }

    /// Those that nobody has asked for in time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes over what waits in another queue, and its counts.
    pub fn append(&mut self, other: &mut Self) {
        self.queue.append(&mut other.queue);
        self.pushed += core::mem::take(&mut other.pushed);
        self.dropped += core::mem::take(&mut other.dropped);
        self.limit();
    }

    fn limit(&mut self) {
        while self.queue.len() > MAX_EVENTS {
            self.queue.pop_front();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_are_dropped_and_counted() {
        let most = MAX_EVENTS as u64;
        let mut events = Events::default();
        (0..most + 3).for_each(|event| events.push(event));
        assert_eq!((events.len() as u64, events.count(), events.dropped()), (most, most + 3, 3));
        assert_eq!(events.first(), Some(&3));
        assert_eq!((events.pop(), events.pop()), (Some(3), Some(4)));
        let mut more = Events::default();
        (0..4).for_each(|event| more.push(event));
        events.append(&mut more);
        assert_eq!((events.len() as u64, events.count(), events.dropped()), (most, most + 7, 5));
        assert_eq!((events.pop(), more.len(), more.count()), (Some(7), 0, 0));
    }
}

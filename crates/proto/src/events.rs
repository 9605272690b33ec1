//! Events that wait until the application asks for them.
//!
//! Inputs → outputs: events → the same, in order. Of more than [`MAX_EVENTS`] the oldest is dropped and counted:
//! the newest says how things are now. Reports that the application has asked for, one for each message, have a
//! room of their own, as whoever sends for long before it looks misses each of them; so have offers, as their
//! senders wait for the application's answer.

use std::collections::VecDeque;

/// Events kept for an application that does not ask for them: more than the sessions, or the members of a group,
/// that an endpoint has unless told otherwise.
pub(crate) const MAX_EVENTS: usize = 65_536;
/// Reports kept besides: 100 MB. A peer's offers cost it the credit of their channel.
const MAX_REPORTS: usize = 1 << 20;

/// What can wait in a queue of events.
pub(crate) trait Waiting {
    /// Whether the application has asked for it with a message that it sent, or somebody waits for its answer.
    fn is_report(&self) -> bool;
}

/// A queue of events.
#[derive(Debug)]
pub(crate) struct Events<E> {
    queue: VecDeque<E>,
    /// Of these, [reports](Waiting::is_report).
    reports: usize,
    /// Events so far.
    pushed: u64,
    dropped: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), reports: 0, pushed: 0, dropped: 0 }
    }
}

impl<E: Waiting> Events<E> {
    pub fn push(&mut self, event: E) {
        self.reports += usize::from(event.is_report());
        self.queue.push_back(event);
        self.pushed += 1;
        self.limit();
    }

    pub fn pop(&mut self) -> Option<E> {
        let event = self.queue.pop_front()?;
        self.reports -= usize::from(event.is_report());
        Some(event)
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
        self.reports += core::mem::take(&mut other.reports);
        self.pushed += core::mem::take(&mut other.pushed);
        self.dropped += core::mem::take(&mut other.dropped);
        self.limit();
    }

    fn limit(&mut self) {
        while self.reports > MAX_REPORTS || self.queue.len() - self.reports > MAX_EVENTS {
            self.pop();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waiting for u64 {
        fn is_report(&self) -> bool {
            *self >= REPORT
        }
    }

    const REPORT: u64 = 1 << 63;

    #[test]
    fn reports_are_kept_besides_what_nobody_asks_for() {
        let mut events = Events::default();
        (0..MAX_EVENTS as u64 + 1).for_each(|number| events.push(REPORT + number));
        (0..MAX_EVENTS as u64).for_each(|event| events.push(event));
        assert_eq!((events.len(), events.dropped()), (2 * MAX_EVENTS + 1, 0));
        events.push(0);
        assert_eq!((events.len(), events.first()), (MAX_EVENTS, Some(&1)), "the oldest of all go");
        let mut more = Events::default();
        (0..MAX_REPORTS as u64 + 3).for_each(|number| more.push(REPORT + number));
        assert_eq!((more.len(), more.dropped(), more.first()), (MAX_REPORTS, 3, Some(&(REPORT + 3))));
        events.append(&mut more);
        assert_eq!((events.len(), more.len()), (MAX_EVENTS + MAX_REPORTS, 0));
        while events.pop().is_some() {}
        assert_eq!((events.len(), events.reports), (0, 0));
    }

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

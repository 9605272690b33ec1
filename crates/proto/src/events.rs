//! Events that wait until the application asks for them.
//!
//! Inputs → outputs: events → the same, in order. Of more than [`MAX_EVENTS`] the oldest is dropped and counted:
//! the newest says how things are now. Reports that the application has asked for, one for each message, have a
//! room of their own, as whoever sends for long before it looks misses each of them; so have offers, as their
//! senders wait for the application's answer. Neither room is emptied because the other is full.

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
    /// What nobody has asked for, each with its number, which grows.
    plain: VecDeque<(u64, E)>,
    /// [Reports](Waiting::is_report), numbered with them.
    reports: VecDeque<(u64, E)>,
    /// Events so far.
    pushed: u64,
    dropped: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { plain: VecDeque::new(), reports: VecDeque::new(), pushed: 0, dropped: 0 }
    }
}

impl<E: Waiting> Events<E> {
    pub fn push(&mut self, event: E) {
        let queue = if event.is_report() { &mut self.reports } else { &mut self.plain };
        queue.push_back((self.pushed, event));
        self.pushed += 1;
        self.limit();
    }

    pub fn pop(&mut self) -> Option<E> {
        let queue = if self.is_report_first() { &mut self.reports } else { &mut self.plain };
        queue.pop_front().map(|(_, event)| event)
    }

    /// The next one to be taken.
    pub fn first(&self) -> Option<&E> {
        let queue = if self.is_report_first() { &self.reports } else { &self.plain };
        queue.front().map(|(_, event)| event)
    }

    fn is_report_first(&self) -> bool {
        let number = |queue: &VecDeque<(u64, E)>| queue.front().map_or(u64::MAX, |(number, _)| *number);
        number(&self.reports) < number(&self.plain)
    }

    /// The newest.
    pub fn last_mut(&mut self) -> Option<&mut E> {
        let last = self.plain.back_mut().into_iter().chain(self.reports.back_mut());
        last.max_by_key(|(number, _)| *number).map(|(_, event)| event)
    }

    pub fn len(&self) -> usize {
        self.plain.len() + self.reports.len()
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
        let after = self.pushed;
        let behind = |(number, event)| (after + number, event);
        self.plain.extend(other.plain.drain(..).map(behind));
        self.reports.extend(other.reports.drain(..).map(behind));
        self.pushed += core::mem::take(&mut other.pushed);
        self.dropped += core::mem::take(&mut other.dropped);
        self.limit();
    }

    fn limit(&mut self) {
        for (queue, most) in [(&mut self.plain, MAX_EVENTS), (&mut self.reports, MAX_REPORTS)] {
            while queue.len() > most {
                queue.pop_front();
                self.dropped += 1;
            }
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
        let first = Some(&REPORT);
        assert_eq!(
            (events.len(), events.dropped(), events.first()),
            (2 * MAX_EVENTS + 1, 1, first),
            "of its kind"
        );
        assert_eq!(events.last_mut(), Some(&mut 0));
        let mut more = Events::default();
        (0..MAX_REPORTS as u64 + 3).for_each(|number| more.push(REPORT + number));
        assert_eq!((more.len(), more.dropped(), more.first()), (MAX_REPORTS, 3, Some(&(REPORT + 3))));
        events.append(&mut more);
        assert_eq!((events.len(), more.len()), (MAX_EVENTS + MAX_REPORTS, 0));
        assert_eq!(events.first(), Some(&1), "what was there before comes first");
        while events.pop().is_some() {}
        assert_eq!((events.len(), events.reports.len()), (0, 0));
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

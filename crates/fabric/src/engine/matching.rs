//! Which receive a message is for, and which message a receive gets.
//!
//! Inputs → outputs: receives and messages in the order in which they were posted and came → pairs.
//! A receive names a source, or none, and a tag of which some bits are ignored; a message takes the
//! oldest receive that fits it, a receive the oldest message (fi_tagged(3), MPI's matching rules).
//! Kept per source, so that many sources do not slow each other down.

use std::collections::VecDeque;

/// A peer, as the engine counts them.
pub type PeerIndex = u32;

/// What a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// `None`: anybody's.
    pub source: Option<PeerIndex>,
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Pattern {
    fn fits(&self, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0
    }
}

/// A queue in order of arrival.
type Queue<K, T> = VecDeque<(u64, K, T)>;

/// Receives that wait for messages, and messages that wait for receives.
#[derive(Debug)]
pub struct Matching<R, M> {
    /// Receives by the source they name; what they take beside.
    directed: Vec<Queue<Pattern, R>>,
    /// Receives that take anybody's.
    undirected: Queue<Pattern, R>,
    /// Messages by source; their tag beside.
    messages: Vec<Queue<u64, M>>,
    counter: u64,
    receives: usize,
    waiting: usize,
}

/// Where a receive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    source: Option<PeerIndex>,
    index: usize,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self {
            directed: Vec::new(),
            undirected: VecDeque::new(),
            messages: Vec::new(),
            counter: 0,
            receives: 0,
            waiting: 0,
        }
    }
}

impl<R, M> Matching<R, M> {
    /// Receives that wait.
    pub fn receives(&self) -> usize {
        self.receives
    }

    /// A receive for which there is no message waits for one.
    pub fn post(&mut self, pattern: Pattern, receive: R) {
        let entry = (self.counter, pattern, receive);
        self.counter += 1;
        self.receives += 1;
        match pattern.source {
            None => self.undirected.push_back(entry),
            Some(source) => of(&mut self.directed, source).push_back(entry),
        }
    }

    /// A message for which there is no receive waits for one.
    pub fn keep(&mut self, source: PeerIndex, tag: u64, message: M) {
        of(&mut self.messages, source).push_back((self.counter, tag, message));
        self.counter += 1;
        self.waiting += 1;
    }

    /// The oldest receive that fits a message.
    pub fn find_receive(&self, source: PeerIndex, tag: u64) -> Option<Place> {
        let first = |queue: &Queue<Pattern, R>| {
            let index = queue.iter().position(|(_, pattern, _)| pattern.fits(tag))?;
            Some((queue[index].0, index))
        };
        let directed = self.directed.get(source as usize).and_then(first);
        match (directed, first(&self.undirected)) {
            (Some((posted, index)), any) if any.is_none_or(|(other, _)| posted < other) => {
                Some(Place { source: Some(source), index })
            }
            (_, Some((_, index))) => Some(Place { source: None, index }),
            _ => None,
        }
    }

    /// The receive at a place just found.
    pub fn receive_mut(&mut self, place: Place) -> &mut R {
        &mut self.queue(place.source)[place.index].2
    }

    /// Takes the receive at a place just found.
    pub fn take_receive(&mut self, place: Place) -> R {
        self.receives -= 1;
        let (_, _, receive) = self.queue(place.source).remove(place.index).expect("it was just found");
        receive
    }

    /// Takes the oldest receive that `is_it` says yes to.
    pub fn take_receive_if(&mut self, mut is_it: impl FnMut(&R) -> bool) -> Option<R> {
        let queues = self.directed.iter_mut().chain([&mut self.undirected]);
        let found = queues
            .filter_map(|queue| {
                let index = queue.iter().position(|(_, _, receive)| is_it(receive))?;
                Some((queue[index].0, queue, index))
            })
            .min_by_key(|(posted, _, _)| *posted);
        let (_, queue, index) = found?;
        self.receives -= 1;
        queue.remove(index).map(|(_, _, receive)| receive)
    }

    /// Takes all receives that wait for `source` and nobody else.
    pub fn take_directed(&mut self, source: PeerIndex) -> impl Iterator<Item = R> + use<R, M> {
        let queue = self.directed.get_mut(source as usize).map(std::mem::take).unwrap_or_default();
        self.receives -= queue.len();
        queue.into_iter().map(|(_, _, receive)| receive)
    }

    /// Receives that wait, in no order.
    pub fn all(&self) -> impl Iterator<Item = &R> {
        self.directed.iter().flatten().chain(&self.undirected).map(|(_, _, receive)| receive)
    }

    /// Receives that wait for anybody's message.
    pub fn undirected(&self) -> impl Iterator<Item = &R> {
        self.undirected.iter().map(|(_, _, receive)| receive)
    }

    /// Takes all receives that wait for anybody's message and that `is_it` says yes to, oldest first.
    pub fn take_undirected_if(&mut self, is_it: impl Fn(&R) -> bool) -> Vec<R> {
        let (taken, left): (Queue<_, _>, _) =
            std::mem::take(&mut self.undirected).into_iter().partition(|(_, _, receive)| is_it(receive));
        self.undirected = left;
        self.receives -= taken.len();
        taken.into_iter().map(|(_, _, receive)| receive).collect()
    }

    /// The oldest message that fits a receive: who sent it, and the message.
    pub fn find_message(&self, pattern: &Pattern) -> Option<(PeerIndex, u64, &M)> {
        let (source, index) = self.locate(pattern)?;
        let (_, tag, message) = &self.messages[source as usize][index];
        Some((source, *tag, message))
    }

    /// Takes the oldest message that fits a receive: who sent it, its tag, and the message.
    pub fn take_message(&mut self, pattern: &Pattern) -> Option<(PeerIndex, u64, M)> {
        let (source, index) = self.locate(pattern)?;
        self.waiting -= 1;
        let (_, tag, message) = self.messages[source as usize].remove(index)?;
        Some((source, tag, message))
    }

    /// Drops the messages of `source` that `is_gone` says yes to.
    pub fn drop_messages(&mut self, source: PeerIndex, mut is_gone: impl FnMut(&M) -> bool) {
        if let Some(queue) = self.messages.get_mut(source as usize) {
            let before = queue.len();
            queue.retain(|(_, _, message)| !is_gone(message));
            self.waiting -= before - queue.len();
        }
    }

    fn locate(&self, pattern: &Pattern) -> Option<(PeerIndex, usize)> {
        if self.waiting == 0 {
            return None;
        }
        let first = |source: PeerIndex| {
            let queue = self.messages.get(source as usize)?;
            let index = queue.iter().position(|(_, tag, _)| pattern.fits(*tag))?;
            Some((queue[index].0, source, index))
        };
        let found = match pattern.source {
            Some(source) => first(source),
            None => (0..self.messages.len() as PeerIndex).filter_map(first).min(),
        };
        found.map(|(_, source, index)| (source, index))
    }

    fn queue(&mut self, source: Option<PeerIndex>) -> &mut Queue<Pattern, R> {
        match source {
            None => &mut self.undirected,
            Some(source) => of(&mut self.directed, source),
        }
    }
}

fn of<T: Default>(queues: &mut Vec<T>, source: PeerIndex) -> &mut T {
    let index = source as usize;
    if index >= queues.len() {
        queues.resize_with(index + 1, T::default);
    }
    &mut queues[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(source: Option<PeerIndex>, tag: u64, ignore: u64) -> Pattern {
        Pattern { source, tag, ignore }
    }

    fn deliver(
        matching: &mut Matching<&'static str, u32>,
        source: PeerIndex,
        tag: u64,
    ) -> Option<&'static str> {
        let place = matching.find_receive(source, tag)?;
        Some(matching.take_receive(place))
    }

    #[test]
    fn a_message_takes_the_oldest_receive_that_fits() {
        let mut matching = Matching::<_, u32>::default();
        matching.post(pattern(Some(1), 5, 0), "directed");
        matching.post(pattern(None, 5, 0), "any source");
        matching.post(pattern(None, 0, u64::MAX), "anything");
        matching.post(pattern(Some(1), 5, 0), "directed, later");
        assert_eq!(deliver(&mut matching, 2, 6), Some("anything"));
        assert_eq!(deliver(&mut matching, 1, 5), Some("directed"));
        assert_eq!(deliver(&mut matching, 1, 5), Some("any source"));
        assert_eq!(deliver(&mut matching, 2, 5), None);
        assert_eq!(deliver(&mut matching, 1, 5), Some("directed, later"));
        assert_eq!(matching.receives(), 0);
    }

    #[test]
    fn a_receive_takes_the_oldest_message_that_fits() {
        let mut matching = Matching::<(), _>::default();
        for (source, tag, message) in [(3, 1, 'a'), (0, 2, 'b'), (3, 2, 'c'), (0, 1, 'd')] {
            matching.keep(source, tag, message);
        }
        let take = |matching: &mut Matching<(), char>, pattern| matching.take_message(&pattern).map(|m| m.2);
        assert_eq!(matching.find_message(&pattern(None, 2, 0)).map(|m| m.0), Some(0));
        assert_eq!(take(&mut matching, pattern(None, 2, 0)), Some('b'));
        assert_eq!(take(&mut matching, pattern(Some(0), 0, 3)), Some('d'));
        assert_eq!(take(&mut matching, pattern(Some(0), 0, 3)), None);
        assert_eq!(take(&mut matching, pattern(None, 0, u64::MAX)), Some('a'));
        assert_eq!(matching.waiting, 1);
    }

    #[test]
    fn receives_are_found_again_to_be_cancelled_and_lost() {
        let mut matching = Matching::<_, ()>::default();
        matching.post(pattern(None, 1, 0), 10);
        matching.post(pattern(Some(4), 1, 0), 11);
        matching.post(pattern(Some(4), 1, 0), 12);
        assert_eq!(matching.take_receive_if(|receive| *receive >= 11), Some(11));
        assert_eq!(matching.take_receive_if(|receive| *receive == 99), None);
        assert_eq!(matching.take_directed(4).collect::<Vec<_>>(), [12]);
        assert_eq!(matching.receives(), 1);
        matching.post(pattern(None, 2, 0), 13);
        matching.post(pattern(None, 1, 0), 14);
        assert_eq!(matching.take_undirected_if(|receive| *receive != 13), [10, 14]);
        assert_eq!((matching.undirected().collect::<Vec<_>>(), matching.receives()), (vec![&13], 1));
    }
}

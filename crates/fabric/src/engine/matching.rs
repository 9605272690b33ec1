//! Which receive a message is for, and which message a receive gets.
//!
//! Inputs → outputs: receives and messages in the order in which they were posted and came → pairs.
//! A receive names a source, or none, and a tag of which some bits are ignored; a message takes the
//! oldest receive that fits it, a receive the oldest message (fi_tagged(3), MPI's matching rules).
//! Kept per source, so that many sources do not slow each other down.

use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};

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

/// What waits, in order of arrival. What is taken from the middle leaves a gap: nothing has to move.
#[derive(Debug)]
struct Queue<K, T> {
    /// Each with its number in the order of all.
    entries: VecDeque<(u64, K, Option<T>)>,
    gaps: usize,
}

impl<K, T> Default for Queue<K, T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), gaps: 0 }
    }
}

impl<K, T> Queue<K, T> {
    fn push(&mut self, number: u64, key: K, value: T) {
        self.entries.push_back((number, key, Some(value)));
    }

    /// The number and the index of the first whose key fits.
    fn first(&self, fits: impl Fn(&K) -> bool) -> Option<(u64, usize)> {
        let index = self.entries.iter().position(|(_, key, value)| value.is_some() && fits(key))?;
        Some((self.entries[index].0, index))
    }

    /// The index of a number, if it is still there.
    fn index_of(&self, number: u64) -> Option<usize> {
        let index = self.entries.binary_search_by_key(&number, |entry| entry.0).ok()?;
        self.entries[index].2.is_some().then_some(index)
    }

    fn take(&mut self, index: usize) -> Option<T> {
        let taken = self.entries.get_mut(index)?.2.take()?;
        self.gaps += 1;
        while self.entries.front().is_some_and(|entry| entry.2.is_none()) {
            self.entries.pop_front();
            self.gaps -= 1;
        }
        while self.entries.back().is_some_and(|entry| entry.2.is_none()) {
            self.entries.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > self.entries.len() / 2 {
            self.entries.retain(|entry| entry.2.is_some());
            self.gaps = 0;
        }
        Some(taken)
    }

    /// Takes all that `is_it` says yes to, oldest first.
    fn take_if(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for entry in &mut self.entries {
            taken.extend(entry.2.take_if(|value| is_it(value)));
        }
        self.entries.retain(|entry| entry.2.is_some());
        self.gaps = 0;
        taken
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        self.entries.iter().filter_map(|(number, _, value)| Some((*number, value.as_ref()?)))
    }
}

/// Where receives are by what they are called, so that those to be cancelled are not searched for: known as of a
/// number, and of some that were taken since.
#[derive(Debug, Default)]
struct Names {
    places: HashMap<usize, Posts>,
    len: usize,
    /// Of all posted before this.
    until: u64,
}

/// Numbers and sources of receives, oldest first.
type Posts = SmallVec<[(u64, Option<PeerIndex>); 1]>;

/// Names that may be known in vain, beside as many as there are receives.
const NAMES_IN_VAIN: usize = 1024;

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
    names: Names,
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
            undirected: Queue::default(),
            messages: Vec::new(),
            counter: 0,
            receives: 0,
            waiting: 0,
            names: Names::default(),
        }
    }
}

impl<R, M> Matching<R, M> {
    /// Receives that wait.
    #[cfg(test)]
    pub fn receives(&self) -> usize {
        self.receives
    }

    /// A receive for which there is no message waits for one.
    pub fn post(&mut self, pattern: Pattern, receive: R) {
        let number = self.next_number();
        self.receives += 1;
        self.queue(pattern.source).push(number, pattern, receive);
    }

    /// A message for which there is no receive waits for one.
    pub fn keep(&mut self, source: PeerIndex, tag: u64, message: M) {
        let number = self.next_number();
        self.waiting += 1;
        of(&mut self.messages, source).push(number, tag, message);
    }

    fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter - 1
    }

    /// The oldest receive that fits a message.
    pub fn find_receive(&self, source: PeerIndex, tag: u64) -> Option<Place> {
        let first = |queue: &Queue<Pattern, R>| queue.first(|pattern| pattern.fits(tag));
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
        self.queue(place.source).entries[place.index].2.as_mut().expect("it was just found")
    }

    /// Takes the receive at a place just found.
    pub fn take_receive(&mut self, place: Place) -> R {
        self.receives -= 1;
        self.queue(place.source).take(place.index).expect("it was just found")
    }

    /// Takes the newest receive that is called `name`, as `name_of` says.
    pub fn take_receive_called(&mut self, name: usize, name_of: impl Fn(&R) -> usize) -> Option<R> {
        self.learn_names(name_of);
        loop {
            let places = self.names.places.get_mut(&name)?;
            let Some((number, source)) = places.pop() else {
                self.names.places.remove(&name);
                return None;
            };
            self.names.len -= 1;
            let queue = self.queue(source);
            if let Some(receive) = queue.index_of(number).and_then(|index| queue.take(index)) {
                self.receives -= 1;
                return Some(receive);
            }
        }
    }

    /// Learns what those are called that were posted since the last time.
    fn learn_names(&mut self, name_of: impl Fn(&R) -> usize) {
        if self.names.len > 2 * self.receives + NAMES_IN_VAIN {
            self.names = Names::default();
        }
        let until = std::mem::replace(&mut self.names.until, self.counter);
        let directed = (0..).map(Some).zip(&self.directed);
        let mut new = Vec::new();
        for (source, queue) in directed.chain([(None, &self.undirected)]) {
            let posted = queue.iter().rev().take_while(|(number, _)| *number >= until);
            new.extend(posted.map(|(number, receive)| (number, source, name_of(receive))));
        }
        new.sort_unstable_by_key(|(number, ..)| *number);
        self.names.len += new.len();
        for (number, source, name) in new {
            self.names.places.entry(name).or_default().push((number, source));
        }
    }

    /// Takes all receives that wait for `source` and nobody else.
    pub fn take_directed(&mut self, source: PeerIndex) -> Vec<R> {
        let taken = self.directed.get_mut(source as usize).map(|queue| queue.take_if(|_| true));
        let taken = taken.unwrap_or_default();
        self.receives -= taken.len();
        taken
    }

    /// Receives that wait for a message of `source`, or of anybody's, in no order.
    pub fn receives_of(&self, source: PeerIndex) -> impl Iterator<Item = &R> {
        let directed = self.directed.get(source as usize);
        directed.into_iter().chain([&self.undirected]).flat_map(Queue::iter).map(|(_, receive)| receive)
    }

    /// Whether receives wait for `source` and nobody else, or messages of its for receives.
    pub fn concerns(&self, source: PeerIndex) -> bool {
        let source = source as usize;
        self.directed.get(source).is_some_and(|queue| !queue.entries.is_empty())
            || self.messages.get(source).is_some_and(|queue| !queue.entries.is_empty())
    }

    /// Receives that wait for anybody's message.
    pub fn undirected(&self) -> impl Iterator<Item = &R> {
        self.undirected.iter().map(|(_, receive)| receive)
    }

    /// Takes all receives that wait for anybody's message and that `is_it` says yes to, oldest first.
    pub fn take_undirected_if(&mut self, is_it: impl Fn(&R) -> bool) -> Vec<R> {
        let taken = self.undirected.take_if(is_it);
        self.receives -= taken.len();
        taken
    }

    /// The oldest message that fits a receive: who sent it, and the message.
    pub fn find_message(&self, pattern: &Pattern) -> Option<(PeerIndex, u64, &M)> {
        let (source, index) = self.locate(pattern)?;
        let (_, tag, message) = &self.messages[source as usize].entries[index];
        Some((source, *tag, message.as_ref()?))
    }

    /// Takes the oldest message that fits a receive: who sent it, its tag, and the message.
    pub fn take_message(&mut self, pattern: &Pattern) -> Option<(PeerIndex, u64, M)> {
        let (source, index) = self.locate(pattern)?;
        let queue = &mut self.messages[source as usize];
        let tag = queue.entries[index].1;
        let message = queue.take(index)?;
        self.waiting -= 1;
        Some((source, tag, message))
    }

    /// Drops the messages of `source` that `is_gone` says yes to.
    pub fn drop_messages(&mut self, source: PeerIndex, is_gone: impl FnMut(&M) -> bool) {
        if let Some(queue) = self.messages.get_mut(source as usize) {
            self.waiting -= queue.take_if(is_gone).len();
        }
    }

    fn locate(&self, pattern: &Pattern) -> Option<(PeerIndex, usize)> {
        if self.waiting == 0 {
            return None;
        }
        let first = |source: PeerIndex| {
            let (number, index) = self.messages.get(source as usize)?.first(|tag| pattern.fits(*tag))?;
            Some((number, source, index))
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
        assert_eq!(matching.take_receive_called(11, |receive| *receive), Some(11));
        assert_eq!(matching.take_receive_called(11, |receive| *receive), None);
        assert_eq!(matching.take_directed(4), [12]);
        assert_eq!(matching.receives(), 1);
        matching.post(pattern(None, 2, 0), 13);
        matching.post(pattern(None, 1, 0), 14);
        assert_eq!(matching.take_undirected_if(|receive| *receive != 13), [10, 14]);
        assert_eq!((matching.undirected().collect::<Vec<_>>(), matching.receives()), (vec![&13], 1));
    }

    #[test]
    fn however_many_are_cancelled_in_whatever_order_the_others_match_as_posted() {
        const MANY: usize = 200_000;
        let mut matching = Matching::<usize, ()>::default();
        let source = |name: usize| (!name.is_multiple_of(3)).then_some((name % 3) as PeerIndex);
        for name in 0..MANY {
            matching.post(pattern(source(name), 1, 0), name);
        }
        // From the newest on, from the oldest on, and all over; of all that is left one in sixteen.
        let order = (0..MANY).rev().chain(0..MANY).chain((0..MANY).map(|i| i * 7919 % MANY));
        let third = MANY / 3;
        let cancelled = order.enumerate().filter(|(turn, name)| match turn / MANY {
            0 => *name >= 2 * third,
            1 => *name < third,
            _ => (third..2 * third).contains(name) && !name.is_multiple_of(16),
        });
        for (_, name) in cancelled {
            assert_eq!(matching.take_receive_called(name, |receive| *receive), Some(name));
        }
        let mut left = (third..2 * third).filter(|name| name.is_multiple_of(16));
        assert_eq!(matching.receives(), left.clone().count());
        assert!(left.all(|name| deliver_to(&mut matching, source(name).unwrap_or(9)) == Some(name)));
    }

    /// The receive that a message with tag 1 is for.
    fn deliver_to(matching: &mut Matching<usize, ()>, source: PeerIndex) -> Option<usize> {
        let place = matching.find_receive(source, 1)?;
        Some(matching.take_receive(place))
    }

    #[test]
    fn receives_that_are_called_the_same_are_cancelled_one_by_one_whatever_has_matched_meanwhile() {
        let mut matching = Matching::<usize, ()>::default();
        for turn in 0..10 * NAMES_IN_VAIN {
            matching.post(pattern(None, 1, 0), 7);
            matching.post(pattern(Some(2), 1, 0), 7);
            matching.post(pattern(Some(5), 1, 0), 7);
            assert_eq!(deliver_to(&mut matching, 5), Some(7));
            assert_eq!(matching.take_receive_called(7, |receive| *receive), Some(7), "{turn}");
            assert!(matching.take_receive_called(8, |receive| *receive).is_none());
            assert_eq!(deliver_to(&mut matching, 2), Some(7));
            assert!(matching.names.len <= 2 * matching.receives() + NAMES_IN_VAIN + 3);
        }
        assert_eq!(matching.receives(), 0);
    }
}

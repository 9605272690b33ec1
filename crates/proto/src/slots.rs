//! How much memory a queue begins with and keeps.
//!
//! Inputs → outputs: a queue → the same, smaller, or larger. Most of a thousand peers say little, and what a queue
//! takes at first by itself is four of its elements. A busy one's memory is handed on: to return it to the
//! system, and get it again page by page, costs a receiver of many small messages a tenth of its time.

use std::collections::VecDeque;

/// Slots a queue begins with: enough for question and answer.
const FIRST_SLOTS: usize = 2;

/// Memory is given back when a queue has become empty that has more than so many times what it keeps:
/// seldom enough for a queue that fills again and again.
const SHRINK_FROM: usize = 64;

/// Appends to a queue that begins small.
pub(crate) fn push<T>(queue: &mut VecDeque<T>, element: T) {
    if queue.capacity() == 0 {
        queue.reserve_exact(FIRST_SLOTS);
    }
    queue.push_back(element);
}

/// Lets an empty queue keep `idle` slots, if it has far more.
pub(crate) fn give_back<T>(queue: &mut VecDeque<T>, idle: usize) {
    if has_too_many(queue, idle) {
        queue.shrink_to(idle);
    }
}

#[inline]
fn has_too_many<T>(queue: &VecDeque<T>, idle: usize) -> bool {
    queue.is_empty() && queue.capacity() > SHRINK_FROM * idle
}

/// What the longest of several queues took, for the next that grows long: at most what one may take.
#[derive(Debug)]
pub(crate) struct Spare<T>(VecDeque<T>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Spare<T> {
    /// [Appends](push); a queue that is full and not small gets much more room at once.
    #[inline]
    pub fn push(&mut self, queue: &mut VecDeque<T>, element: T) {
        if queue.len() == queue.capacity() {
            self.widen(queue);
        }
        push(queue, element);
    }

    /// [Gives back](give_back), and keeps it here if it is more than there is.
    #[inline]
    pub fn take_back(&mut self, queue: &mut VecDeque<T>, idle: usize) {
        if has_too_many(queue, idle) {
            self.keep(queue, idle);
        }
    }

    #[cold]
    fn widen(&mut self, queue: &mut VecDeque<T>) {
        if (SHRINK_FROM..self.0.capacity()).contains(&queue.len()) {
            self.0.append(queue);
            core::mem::swap(queue, &mut self.0);
        }
    }

    #[cold]
    fn keep(&mut self, queue: &mut VecDeque<T>, idle: usize) {
        if queue.capacity() > self.0.capacity() {
            core::mem::swap(queue, &mut self.0);
        }
        queue.shrink_to(idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_begins_small_and_gives_back_what_a_burst_took() {
        let mut queue = VecDeque::new();
        push(&mut queue, [0u64; 9]);
        assert_eq!(queue.capacity(), FIRST_SLOTS);
        (0..1000).for_each(|_| push(&mut queue, [0; 9]));
        give_back(&mut queue, 4);
        assert!(queue.capacity() > 1000);
        queue.clear();
        give_back(&mut queue, 4);
        assert!(queue.capacity() < 10);
    }

    #[test]
    fn what_one_long_queue_took_serves_the_next() {
        let (mut spare, mut first, mut second) = (Spare::default(), VecDeque::new(), VecDeque::new());
        (0..1000).for_each(|number| push(&mut first, number));
        let many = first.capacity();
        first.clear();
        spare.take_back(&mut first, 4);
        assert_eq!(first.capacity(), 0);
        let mut last = 0;
        for number in 0..1000 {
            spare.push(&mut second, number);
            let grown = second.capacity() != last;
            assert!(!grown || last <= SHRINK_FROM, "grown by itself when it was long: {last}");
            last = second.capacity();
        }
        assert!(last == many && second.iter().copied().eq(0..1000));
        (0..5000).for_each(|number| push(&mut first, number));
        let more = first.capacity();
        for queue in [&mut first, &mut second] {
            queue.clear();
            spare.take_back(queue, 4);
        }
        assert!(first.capacity() < 10 && second.capacity() < 10);
        assert_eq!(spare.0.capacity(), more, "the longest is kept, and only one");
    }
}

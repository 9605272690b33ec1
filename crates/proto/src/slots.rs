//! How much memory a queue begins with and keeps.
//!
//! Inputs → outputs: a queue → the same, smaller. Most of a thousand peers say little, and what a queue
//! takes at first by itself is four of its elements.

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
    if queue.is_empty() && queue.capacity() > SHRINK_FROM * idle {
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
}

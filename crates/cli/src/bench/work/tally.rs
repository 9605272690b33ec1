//! Which of the numbered messages arrived.

/// Marks messages 0 .. n as they arrive.
#[derive(Debug)]
pub struct Tally {
    seen: Vec<bool>,
    arrived: u64,
}

impl Tally {
    /// None of `expected` messages has arrived.
    pub fn new(expected: u64) -> Self {
        Self { seen: vec![false; expected as usize], arrived: 0 }
    }

    /// Marks a message; one that was never sent, or came before, changes nothing.
    pub fn mark(&mut self, number: u64) {
        if let Some(seen @ false) = self.seen.get_mut(number as usize) {
            *seen = true;
            self.arrived += 1;
        }
    }

    /// Only the first `sent` messages were sent.
    pub fn expect_only(&mut self, sent: u64) {
        self.seen.truncate(sent as usize);
        self.arrived = self.seen.iter().filter(|seen| **seen).count() as u64;
    }

    /// How many have arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Whether all have.
    pub fn is_complete(&self) -> bool {
        self.arrived == self.seen.len() as u64
    }

    /// How many have not.
    pub fn missing(&self) -> u64 {
        self.seen.len() as u64 - self.arrived
    }

    /// The first that has not.
    pub fn first_missing(&self) -> Option<u64> {
        self.seen.iter().position(|seen| !seen).map(|number| number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_repetitions_are_told_apart() {
        let mut tally = Tally::new(5);
        for number in [0, 1, 1, 4, 9] {
            tally.mark(number);
        }
        assert_eq!((tally.arrived(), tally.missing(), tally.first_missing()), (3, 2, Some(2)));
        tally.mark(2);
        tally.mark(3);
        assert!(tally.is_complete());
        let mut cut = Tally::new(5);
        cut.mark(1);
        cut.expect_only(2);
        assert_eq!((cut.arrived(), cut.missing(), cut.first_missing()), (1, 1, Some(0)));
        assert_eq!(tally.first_missing(), None);
    }
}

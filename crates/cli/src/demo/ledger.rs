//! What has arrived from one session of one sender, checked against what it has to be.
//!
//! Inputs → outputs: messages in the order of their arrival → counts of what was verified,
//! repeated, out of order, damaged. A session is a sender's incarnation: it begins at the first
//! message of a stage and goes on through the stages.

use super::protocol::{Arrived, STAGES};
use super::traffic::{LABELLED_BYTES, Label, Traffic, label_of};
use std::collections::BTreeSet;

/// How far around the expected place a short message, which bears no number, is looked for when it
/// is not the expected one. A repetition or a swap is near; anything else counts as damaged.
const SEARCH: u64 = 64;

/// The receiver's book about one session.
#[derive(Debug)]
pub struct Ledger {
    traffic: Traffic,
    next: Label,
    /// Stage and number of what was skipped.
    missing: BTreeSet<(u32, u64)>,
    arrived: Arrived,
}

impl Ledger {
    /// Nothing has arrived; the first message is that of `first_stage`.
    pub fn new(traffic: Traffic, from: usize, to: usize, first_stage: u32) -> Self {
        let next = Label { stage: first_stage, from: from as u32, to: to as u32, number: 0 };
        Self { traffic, next, missing: BTreeSet::new(), arrived: Arrived::default() }
    }

    /// What has arrived so far.
    pub fn arrived(&self) -> &Arrived {
        &self.arrived
    }

    /// Whether everything of `stage` has arrived.
    pub fn has_completed(&self, stage: u32) -> bool {
        self.next.stage > stage
    }

    /// Takes a message as it came.
    pub fn take(&mut self, content: &[u8]) {
        self.arrived.received += 1;
        self.arrived.bytes += content.len() as u64;
        let Some(label) = self.identify(content) else {
            // It took somebody's place: most likely that of the expected one.
            self.arrived.damaged += 1;
            self.next = self.after(self.next);
            return;
        };
        if place(&label) >= place(&self.next) {
            self.skip_to(&label);
            self.next = self.after(label);
            self.arrived.verified += 1;
        } else if self.missing.remove(&place(&label)) {
            self.arrived.out_of_order += 1;
        } else {
            self.arrived.repeated += 1;
        }
        self.arrived.missing = self.missing.len() as u64;
    }

    /// Notes what was expected before `label`. Ends: no label lies beyond the last stage.
    fn skip_to(&mut self, label: &Label) {
        while place(&self.next) < place(label) {
            self.missing.insert(place(&self.next));
            self.next = self.after(self.next);
        }
    }

    fn after(&self, label: Label) -> Label {
        let next = Label { number: label.number + 1, ..label };
        if next.number < self.traffic.messages() {
            return next;
        }
        Label { stage: label.stage + 1, number: 0, ..label }
    }

    /// Which message of this pair this is.
    fn identify(&self, content: &[u8]) -> Option<Label> {
        if content.len() >= LABELLED_BYTES {
            let label = label_of(content)?;
            let possible = STAGES.contains(&label.stage) && label.number < self.traffic.messages();
            let ours = label.from == self.next.from && label.to == self.next.to;
            return (possible && ours).then_some(label);
        }
        let is = |number: u64| {
            let label = Label { number, ..self.next };
            self.traffic.size(label) == content.len() && self.traffic.content(label) == content
        };
        let until = (self.next.number + SEARCH).min(self.traffic.messages());
        let near = self.next.number.saturating_sub(SEARCH)..until;
        // The expected one first: messages without content are all alike.
        std::iter::once(self.next.number)
            .chain(near)
            .find(|number| is(*number))
            .map(|number| Label { number, ..self.next })
    }
}

/// What orders the messages of a session.
fn place(label: &Label) -> (u32, u64) {
    (label.stage, label.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(traffic: &Traffic, count: u64) -> Vec<Vec<u8>> {
        (0..count).map(|number| traffic.content(Label { stage: 1, from: 0, to: 2, number })).collect()
    }

    /// A pair whose traffic has no largest message, and a ledger for it.
    fn pair() -> (Traffic, Ledger) {
        let traffic = Traffic::new(9, 4);
        (traffic, Ledger::new(traffic, 0, 2, 1))
    }

    #[test]
    fn messages_in_order_are_verified_and_complete_the_stage() {
        let (traffic, mut ledger) = pair();
        for message in messages(&traffic, traffic.messages()) {
            assert!(!ledger.has_completed(1));
            ledger.take(&message);
        }
        let arrived = *ledger.arrived();
        assert_eq!(arrived.verified, traffic.messages());
        assert_eq!(arrived.received, arrived.verified);
        assert!(ledger.has_completed(1) && !ledger.has_completed(2));
    }

    #[test]
    fn every_kind_of_fault_is_counted() {
        let (traffic, _) = pair();
        let all = messages(&traffic, 40);
        // Of each kind: a short message that is not alone in being empty, and a labelled one.
        let short = (2..30).find(|at| (2..LABELLED_BYTES).contains(&all[*at].len())).unwrap();
        let long = (2..30).find(|at| all[*at].len() >= LABELLED_BYTES).unwrap();
        for at in [short, long] {
            let counts = |order: &[&Vec<u8>]| {
                let (_, mut ledger) = pair();
                order.iter().for_each(|message| ledger.take(message));
                *ledger.arrived()
            };
            let whole: Vec<&Vec<u8>> = all.iter().collect();
            let mut repeated = whole.clone();
            repeated.insert(at, &all[at]);
            assert_eq!((counts(&repeated).repeated, counts(&repeated).verified), (1, 40));
            let mut missing = whole.clone();
            missing.remove(at);
            assert_eq!((counts(&missing).missing, counts(&missing).verified), (1, 39));
            let mut swapped = whole.clone();
            swapped.remove(at);
            swapped.insert(at + 5, &all[at]);
            let counted = counts(&swapped);
            assert_eq!((counted.out_of_order, counted.missing, counted.verified), (1, 0, 39));
            let mut broken = all[at].clone();
            broken[0] ^= 1;
            let mut damaged = whole.clone();
            damaged[at] = &broken;
            assert_eq!((counts(&damaged).damaged, counts(&damaged).verified), (1, 39));
        }
    }

    #[test]
    fn a_message_of_another_pair_is_damage() {
        let (traffic, mut ledger) = pair();
        let foreign = (0..).map(|number| Label { stage: 1, from: 1, to: 2, number });
        let foreign = foreign.into_iter().find(|label| traffic.size(*label) >= LABELLED_BYTES).unwrap();
        ledger.take(&traffic.content(foreign));
        assert_eq!(ledger.arrived().damaged, 1);
    }
}

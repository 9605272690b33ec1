//! Which peers deserve a connected socket.
//!
//! Inputs → outputs: the target of each send → from time to time, whom to connect and whom to
//! disconnect. An unconnected socket looks its route up on every send; the few busiest peers are
//! spared that, and any number of others share the main socket.

use denrei_wire::Way;

/// Targets whose sends are counted. More than there are connected sockets, few enough to search.
const MAX_CANDIDATES: usize = 32;
/// Sends between two decisions. Opening a socket costs about as much as 30 route look-ups save.
const REVIEW_AFTER_SENDS: u32 = 512;
/// A peer with this share of the sends, or more, is busy: a sixteenth.
const BUSY_SHARE: u32 = 16;
/// A connected peer with less than this share is not any more.
const IDLE_SHARE: u32 = 128;

/// Sends per target since the last review.
#[derive(Debug, Default)]
pub(crate) struct BusyPeers {
    counts: Vec<(Way, u32)>,
    /// Where the last target was found: sends come in runs.
    last: usize,
    total: u32,
}

/// What a review found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Review {
    /// Peers to connect, the busiest first.
    pub connect: Vec<Way>,
    /// Connected peers that are idle.
    pub disconnect: Vec<Way>,
}

impl BusyPeers {
    /// Counts a send; whether it is time for a [`review`](Self::review).
    pub fn on_sent(&mut self, to: Way) -> bool {
        self.total += 1;
        if let Some((addr, count)) = self.counts.get_mut(self.last)
            && *addr == to
        {
            *count += 1;
        } else {
            self.find_and_count(to);
        }
        self.total >= REVIEW_AFTER_SENDS
    }

    fn find_and_count(&mut self, to: Way) {
        if let Some(found) = self.counts.iter().position(|(addr, _)| *addr == to) {
            self.last = found;
            self.counts[found].1 += 1;
        } else if self.counts.len() < MAX_CANDIDATES {
            self.last = self.counts.len();
            self.counts.push((to, 1));
        }
    }

    /// The one of some to whom least was sent since the last review.
    pub fn least(&self, of: &[Way]) -> Option<Way> {
        of.iter().copied().min_by_key(|way| self.count(way))
    }

    fn count(&self, way: &Way) -> u32 {
        self.counts.iter().find(|(to, _)| to == way).map_or(0, |(_, count)| *count)
    }

    /// Decides, given who is connected now, and begins to count anew.
    pub fn review(&mut self, connected: &[Way]) -> Review {
        self.counts.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = |of| self.total / of;
        let busy = self.counts.iter().filter(|(_, count)| *count >= share(BUSY_SHARE)).map(|(addr, _)| *addr);
        let review = Review {
            connect: busy.filter(|addr| !connected.contains(addr)).collect(),
            disconnect: connected
                .iter()
                .copied()
                .filter(|addr| self.count(addr) < share(IDLE_SHARE))
                .collect(),
        };
        self.counts.clear();
        self.last = 0;
        self.total = 0;
        review
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn addr(port: u16) -> Way {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    #[test]
    fn the_busiest_are_connected_and_the_idle_let_go() {
        let mut busy = BusyPeers::default();
        let mut due = false;
        for send in 0..REVIEW_AFTER_SENDS {
            due = busy.on_sent(addr(if send % 4 == 0 { 1 } else { 2 }));
        }
        assert!(due);
        let review = busy.review(&[addr(1), addr(3)]);
        assert_eq!(review, Review { connect: vec![addr(2)], disconnect: vec![addr(3)] });
        assert!(!busy.on_sent(addr(1)), "counts anew");
    }

    #[test]
    fn among_many_equals_nobody_is_connected() {
        let mut busy = BusyPeers::default();
        for send in 0..REVIEW_AFTER_SENDS {
            busy.on_sent(addr(1 + (send % 1000) as u16));
        }
        assert_eq!(busy.review(&[]), Review::default());
    }
}

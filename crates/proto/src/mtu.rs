//! Finds the largest datagram the path carries (DPLPMTUD, RFC 8899).
//!
//! Inputs → outputs: time, fates of probes and of full packets → the size to use and the size to
//! probe next. Probes are PING + PADDING, or data where the path most likely carries them (RFC 8899 §4.1), and are never
//! counted as congestion. Sizes come from tables of what networks use; a path that does not carry its size (black hole)
//! falls back to the base, and from there to the least that every path has to carry.

use crate::config::LEAST_DATAGRAM_BYTES;
use core::time::Duration;
use denrei_wire::Instant;

/// UDP payloads of the paths that most sessions have, tried first: Ethernet, jumbo frames, loopback.
const USUAL_SIZES: [u16; 3] = [1472, 8972, 65_487];
/// Those of other paths, searched by halves once a usual size does not pass. Below Ethernet's: MTUs of 700 to
/// 1200 octets and the usual base; IPv6's least MTU over IPv6 and IPv4, and tunnels of 1380, 1400, 1420
/// (WireGuard), 1440, 1460 (clouds), 1480 (IP in IP), 1492 (PPPoE) and 1500 octets over either; then FDDI,
/// jumbo frames over IPv6, and loopback's halves.
const OTHER_SIZES: [u16; 22] = [
    672, 772, 872, 972, 1072, 1172, 1200, 1232, 1252, 1332, 1352, 1372, 1392, 1412, 1432, 1444, 1452, 1464,
    4324, 8952, 16_384, 32_768,
];
/// Probes of one size before the path counts as smaller (RFC 8899 §5.1.2 MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// Times at which losses of large packets were noticed, with nothing of the smallest one's size arriving in
/// between, that mean a black hole. A burst that a full buffer swallows is one time.
///
/// A real black hole shows six within six probe timeouts: 200 ms on a LAN.
const BLACK_HOLE_LOSSES: u8 = 6;
/// After this long a larger size is tried again (RFC 8899 §5.1.1 PMTU_RAISE_TIMER). Sooner than the
/// RFC's 600 s: three probes are cheap, and on a lossy path a failure says little.
const RAISE_AFTER: Duration = Duration::from_secs(30);

/// The other side searches at about the same time: a search of its own that began later, or went slower on
/// a busy core, is over when this one has been for so long,
const SEARCHES_APART: Duration = Duration::from_millis(100);
/// and for so many round trips: it waits two or three for the loss of each of up to fifteen that are too large.
const SEARCHES_APART_RTTS: u32 = 32;

/// The search for one path.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    base: u16,
    max: u16,
    current: u16,
    /// Sizes from here on are known not to pass, until the raise timer.
    ceiling: Option<u16>,
    tries: u8,
    probing: bool,
    /// Nothing has been lost yet that may have been too large.
    unharmed: bool,
    raise_at: Option<Instant>,
    suspicious_losses: u8,
    /// When the last of them was noticed, and the smallest packet among them.
    suspected_at: Option<Instant>,
    suspected_bytes: u16,
    /// A smaller one has arrived since the first of them.
    smaller_arrived: bool,
    /// The size to probe next, and that to probe with data: kept, because they are asked for with each packet.
    next: Option<u16>,
    next_with_data: Option<u16>,
}

impl MtuSearch {
    pub fn new(base: u16, max: u16) -> Self {
        let (ceiling, raise_at) = (None, None);
        let mut search = Self {
            base,
            max,
            current: base,
            ceiling,
            tries: 0,
            probing: false,
            unharmed: true,
            raise_at,
            suspicious_losses: 0,
            suspected_at: None,
            suspected_bytes: u16::MAX,
            smaller_arrived: false,
            next: None,
            next_with_data: None,
        };
        search.choose();
        search
    }

    /// Size that the path is known to carry.
    pub fn current(&self) -> u16 {
        self.current
    }

    /// The peer takes no larger datagrams than this.
    pub fn limit(&mut self, max: u16) {
        self.max = self.max.min(max.max(self.base));
        self.current = self.current.min(self.max);
        self.choose();
    }

    /// The size to probe now, if any.
    pub fn probe(&mut self, now: Instant) -> Option<u16> {
        if self.raise_at.is_some_and(|at| at <= now) {
            self.raise_at = None;
            self.ceiling = None;
            self.choose();
        }
        self.next
    }

    /// The size to probe with data: Ethernet's, which most paths carry. Data that is lost has to be sent again, so only
    /// until anything was.
    pub fn probe_with_data(&self) -> Option<u16> {
        self.next_with_data
    }

    /// Whether neither side is looking for a larger size now: then no packet is missing because it was a
    /// probe. Both begin with the session, and again after as long.
    pub fn is_settled(&self, now: Instant, rtt: Duration) -> bool {
        let apart = SEARCHES_APART + rtt * SEARCHES_APART_RTTS;
        match self.raise_at {
            Some(at) => now + apart <= at && at + apart <= now + RAISE_AFTER,
            None => self.next.is_none() && !self.probing,
        }
    }

    /// A probe of the size that [`probe`](Self::probe) named has been sent.
    pub fn on_probe_sent(&mut self) {
        self.probing = true;
        self.choose();
    }

    /// A probe arrived.
    pub fn on_probe_acked(&mut self, bytes: u16) {
        self.probing = false;
        self.tries = 0;
        self.suspicious_losses = 0;
        if bytes > self.current {
            self.current = bytes.min(self.max);
        }
        self.choose();
    }

    /// A probe did not arrive.
    pub fn on_probe_lost(&mut self, now: Instant, bytes: u16) {
        self.probing = false;
        self.unharmed = false;
        self.tries += 1;
        if self.tries >= MAX_PROBES {
            self.tries = 0;
            self.ceiling = Some(bytes);
            self.raise_at = Some(now + RAISE_AFTER);
        }
        self.choose();
    }

    /// An ordinary packet of this size arrived.
    pub fn on_acked(&mut self, bytes: u16) {
        if bytes >= self.suspected_bytes {
            self.suspicious_losses = 0;
            self.suspected_bytes = u16::MAX;
        } else {
            self.smaller_arrived = true;
        }
    }

    /// A packet of this size was lost; whether the path has turned out to be a black hole.
    pub fn on_lost(&mut self, now: Instant, bytes: u16) -> bool {
        // What is larger than the size now was sent before it fell.
        let tells = bytes > LEAST_DATAGRAM_BYTES && bytes <= self.current;
        if !tells || self.suspected_at == Some(now) {
            return false;
        }
        self.smaller_arrived &= self.suspicious_losses > 0;
        self.suspected_at = Some(now);
        self.suspected_bytes = self.suspected_bytes.min(bytes);
        self.suspicious_losses += 1;
        if self.suspicious_losses < BLACK_HOLE_LOSSES {
            return false;
        }
        // That the base is lost, too, or less, or all of any size, may be a silence of the peer's: then everything is
        // tried anew as soon as it is over.
        let within_base = self.suspected_bytes <= self.base;
        self.ceiling = Some(self.current).filter(|_| !within_base && self.smaller_arrived);
        self.raise_at = self.ceiling.map(|_| now + RAISE_AFTER);
        self.current = if within_base { LEAST_DATAGRAM_BYTES } else { self.base };
        self.suspicious_losses = 0;
        self.suspected_bytes = u16::MAX;
        self.tries = 0;
        self.unharmed = false;
        self.choose();
        true
    }

    fn choose(&mut self) {
        self.next = if self.probing { None } else { self.next_size() };
        self.next_with_data = self.next.filter(|next| self.unharmed && *next == USUAL_SIZES[0]);
    }

    fn next_size(&self) -> Option<u16> {
        let below = self.ceiling.unwrap_or(u16::MAX);
        let fits = |size: &u16| *size > self.current && *size <= self.max && *size < below;
        let others = || OTHER_SIZES.into_iter().filter(fits);
        let middle = || others().nth(others().count() / 2);
        USUAL_SIZES.into_iter().find(fits).or_else(middle).or(Some(self.max).filter(fits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search over a path that carries `path` bytes; the probes it took.
    fn search(search: &mut MtuSearch, path: u16) -> usize {
        let mut probes = 0;
        while let Some(size) = search.probe(Instant::ZERO) {
            search.on_probe_sent();
            assert_eq!(search.probe(Instant::ZERO), None, "one probe at a time");
            if size <= path {
                search.on_probe_acked(size)
            } else {
                search.on_probe_lost(Instant::ZERO, size)
            }
            probes += 1;
            assert!(probes < 50);
        }
        probes
    }

    #[test]
    fn finds_what_the_path_carries() {
        let ethernet = [(1472, 1472), (1460, 1452), (1464, 1464), (1252, 1252), (1240, 1232), (1395, 1392)];
        let others = [(9000, 8972), (65_507, 65_507), (1200, 1200), (5000, 4324), (8960, 8952)];
        for (path, found) in ethernet.into_iter().chain(others) {
            let mut mtu = MtuSearch::new(1200, 65_507);
            let probes = search(&mut mtu, path);
            assert_eq!(mtu.current(), found, "path of {path}");
            assert!(probes <= 5 * MAX_PROBES as usize, "{probes} probes on a path of {path}");
        }
    }

    #[test]
    fn what_is_missing_may_be_a_probe_until_both_sides_have_searched() {
        let (ms, rtt) = (|ms: u64| Instant::from_nanos(ms * 1_000_000), Duration::ZERO);
        let mut mtu = MtuSearch::new(1200, 65_507);
        assert!(!mtu.is_settled(ms(0), rtt), "the search has not begun");
        search(&mut mtu, 1472);
        assert!(!mtu.is_settled(ms(99), rtt), "the other side may be slower");
        let long = Duration::from_millis(50);
        assert!(!mtu.is_settled(ms(1_699), long) && mtu.is_settled(ms(1_700), long), "as on a long path");
        assert!(mtu.is_settled(ms(100), rtt) && mtu.is_settled(ms(29_900), rtt));
        assert!(!mtu.is_settled(ms(29_901), rtt), "the other side may be faster with the next one");
        let mut local = MtuSearch::new(1200, 65_507);
        search(&mut local, 65_507);
        assert!(local.is_settled(ms(0), rtt), "nothing larger is left to try");
    }

    #[test]
    fn a_black_hole_is_survived_and_probed_again() {
        let mut mtu = MtuSearch::new(1200, 65_507);
        search(&mut mtu, 8972);
        let ms = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        for _ in 0..100 {
            assert!(!mtu.on_lost(ms(2), 8972), "a burst is one loss");
        }
        for loss in 1..BLACK_HOLE_LOSSES as u64 - 1 {
            assert!(!mtu.on_lost(ms(2 * loss + 2), 8972));
        }
        mtu.on_acked(8972);
        for loss in 1..=BLACK_HOLE_LOSSES as u64 {
            let last = loss == BLACK_HOLE_LOSSES as u64;
            assert_eq!(mtu.on_lost(ms(2 * loss + 102), 8972), last);
        }
        assert_eq!(mtu.current(), 1200);
        search(&mut mtu, 1472);
        assert_eq!(mtu.current(), 1472);
        let later = ms(1000) + RAISE_AFTER;
        assert!(mtu.probe(later).is_some());
    }

    #[test]
    fn below_the_base_everything_is_tried_anew() {
        for (path, found) in [(672, 672), (1199, 1172), (580, 576), (65_507, 65_507)] {
            let mut mtu = MtuSearch::new(1200, 65_507);
            search(&mut mtu, 1200);
            for loss in 1..=BLACK_HOLE_LOSSES as u64 {
                mtu.on_acked(LEAST_DATAGRAM_BYTES);
                let fallen = mtu.on_lost(Instant::from_nanos(loss), 1200);
                assert_eq!(fallen, loss == BLACK_HOLE_LOSSES as u64);
            }
            assert_eq!(mtu.current(), LEAST_DATAGRAM_BYTES);
            search(&mut mtu, path);
            assert_eq!(mtu.current(), found, "path of {path}");
        }
    }

    #[test]
    fn losses_below_the_base_mean_less_than_it_whatever_was_found_before() {
        let mut mtu = MtuSearch::new(1200, 1472);
        search(&mut mtu, 1472);
        // The path has become narrower, and all there is to send is small.
        for loss in 1..=BLACK_HOLE_LOSSES as u64 {
            mtu.on_acked(LEAST_DATAGRAM_BYTES);
            let fallen = mtu.on_lost(Instant::from_nanos(loss), 868);
            assert_eq!(fallen, loss == BLACK_HOLE_LOSSES as u64);
        }
        assert_eq!(mtu.current(), LEAST_DATAGRAM_BYTES);
        for loss in 1..=BLACK_HOLE_LOSSES as u64 {
            assert!(!mtu.on_lost(Instant::from_nanos(10 + loss), 868), "it was sent before");
        }
        search(&mut mtu, 1472);
        assert_eq!(mtu.current(), 1472, "it may have been a silence");
    }

    #[test]
    fn what_is_lost_while_nothing_arrives_says_nothing_of_its_size() {
        for (smaller_arrives, found) in [(false, 1472), (true, 1464)] {
            let mut mtu = MtuSearch::new(1200, 1472);
            search(&mut mtu, 1472);
            mtu.on_acked(100);
            for loss in 1..=BLACK_HOLE_LOSSES as u64 {
                let fallen = mtu.on_lost(Instant::from_nanos(loss), 1472);
                assert_eq!(fallen, loss == BLACK_HOLE_LOSSES as u64);
                if smaller_arrives {
                    mtu.on_acked(576);
                }
            }
            assert_eq!(mtu.current(), 1200);
            search(&mut mtu, 1472);
            assert_eq!(mtu.current(), found);
        }
    }

    #[test]
    fn the_peers_limit_is_kept() {
        let mut mtu = MtuSearch::new(1200, 65_507);
        mtu.limit(1400);
        search(&mut mtu, 65_507);
        assert_eq!(mtu.current(), 1400);
    }
}

//! The sender's half of grants (S11): what the receiver lets this side send, and when to ask for more.
//!
//! Inputs → outputs: GRANTs, octets sent, octets that wait → whether data may go and how much, and
//! the GRANT_REQUEST to write. Source: S11; `spec/protocol.md` §13.3.

use super::licence::Licence;
use denrei_wire::Instant;
use denrei_wire::frame::{Grant, GrantRequest};

/// A limit is not used to its last octets: a packet of headers, request, trailer and the smallest
/// fragment has to fit, or a sender that may go on could not.
pub(crate) const LEAST_GRANT: u64 = 160;

/// How far a sender may be ahead of a limit that is set anew. Beyond it the low 32 bits of its count would not tell how
/// far, and what lies between was lost long ago: it goes on counting from the limit.
pub(super) const MOST_AHEAD: u64 = 1 << 30;

/// Data packets that go without a request at most, so that the receiver's account stays right.
const REQUEST_EVERY: u8 = 8;

/// A receiver that knows that its sender waits may be wrong about how much by this factor, until data comes.
const TOLD_WITHIN: u64 = 2;

/// What a receiver allows.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    /// Octets of data packets sent since the session began.
    sent: u64,
    since_request: u8,
    /// Most receivers never grant.
    word: Option<Box<Word>>,
}

/// What the receiver said last, and what it was told.
#[derive(Debug, Default)]
struct Word {
    /// Octets of data packets that may be sent; `None`: any number.
    limit: Option<u64>,
    serial: Option<u32>,
    /// Octets sent plus what waited, as told last.
    told: Option<u64>,
    /// What may be under way because of it; `None`: what the congestion window lets.
    licence: Option<Licence>,
}

impl Allowed {
    /// Takes the receiver's word.
    pub fn on_grant(&mut self, grant: &Grant) {
        let word = self.word.get_or_insert_default();
        let age = word.serial.map_or(1, |serial| grant.serial.wrapping_sub(serial) as i32);
        if age < 0 {
            return;
        }
        let limit = if age == 0 { word.limit.max(grant.limit) } else { grant.limit };
        if age > 0 {
            word.told = None;
            if let Some(limit) = limit
                && self.sent.saturating_sub(limit) > MOST_AHEAD
            {
                self.sent = limit;
            }
        }
        word.serial = Some(grant.serial);
        word.limit = limit;
    }

    /// The licence of the limit in force.
    pub fn licence(&mut self) -> Option<&mut Licence> {
        self.word.as_mut()?.licence.as_mut()
    }

    /// Sets or takes away the licence, once the receiver has spoken.
    pub fn set_licence(&mut self, licence: Option<Licence>) {
        if let Some(word) = &mut self.word {
            word.licence = licence;
        }
    }

    /// Octets that may be under way because of it, where so many are; 0: it says nothing.
    pub fn licensed(&self, now: Instant, under_way: u64) -> u64 {
        let licence = self.word.as_ref().and_then(|word| word.licence.as_ref());
        licence.map_or(0, |licence| licence.window(now, under_way, self.room().unwrap_or(0)))
    }

    fn limit(&self) -> Option<u64> {
        self.word.as_ref()?.limit
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit().is_some()
    }

    /// Octets that the next data packet may have at most, if there is a limit; 0: none may go.
    pub fn room(&self) -> Option<u64> {
        let left = self.limit()?.saturating_sub(self.sent);
        Some(if left < LEAST_GRANT { 0 } else { left })
    }

    /// Whether what is under way ends with a packet that is acknowledged by a grant (`spec/protocol.md` §13.3): it used
    /// up the limit and said that more waits, and nothing was said or lost since.
    pub fn awaits_grant(&self) -> bool {
        let said_more = |word: &Word| word.told > Some(self.sent);
        self.word.as_deref().is_some_and(said_more) && self.since_request > 0 && self.room() == Some(0)
    }

    /// Takes note of a data packet.
    pub fn on_sent(&mut self, octets: u64) {
        self.sent += octets;
        self.since_request = self.since_request.saturating_add(1);
    }

    /// Data was lost, and with it what the packet said: the receiver counts on what does not come.
    pub fn on_lost(&mut self) {
        if let Some(word) = &mut self.word {
            word.told = None;
        }
    }

    /// Octets sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether a data packet of up to `octets` shall carry a request: it uses up what is allowed, or
    /// many have gone without.
    pub fn request_is_due(&self, octets: u64) -> bool {
        let Some(limit) = self.limit() else { return false };
        let last = limit.saturating_sub(self.sent.saturating_add(octets)) < LEAST_GRANT;
        last || self.since_request.saturating_add(1) >= REQUEST_EVERY
    }

    /// Whether a sender that may not go on and has `wanted` octets to send has to say so: the receiver does not
    /// know that it wants more than it was granted, or is wrong by more than [`TOLD_WITHIN`]. Each data packet that
    /// asks says it anew, and an application that fills its queue would have a packet sent for each of its messages.
    pub fn must_ask(&self, wanted: u64) -> bool {
        let Some(word) = self.word.as_ref().filter(|_| self.room() == Some(0)) else { return false };
        let Some(told) = word.told else { return true };
        if told == self.sent + wanted {
            return false;
        }
        let known = told.saturating_sub(self.sent);
        let granted = told.saturating_sub(word.limit.unwrap_or(0)) < LEAST_GRANT;
        granted || wanted > known.saturating_mul(TOLD_WITHIN) || wanted < known / TOLD_WITHIN
    }

    /// The request to write into a packet; `octets`: how large it is if it holds data, else 0.
    pub fn request(&mut self, octets: u64, wanted: u64) -> GrantRequest {
        let sent = self.sent.saturating_add(octets);
        self.word.get_or_insert_default().told = Some(sent + wanted);
        self.since_request = 0;
        GrantRequest { sent: sent as u32, wanted: u32::try_from(wanted).unwrap_or(u32::MAX) }
    }

    /// The session begins anew.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(serial: u32, limit: Option<u64>) -> Grant {
        Grant { serial, limit }
    }

    #[test]
    fn the_newest_word_holds_and_limits_of_one_serial_only_grow() {
        let mut allowed = Allowed::default();
        assert_eq!(allowed.room(), None);
        allowed.on_grant(&grant(u32::MAX, Some(5_000)));
        allowed.on_grant(&grant(u32::MAX, Some(4_000)));
        assert_eq!(allowed.room(), Some(5_000), "an old one came late");
        allowed.on_grant(&grant(0, None));
        allowed.on_grant(&grant(u32::MAX, Some(9_000)));
        assert_eq!(allowed.room(), None, "an older serial came late");
        allowed.on_grant(&grant(1, Some(3_000)));
        allowed.on_sent(2_850);
        assert_eq!(allowed.room(), Some(0), "what is left is not worth a packet");
    }

    #[test]
    fn a_sender_that_may_not_go_on_asks_once_for_each_amount() {
        let mut allowed = Allowed::default();
        assert!(!allowed.must_ask(10_000), "there is no limit");
        allowed.on_grant(&grant(1, Some(0)));
        assert!(allowed.must_ask(10_000));
        assert_eq!(allowed.request(0, 10_000), GrantRequest { sent: 0, wanted: 10_000 });
        assert!(!allowed.must_ask(20_000), "the next packet says it");
        assert!(allowed.must_ask(20_001), "it is far more");
        assert!(!allowed.must_ask(5_000) && allowed.must_ask(4_999), "or far less");
        allowed.on_lost();
        assert!(allowed.must_ask(10_000), "it may have been what said so");
        allowed.request(0, 10_000);
        allowed.on_grant(&grant(1, Some(3_000)));
        assert!(!allowed.must_ask(30_000), "it may go on");
        assert!(!allowed.request_is_due(1_000));
        allowed.on_sent(1_000);
        assert!(!allowed.request_is_due(1_000));
        assert!(allowed.request_is_due(1_950), "the last that is allowed");
        assert_eq!(allowed.request(100, 0), GrantRequest { sent: 1_100, wanted: 0 });
        assert!(!allowed.awaits_grant(), "it wants nothing");
    }

    #[test]
    fn who_was_granted_all_that_it_asked_for_asks_for_the_rest() {
        let mut allowed = Allowed::default();
        allowed.on_grant(&grant(1, Some(0)));
        allowed.request(0, 3_000);
        allowed.on_grant(&grant(1, Some(3_000)));
        allowed.on_sent(3_000);
        assert!(allowed.must_ask(100), "the receiver takes it for idle");
        allowed.request(0, 100);
        assert!(!allowed.must_ask(100), "once");
    }

    #[test]
    fn who_uses_up_a_limit_and_says_so_awaits_a_grant() {
        let mut allowed = Allowed::default();
        allowed.request(1_000, 5_000);
        assert!(!allowed.awaits_grant(), "there is no limit");
        allowed.on_grant(&grant(1, Some(3_000)));
        allowed.request(1_000, 5_000);
        allowed.on_sent(1_000);
        assert!(!allowed.awaits_grant(), "it may go on");
        allowed.request(2_000, 3_000);
        allowed.on_sent(2_000);
        assert!(allowed.awaits_grant());
        allowed.on_grant(&grant(1, Some(3_000)));
        assert!(allowed.awaits_grant(), "it says nothing new");
        allowed.request(0, 4_000);
        assert!(!allowed.awaits_grant(), "no data went with it: what was lost of that shall be known soon");
        allowed.on_grant(&grant(1, Some(6_000)));
        allowed.request(2_990, 1_000);
        allowed.on_sent(2_990);
        assert!(allowed.awaits_grant());
        allowed.on_grant(&grant(1, Some(9_000)));
        assert!(!allowed.awaits_grant(), "it has come");
    }
}

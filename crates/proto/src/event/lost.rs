//! Why sessions end, and the words for it.

use core::fmt;

/// A Node that connects to itself: the violation that is one only by name.
pub(crate) const OWN_ADDRESS: &str = "that address is this Node's own";

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// Both sides closed in order.
    Closed,
    /// This side called `abort`.
    Aborted,
    /// The peer ended the session with this code and text.
    Ended {
        /// 0: orderly; see `spec/protocol.md` §8.
        code: u16,
        /// For people.
        reason: String,
    },
    /// Nothing answered the FIRST within the connect timeout.
    NoAnswer,
    /// Silent for longer than the failure timeout.
    TimedOut,
    /// Nobody is at its port any more, as its host says, and it was silent meanwhile.
    Gone,
    /// Its process was started again: a new incarnation speaks from the address.
    Restarted,
    /// It does not know the session any more; nor if this Node opened another to it, at another of its addresses.
    Forgotten,
    /// It speaks none of our protocol versions.
    VersionMismatch {
        /// What it speaks.
        offered: Vec<u8>,
    },
    /// It broke the protocol.
    Violation(&'static str),
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed in order"),
            Self::Aborted => f.write_str("aborted by this side"),
            Self::Ended { code: 0, reason } if reason.is_empty() => f.write_str("ended by the peer"),
            Self::Ended { code, reason } if reason.is_empty() => write!(f, "ended by the peer (code {code})"),
            Self::Ended { code, reason } => write!(f, "ended by the peer: {reason} (code {code})"),
            Self::NoAnswer => f.write_str(
                "no answer: is a Node running at that address, with the same cluster key (or, like this one, \
                 none), and does each allow the other's identity?",
            ),
            Self::TimedOut => f.write_str("silent for longer than failure_timeout"),
            Self::Gone => f.write_str("nobody is at its port any more"),
            Self::Restarted => f.write_str("its process was started again"),
            Self::Forgotten => f.write_str("it no longer knows the session"),
            Self::VersionMismatch { offered } => {
                write!(
                    f,
                    "it speaks protocol versions {offered:?}, this side {}",
                    denrei_wire::packet::VERSION
                )
            }
            // Nobody broke anything, and the text says what is wrong.
            Self::Violation(OWN_ADDRESS) => f.write_str(OWN_ADDRESS),
            Self::Violation(what) => write!(f, "it broke the protocol: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_as_sentences() {
        let ended = |code, reason: &str| LostReason::Ended { code, reason: reason.to_owned() }.to_string();
        assert_eq!(ended(0, ""), "ended by the peer");
        assert_eq!(ended(1, ""), "ended by the peer (code 1)");
        assert_eq!(ended(1, "out of memory"), "ended by the peer: out of memory (code 1)");
        assert_eq!(LostReason::Violation(OWN_ADDRESS).to_string(), "that address is this Node's own");
        let broken = LostReason::Violation("an empty frame").to_string();
        assert_eq!(broken, "it broke the protocol: an empty frame");
    }
}

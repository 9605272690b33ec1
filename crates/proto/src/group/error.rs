//! Why a call about a group did nothing.

use super::types::{Departure, GroupId, POLICY_TIMES};
use core::net::SocketAddr;
use core::time::Duration;
use thiserror::Error;

/// Why a call about a group did nothing.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum GroupError {
    /// Not an address a group can have.
    #[error("{0} cannot be a group's address: it has to be multicast, with a port")]
    BadAddress(SocketAddr),
    /// A time of the policy with which it would make no sense.
    #[error("the policy's time is {after:?}, but has to be between {least:?} and {most:?}",
        least = POLICY_TIMES.start(), most = POLICY_TIMES.end())]
    BadPolicy {
        /// The time.
        after: Duration,
    },
    /// No members, too many, or the same twice.
    #[error("a group needs between 1 and {max} members with addresses of their own: {problem}")]
    BadMembers {
        /// The limit.
        max: usize,
        /// What is wrong.
        problem: String,
    },
    /// Signatures were demanded, and there is no cluster key.
    #[error(
        "packets that are not sealed are not signed: set Config::cluster_key, or leave GroupOptions::sign"
    )]
    NotSealed,
    /// Signatures were demanded, and relays.
    #[error("what is signed is not relayed by members: set backend to Auto, Multicast or Unicast")]
    NotSigned,
    /// There are too many groups.
    #[error("there are {max} groups already; close one")]
    TooManyGroups {
        /// The limit.
        max: usize,
    },
    /// Some members do not take part (M4).
    #[error("the group was not opened: {}", list(.missing))]
    OpenFailed {
        /// Their addresses, and why each does not.
        missing: Vec<(SocketAddr, Departure)>,
    },
    /// The queue is full; wait until it drains.
    #[error("{queued_bytes} bytes are queued for the group: a member or the path is slower than the sender")]
    WouldBlock {
        /// What is queued, bytes.
        queued_bytes: u64,
    },
    /// A member's limit.
    #[error("a message of {bytes} bytes is over a member's limit of {max}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The least limit of all members.
        max: u64,
    },
    /// No such group here (any more).
    #[error("{0} does not exist here, or is closed")]
    Unknown(GroupId),
    /// The group is closing.
    #[error("{0} is closing and takes no more messages, nor members")]
    Closing(GroupId),
    /// No member is left.
    #[error("{0} has no members left")]
    Deserted(GroupId),
    /// No such member.
    #[error("{group} has no member {member}")]
    UnknownMember {
        /// The group.
        group: GroupId,
        /// The id.
        member: u32,
    },
}

/// Who is missing, by reasons.
fn list(missing: &[(SocketAddr, Departure)]) -> String {
    let mut reasons: Vec<&Departure> = Vec::new();
    for (_, why) in missing {
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    let told = reasons.into_iter().map(|why| {
        let with_it = missing.iter().filter(|(_, other)| other == why);
        let all = with_it.map(|(addr, _)| addr.to_string()).collect::<Vec<_>>().join(", ");
        match why {
            Departure::Silent => format!("no answer from {all} within open_timeout"),
            _ => format!("{all}: {why}"),
        }
    });
    told.collect::<Vec<_>>().join("; ")
}

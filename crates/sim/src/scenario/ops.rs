//! The operations a scenario is made of, as plain data: a list of them can be cut at will and
//! still be run. Hosts are named by number, modulo how many there are.

use crate::net::faults::Faults;
use crate::net::topology::HostId;
use crate::oracle::OfferAnswer;
use crate::oracle::calls::{Closing, Order, Urge};
use crate::oracle::groups::GroupOp;
use core::fmt;
use core::time::Duration;
use denrei_proto::{HostLimit, HostRecord, Rate};

/// An operation, and how long after the one before it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedOp {
    /// Time since the operation before.
    pub after: Duration,
    /// The operation.
    pub op: TestOp,
}

impl fmt::Display for TimedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:?} {:?}", self.after, self.op)
    }
}

/// Something that an application, an administrator, an attacker or fate does. What cannot be done
/// (a call on a host that is down) is left out.
#[derive(Clone, Debug, PartialEq)]
pub enum TestOp {
    /// Opens a session.
    Connect(HostId, HostId),
    /// Sends a message, opening a session if there is none.
    Send(HostId, Order),
    /// Sets the priority of the channel to a host.
    SetPriority(HostId, HostId, u16, u8),
    /// The process reads all that arrives, or nothing by itself.
    SetReading(HostId, bool),
    /// Sets how fast the second host may send to the first.
    SetRate(HostId, HostId, Rate),
    /// Takes up to so many messages.
    Read(HostId, usize),
    /// Takes up to so many messages of one channel of one peer.
    ReadFrom(HostId, HostId, u16, usize),
    /// Ends a session or a half of it.
    Close(HostId, HostId, Closing),
    /// Asks for a status.
    RequestStatus(HostId, HostId),
    /// Changes how offers are answered.
    SetOffers(HostId, OfferAnswer),
    /// Kills a process.
    Crash(HostId),
    /// Starts a process that is dead.
    Restart(HostId),
    /// Stops a process.
    Pause(HostId),
    /// Lets a stopped process go on.
    Resume(HostId),
    /// What the machine takes, what the other processes of it say of themselves, and how many datagrams had no room.
    ShareHost(HostId, Option<HostLimit>, Vec<HostRecord>, u64),
    /// One endpoint of a process goes on with the sessions of all its endpoints.
    Gather(HostId),
    /// Keeps two hosts apart.
    Cut(HostId, HostId),
    /// Sets the faults of a host's cable.
    SetFaults(HostId, Box<Faults>),
    /// Takes all faults off the network.
    Heal,
    /// Puts a forged datagram before a host, as from another.
    Forge(HostId, HostId, Forgery),
    /// Sends the captured datagram of this number again, after a while.
    Replay(usize, Duration),
    /// Does something about groups.
    Group(HostId, GroupOp),
    /// Multicast gets to a host, or does not.
    SetDeaf(HostId, bool),
    /// Sets the second host's share of what the first can receive.
    SetWeight(HostId, HostId, u32),
    /// Asks the endpoint to see to it that what is under way to a host arrives.
    Urge(HostId, HostId, Urge),
    /// Takes up to so many messages of channels with even numbers, or with odd ones.
    ReadHalf(HostId, bool, usize),
}

/// How a forged datagram is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// So many bytes that follow from a seed, the first a packet kind.
    Garbage {
        /// How many.
        bytes: u16,
        /// Which.
        seed: u64,
    },
    /// The captured datagram of this number, cut to so many bytes.
    Truncated {
        /// Which.
        index: usize,
        /// Bytes left.
        bytes: u16,
    },
    /// The captured datagram of this number, with one bit changed.
    Flipped {
        /// Which.
        index: usize,
        /// Which bit, modulo how many there are.
        bit: u32,
    },
}

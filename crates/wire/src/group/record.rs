//! Records: what opener and member tell each other about a group, reliably and in order.
//!
//! Inputs → outputs: one message of the group channel ↔ [`Record`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// First octet of each record.
mod kind {
    pub(super) const OPEN: u8 = 0x01;
    pub(super) const ACCEPT: u8 = 0x02;
    pub(super) const REFUSE: u8 = 0x03;
    pub(super) const SYMBOL: u8 = 0x04;
    pub(super) const POLL: u8 = 0x05;
    pub(super) const CLOSE: u8 = 0x06;
    pub(super) const CLOSED: u8 = 0x07;
    pub(super) const LEAVE: u8 = 0x08;
    pub(super) const JOIN: u8 = 0x09;
    pub(super) const REMOVED: u8 = 0x0a;
    pub(super) const ROUTE: u8 = 0x0b;
    pub(super) const BEGIN: u8 = 0x0c;
    pub(super) const SYMBOL_REPORT: u8 = 0x0d;
    pub(super) const KEY: u8 = 0x0e;
    pub(super) const UNHEARD: u8 = 0x0f;
}

/// Most children a ROUTE names.
pub const MAX_CHILDREN: usize = 64;
/// Octets of a SYMBOL record before its frames.
pub const SYMBOL_HEADER_BYTES: usize = 1 + 8 + 8;
/// Longest key an OPEN or a KEY carries.
const MAX_KEY_BYTES: usize = 96;

/// Why a member is one no longer (spec 14.2, REMOVED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Removal {
    /// The opener's application wants it so, or the group is given up.
    Wanted = 0,
    /// It held the others up for longer than the policy allows.
    Ejected = 1,
    /// It lagged further behind than what the opener retains.
    TooFarBehind = 2,
    /// What goes to the group's address does not reach it, and it is served by no other way.
    OutOfReach = 3,
}

impl Removal {
    /// What is not known is nothing that this end could do better.
    fn of(octet: u8) -> Self {
        match octet {
            1 => Self::Ejected,
            2 => Self::TooFarBehind,
            3 => Self::OutOfReach,
            _ => Self::Wanted,
        }
    }
}

/// SYN: an opener names a member of its group (M2, M4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// The group's address and port.
    pub address: SocketAddr,
    /// The member's own id.
    pub member: u32,
    /// How many members the group has.
    pub members: u32,
    /// Longest time the member may hold a report back, µs.
    pub report_delay_us: u32,
    /// Members answer a question one after the other.
    pub stagger: bool,
    /// Members wait a while before they say what they miss: others may have said it.
    pub suppress: bool,
    /// The group key and what belongs to it, empty in plain mode.
    pub key: &'a [u8],
}

/// Where a member's share of the group begins, at a message boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// First symbol for the member.
    pub symbol: u64,
    /// First message for the member.
    pub message: u64,
    /// Cost of all messages before it, from which its limits count.
    pub cost: u64,
}

/// A late member's wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The address of the group it wishes to be in.
    pub address: SocketAddr,
    /// It wants what the opener still retains.
    pub history: bool,
}

/// Whom a member hands symbols on to, and to whom it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// From whom symbols come besides the opener; the opener itself if nobody else.
    pub parent: SocketAddr,
    /// Reports go to the parent, which joins them with its own.
    pub report_to_parent: bool,
    /// Symbols are handed on to the children.
    pub relay: bool,
    /// The children: id and address.
    pub children: Vec<(u32, SocketAddr)>,
}

/// One record; each names its group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record<'a> {
    /// SYN.
    Open(Open<'a>),
    /// SYN+ACK: the member takes part.
    Accept {
        /// Cost beyond what its application has taken that the member holds.
        credit: u64,
        /// Largest message it takes, octets.
        max_message: u64,
    },
    /// The member does not take part.
    Refuse,
    /// The member, which is about to accept, knows that it cannot hear the group's address.
    Unheard,
    /// The member's share of the group begins.
    Begin(Begin),
    /// A symbol by unicast: its number and its frames.
    Symbol {
        /// Its number.
        number: u64,
        /// Report once it has come.
        report: bool,
        /// The frames.
        frames: &'a [u8],
    },
    /// Report now; `next` is the first symbol that has not been sent.
    Poll {
        /// First symbol not sent.
        next: u64,
    },
    /// FIN: `symbols` and `messages` were all there are.
    Close {
        /// Symbols sent.
        symbols: u64,
        /// Messages sent.
        messages: u64,
    },
    /// FIN+ACK: all of them have arrived.
    Closed,
    /// The member wants no more; it has `symbols` and `messages`, and what comes after them it may have in part.
    Leave {
        /// First symbol that it does not have.
        symbols: u64,
        /// First message that it does not have.
        messages: u64,
    },
    /// Somebody asks to become a member.
    Join(Join),
    /// The member is not a member any more.
    Removed(Removal),
    /// Whom to hand symbols on to.
    Route(Route),
    /// The group's key changes.
    Key {
        /// Packets under the key before are still taken for a while.
        keep_previous: bool,
        /// The new one.
        key: &'a [u8],
    },
}

/// A message of the group channel that is no record.
#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
#[error("a group record that cannot be read")]
pub struct RecordError;

impl<'a> Record<'a> {
    /// Whose group's a record is, and what it says.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(octets: &'a [u8]) -> Result<(u64, Self), RecordError> {
        let mut reader = Reader(octets);
        let kind = reader.u8()?;
        let group = reader.u64()?;
        let record = match kind {
            kind::OPEN => Self::Open(Open {
                address: reader.addr()?,
                member: reader.u32()?,
                members: reader.u32()?,
                report_delay_us: reader.u32()?,
                stagger: reader.flag()?,
                suppress: reader.flag()?,
                key: reader.key()?,
            }),
            kind::ACCEPT => Self::Accept { credit: reader.u64()?, max_message: reader.u64()? },
            kind::REFUSE => Self::Refuse,
            kind::UNHEARD => Self::Unheard,
            kind::BEGIN => {
                Self::Begin(Begin { symbol: reader.u64()?, message: reader.u64()?, cost: reader.u64()? })
            }
            kind::SYMBOL | kind::SYMBOL_REPORT => Self::Symbol {
                number: reader.u64()?,
                report: kind == kind::SYMBOL_REPORT,
                frames: reader.rest(),
            },
            kind::POLL => Self::Poll { next: reader.u64()? },
            kind::CLOSE => Self::Close { symbols: reader.u64()?, messages: reader.u64()? },
            kind::CLOSED => Self::Closed,
            kind::LEAVE => Self::Leave { symbols: reader.u64()?, messages: reader.u64()? },
            kind::JOIN => Self::Join(Join { address: reader.addr()?, history: reader.flag()? }),
            kind::REMOVED => Self::Removed(Removal::of(reader.u8()?)),
            kind::ROUTE => Self::Route(reader.route()?),
            kind::KEY => Self::Key { keep_previous: reader.flag()?, key: reader.key()? },
            _ => return Err(RecordError),
        };
        if reader.0.is_empty() { Ok((group, record)) } else { Err(RecordError) }
    }

    /// The octets of the record, as a message for the group channel.
    pub fn encode(&self, group: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(self.kind());
        out.extend(group.to_le_bytes());
        match self {
            Self::Open(open) => {
                put_addr(&mut out, open.address);
                for number in [open.member, open.members, open.report_delay_us] {
                    out.extend(number.to_le_bytes());
                }
                out.extend([open.stagger as u8, open.suppress as u8]);
                put_key(&mut out, open.key);
            }
            Self::Accept { credit: first, max_message: second }
            | Self::Close { symbols: first, messages: second }
            | Self::Leave { symbols: first, messages: second } => {
                out.extend(first.to_le_bytes());
                out.extend(second.to_le_bytes());
            }
            Self::Begin(begin) => {
                for number in [begin.symbol, begin.message, begin.cost] {
                    out.extend(number.to_le_bytes());
                }
            }
            Self::Symbol { number, frames, .. } => {
                out.extend(number.to_le_bytes());
                out.extend(*frames);
            }
            Self::Poll { next } => out.extend(next.to_le_bytes()),
            Self::Join(join) => {
                put_addr(&mut out, join.address);
                out.push(join.history as u8);
            }
            Self::Route(route) => put_route(&mut out, route),
            Self::Key { keep_previous, key } => {
                out.push(*keep_previous as u8);
                put_key(&mut out, key);
            }
            Self::Removed(why) => out.push(*why as u8),
            Self::Refuse | Self::Unheard | Self::Closed => {}
        }
        out
    }

    /// What precedes the frames of a SYMBOL record.
    pub fn symbol_header(group: u64, number: u64, report: bool) -> [u8; SYMBOL_HEADER_BYTES] {
        let mut header = [0; SYMBOL_HEADER_BYTES];
        header[0] = if report { kind::SYMBOL_REPORT } else { kind::SYMBOL };
        header[1..9].copy_from_slice(&group.to_le_bytes());
        header[9..].copy_from_slice(&number.to_le_bytes());
        header
    }

    /// Whether a record's octets are a symbol's that asks for a report.
    pub fn asks_for_report(octets: &[u8]) -> bool {
        octets.first() == Some(&kind::SYMBOL_REPORT)
    }

    /// Whether a record's octets are a symbol's, or tell how many there are: all other records may overtake these.
    pub fn follows_symbols(octets: &[u8]) -> bool {
        let kinds = [kind::SYMBOL, kind::SYMBOL_REPORT, kind::POLL, kind::CLOSE];
        octets.first().is_some_and(|kind| kinds.contains(kind))
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Open(_) => kind::OPEN,
            Self::Accept { .. } => kind::ACCEPT,
            Self::Refuse => kind::REFUSE,
            Self::Unheard => kind::UNHEARD,
            Self::Begin(_) => kind::BEGIN,
            Self::Symbol { report: true, .. } => kind::SYMBOL_REPORT,
            Self::Symbol { .. } => kind::SYMBOL,
            Self::Poll { .. } => kind::POLL,
            Self::Close { .. } => kind::CLOSE,
            Self::Closed => kind::CLOSED,
            Self::Leave { .. } => kind::LEAVE,
            Self::Join(_) => kind::JOIN,
            Self::Removed(_) => kind::REMOVED,
            Self::Route(_) => kind::ROUTE,
            Self::Key { .. } => kind::KEY,
        }
    }
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    let key = &key[..key.len().min(MAX_KEY_BYTES)];
    out.push(key.len() as u8);
    out.extend(key);
}

fn put_addr(out: &mut Vec<u8>, addr: SocketAddr) {
    match addr.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
    out.extend(addr.port().to_le_bytes());
}

fn put_route(out: &mut Vec<u8>, route: &Route) {
    put_addr(out, route.parent);
    out.push(route.report_to_parent as u8);
    out.push(route.relay as u8);
    out.push(route.children.len().min(MAX_CHILDREN) as u8);
    for (id, addr) in route.children.iter().take(MAX_CHILDREN) {
        out.extend(id.to_le_bytes());
        put_addr(out, *addr);
    }
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(RecordError)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array::<1>().map(|[octet]| octet)
    }

    fn flag(&mut self) -> Result<bool, RecordError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RecordError),
        }
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    fn addr(&mut self) -> Result<SocketAddr, RecordError> {
        let ip: IpAddr = match self.u8()? {
            4 => Ipv4Addr::from(self.array::<4>()?).into(),
            6 => Ipv6Addr::from(self.array::<16>()?).into(),
            _ => return Err(RecordError),
        };
        Ok(SocketAddr::new(ip, u16::from_le_bytes(self.array()?)))
    }

    fn key(&mut self) -> Result<&'a [u8], RecordError> {
        let len = self.u8()? as usize;
        if len > MAX_KEY_BYTES {
            return Err(RecordError);
        }
        let (key, rest) = self.0.split_at_checked(len).ok_or(RecordError)?;
        self.0 = rest;
        Ok(key)
    }

    fn route(&mut self) -> Result<Route, RecordError> {
        let (parent, report_to_parent, relay) = (self.addr()?, self.flag()?, self.flag()?);
        let count = self.u8()? as usize;
        if count > MAX_CHILDREN {
            return Err(RecordError);
        }
        let mut children = Vec::with_capacity(count);
        for _ in 0..count {
            children.push((self.u32()?, self.addr()?));
        }
        Ok(Route { parent, report_to_parent, relay, children })
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> Vec<Record<'static>> {
        let v4 = "239.1.2.3:7400".parse().unwrap();
        let v6 = "[ff15::7]:7400".parse().unwrap();
        vec![
            Record::Open(Open {
                address: v4,
                member: 3,
                members: 8,
                report_delay_us: 1000,
                stagger: true,
                suppress: false,
                key: b"key",
            }),
            Record::Key { keep_previous: false, key: b"key" },
            Record::Accept { credit: 4 << 20, max_message: 1 << 30 },
            Record::Refuse,
            Record::Unheard,
            Record::Begin(Begin { symbol: 1 << 40, message: 17, cost: 1 << 50 }),
            Record::Symbol { number: 5, report: false, frames: b"frames" },
            Record::Symbol { number: 6, report: true, frames: b"frames" },
            Record::Poll { next: 9 },
            Record::Close { symbols: 10, messages: 11 },
            Record::Closed,
            Record::Leave { symbols: 12, messages: 13 },
            Record::Join(Join { address: v6, history: true }),
            Record::Removed(Removal::Wanted),
            Record::Removed(Removal::OutOfReach),
            Record::Route(Route {
                parent: v4,
                report_to_parent: true,
                relay: false,
                children: vec![(7, v6)],
            }),
        ]
    }

    #[test]
    fn records_survive_the_round_trip() {
        for record in records() {
            let octets = record.encode(0xfeed);
            assert_eq!(Record::decode(&octets), Ok((0xfeed, record)));
        }
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_refused() {
        for record in records().into_iter().filter(|record| !matches!(record, Record::Symbol { .. })) {
            let mut octets = record.encode(1);
            assert_eq!(Record::decode(&octets[..octets.len() - 1]), Err(RecordError), "{record:?}");
            octets.push(0);
            assert_eq!(Record::decode(&octets), Err(RecordError), "{record:?}");
        }
    }

    #[test]
    fn a_symbol_header_is_the_start_of_its_record() {
        for report in [false, true] {
            let octets = Record::Symbol { number: 5, report, frames: b"x" }.encode(7);
            assert_eq!(octets[..octets.len() - 1], Record::symbol_header(7, 5, report));
            assert_eq!(Record::asks_for_report(&octets), report);
        }
    }

    #[test]
    fn only_what_tells_of_symbols_keeps_its_place_among_them() {
        for record in records() {
            let tells = matches!(record, Record::Symbol { .. } | Record::Poll { .. } | Record::Close { .. });
            assert_eq!(Record::follows_symbols(&record.encode(1)), tells, "{record:?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((group, record)) = Record::decode(&octets) {
                prop_assert_eq!(record.encode(group), octets);
            }
        }
    }
}

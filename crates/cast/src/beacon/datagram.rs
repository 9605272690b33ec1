//! A beacon's octets.
//!
//! Inputs → outputs: what a sender says, from where, in which minute, with the cluster's key or without one
//! ↔ a datagram. With a key there is a check value, so that nobody else's beacons are followed. Source:
//! `spec/cast.md` §7.

use denrei::BeaconKey;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Begins every beacon of a sender without a cluster key.
const PLAIN: [u8; 8] = *b"denreica";
/// Begins every beacon of a sender with one.
const SEALED: [u8; 8] = *b"denreics";
/// Tells senders apart: one that has several interfaces may be heard on several.
const ID_BYTES: usize = 8;
/// Port, id.
const SAID_BYTES: usize = 2 + ID_BYTES;
/// Longest beacon: the beginning, what is said, the minute, the check value.
pub const MAX_BYTES: usize = 8 + SAID_BYTES + 4 + 16;

/// What a beacon says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The port of the sender's node.
    pub port: u16,
    /// Which sender it is.
    pub id: [u8; ID_BYTES],
}

/// Why a datagram says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is none of a cast.
    NoBeacon,
    /// It is of a sender that has no key, another, or one where there should be none; or it is from another
    /// address, or too old.
    Stranger,
}

/// The minute that it is, since 1970.
pub fn minute() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() / 60) as u32
}

/// The beacon that `from` sends in `minute`.
pub fn encode(said: Said, key: Option<&BeaconKey>, from: IpAddr, minute: u32) -> Vec<u8> {
    let port = said.port.to_le_bytes();
    let Some(key) = key else { return [&PLAIN[..], &port, &said.id].concat() };
    let minute = minute.to_le_bytes();
    let content = [&port[..], &said.id, &minute].concat();
    let check = key.check(&vouched(&content, from));
    [&SEALED[..], &content, &check].concat()
}

/// What came from `from` in `minute` says.
///
/// # Errors
/// It is not to be followed.
pub fn decode(datagram: &[u8], key: Option<&BeaconKey>, from: IpAddr, minute: u32) -> Result<Said, Refused> {
    match (datagram.strip_prefix(&PLAIN), datagram.strip_prefix(&SEALED), key) {
        (Some(content), _, None) => parse(content).ok_or(Refused::NoBeacon),
        (_, Some(rest), Some(key)) => {
            let (content, check) = rest.split_at_checked(SAID_BYTES + 4).ok_or(Refused::NoBeacon)?;
            let (said, sent) = content.split_at(SAID_BYTES);
            let said = parse(said).ok_or(Refused::NoBeacon)?;
            let sent = sent.first_chunk().map_or(0, |sent| u32::from_le_bytes(*sent));
            let fresh = sent.abs_diff(minute) <= 1;
            let genuine = fresh && key.verify(&vouched(content, from), check);
            genuine.then_some(said).ok_or(Refused::Stranger)
        }
        (None, None, _) => Err(Refused::NoBeacon),
        _ => Err(Refused::Stranger),
    }
}

/// What the check value is over: what is said, and from where, so that nobody says it for himself.
fn vouched(content: &[u8], from: IpAddr) -> Vec<u8> {
    let from = match from {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    [content, &from.octets()].concat()
}

fn parse(content: &[u8]) -> Option<Said> {
    let (port, id) = content.split_first_chunk::<2>()?;
    let port = u16::from_le_bytes(*port);
    (port != 0).then_some(Said { port, id: id.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei::ClusterKey;

    const SAID: Said = Said { port: 0x201, id: *b"12345678" };
    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn key(octet: u8) -> BeaconKey {
        BeaconKey::new(&ClusterKey::from_bytes([octet; 32]))
    }

    #[test]
    fn what_is_no_beacon_is_not_followed() {
        let plain = |datagram: &[u8]| decode(datagram, None, FROM, 0);
        assert_eq!(encode(SAID, None, FROM, 0), b"denreica\x01\x0212345678");
        assert_eq!(plain(b"denreica\x01\x0212345678"), Ok(SAID));
        let not: [&[u8]; 5] = [
            b"",
            b"denreica\x01\x02",
            b"denreica\x00\x0012345678",
            b"denreica\x01\x02123456789",
            b"somebody\x01\x0212345678",
        ];
        assert!(not.iter().all(|datagram| plain(datagram) == Err(Refused::NoBeacon)));
    }

    #[test]
    fn with_a_key_only_fresh_beacons_of_the_same_key_and_address_are_followed() {
        let sealed = encode(SAID, Some(&key(1)), FROM, 1000);
        assert_eq!(sealed.len(), MAX_BYTES);
        let heard = |datagram: &[u8], minute| decode(datagram, Some(&key(1)), FROM, minute);
        for minute in [999, 1000, 1001] {
            assert_eq!(heard(&sealed, minute), Ok(SAID), "{minute}");
        }
        for minute in [0, 998, 1002, u32::MAX] {
            assert_eq!(heard(&sealed, minute), Err(Refused::Stranger), "{minute}");
        }
        assert_eq!(decode(&sealed, Some(&key(2)), FROM, 1000), Err(Refused::Stranger));
        let elsewhere = "192.0.2.2".parse().unwrap();
        assert_eq!(decode(&sealed, Some(&key(1)), elsewhere, 1000), Err(Refused::Stranger));
        for at in 8..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert_eq!(heard(&forged, 1000), Err(Refused::Stranger), "octet {at}");
            assert!(heard(&sealed[..at], 1000).is_err(), "{at} octets");
        }
        assert!(heard(&[&sealed[..], b"x"].concat(), 1000).is_err());
    }

    #[test]
    fn with_a_key_and_without_one_nobody_follows_the_other() {
        let (plain, sealed) = (encode(SAID, None, FROM, 7), encode(SAID, Some(&key(1)), FROM, 7));
        assert_eq!(decode(&plain, Some(&key(1)), FROM, 7), Err(Refused::Stranger));
        assert_eq!(decode(&sealed, None, FROM, 7), Err(Refused::Stranger));
    }
}

//! Who is let in, and what the question costs.
//!
//! Inputs → outputs: FIRSTs from anybody → the frames of those made with the cluster key; what has to
//! be shown before a handshake is computed; the protection of the session that results. Nothing is
//! remembered of a FIRST that was not made with the cluster key, and what is remembered of others has
//! a fixed size. Source: `spec/protocol.md` §12.3; the order of checks is WireGuard's (§5.3–5.4 there).

use super::Random;
use super::handshake::{Credentials, Initiator, Refused};
use super::prf::{Check, Prf, Secret};
use super::protection::Protection;
use super::recent::{Recent, SourceRates};
use crate::config::Config;
use core::net::{IpAddr, SocketAddr};
use denrei_wire::packet::{COOKIE_BYTES, OPENING_HEADER_BYTES, Opening};
use denrei_wire::{Instant, Token, checksum};
use std::sync::Arc;

/// How long a cookie proves an address: between one and two of these.
const COOKIE_EPOCH_NS: u64 = 10_000_000_000;

/// What a RETRY asks its receiver to show.
pub(crate) type Cookie = [u8; COOKIE_BYTES];

/// What is to be done about a FIRST that was made with the cluster key and belongs to no session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer it.
    Answer,
    /// Ask for a cookie first: for this one.
    Retry(Cookie),
    /// This address opens too many sessions.
    TooMany,
}

/// Why a FIRST is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turned {
    /// Damaged, forged, or made with another cluster key.
    NotGenuine,
    /// Plain, and a cluster key is set here.
    Unsealed,
    /// Sealed, and no cluster key is set here.
    Sealed,
    /// From an identity that is not allowed.
    Stranger,
}

/// The gate of one endpoint.
#[derive(Debug)]
pub(crate) struct Gate {
    /// `None`: plain mode, everybody may come in.
    guard: Option<Box<Guard>>,
}

struct Guard {
    credentials: Arc<Credentials>,
    random: Random,
    /// What cookies are made with: of this process alone, different in every epoch.
    cookies: Prf,
    answered: Recent,
    sources: SourceRates,
}

impl Gate {
    /// A gate that asks for what `config` says.
    pub fn new(config: &Config, random: &mut Random) -> Self {
        let guard = config.cluster_key.as_ref().map(|key| {
            let credentials = Credentials::new(key, config.identity.as_ref(), &config.allowed);
            let mut random = Random::new(&random.seed());
            Box::new(Guard {
                credentials: Arc::new(credentials),
                cookies: Prf::new(&random.block()),
                answered: Recent::default(),
                sources: SourceRates::new(config.max_handshakes_per_s, random.next_u64()),
                random,
            })
        });
        Self { guard }
    }

    /// Remembers whom another gate of the same secrets has answered.
    pub fn absorb(&mut self, other: &mut Self) {
        if let (Some(guard), Some(other)) = (&mut self.guard, &mut other.guard) {
            guard.answered.absorb(&mut other.answered);
        }
    }

    /// Whether packets are sealed here.
    pub fn is_sealed(&self) -> bool {
        self.guard.is_some()
    }

    /// Protection for a session that this side opens as `own`, showing `cookie` (or nothing).
    pub fn open_session(&mut self, own: Opening, cookie: &[u8]) -> Protection {
        let Some(guard) = &mut self.guard else { return Protection::Plain };
        let seed = guard.random.seed();
        Protection::opening(Initiator::new(guard.credentials.clone(), own, cookie, seed))
    }

    /// The frames of a FIRST, number `number`, if it was made with the cluster key. Costs an attacker
    /// who does not have it more than this side: one derivation and one tag.
    pub fn open_first<'a>(
        &self,
        from: Opening,
        number: u64,
        header_len: usize,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Turned> {
        let handshake_len = header_len - OPENING_HEADER_BYTES;
        let Some(guard) = &self.guard else {
            if handshake_len > 0 {
                return Err(Turned::Sealed);
            }
            let genuine = checksum::verify(datagram);
            let frames = &datagram[header_len..datagram.len() - checksum::CHECKSUM_BYTES];
            return if genuine { Ok(frames) } else { Err(Turned::NotGenuine) };
        };
        if handshake_len == 0 {
            return Err(Turned::Unsealed);
        }
        let message = guard.credentials.message_bytes();
        if handshake_len != message && handshake_len != message + COOKIE_BYTES {
            return Err(Turned::NotGenuine);
        }
        let (header, sealed) = datagram.split_at_mut(header_len);
        let key = guard.credentials.early_key(from, &header[OPENING_HEADER_BYTES..]);
        key.open(number, header, sealed).ok_or(Turned::NotGenuine)
    }

    /// Whether the handshake of a genuine FIRST is worth computing. `before`: the session of the same address
    /// that this one would replace; `crowded`: there are many others.
    pub fn judge(
        &mut self,
        now: Instant,
        from: SocketAddr,
        field: &[u8],
        before: Option<Token>,
        crowded: bool,
    ) -> Verdict {
        let Some(guard) = &mut self.guard else { return Verdict::Answer };
        let (_, cookie) = field.split_at(guard.credentials.message_bytes().min(field.len()));
        let pressed = crowded || before.is_some();
        let shown = guard.is_cookie_good(now, from, before, cookie);
        // One that was answered before is somebody's recording, or its initiator has not heard the
        // answer, which is forgotten: then it begins anew with the cookie.
        if guard.answered.contains(field) || (pressed && !shown) {
            return Verdict::Retry(guard.cookie(epoch(now), from, before));
        }
        if !guard.sources.take(now, from.ip()) {
            return Verdict::TooMany;
        }
        Verdict::Answer
    }

    /// Answers the handshake of a FIRST: protection for a session in which this side is `own`. One that is turned away
    /// is not remembered: a RETRY would have its initiator begin anew at once, in vain, and again.
    pub fn answer(&mut self, from: Opening, own: Opening, field: &[u8]) -> Result<Protection, Turned> {
        let Some(guard) = &mut self.guard else { return Ok(Protection::Plain) };
        let seed = guard.random.seed();
        let credentials = &guard.credentials;
        let message = &field[..credentials.message_bytes().min(field.len())];
        let response = credentials.respond(from, message, seed).map_err(|refused| match refused {
            Refused::Forged => Turned::NotGenuine,
            Refused::Stranger => Turned::Stranger,
        })?;
        guard.answered.insert(field);
        let answer = response.field(credentials, from, own);
        Ok(Protection::answering(credentials.early_key(from, field), answer, response.secrets))
    }

    /// The check value that makes a RETRY to the FIRST of `token` genuine.
    pub fn retry_check(&self, token: Token, cookie: &[u8]) -> Option<Check> {
        let guard = self.guard.as_ref()?;
        Some(guard.credentials.retry.check("retry", &[&token.0.to_le_bytes(), cookie]))
    }

    /// Whether a RETRY was made with the cluster key.
    pub fn is_retry_genuine(&self, token: Token, cookie: &[u8], check: &[u8]) -> bool {
        let retry = self.guard.as_ref().map(|guard| &guard.credentials.retry);
        retry.is_some_and(|retry| retry.verify("retry", &[&token.0.to_le_bytes(), cookie], check))
    }
}

impl Guard {
    fn secret_of(&self, epoch: u32) -> Secret {
        self.cookies.derive("epoch", &[&epoch.to_le_bytes()])
    }

    /// `before`: what it lets its bearer replace, which has begun before it is handed out.
    fn cookie(&self, epoch: u32, from: SocketAddr, before: Option<Token>) -> Cookie {
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..4].copy_from_slice(&epoch.to_le_bytes());
        let check = Prf::new(&self.secret_of(epoch)).check("cookie", &[&bound_to(from, before)]);
        cookie[4..].copy_from_slice(&check);
        cookie
    }

    fn is_cookie_good(&self, now: Instant, from: SocketAddr, before: Option<Token>, cookie: &[u8]) -> bool {
        let Some((stamp, check)) = cookie.split_first_chunk() else { return false };
        let stamped = u32::from_le_bytes(*stamp);
        let fresh = epoch(now).checked_sub(stamped).is_some_and(|age| age <= 1);
        let secret = || Prf::new(&self.secret_of(stamped));
        fresh && secret().verify("cookie", &[&bound_to(from, before)], check)
    }
}

fn epoch(now: Instant) -> u32 {
    (now.as_nanos() / COOKIE_EPOCH_NS) as u32
}

fn bound_to(addr: SocketAddr, before: Option<Token>) -> [u8; 26] {
    let ip = match addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut octets = [0; 26];
    octets[..16].copy_from_slice(&ip.octets());
    octets[16..18].copy_from_slice(&addr.port().to_le_bytes());
    octets[18..].copy_from_slice(&before.map_or(0, |token| token.0).to_le_bytes());
    octets
}

impl core::fmt::Debug for Guard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Guard(secret)")
    }
}

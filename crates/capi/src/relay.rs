//! Relays: nodes on the path between networks that cannot reach each other (R6).

use crate::config::denrei_config;
use crate::error::denrei_code::{DENREI_INVALID, DENREI_UNKNOWN_PEER};
use crate::error::{Failure, Owned, array_of, call, denrei_code, own, place, put, text};
use crate::group::resolve_all;
use crate::node::{bounded, write_text};
use denrei::Maker;
use denrei::relay::{PairState, Relay, RelayConfig, Route};
use std::ffi::c_char;
use std::net::IpAddr;

/// A running relay.
pub struct denrei_relay {
    relay: Relay,
    maker: Maker,
}

impl Owned for denrei_relay {
    fn maker(&self) -> Maker {
        self.maker
    }
}

/// A sender and the peer beyond the relay that it speaks to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_relay_pair {
    /// The sender's address.
    pub near: [c_char; 64],
    /// The peer's address.
    pub target: [c_char; 64],
    /// Messages forwarded to the target.
    pub forwarded_messages: u64,
    /// Bytes of them.
    pub forwarded_bytes: u64,
    /// Messages forwarded back.
    pub returned_messages: u64,
    /// Bytes held on the way to the target.
    pub held_bytes: u64,
    /// Times that the sender's rate was lowered or stopped.
    pub lowered: u64,
}

impl From<&PairState> for denrei_relay_pair {
    fn from(pair: &PairState) -> Self {
        Self {
            near: array_of(&pair.near.to_string()),
            target: array_of(&pair.target.to_string()),
            forwarded_messages: pair.forwarded_messages,
            forwarded_bytes: pair.forwarded_bytes,
            returned_messages: pair.returned_messages,
            held_bytes: pair.held_bytes,
            lowered: pair.lowered,
        }
    }
}

/// How a relay works; what is 0 or NULL has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_relay_options {
    /// Local IP address towards the targets: any if NULL, and loopback towards loopback.
    pub from: *const c_char,
    /// What a pair may hold in each direction, and the largest message that goes through, bytes:
    /// 64 KiB to 1 GiB; 64 MiB.
    pub pair_bytes: u64,
    /// How many pairs there may be at a time: 1 to 1024; 64.
    pub max_pairs: usize,
}

/// Starts a relay in threads of its own: whoever connects to an address of `listen` speaks with the
/// peer at the same place in `targets`, `count` of each. To let both sides begin, give a route in
/// each direction. `config` has the settings of its nodes, keys included; it and `options` may be
/// NULL.
///
/// # Safety
/// `listen` and `targets` have `count` strings, `config` is NULL or settings, `options` NULL or options,
/// `relay` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_relay_start(
    listen: *const *const c_char,
    targets: *const *const c_char,
    count: usize,
    config: *const denrei_config,
    options: *const denrei_relay_options,
    relay: *mut *mut denrei_relay,
) -> denrei_code {
    call(|| {
        let place = place("relay", relay)?;
        // SAFETY: by the contract.
        let (listen, targets) =
            unsafe { (resolve_all("listen", listen, count)?, resolve_all("targets", targets, count)?) };
        // SAFETY: by the contract.
        let mut settings = unsafe { settings_of(options.as_ref()) }?;
        // SAFETY: by the contract.
        if let Some(config) = unsafe { config.as_ref() } {
            settings.node = config.config.clone();
        }
        let routes = listen.into_iter().zip(targets).map(|(listen, target)| Route { listen, target });
        let started = Relay::start(&routes.collect::<Vec<_>>(), &settings)?;
        // SAFETY: by the contract.
        unsafe {
            place.put(Box::into_raw(Box::new(denrei_relay { relay: started, maker: Maker::this_process() })))
        };
        Ok(())
    })
}

/// # Safety
/// `from` is null or a string.
unsafe fn settings_of(options: Option<&denrei_relay_options>) -> Result<RelayConfig, Failure> {
    let mut settings = RelayConfig::default();
    let Some(options) = options else { return Ok(settings) };
    if !options.from.is_null() {
        // SAFETY: by the contract.
        settings.from = Some(ip(unsafe { text("from", options.from) }?)?);
    }
    if options.pair_bytes > 0 {
        settings.pair_bytes = options.pair_bytes;
    }
    if options.max_pairs > 0 {
        settings.max_pairs = options.max_pairs;
    }
    Ok(settings)
}

fn ip(text: &str) -> Result<IpAddr, Failure> {
    let refuse = || Failure::new(DENREI_INVALID, format!("{text:?} is no IP address"));
    text.parse().map_err(|_| refuse())
}

/// Writes the address of a route, the first is 0, as text that ends with NUL, into `buffer` of `length`
/// bytes; 64 are always enough. DENREI_UNKNOWN_PEER after the last.
///
/// # Safety
/// `relay` is a relay, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_relay_address(
    relay: *const denrei_relay,
    index: usize,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let addresses = unsafe { own("relay", relay) }?.relay.addresses();
        let none = || Failure::new(DENREI_UNKNOWN_PEER, format!("there is no route {index}"));
        // SAFETY: by the contract.
        unsafe { write_text(&addresses.get(index).ok_or_else(none)?.to_string(), buffer, length) }
    })
}

/// Writes the state of at most `capacity` pairs into `pairs`, and how many there are in `count`.
///
/// # Safety
/// `relay` is a relay, `pairs` has room for `capacity` (it may be NULL if that is 0), `count` is a
/// place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_relay_pairs(
    relay: *const denrei_relay,
    pairs: *mut denrei_relay_pair,
    capacity: usize,
    count: *mut usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (relay, place) = (unsafe { own("relay", relay) }?, place("count", count)?);
        if pairs.is_null() && capacity > 0 {
            return Err(Failure::null("pairs"));
        }
        let states = relay.relay.pairs();
        for (index, state) in states.iter().take(capacity).enumerate() {
            // SAFETY: by the contract there is room, and index < capacity.
            unsafe { put(pairs.add(index), state.into()) };
        }
        // SAFETY: by the contract.
        unsafe { place.put(states.len()) };
        Ok(())
    })
}

/// Ends all sessions of a relay in order: nobody begins any more, both sides of each pair are told to stop, and hear that
/// the relay is ending once all that it had acknowledged has gone on to the other. DENREI_TIMEOUT if that did not come
/// about within the time given: what is left, denrei_relay_free ends.
///
/// # Safety
/// `relay` is a relay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_relay_drain(relay: *const denrei_relay, timeout_us: i64) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let relay = unsafe { own("relay", relay) }?;
        let drained = relay.relay.drain(bounded(timeout_us));
        if drained { Ok(()) } else { Err(Failure::late("not everything was handed on")) }
    })
}

/// Ends a relay and all its sessions at once. Takes NULL.
///
/// # Safety
/// `relay` is NULL or a relay that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_relay_free(relay: *mut denrei_relay) {
    if !relay.is_null() {
        // SAFETY: by the contract it was made by Box::into_raw.
        let relay = unsafe { Box::from_raw(relay) };
        call(|| {
            drop(relay);
            Ok(())
        });
    }
}

//! The outsider on the path: sees, delays, drops, repeats and changes everything, and has no key.
//!
//! That it can drop everything is not an attack that anything helps against; here it lets the honest
//! packets pass and must not achieve anything with its own.

use super::sweep::Sweep;
use crate::outcome::Tried;
use crate::relay::{Passed, Way};
use crate::stage::Stage;
use anyhow::Result;
use denrei_wire::frame::{End, Frame, Rate};
use denrei_wire::packet::{self, Kind, OPENING_HEADER_BYTES, Opening, Packet};
use denrei_wire::{Incarnation, PacketNumber, Token, checksum};
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Harmed copies before every packet that passes.
const COPIES: usize = 16;
/// Packets behind after which a packet is repeated again.
const LATER: usize = 40;
/// Packets of an opening that are swept whole, from other addresses.
const OPENINGS: usize = 4;
/// Harmed copies of an opening between two pauses.
const BURST: usize = 32;
/// That pause.
const PAUSE: Duration = Duration::from_millis(1);

/// Lets the session go on under the hook for the attack's time.
fn wait(stage: &Stage) {
    std::thread::sleep(stage.effort.time());
}

/// Every packet three times at once, and again when it is old.
pub fn replay_at_once(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let mut old: [VecDeque<Passed>; 2] = Default::default();
    stage.relay().set_hook(Some(Box::new(move |passed| {
        let old = &mut old[usize::from(passed.way == Way::ToSender)];
        old.push_back(passed.clone());
        let mut all = vec![passed.clone(), passed.clone(), passed];
        if old.len() > LATER {
            all.extend(old.pop_front());
        }
        counter.fetch_add(all.len() as u64 - 1, Ordering::Relaxed);
        all
    })));
    wait(stage);
    stage.relay().set_hook(None);
    tried.attempts = count.load(Ordering::Relaxed);
    Ok(())
}

/// The opening of the honest session, recorded, again: from its own address, where the session
/// lives on, and from others, where there is none.
pub fn replay_first(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let openings = record_opening(stage, tried)?;
    let other = stage.socket()?;
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        for opening in &openings {
            stage.relay().inject(opening);
            other.send_to(&opening.bytes, stage.victim_addr())?;
            tried.add(2);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let peers = stage.victim_peers();
    tried.note(format!("{} packets of openings; {peers} entries in the address table", openings.len()));
    tried.expect(peers <= 2, || format!("the victim has {peers} peers"));
    Ok(())
}

/// Starts both sides anew and keeps the FIRSTs and ANSWERs of their session.
fn record_opening(stage: &mut Stage, tried: &mut Tried) -> Result<Vec<Passed>> {
    stage.restart_both(tried);
    stage.relay().record();
    stage.reconnect();
    std::thread::sleep(Duration::from_millis(200));
    let mut openings = stage.relay().recorded();
    openings.retain(|passed| is_opening(&passed.bytes));
    anyhow::ensure!(!openings.is_empty(), "no FIRST was seen");
    Ok(openings)
}

fn is_opening(packet: &[u8]) -> bool {
    packet.first().is_some_and(|kind| [Kind::First as u8, Kind::Answer as u8].contains(kind))
}

/// A whole session, recorded, again: while the victim is fresh, and beside a new session.
pub fn replay_after_restart(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    record_opening(stage, tried)?;
    stage.relay().record();
    stage.restart_both(tried);
    let recording: Vec<Passed> = stage.relay().recorded();
    let to_victim: Vec<&Passed> = recording.iter().filter(|passed| passed.way == Way::ToVictim).collect();
    tried.note(format!("{} recorded packets, {} of them to the victim", recording.len(), to_victim.len()));
    tried.add(stage.relay().inject_all(to_victim.iter().copied()));
    // The new victim does not know of the old one's session, and must not learn of it.
    let fresh = stage.victim_peers();
    tried.expect(fresh == 0, || format!("{fresh} peers came of a recording"));
    stage.reconnect();
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        tried.add(stage.relay().inject_all(&recording));
    }
    Ok(())
}

/// Packets of keys that have been given up since.
pub fn replay_after_rekey(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    stage.relay().record();
    std::thread::sleep(Duration::from_millis(300));
    let recording = stage.relay().recorded();
    // Hundreds of packets a second, and a new key every 64.
    std::thread::sleep(Duration::from_millis(500));
    let phases = |recording: &[Passed]| {
        let phase = |passed: &Passed| passed.bytes.get(2).copied().unwrap_or(0) & 2;
        recording
            .windows(2)
            .filter(|pair| pair[0].way == pair[1].way && phase(&pair[0]) != phase(&pair[1]))
            .count()
    };
    let changes = phases(&recording);
    tried.note(format!(
        "{} packets recorded, the keys changed about {changes} times meanwhile",
        recording.len()
    ));
    tried.expect(changes > 0, || "the keys did not change: nothing was shown".into());
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        tried.add(stage.relay().inject_all(&recording));
    }
    Ok(())
}

/// Every packet back to the one who sent it, before it passes.
pub fn reflection(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut openings = record_opening(stage, tried)?;
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    stage.relay().set_hook(Some(Box::new(move |passed| {
        counter.fetch_add(1, Ordering::Relaxed);
        vec![Passed { way: passed.way.back(), bytes: passed.bytes.clone() }, passed]
    })));
    for opening in &mut openings {
        opening.way = opening.way.back();
    }
    tried.add(stage.relay().inject_all(&openings));
    wait(stage);
    stage.relay().set_hook(None);
    tried.attempts += count.load(Ordering::Relaxed);
    Ok(())
}

/// Copies cut short at every length, before the original.
pub fn truncation(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    sweep(stage, tried, Sweep::truncated)
}

/// Copies with one bit turned, at every offset, before the original.
pub fn bit_flips(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    sweep(stage, tried, Sweep::flipped)
}

/// A way to harm a packet: a sweep, a packet, how many copies.
type Harm = fn(&mut Sweep, &[u8], usize) -> Vec<Vec<u8>>;

fn sweep(stage: &mut Stage, tried: &mut Tried, harm: Harm) -> Result<()> {
    let openings = record_opening(stage, tried)?;
    let sweep = Arc::new(Mutex::new(Sweep::default()));
    let shared = Arc::clone(&sweep);
    stage.relay().set_hook(Some(Box::new(move |passed| {
        let way = passed.way;
        let copies = harm(&mut shared.lock().expect("nothing panics with it"), &passed.bytes, COPIES);
        let mut all: Vec<Passed> = copies.into_iter().map(|bytes| Passed { way, bytes }).collect();
        all.push(passed);
        all
    })));
    let other = stage.socket()?;
    for opening in openings.iter().take(OPENINGS) {
        tried.add(sweep_opening(stage, &other, opening, harm)?);
    }
    wait(stage);
    stage.relay().set_hook(None);
    let sweep = sweep.lock().expect("nothing panics with it");
    tried.attempts += sweep.made;
    tried.note(sweep.progress());
    let peers = stage.victim_peers();
    tried.expect(peers <= 2, || format!("the victim has {peers} peers"));
    Ok(())
}

/// All harmed copies of one FIRST or ANSWER: to the victim from an address it does not know, to the
/// sender from the right one.
fn sweep_opening(stage: &Stage, other: &UdpSocket, opening: &Passed, harm: Harm) -> Result<usize> {
    let places = opening.bytes.len() * 8;
    let copies = harm(&mut Sweep::default(), &opening.bytes, places);
    for (at, bytes) in copies.iter().enumerate() {
        match opening.way {
            Way::ToVictim => drop(other.send_to(bytes, stage.victim_addr())?),
            Way::ToSender => stage.relay().inject(&Passed { way: Way::ToSender, bytes: bytes.clone() }),
        }
        if at % BURST == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(copies.len())
}

/// Puts the trailer of plain packets behind one.
fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let sum = checksum::crc32c(&packet);
    packet.extend_from_slice(&sum.to_le_bytes());
    packet
}

fn plain(kind: Kind, number: u64, token: Token, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut packet = packet::common_header(kind, 0, PacketNumber(number), token).to_vec();
    frames.iter().for_each(|frame| frame.encode(&mut |bytes| packet.extend_from_slice(bytes)));
    with_checksum(packet)
}

/// What ends sessions, with the right token and packet numbers ahead of the last, after every packet.
pub fn forged_close(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    stage.relay().set_hook(Some(Box::new(move |passed| {
        let way = passed.way;
        let Ok(packet) = Packet::decode(&passed.bytes) else { return vec![passed] };
        let (token, number) = (packet.header.token, u64::from(packet.header.number) + 1);
        let end = || Frame::End(End { code: 0, reason: "" });
        let mut forged = vec![
            plain(Kind::Reset, 0, token, &[]),
            plain(Kind::Session, number, token, &[Frame::CloseRead, Frame::CloseWrite]),
        ];
        // As long as sealed ones, with a tag that is none.
        let stop = Frame::Rate(Rate { serial: u32::MAX / 2, rate: 0, burst: 0 });
        for frame in [end(), stop] {
            let mut sealed = plain(Kind::Session, number, token, &[frame]);
            forged.push(sealed.clone());
            sealed.extend_from_slice(&[0x5a; 16]);
            forged.push(sealed);
        }
        counter.fetch_add(forged.len() as u64, Ordering::Relaxed);
        let forged = forged.into_iter().map(|bytes| Passed { way, bytes });
        std::iter::once(passed).chain(forged).collect()
    })));
    wait(stage);
    stage.relay().set_hook(None);
    tried.attempts = count.load(Ordering::Relaxed);
    Ok(())
}

/// A FIRST or ANSWER without a handshake, as a Node without a key sends it.
fn plain_opening(kind: Kind, token: Token, opening: Opening, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut packet = packet::common_header(kind, 0, PacketNumber(0), token).to_vec();
    packet.extend_from_slice(&packet::opening_header(opening, 0));
    frames.iter().for_each(|frame| frame.encode(&mut |bytes| packet.extend_from_slice(bytes)));
    with_checksum(packet)
}

/// Plain openings in place of sealed ones: FIRSTs without their handshake to the victim, plain
/// ANSWERs to the sender before the victim's own come, and plain data with the tokens seen.
pub fn downgrade(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    stage.restart_both(tried);
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    stage.relay().set_hook(Some(Box::new(move |passed| {
        let Ok(packet) = Packet::decode(&passed.bytes) else { return vec![passed] };
        let message = || {
            Frame::Message(denrei_wire::frame::Message {
                flags: 0,
                channel: 0,
                number: 0,
                payload: b"forged",
            })
        };
        let mut forged = Vec::new();
        if let Some(opening) = packet.header.opening {
            let answer = Opening { own_token: Token(77), incarnation: Incarnation(78) };
            forged.push((
                passed.way,
                plain_opening(packet.header.kind, packet.header.token, opening, &[message()]),
            ));
            // Cut off at the handshake, and with its length set to none.
            let mut stripped = passed.bytes[..OPENING_HEADER_BYTES].to_vec();
            stripped[32..34].fill(0);
            stripped.extend_from_slice(&packet.body[..packet.body.len() - packet::TAG_BYTES]);
            forged.push((passed.way, with_checksum(stripped)));
            forged.push((
                passed.way.back(),
                plain_opening(Kind::Answer, opening.own_token, answer, &[message()]),
            ));
        }
        let number = u64::from(packet.header.number) + 1;
        forged.push((passed.way, plain(Kind::Session, number, packet.header.token, &[message()])));
        counter.fetch_add(forged.len() as u64, Ordering::Relaxed);
        let forged = forged.into_iter().map(|(way, bytes)| Passed { way, bytes });
        forged.chain(std::iter::once(passed)).collect()
    })));
    stage.reconnect();
    wait(stage);
    stage.relay().set_hook(None);
    tried.attempts = count.load(Ordering::Relaxed);
    Ok(())
}

/// FIRSTs of all other versions to the victim; VERSIONS and RETRY that nobody sent to the sender,
/// when its session is open and, as far as it can be told without the keys, while it opens.
pub fn version_confusion(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let openings = record_opening(stage, tried)?;
    let other = stage.socket()?;
    for opening in openings.iter().filter(|passed| passed.way == Way::ToVictim) {
        for version in 0..=u8::MAX {
            let mut bytes = opening.bytes.clone();
            bytes[1] = version;
            other.send_to(&bytes, stage.victim_addr())?;
            stage.relay().inject(&Passed { way: Way::ToVictim, bytes });
            tried.add(2);
            std::thread::sleep(PAUSE);
        }
    }
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    stage.relay().set_hook(Some(Box::new(move |passed| {
        let way = passed.way;
        let Ok(packet) = Packet::decode(&passed.bytes) else { return vec![passed] };
        let token = packet.header.token;
        let mut versions = packet::common_header(Kind::Versions, 0, PacketNumber(0), token).to_vec();
        versions.extend_from_slice(&[2, 3]);
        let mut retry = packet::common_header(Kind::Retry, 0, PacketNumber(0), token).to_vec();
        retry.extend_from_slice(&[0x33; packet::COOKIE_BYTES + packet::TAG_BYTES]);
        let mut other_version = passed.bytes.clone();
        other_version[1] = 2;
        let forged = [with_checksum(versions), retry, other_version];
        counter.fetch_add(forged.len() as u64, Ordering::Relaxed);
        let forged = forged.into_iter().map(|bytes| Passed { way, bytes });
        std::iter::once(passed).chain(forged).collect()
    })));
    wait(stage);
    stage.relay().set_hook(None);
    tried.attempts += count.load(Ordering::Relaxed);
    Ok(())
}

//! The outsider off the path: knows addresses and ports, sees nothing, may forge its own address.

use crate::outcome::Tried;
use crate::stage::Stage;
use anyhow::Result;
use denrei_e2e::Random;
use denrei_wire::{PacketNumber, Token, checksum, packet};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// First octets of packets of all kinds, a group's and two that are none included.
const KINDS: [u8; 10] = [0xd1, 0xd2, 0xd3, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0x00];
/// Handshakes made with another key, for a flood.
const STRANGE_FIRSTS: usize = 16;
/// Addresses of the attacker that can hear answers.
const LISTENING: u8 = 100;
/// What a Node may send to an address that has not proven itself, for each octet from there.
const MOST_AMPLIFICATION: u64 = 3;
/// How long answers may take to come: repetitions of an ANSWER included.
const ECHO_TIME: Duration = Duration::from_secs(3);

/// A packet that an outsider can make up: a kind, a plausible header, random content, and a right
/// checksum every other time.
fn made_up(random: &mut Random) -> Vec<u8> {
    let kind = KINDS[random.below(KINDS.len() as u64) as usize];
    let len = [20, 21, 36, 64, 100, 1200][random.below(6) as usize];
    let mut bytes = random.bytes(len);
    let header = packet::common_header(
        packet::Kind::Session,
        0,
        PacketNumber(random.below(5000)),
        Token(random.next_u64()),
    );
    bytes[..header.len()].copy_from_slice(&header);
    bytes[0] = kind;
    if matches!(kind, 0xd4..=0xd6) {
        bytes[4..8].fill(0);
    }
    if kind == 0xd4 {
        bytes.truncate(20);
    }
    if random.below(2) == 0 {
        let end = bytes.len() - checksum::CHECKSUM_BYTES;
        let sum = checksum::crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Packets of all kinds with guessed tokens, to both sides, under the other's address.
pub fn blind_injection(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut forger = stage.forger()?;
    let (victim, sender) = (stage.victim_addr(), stage.sender_addr());
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        let packet = made_up(&mut stage.random);
        forger.send(sender, victim, &packet)?;
        forger.send(victim, sender, &packet)?;
        tried.add(2);
    }
    let peers = stage.victim_peers();
    tried.expect(peers == 1, || format!("the victim has {peers} peers"));
    Ok(())
}

/// FIRSTs without end from forged addresses, while the honest session goes on and a new one opens.
pub fn handshake_flood(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut forger = stage.forger()?;
    let victim = stage.victim_addr();
    let key = stage.settings.key;
    let mut strange = Vec::new();
    for _ in 0..STRANGE_FIRSTS {
        let other: Option<[u8; 32]> = stage.random.bytes(32).try_into().ok();
        strange.extend(stage.member(other)?.opening(victim.into())?);
    }
    // Seen on another link, say: right in everything but the address it comes from.
    let recorded = stage.member(key)?.opening(victim.into())?;
    let until = Instant::now() + stage.effort.time();
    let mut opened = (0, 0);
    let mut next_honest = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let from = forged_address(&mut stage.random);
        let choice = stage.random.below(3);
        let source = if choice == 2 { &recorded } else { &strange };
        let at = stage.random.below(source.len() as u64) as usize;
        let mut first = source[at].clone();
        if choice == 0 {
            // Nothing of it is right beyond the fields that anybody can read.
            let noise = stage.random.bytes(first.len() - packet::OPENING_HEADER_BYTES);
            first[packet::OPENING_HEADER_BYTES..].copy_from_slice(&noise);
        }
        forger.send(from, victim, &first)?;
        tried.add(1);
        if Instant::now() > next_honest {
            opened.1 += 1;
            opened.0 += u32::from(stage.member(key)?.connect(victim.into())?);
            next_honest = Instant::now() + Duration::from_millis(300);
        }
    }
    tried.note(format!("{} of {} honest sessions opened during the flood", opened.0, opened.1));
    tried.expect(opened.0 == opened.1, || "an honest session could not be opened".into());
    let peers = stage.victim_peers();
    tried.note(format!("{peers} entries in the address table at its end"));
    tried.expect(peers <= 1100, || format!("the victim keeps {peers} peers"));
    Ok(())
}

/// An address of the lab's network that no host has.
fn forged_address(random: &mut Random) -> SocketAddrV4 {
    let [host, net] = [random.below(250) as u8 + 1, random.below(100) as u8 + 100];
    SocketAddrV4::new(Ipv4Addr::new(10, 77, net, host), 1024 + random.below(60_000) as u16)
}

/// FIRSTs from many addresses whose owner only counts what comes back.
pub fn amplification(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let victim = stage.victim_addr();
    let sockets = (0..LISTENING).map(|_| stage.socket()).collect::<Result<Vec<_>>>()?;
    let key = stage.settings.key;
    let right = stage.member(key)?.opening(victim.into())?;
    let other: Option<[u8; 32]> = stage.random.bytes(32).try_into().ok();
    let wrong = stage.member(other)?.opening(victim.into())?;
    let mut sent = Vec::new();
    for (at, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true)?;
        let mut bytes = 0;
        for first in if at % 4 == 0 { &wrong } else { &right } {
            bytes += socket.send_to(first, victim)? as u64;
            tried.add(1);
        }
        sent.push(bytes);
    }
    std::thread::sleep(ECHO_TIME);
    let received: Vec<u64> = sockets.iter().map(drain).collect();
    let worst = sent.iter().zip(&received).map(|(sent, received)| *received as f64 / *sent as f64);
    let worst = worst.fold(0.0, f64::max);
    let (all_sent, all_received) = (sent.iter().sum::<u64>(), received.iter().sum::<u64>());
    tried.note(format!("{all_sent} bytes sent, {all_received} came back; at worst {worst:.2} for one"));
    tried.expect(worst <= MOST_AMPLIFICATION as f64, || format!("{worst:.2} octets came back for one"));
    let to_wrong: u64 = received.iter().step_by(4).sum();
    tried.expect(to_wrong == 0, || format!("{to_wrong} octets in answer to another key"));
    Ok(())
}

/// Bytes waiting in a socket.
fn drain(socket: &UdpSocket) -> u64 {
    let mut buffer = [0; 1 << 16];
    let mut bytes = 0;
    while let Ok(len) = socket.recv(&mut buffer) {
        bytes += len as u64;
    }
    bytes
}

/// Port unreachable, again and again, for both ends of the honest session.
pub fn forged_icmp(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut forger = stage.forger()?;
    let (victim, sender) = (stage.victim_addr(), stage.sender_addr());
    let router = stage.attacker_ip();
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        forger.unreachable(router, victim, sender)?;
        forger.unreachable(router, sender, victim)?;
        tried.add(2);
    }
    Ok(())
}

/// Nodes with another key, and without one, that connect and send.
pub fn wrong_key(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let victim = stage.victim_addr();
    for round in 0..stage.effort.times(2, 6) {
        let other: Option<[u8; 32]> = stage.random.bytes(32).try_into().ok();
        let key = if round % 2 == 0 { other } else { None };
        let mut stranger = stage.member(key)?;
        let opened = stranger.connect(victim.into())?;
        tried.expect(!opened, || {
            format!("a session opened with {}", if key.is_some() { "another key" } else { "no key" })
        });
        stranger.send(0, vec![0x41; 100])?;
        stranger.drive(Duration::from_millis(200))?;
        tried.add(1);
    }
    let peers = stage.victim_peers();
    tried.expect(peers == 1, || format!("the victim has {peers} peers"));
    Ok(())
}

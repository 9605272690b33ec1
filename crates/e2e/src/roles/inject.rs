//! The role `inject`: what an attacker, or a broken switch, may send.
//!
//! Inputs → outputs: captured packets → copies with turned bits, cut short, or unchanged, that claim
//! to come from whom the original came from; and random datagrams that do not. Needs root.

use super::{report, report_failure};
use crate::{Order, Random, Report};
use anyhow::{Context, Result, ensure};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// Where an IPv4 header has its protocol.
pub const IP_PROTOCOL: usize = 9;
/// Where an IPv4 header has its destination.
const IP_DESTINATION: usize = 16;
/// Size of a UDP header.
const UDP_HEADER_BYTES: usize = 8;
/// Protocol number of sockets that send packets with their headers.
const IPPROTO_RAW: i32 = 255;
/// Most bits turned in one packet: CRC-32C finds all patterns of few bits, and 1 − 2⁻³² of others.
const MAX_FLIPS: u64 = 8;
/// Largest random datagram, bytes.
const MAX_RANDOM_BYTES: u64 = 1400;
/// Packets between two pauses: they are meant to be looked at, not to overflow a queue.
const BURST: u64 = 12;
/// That pause.
const PAUSE: Duration = Duration::from_millis(2);

/// Size of the IPv4 header that a packet begins with, bytes.
pub fn header_bytes(packet: &[u8]) -> usize {
    packet.first().map_or(0, |first| usize::from(first & 0xF) * 4)
}

/// Carries out orders until there will be no more.
pub fn run(orders: &Receiver<Order>) -> Result<()> {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Inject { packets, rounds, seed, to } => match inject(&packets, rounds, seed, to) {
                Ok(injected) => report(&injected)?,
                Err(error) => report_failure(format_args!("{error:#}"))?,
            },
            order => report_failure(format_args!("the role inject does not know {order:?}"))?,
        }
    }
    Ok(())
}

fn inject(packets: &[String], rounds: usize, seed: u64, to: SocketAddr) -> Result<Report> {
    let packets = packets.iter().map(|digits| parse(digits)).collect::<Result<Vec<_>>>()?;
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IPPROTO_RAW)))
        .context("cannot send packets with forged addresses")?;
    let own = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut random = Random::new(seed);
    let (mut flipped, mut truncated, mut repeated, mut noise) = (0, 0, 0, 0);
    for _ in 0..rounds {
        for original in &packets {
            let mut packet = original.clone();
            let payload = header_bytes(&packet) + UDP_HEADER_BYTES;
            match random.below(4) {
                0 => {
                    flip(&mut packet[payload..], &mut random);
                    flipped += 1;
                }
                1 => {
                    packet.truncate(payload + random.below((packet.len() - payload) as u64) as usize);
                    truncated += 1;
                }
                2 => repeated += 1,
                _ => {
                    let len = random.below(MAX_RANDOM_BYTES) as usize;
                    own.send_to(&random.bytes(len), to)?;
                    noise += 1;
                    continue;
                }
            }
            send(&raw, &mut packet)?;
            if (flipped + truncated + repeated) % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }
    Ok(Report::Injected { flipped, truncated, repeated, random: noise })
}

/// Turns 1 to [`MAX_FLIPS`] different bits.
fn flip(payload: &mut [u8], random: &mut Random) {
    let first = random.below(payload.len() as u64 * 8);
    for step in 0..=random.below(MAX_FLIPS) {
        let bit = ((first + step * step * 3) % (payload.len() as u64 * 8)) as usize;
        payload[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Sends a packet, its UDP length made right and its UDP checksum left out, which IPv4 permits.
fn send(raw: &Socket, packet: &mut [u8]) -> Result<()> {
    let header = header_bytes(packet);
    let udp_bytes = (packet.len() - header) as u16;
    packet[header + 4..header + 6].copy_from_slice(&udp_bytes.to_be_bytes());
    packet[header + 6..header + 8].fill(0);
    let destination: [u8; 4] = packet[IP_DESTINATION..IP_DESTINATION + 4].try_into()?;
    let to = SocketAddr::from((destination, 0));
    // The kernel fills in the IP header's length and checksum.
    raw.send_to(packet, &to.into()).context("cannot send a forged packet")?;
    Ok(())
}

fn parse(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let packet = pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect::<Result<Vec<u8>>>()?;
    ensure!(packet.len() > header_bytes(&packet) + UDP_HEADER_BYTES, "a packet without payload");
    Ok(packet)
}

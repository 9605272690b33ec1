//! The role `capture`: copies of the packets that reach this host.
//!
//! Inputs → outputs: a port and a number → IPv4 packets with UDP datagrams to that port. Needs root.

use super::inject::{IP_PROTOCOL, UDP, header_bytes};
use super::{report, report_failure};
use crate::{Order, Report};
use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// EtherType of IPv4.
const ETHERTYPE_IPV4: u16 = 0x0800;
/// Longest capture; it reports what it has then.
const LIMIT: Duration = Duration::from_secs(10);
/// Larger than any IP packet, bytes.
const PACKET_BYTES: usize = 1 << 16;

/// Carries out orders until there will be no more.
pub fn run(orders: &Receiver<Order>) -> Result<()> {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Capture { port, count } => match capture(port, count) {
                Ok(packets) => report(&Report::Captured(packets))?,
                Err(error) => report_failure(format_args!("{error:#}"))?,
            },
            order => report_failure(format_args!("the role capture does not know {order:?}"))?,
        }
    }
    Ok(())
}

fn capture(port: u16, count: usize) -> Result<Vec<String>> {
    let protocol = Protocol::from(i32::from(ETHERTYPE_IPV4.to_be()));
    // DGRAM: without the link's header.
    let mut socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).context("cannot capture")?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; PACKET_BYTES];
    let mut packets = Vec::new();
    let until = Instant::now() + LIMIT;
    while packets.len() < count && Instant::now() < until {
        // A timeout; anything else would show as too few packets.
        let Ok(len) = socket.read(&mut buffer) else { continue };
        let packet = &buffer[..len];
        if packet.get(IP_PROTOCOL) != Some(&UDP) {
            continue;
        }
        let header = header_bytes(packet);
        if packet.get(header + 2..header + 4) == Some(&port.to_be_bytes()[..]) {
            packets.push(packet.iter().map(|octet| format!("{octet:02x}")).collect());
        }
    }
    Ok(packets)
}

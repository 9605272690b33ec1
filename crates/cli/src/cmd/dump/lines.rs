//! Datagrams in words, and as objects.
//!
//! Inputs → outputs: a datagram → a line of text for people, or of JSON for programs.

use super::datagrams::Datagram;
use denrei_wire::packet::{Kind, Packet, PacketError};
use denrei_wire::{checksum, dump};
use serde::Serialize;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Lines that wait to be printed.
pub struct Lines {
    json: bool,
    /// When the first datagram was captured.
    began_ns: Option<u64>,
    text: String,
}

/// A datagram, for programs.
#[derive(Serialize)]
struct Object<'a> {
    at_ns: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: usize,
    captured: usize,
    /// What the header says; null if there is none.
    kind: Option<String>,
    number: Option<u32>,
    token: Option<String>,
    /// Whether the checksum of a plain packet holds: else it is sealed, damaged, or not all of it was captured.
    plain: bool,
    says: &'a str,
}

impl Lines {
    /// None yet.
    pub fn new(json: bool) -> Self {
        Self { json, began_ns: None, text: String::new() }
    }

    /// One more.
    pub fn add(&mut self, datagram: &Datagram<'_>) {
        let Datagram { at_ns, from, to, bytes, missing } = *datagram;
        let says = in_words(bytes, missing);
        if !self.json {
            let began = *self.began_ns.get_or_insert(at_ns);
            let seconds = (at_ns as i128 - began as i128) as f64 / 1e9;
            let size = bytes.len() + missing;
            let _ = writeln!(self.text, "{seconds:.6} {from} > {to} {size} B: {says}");
            return;
        }
        let header = Packet::decode(bytes).ok().map(|packet| packet.header);
        let object = Object {
            at_ns,
            from,
            to,
            bytes: bytes.len() + missing,
            captured: bytes.len(),
            kind: header.map(|header| header.kind.to_string()),
            number: header.map(|header| header.number),
            token: header.map(|header| format!("{:?}", header.token)),
            plain: checksum::verify(bytes),
            says: &says,
        };
        let line = serde_json::to_string(&object).unwrap_or_default();
        let _ = writeln!(self.text, "{line}");
    }

    /// The lines since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// What `bytes` say, of a datagram that had so many more.
fn in_words(bytes: &[u8], missing: usize) -> String {
    match Packet::decode(bytes) {
        Ok(packet) if missing > 0 => {
            let rest = packet.body.len() + missing;
            format!("{} | {rest} bytes, {missing} of them not captured", packet.header)
        }
        Err(PacketError::Truncated(_)) if missing > 0 => {
            let kind = bytes.first().and_then(|octet| Kind::from_octet(*octet));
            let kind = kind.map_or("not known".to_owned(), |kind| kind.to_string());
            format!("{kind} | {missing} bytes not captured, of the header as well")
        }
        _ => dump(bytes).to_string(),
    }
}

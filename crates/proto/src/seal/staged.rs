//! Opening packets outside of their session: on another core, while the session goes on.
//!
//! Inputs → outputs: a packet's key and number, asked from the endpoint, and the datagram → the
//! datagram with its frames decrypted in place, and word of whether it is genuine, for the endpoint to
//! process ([`Endpoint::handle_opened`](crate::Endpoint::handle_opened)). The way out has its counterpart in
//! [`TransmitBuf::seal`](denrei_wire::TransmitBuf::seal). Only packets of open sessions, under the
//! current key; all others are few, and the endpoint opens them itself.

use super::aead::PacketKey;
use std::sync::Arc;

/// What it takes to open one packet.
#[derive(Debug)]
pub struct OpenJob {
    key: Arc<PacketKey>,
    number: u64,
    header_len: usize,
}

/// What opening a packet came to.
#[derive(Debug)]
pub struct Opened {
    key: Arc<PacketKey>,
    number: u64,
    /// Octets of the frames; `None`: not genuine.
    frames: Option<usize>,
}

impl OpenJob {
    pub(crate) fn new(key: &Arc<PacketKey>, number: u64, header_len: usize) -> Self {
        Self { key: Arc::clone(key), number, header_len }
    }

    /// Decrypts the datagram that the job was made for, in place.
    pub fn run(self, datagram: &mut [u8]) -> Opened {
        let Self { key, number, header_len } = self;
        let (header, sealed) = datagram.split_at_mut(header_len.min(datagram.len()));
        let frames = key.open(number, header, sealed).map(<[u8]>::len);
        Opened { key, number, frames }
    }
}

impl Opened {
    pub(crate) fn key(&self) -> &Arc<PacketKey> {
        &self.key
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_genuine(&self) -> bool {
        self.frames.is_some()
    }

    /// The frames in the opened datagram.
    pub(crate) fn frames<'a>(&self, header_len: usize, datagram: &'a [u8]) -> Option<&'a [u8]> {
        datagram.get(header_len..header_len + self.frames?)
    }
}

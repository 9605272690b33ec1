//! Messages larger than a packet over bare UDP.
//!
//! Inputs → outputs: a message → segments of eight octets of header (message, place in it), many to a system
//! call (UDP_SEGMENT), put together at the receiver (UDP_GRO). A message that misses a segment is lost.
//! Deviation from a real protocol: repeated segments are not recognised.

use super::{is_not_yet, poll_for};
use anyhow::{Context, Result};
use denrei_io::PageMemory;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Most payload of one segment, bytes: what fits Ethernet's 1500 under IPv4 and UDP headers, header
/// included. Also on loopback, whose packets could be larger: with segmentation offload the
/// kernel carries 44 of them as one anyway.
const SEGMENT_BYTES: usize = 1472;

/// Message number and place in the message before each segment, octets.
const SEGMENT_HEADER: usize = 8;

/// Most segments in one call: 44 × 1472 is below the largest IP packet, and below Linux's 64.
const SEGMENTS_PER_CALL: usize = 44;

/// Takes a message as sent or lost: a full queue and a peer that has gone are losses to bare UDP.
pub fn sent_or_lost(outcome: std::io::Result<usize>) -> Result<Option<()>> {
    use std::io::ErrorKind::ConnectionRefused;
    match outcome {
        Ok(_) => Ok(Some(())),
        Err(error) if is_not_yet(&error) => Ok(None),
        Err(error) if error.kind() == ConnectionRefused || is_out_of_buffers(&error) => Ok(Some(())),
        Err(error) => Err(error).context("cannot send"),
    }
}

fn is_out_of_buffers(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}

/// Sends and takes trains of segments.
pub struct Trains {
    /// Message in one segment, bytes.
    body: usize,
    headers: Vec<[u8; SEGMENT_HEADER]>,
    train: PageMemory,
    control: Vec<u8>,
}

/// What one call has taken.
pub struct Train<'a> {
    /// Who has sent it.
    pub from: Option<SockaddrStorage>,
    octets: &'a [u8],
    segment: usize,
}

impl<'a> Train<'a> {
    /// Its segments, headers included.
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> {
        self.octets.chunks(self.segment)
    }
}

impl Trains {
    /// With memory of its own; segments fit a packet that carries `packet` bytes.
    pub fn new(packet: usize) -> Self {
        Self {
            body: packet.min(SEGMENT_BYTES) - SEGMENT_HEADER,
            headers: vec![[0; SEGMENT_HEADER]; SEGMENTS_PER_CALL],
            train: PageMemory::new(1 << 16),
            control: nix::cmsg_space!(i32),
        }
    }

    /// Sends a message to `to`, or to whom the socket is connected with.
    pub fn send(
        &mut self,
        socket: &UdpSocket,
        to: Option<&SockaddrStorage>,
        number: u64,
        message: &[u8],
    ) -> Result<()> {
        let per_call = SEGMENTS_PER_CALL * self.body;
        for (call, payload) in message.chunks(per_call).enumerate() {
            self.send_train(socket, to, number, call * per_call, payload)?;
        }
        Ok(())
    }

    fn send_train(
        &mut self,
        socket: &UdpSocket,
        to: Option<&SockaddrStorage>,
        number: u64,
        start: usize,
        payload: &[u8],
    ) -> Result<()> {
        let bodies = payload.chunks(self.body);
        for (index, header) in self.headers.iter_mut().take(bodies.len()).enumerate() {
            header[..4].copy_from_slice(&(number as u32).to_be_bytes());
            header[4..].copy_from_slice(&((start + index * self.body) as u32).to_be_bytes());
        }
        let parts: Vec<IoSlice<'_>> = self
            .headers
            .iter()
            .zip(bodies)
            .flat_map(|(header, body)| [IoSlice::new(header), IoSlice::new(body)])
            .collect();
        let size = (SEGMENT_HEADER + self.body) as u16;
        let control = [ControlMessage::UdpGsoSegments(&size)];
        let attempt = || {
            let sent = sendmsg(socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), to);
            sent_or_lost(sent.map_err(Into::into))
        };
        poll_for(attempt)?.context("the socket takes no datagrams")
    }

    /// Takes what is there, if anything is.
    pub fn receive(&mut self, socket: &UdpSocket, flags: MsgFlags) -> Result<Option<Train<'_>>> {
        let mut parts = [IoSliceMut::new(&mut self.train)];
        let control = Some(&mut self.control[..]);
        let (from, len, segment) =
            match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, control, flags) {
                Ok(message) => {
                    let gro = message.cmsgs()?.find_map(|control| match control {
                        ControlMessageOwned::UdpGroSegments(size) => Some(size.max(1) as usize),
                        _ => None,
                    });
                    (message.address, message.bytes, gro.unwrap_or(message.bytes.max(1)))
                }
                Err(Errno::ECONNREFUSED) => return Ok(None),
                Err(error) if is_not_yet(&error.into()) => return Ok(None),
                Err(error) => return Err(error).context("cannot receive"),
            };
        Ok(Some(Train { from, octets: &self.train[..len], segment }))
    }
}

/// Puts the segments of one message at a time together.
pub struct Assembly {
    message: Vec<u8>,
    number: Option<u32>,
    filled: usize,
}

impl Assembly {
    /// Of messages of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { message: vec![0; size], number: None, filled: 0 }
    }

    /// Takes a segment; gives the number of the message that it completes.
    pub fn take(&mut self, segment: &[u8]) -> Option<u64> {
        let (header, body) = segment.split_first_chunk::<SEGMENT_HEADER>()?;
        let [a, b, c, d, place @ ..] = *header;
        let number = u32::from_be_bytes([a, b, c, d]);
        let start = u32::from_be_bytes(place) as usize;
        if self.number != Some(number) {
            self.number = Some(number);
            self.filled = 0;
        }
        self.message.get_mut(start..start + body.len())?.copy_from_slice(body);
        self.filled += body.len();
        (self.filled == self.message.len()).then_some(number.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u32, place: u32, body: &[u8]) -> Vec<u8> {
        [&number.to_be_bytes()[..], &place.to_be_bytes(), body].concat()
    }

    #[test]
    fn a_message_is_complete_with_its_last_segment_in_any_order() {
        let mut assembly = Assembly::new(30);
        assert_eq!(assembly.take(&segment(7, 20, &[2; 10])), None);
        assert_eq!(assembly.take(&segment(7, 0, &[1; 20])), Some(7));
        assert_eq!((assembly.message[0], assembly.message[20]), (1, 2));
    }

    #[test]
    fn a_message_that_misses_a_segment_is_lost() {
        let mut assembly = Assembly::new(30);
        assert_eq!(assembly.take(&segment(0, 0, &[1; 20])), None);
        assert_eq!(assembly.take(&segment(1, 20, &[2; 10])), None);
        assert_eq!(assembly.take(&segment(1, 0, &[1; 20])), Some(1));
        assert_eq!(assembly.take(b"short"), None);
        assert_eq!(assembly.take(&segment(1, u32::MAX, &[0; 4])), None, "beyond the message");
    }
}

//! Messages on a byte stream: a length of four octets, big-endian, then the bytes.
//!
//! Inputs → outputs: a stream that is read into one large buffer → whole messages, in place where
//! they fit. A larger message is read straight into a buffer of its own, which is used again.

use denrei_io::PageMemory;
use std::io::{self, Read};
use std::ops::Range;

/// Octets of the length before each message.
const HEADER_BYTES: usize = 4;

/// Takes messages off a stream.
#[derive(Debug)]
pub struct FrameReader {
    buffer: PageMemory,
    /// What has been read and not taken.
    unread: Range<usize>,
    large: PageMemory,
    /// Bytes of the large message that are there; `None`: no large message is under way.
    large_filled: Option<usize>,
    large_len: usize,
}

/// What [`FrameReader::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message of this many bytes; see [`FrameReader::message`].
    Message(MessageAt),
    /// The stream has ended, between messages or within one.
    Closed,
}

/// Where a message lies in its reader.
#[derive(Debug, PartialEq, Eq)]
pub enum MessageAt {
    /// In the read buffer.
    Buffer(Range<usize>),
    /// In the buffer for large messages.
    Large(usize),
}

impl FrameReader {
    /// A reader with a buffer of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self {
            buffer: PageMemory::new(capacity.max(HEADER_BYTES + 1)),
            unread: 0..0,
            large: PageMemory::new(0),
            large_filled: None,
            large_len: 0,
        }
    }

    /// Has memory for messages of `size` bytes at hand, which has been used before, as [`touched`](super::touched) has.
    pub fn expecting(mut self, size: usize) -> Self {
        if HEADER_BYTES + size > self.buffer.len() {
            self.large = PageMemory::new(size);
            self.large.fill(1);
        }
        self
    }

    /// The bytes of a message, valid until the next call of [`next`](Self::next).
    pub fn message(&self, at: &MessageAt) -> &[u8] {
        match at {
            MessageAt::Buffer(range) => &self.buffer[range.clone()],
            MessageAt::Large(len) => &self.large[..*len],
        }
    }

    /// The next message, reading as often as it takes.
    ///
    /// # Errors
    /// What the stream reports; after `WouldBlock` or a timeout the call may be repeated.
    pub fn next(&mut self, stream: &mut impl Read) -> io::Result<Frame> {
        loop {
            if let Some(message) = self.take() {
                return Ok(Frame::Message(message));
            }
            if self.fill(stream)? == 0 {
                return Ok(Frame::Closed);
            }
        }
    }

    /// A message that has been read whole.
    fn take(&mut self) -> Option<MessageAt> {
        if let Some(filled) = self.large_filled {
            if filled < self.large_len {
                return None;
            }
            self.large_filled = None;
            return Some(MessageAt::Large(self.large_len));
        }
        let header = self.buffer[self.unread.clone()].first_chunk::<HEADER_BYTES>()?;
        let len = u32::from_be_bytes(*header) as usize;
        let start = self.unread.start + HEADER_BYTES;
        if self.unread.end - start >= len {
            self.unread.start = start + len;
            return Some(MessageAt::Buffer(start..start + len));
        }
        if HEADER_BYTES + len > self.buffer.len() {
            self.begin_large(start, len);
        }
        None
    }

    fn begin_large(&mut self, start: usize, len: usize) {
        if self.large.len() < len {
            self.large = PageMemory::new(len);
        }
        let there = self.unread.end - start;
        self.large[..there].copy_from_slice(&self.buffer[start..self.unread.end]);
        self.unread = 0..0;
        self.large_filled = Some(there);
        self.large_len = len;
    }

    fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        if let Some(filled) = &mut self.large_filled {
            let read = stream.read(&mut self.large[*filled..self.large_len])?;
            *filled += read;
            return Ok(read);
        }
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end == self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let read = stream.read(&mut self.buffer[self.unread.end..])?;
        self.unread.end += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that gives `step` bytes at a time.
    struct Drip<'a> {
        bytes: &'a [u8],
        step: usize,
    }

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.step.min(out.len()).min(self.bytes.len());
            out[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            Ok(count)
        }
    }

    #[test]
    fn messages_come_out_whole_however_the_stream_is_cut() {
        let messages: Vec<Vec<u8>> = [0usize, 1, 5, 27, 28, 29, 100, 3]
            .iter()
            .map(|len| (0..*len).map(|i| i as u8).collect())
            .collect();
        let mut bytes = Vec::new();
        for message in &messages {
            bytes.extend((message.len() as u32).to_be_bytes());
            bytes.extend(message);
        }
        for step in [1, 3, 7, 32, 1000] {
            let mut stream = Drip { bytes: &bytes, step };
            let mut reader = FrameReader::new(32);
            let mut found = Vec::new();
            while let Frame::Message(at) = reader.next(&mut stream).unwrap() {
                found.push(reader.message(&at).to_vec());
            }
            assert_eq!(found, messages, "{step} bytes at a time");
        }
    }
}

//! The system calls behind a send, for each backend.
//!
//! Inputs → outputs: a target and bytes → one call's result. No retries and no counting of calls:
//! that is the caller's.

/// Linux: both backends.
#[cfg(target_os = "linux")]
mod platform {
    use super::super::{Chunk, Target, UdpSocket, canonical, plain};
    use crate::cmsg::Control;
    use crate::mmsg::{self, Outgoing};
    use crate::outcome::may_be_missing_call;
    use crate::raw;
    use socket2::SockAddr;
    use std::io;
    use std::os::fd::AsFd;

    impl UdpSocket {
        /// Sends one datagram, or a train of datagrams of `segment` bytes each. What needs no
        /// control message goes by `send` and `sendto`, which are cheaper than `sendmsg`.
        pub(in crate::send) fn call_one(
            &mut self,
            target: &Target,
            bytes: &[u8],
            segment: Option<usize>,
        ) -> io::Result<usize> {
            let socket = &self.lanes[target.lane].socket;
            let mut control = match (target.ecn, target.from, segment) {
                (None, None, None) if target.name.is_none() => return raw::send(socket.as_fd(), bytes),
                (None, None, None) => return plain::send(socket, target.name, bytes),
                _ if !self.batched => return plain::send(socket, target.name, bytes),
                _ => self.control(target),
            };
            if let Some(segment) = segment {
                // A segment of a train is shorter than the train, which is below 64 KiB.
                control = control.segment(segment as u16);
            }
            let name = target.name.map(SockAddr::from);
            mmsg::send(socket.as_fd(), &Outgoing { name: name.as_ref(), bytes, control: &control })
        }

        /// Sends datagrams of `chunk` one by one, from the first on; returns how many it sent.
        pub(in crate::send) fn call_each(&mut self, target: &Target, chunk: Chunk<'_>) -> io::Result<usize> {
            let datagrams = chunk.bytes.chunks(chunk.segment);
            let first = &chunk.bytes[..chunk.segment.min(chunk.bytes.len())];
            if !self.send_batches {
                return self.call_one(target, first, None).map(|_| 1);
            }
            let control = self.control(target);
            let name = target.name.map(SockAddr::from);
            let messages = datagrams.map(|bytes| Outgoing { name: name.as_ref(), bytes, control: &control });
            let refused = match mmsg::send_many(self.lanes[target.lane].socket.as_fd(), messages) {
                Err(error) if may_be_missing_call(&error) => error,
                result => return result,
            };
            // Only if the datagram as such is fine is the call to blame.
            self.call_one(target, first, None)?;
            self.send_batches = false;
            self.warn_of_missing_call("sendmmsg", &refused);
            Ok(1)
        }

        /// What has to be told with each datagram to `target`.
        fn control(&self, target: &Target) -> Control {
            let control = Control::NONE;
            let control = match target.ecn {
                Some(ecn) => control.ecn(ecn, canonical(target.to).is_ipv4()),
                None => control,
            };
            match target.from {
                Some(from) => control.source(from, self.local.is_ipv6()),
                None => control,
            }
        }
    }
}

/// Where there is only the portable backend.
#[cfg(not(target_os = "linux"))]
mod platform {
    use super::super::{Chunk, Target, UdpSocket, plain};
    use std::io;

    impl UdpSocket {
        /// Sends one datagram.
        pub(in crate::send) fn call_one(
            &mut self,
            target: &Target,
            bytes: &[u8],
            _segment: Option<usize>,
        ) -> io::Result<usize> {
            plain::send(&self.lanes[target.lane].socket, target.name, bytes)
        }

        /// Sends the first datagram of `chunk`.
        pub(in crate::send) fn call_each(&mut self, target: &Target, chunk: Chunk<'_>) -> io::Result<usize> {
            let first = &chunk.bytes[..chunk.segment.min(chunk.bytes.len())];
            self.call_one(target, first, None).map(|_| 1)
        }
    }
}

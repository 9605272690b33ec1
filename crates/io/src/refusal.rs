//! Whose word it is that nobody is at a peer's port: the peer's host's, or that of a router or firewall on the way,
//! which says the same of hosts that live.
//!
//! Inputs → outputs: a connected socket on which the kernel told of a refusal → whether the peer's own address is what
//! it came from. Source: RFC 1122 §4.1.3.3; `spec/protocol.md` §10.
//!
//! The kernel names the sender of an ICMP message in the socket's queue of errors (`IP_RECVERR`), which is as long as
//! nobody reads it a reason to wake whoever waits for the socket: so it is read after each error.

#[cfg(target_os = "linux")]
pub(crate) use platform::{ask, peer_says};

/// Elsewhere it is not told: a refusal counts, whoever said it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ask(_: &std::net::UdpSocket) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn peer_says(_: &std::net::UdpSocket, _: Option<std::net::IpAddr>) -> bool {
    true
}

#[cfg(target_os = "linux")]
mod platform {
    use crate::cmsg;
    use crate::options::set;
    use crate::raw;
    use std::io;
    use std::mem::{size_of, zeroed};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::os::fd::AsFd;

    /// Errors that are read in a row: more than a socket of this kind is told of in a round trip.
    const MOST_IN_A_ROW: usize = 64;
    /// Words of control data: an error with the address behind it (60 bytes in IPv6, and a header), and as much as that
    /// for what sockets are told of every datagram.
    const WORDS: usize = 24;
    /// Octets of an error, behind which the address of its sender is.
    const ERROR_BYTES: usize = size_of::<libc::sock_extended_err>();

    /// Has the kernel say who refuses, from the next refusal on.
    pub(crate) fn ask(socket: &UdpSocket) -> io::Result<()> {
        if socket.local_addr()?.is_ipv6() {
            set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        }
        // A socket of IPv6 may be connected to a peer of IPv4.
        set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1)
    }

    /// Reads what errors there are; whether `peer`, if there is one, has said itself that nobody is at its port.
    pub(crate) fn peer_says(socket: &UdpSocket, peer: Option<IpAddr>) -> bool {
        let errors = std::iter::from_fn(|| next(socket)).take(MOST_IN_A_ROW);
        // All of them are to be read.
        errors.fold(false, |says, by| says | (by.is_some() && by == peer))
    }

    /// The next error, if there is one; whose refusal it is, if it is one.
    fn next(socket: &UdpSocket) -> Option<Option<IpAddr>> {
        let mut words = [0_u64; WORDS];
        // SAFETY: msghdr is plain data for which zero is valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_control = words.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; WORDS]>() as _;
        // SAFETY: the header points to nothing but `words`, with their length, which live through the call.
        unsafe { raw::recv_error(socket.as_fd(), &raw mut message) }.ok()?;
        let mut by = None;
        let take = |kind: (i32, i32), data: &[u8]| {
            if let (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) = kind {
                by = refuser(data);
            }
        };
        // SAFETY: the kernel has set `msg_controllen` to what it wrote into `words`, which are aligned for it.
        unsafe { cmsg::each(&message, take) };
        Some(by)
    }

    /// Who says that nobody is at a port, by an error's octets; anything else is nobody's.
    fn refuser(error: &[u8]) -> Option<IpAddr> {
        let number = i32::from_ne_bytes(*error.first_chunk()?);
        let of_network = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(error.get(4)?);
        if number != libc::ECONNREFUSED || !of_network {
            return None;
        }
        let address = error.get(ERROR_BYTES..)?;
        match i32::from(u16::from_ne_bytes(*address.first_chunk()?)) {
            libc::AF_INET => Some(Ipv4Addr::from(*address.get(4..)?.first_chunk::<4>()?).into()),
            libc::AF_INET6 => Some(Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?).to_canonical()),
            _ => None,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::time::{Duration, Instant};

        /// A socket that has been told that nobody is at the port that it is connected to.
        fn refused(local: &str, peer: &str) -> UdpSocket {
            let socket = UdpSocket::bind((local, 0)).unwrap();
            let nobody = UdpSocket::bind((peer, 0)).unwrap().local_addr().unwrap();
            let target = match local {
                "::" if nobody.is_ipv4() => (format!("::ffff:{}", nobody.ip()), nobody.port()),
                _ => (nobody.ip().to_string(), nobody.port()),
            };
            socket.connect(target).unwrap();
            ask(&socket).unwrap();
            socket.send(b"?").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let error = socket.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            socket
        }

        #[test]
        fn a_refusal_is_of_whom_its_message_came_from() {
            let has_v6 = UdpSocket::bind("[::1]:0").is_ok();
            let v6 = [("::1", "::1"), ("::", "127.0.0.1")].into_iter().take(if has_v6 { 2 } else { 0 });
            for (local, peer) in [("127.0.0.1", "127.0.0.1")].into_iter().chain(v6) {
                let ip: IpAddr = peer.parse().unwrap();
                let other: IpAddr = "127.0.0.9".parse().unwrap();
                assert!(peer_says(&refused(local, peer), Some(ip)), "{peer} at {local}");
                assert!(!peer_says(&refused(local, peer), Some(other)), "{peer} at {local}");
            }
        }

        #[test]
        fn whoever_has_read_the_errors_is_not_woken_by_them() {
            let socket = refused("127.0.0.1", "127.0.0.1");
            assert!(next(&socket).is_some());
            assert!(!peer_says(&socket, Some(Ipv4Addr::LOCALHOST.into())), "there was one");
            let begin = Instant::now();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert!(begin.elapsed() >= Duration::from_millis(10));
        }

        #[test]
        fn what_is_cut_short_is_nobodys_word() {
            let mut error = [0; ERROR_BYTES + 16];
            error[..4].copy_from_slice(&libc::ECONNREFUSED.to_ne_bytes());
            error[4] = libc::SO_EE_ORIGIN_ICMP;
            error[ERROR_BYTES..][..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            error[ERROR_BYTES + 4..][..4].copy_from_slice(&[10, 0, 0, 1]);
            assert_eq!(refuser(&error), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
            assert!((0..ERROR_BYTES + 8).all(|len| refuser(&error[..len]).is_none()));
            error[4] = libc::SO_EE_ORIGIN_LOCAL;
            assert_eq!(refuser(&error), None);
        }
    }
}

//! Control messages: what travels beside a datagram's bytes in `sendmsg` and `recvmsg`.
//!
//! Inputs → outputs: segment size, ECN and source address → a control buffer to send with; a received
//! `msghdr` → train segment size, ECN and the address it was sent to. Layout by `cmsg(3)`; alignment is
//! that of `u64`, which is at least that of `cmsghdr`.

use denrei_wire::Ecn;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

/// Words of control data to receive: UDP_GRO (24 bytes), IP_TOS (24) and IPV6_TCLASS (24), and twice IPV6_PKTINFO (40)
/// or IP_PKTINFO (32).
pub(crate) const RECV_CONTROL_WORDS: usize = 19;
/// Words of control data to send: UDP_SEGMENT (24 bytes), one ECN message (24) and IPV6_PKTINFO (40) or IP_PKTINFO (32).
const SEND_CONTROL_WORDS: usize = 11;

/// Where in an `in_pktinfo` the local address is, behind the interface's index: for a datagram to a group or to all, too,
/// it is the one to answer from.
const SPEC_DST: Range<usize> = 4..8;
/// Octets of an address, with which an `in6_pktinfo` begins.
const V6_BYTES: usize = 16;

const _: () = assert!(align_of::<u64>() >= align_of::<libc::cmsghdr>());

/// Aligned memory for received control messages.
pub(crate) type RecvControl = [u64; RECV_CONTROL_WORDS];

/// Control messages to send with a datagram or train.
pub(crate) struct Control {
    words: [u64; SEND_CONTROL_WORDS],
    len: usize,
}

impl Control {
    /// Nothing to tell.
    pub(crate) const NONE: Self = Self { words: [0; SEND_CONTROL_WORDS], len: 0 };

    /// Adds: cut the bytes into datagrams of `bytes` each (`UDP_SEGMENT`).
    pub(crate) fn segment(self, bytes: u16) -> Self {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes())
    }

    /// Adds the ECN codepoint for a target that is IPv4 on the wire, or not.
    pub(crate) fn ecn(self, ecn: Ecn, ipv4: bool) -> Self {
        let value = i32::from(ecn as u8).to_ne_bytes();
        if ipv4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &value)
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value)
        }
    }

    /// Adds the source address, for a socket of IPv6 or one of IPv4, which sends from no other.
    pub(crate) fn source(self, from: IpAddr, ipv6_socket: bool) -> Self {
        // The interface is for the way to say: both structures' index stays 0.
        match from {
            IpAddr::V4(v4) if !ipv6_socket => {
                let mut info = [0; size_of::<libc::in_pktinfo>()];
                info[SPEC_DST].copy_from_slice(&v4.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
            }
            ip => {
                let v6 = match ip {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                let mut info = [0; size_of::<libc::in6_pktinfo>()];
                info[..V6_BYTES].copy_from_slice(&v6.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
            }
        }
    }

    /// The bytes for `msg_control`; empty when there is nothing to tell.
    pub(crate) fn parts(&self) -> (*const u64, usize) {
        (self.words.as_ptr(), self.len)
    }

    fn push(mut self, level: i32, kind: i32, data: &[u8]) -> Self {
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, len) =
            unsafe { (libc::CMSG_SPACE(data.len() as u32) as usize, libc::CMSG_LEN(data.len() as u32)) };
        assert!(self.len + space <= size_of::<[u64; SEND_CONTROL_WORDS]>(), "control buffer too small");
        // SAFETY: the assertion leaves `space` bytes from offset `len` on inside `words`. The offset
        // is a multiple of CMSG_SPACE's alignment and `words` is aligned for `cmsghdr`, so the
        // header may be written there; CMSG_DATA points behind it, inside `space`.
        unsafe {
            let header = self.words.as_mut_ptr().byte_add(self.len).cast::<libc::cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
        self.len += space;
        self
    }
}

/// What the control messages of a received datagram said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) ecn: Ecn,
    /// Bytes per datagram of a train; 0: not a train.
    pub(crate) segment_bytes: usize,
    /// The local address it was sent to, if the kernel was asked for that and it is one to answer from.
    pub(crate) at: Option<IpAddr>,
}

/// Reads the control messages that a receive call left in `message`.
///
/// # Safety
/// As for [`each`].
pub(crate) unsafe fn read(message: &libc::msghdr) -> Received {
    let mut received = Received { ecn: Ecn::NotEct, segment_bytes: 0, at: None };
    let take = |kind: (i32, i32), data: &[u8]| match (kind, data) {
        ((libc::SOL_UDP, libc::UDP_GRO), [a, b, c, d, ..]) => {
            let bytes = i32::from_ne_bytes([*a, *b, *c, *d]);
            received.segment_bytes = usize::try_from(bytes).unwrap_or(0);
        }
        ((libc::IPPROTO_IP, libc::IP_TOS), [tos, ..]) => received.ecn = Ecn::from_bits(*tos),
        ((libc::IPPROTO_IPV6, libc::IPV6_TCLASS), [a, b, c, d, ..]) => {
            received.ecn = Ecn::from_bits(i32::from_ne_bytes([*a, *b, *c, *d]) as u8);
        }
        ((libc::IPPROTO_IP, libc::IP_PKTINFO), info) => {
            let octets = info.get(SPEC_DST).and_then(|octets| octets.first_chunk::<4>());
            received.at = octets.and_then(|octets| answering(Ipv4Addr::from(*octets).into()));
        }
        ((libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info) => {
            let octets = info.first_chunk::<V6_BYTES>();
            received.at = octets.and_then(|octets| answering(Ipv6Addr::from(*octets).to_canonical()));
        }
        _ => {}
    };
    // SAFETY: by the contract.
    unsafe { each(message, take) };
    received
}

/// Hands over each control message that a receive call left in `message`: level and type, data.
///
/// # Safety
/// `message.msg_control` must point to `message.msg_controllen` readable bytes, aligned for
/// `cmsghdr` and written by the kernel, or `msg_controllen` must be 0.
#[inline]
pub(crate) unsafe fn each(message: &libc::msghdr, mut take: impl FnMut((i32, i32), &[u8])) {
    // SAFETY: by the contract the control buffer is well formed, so FIRSTHDR and NXTHDR yield
    // pointers to whole headers inside it, or null.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, hence a whole header inside the buffer (see above); CMSG_DATA points to
        // the data that `cmsg_len` counts.
        let (kind, data) = unsafe {
            let head = &*header;
            let len = (head.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), len);
            ((head.cmsg_level, head.cmsg_type), data)
        };
        take(kind, data);
        // SAFETY: `header` is a valid header of `message`'s control buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

/// `ip`, if what was sent to it may be answered from it.
fn answering(ip: IpAddr) -> Option<IpAddr> {
    (!ip.is_multicast() && !ip.is_unspecified()).then_some(ip)
}

/// Whether what came from `to` may be answered from `from`: the system takes an address of one link for what goes to
/// that link alone, by the interface that `to` names.
pub(crate) fn leaves_from(from: IpAddr, to: SocketAddr) -> bool {
    let of_link = |ip| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !of_link(from) || matches!(to, SocketAddr::V6(v6) if of_link(to.ip()) && v6.scope_id() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(control: &Control) -> Received {
        let (words, len) = control.parts();
        // SAFETY: msghdr is plain data for which zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = words.cast_mut().cast();
        message.msg_controllen = len as _;
        // SAFETY: the control buffer was built by `Control` and outlives the call.
        unsafe { read(&message) }
    }

    #[test]
    fn ecn_is_read_back_for_both_families() {
        for ipv4 in [true, false] {
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                assert_eq!(round_trip(&Control::NONE.ecn(ecn, ipv4)).ecn, ecn);
            }
        }
    }

    #[test]
    fn both_messages_fit_and_none_is_empty() {
        let both = Control::NONE.segment(1200).ecn(Ecn::Ce, false);
        assert_eq!(round_trip(&both).ecn, Ecn::Ce);
        assert_eq!(both.parts().1, 48);
        let all = both.source("fd00::1".parse().unwrap(), true);
        assert_eq!(all.parts().1, size_of::<[u64; SEND_CONTROL_WORDS]>());
        assert_eq!(Control::NONE.parts().1, 0);
        assert_eq!(round_trip(&Control::NONE), Received { ecn: Ecn::NotEct, segment_bytes: 0, at: None });
    }

    #[test]
    fn an_address_is_read_back_that_can_be_answered_from() {
        let read = |ip: &str, ipv6_socket| {
            round_trip(&Control::NONE.source(ip.parse().unwrap(), ipv6_socket)).at.map(|ip| ip.to_string())
        };
        for (ip, ipv6_socket) in
            [("10.1.2.3", false), ("10.1.2.3", true), ("fd00::1", true), ("fe80::1", true)]
        {
            assert_eq!(read(ip, ipv6_socket).as_deref(), Some(ip));
        }
        for (ip, ipv6_socket) in [("239.1.2.3", true), ("ff02::1", true), ("::", true), ("0.0.0.0", false)] {
            assert_eq!(read(ip, ipv6_socket), None);
        }
    }

    #[test]
    fn what_leaves_from_an_address_of_one_link_goes_to_one_of_that_link() {
        let leaves = |from: &str, to: &str| leaves_from(from.parse().unwrap(), to.parse().unwrap());
        assert!(leaves("fe80::1", "[fe80::7%2]:5") && leaves("fd00::1", "[fe80::7%2]:5"));
        assert!(leaves("fd00::1", "[fd00::7]:5") && leaves("10.0.0.1", "10.0.0.7:5"));
        assert!(!leaves("fe80::1", "[fd00::7]:5") && !leaves("fe80::1", "10.0.0.7:5"));
    }
}

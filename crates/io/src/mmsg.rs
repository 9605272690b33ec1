//! Batched system calls: `sendmsg`, `sendmmsg`, `recvmsg` and `recvmmsg` of Linux.
//!
//! Inputs → outputs: addresses, bytes and control messages → bytes or messages sent;
//! [`RecvBuffers`] → buffers filled and their slots described. All calls are nonblocking. Headers
//! live on the stack and are set up only for the messages asked for, so a call for one message
//! costs what `recvmsg` costs.

use crate::buffers::{MAX_RECV_BATCH, RecvBuffers, Slot};
use crate::cmsg::{self, Control, RecvControl, leaves_from};
use crate::raw;
use denrei_wire::datagram::MAX_SEGMENTS;
use denrei_wire::{Ecn, Landing};
use socket2::SockAddr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most messages of one `sendmmsg`: the most segments of a train, 4 KiB of headers.
pub(crate) const MAX_SEND_BATCH: usize = denrei_wire::datagram::MAX_SEGMENTS;

/// Stretches of a landing: a payload and what is behind it for each datagram of a train, and what is before.
const MAX_LANDED_STRETCHES: usize = 2 * MAX_SEGMENTS + 1;

/// One message to send.
pub(crate) struct Outgoing<'a> {
    /// Target; `None` on a connected socket.
    pub(crate) name: Option<&'a SockAddr>,
    /// One datagram, or a train of which `control` tells the segment size.
    pub(crate) bytes: &'a [u8],
    /// Control messages.
    pub(crate) control: &'a Control,
}

impl Outgoing<'_> {
    /// Where this message's bytes are.
    fn stretch(&self) -> libc::iovec {
        libc::iovec { iov_base: self.bytes.as_ptr().cast_mut().cast(), iov_len: self.bytes.len() }
    }

    /// The kernel's form of this message. It points to `stretch` and into `self`'s referents.
    fn header(&self, stretch: *mut libc::iovec) -> libc::msghdr {
        // SAFETY: msghdr is plain data for which zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        if let Some(name) = self.name {
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
        }
        header.msg_iov = stretch;
        header.msg_iovlen = 1;
        let (control, len) = self.control.parts();
        if len > 0 {
            header.msg_control = control.cast_mut().cast();
            header.msg_controllen = len as _;
        }
        header
    }
}

/// Sends one message; returns its bytes.
pub(crate) fn send(fd: BorrowedFd<'_>, message: &Outgoing<'_>) -> io::Result<usize> {
    let mut stretch = message.stretch();
    let header = message.header(&raw mut stretch);
    // SAFETY: the header points to `stretch` and `message`'s referents, which outlive the call;
    // sendmsg only reads them, so the casts to mutable pointers are harmless.
    unsafe { raw::sendmsg(fd, &raw const header) }
}

/// Sends up to [`MAX_SEND_BATCH`] messages; returns how many. An error is that of the first message.
pub(crate) fn send_many<'a>(
    fd: BorrowedFd<'_>,
    messages: impl Iterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_SEND_BATCH];
    let mut stretches = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_SEND_BATCH];
    let mut count = 0;
    for ((header, stretch), message) in headers.iter_mut().zip(&mut stretches).zip(messages) {
        // SAFETY: mmsghdr is plain data for which zero is valid.
        let mut entry: libc::mmsghdr = unsafe { std::mem::zeroed() };
        entry.msg_hdr = message.header(stretch.write(message.stretch()));
        header.write(entry);
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: the first `count` headers are initialised. They point to `stretches` and to referents
    // of lifetime 'a, which outlive the call; sendmmsg reads them and writes only `msg_len`.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives what is there, at most `want` datagrams or trains, into the first buffers and slots.
/// `source`: whose they all are, if that is known; the kernel is not asked then.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffers: &mut RecvBuffers,
    want: usize,
    source: Option<SocketAddr>,
) -> io::Result<usize> {
    let want = want.clamp(1, buffers.slots.len().min(MAX_RECV_BATCH));
    let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; MAX_RECV_BATCH];
    let mut controls = [const { MaybeUninit::<RecvControl>::uninit() }; MAX_RECV_BATCH];
    let mut stretches = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_RECV_BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_RECV_BATCH];
    for (index, buffer) in buffers.each().take(want).enumerate() {
        stretches[index].write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
        // SAFETY: mmsghdr is plain data for which zero is valid.
        let mut entry: libc::mmsghdr = unsafe { std::mem::zeroed() };
        ask_for_source(&mut entry.msg_hdr, &mut names[index], source);
        ask_for_control(&mut entry.msg_hdr, &mut controls[index]);
        entry.msg_hdr.msg_iov = stretches[index].as_mut_ptr();
        entry.msg_hdr.msg_iovlen = 1;
        headers[index].write(entry);
    }
    // SAFETY: the first `want` headers are initialised and point to names, controls, stretches and
    // buffers that live through the call; each length is that of its memory. The buffers are
    // disjoint and exclusively borrowed.
    let count = unsafe { receive_into(fd, headers.as_mut_ptr().cast(), want) }?;
    for index in 0..count {
        // SAFETY: headers below `want` were initialised above, and `count` ≤ `want`.
        let entry = unsafe { headers[index].assume_init_ref() };
        // SAFETY: the kernel has filled the header's control memory, and its name if that was asked for.
        buffers.slots[index] =
            unsafe { described(&entry.msg_hdr, entry.msg_len as usize, &names[index], source) };
    }
    Ok(count)
}

/// Receives one datagram of `from`, whose marks are `ecn`, into the first buffer: nothing but its
/// bytes is asked for.
pub(crate) fn receive_bytes(
    fd: BorrowedFd<'_>,
    buffers: &mut RecvBuffers,
    from: SocketAddr,
    ecn: Ecn,
) -> io::Result<usize> {
    let buffer = buffers.first();
    let room = buffer.len();
    let len = raw::recv(fd, buffer)?;
    buffers.slots[0] =
        Slot { from, at: None, ecn, len: len.min(room), segment_bytes: 0, truncated: len > room };
    Ok(1)
}

/// Receives one train, or datagram, into `landing` and, beside it, the buffers' stage; the first slot tells what
/// it is. `source` as for [`receive`].
pub(crate) fn receive_landing(
    fd: BorrowedFd<'_>,
    buffers: &mut RecvBuffers,
    landing: &mut Landing<'_>,
    source: Option<SocketAddr>,
) -> io::Result<usize> {
    let mut stretches = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_LANDED_STRETCHES];
    let mut count = 0;
    for (slot, stretch) in stretches.iter_mut().zip(landing.stretches(buffers.stage())) {
        slot.write(libc::iovec { iov_base: stretch.as_mut_ptr().cast(), iov_len: stretch.len() });
        count += 1;
    }
    // SAFETY: msghdr is plain data for which zero is valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let (mut name, mut control) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    ask_for_source(&mut header, &mut name, source);
    ask_for_control(&mut header, &mut control);
    header.msg_iov = stretches.as_mut_ptr().cast();
    header.msg_iovlen = count as _;
    // SAFETY: the header points to a name, control memory and `count` initialised stretches, which are disjoint
    // and exclusively borrowed by `landing` and `buffers`; all of it lives through the call.
    let len = unsafe { raw::recvmsg(fd, &raw mut header) }?;
    // SAFETY: the kernel has filled the header's control memory, and its name if that was asked for.
    buffers.slots[0] = unsafe { described(&header, len, &name, source) };
    Ok(1)
}

/// Has the kernel write a message's source into `name`, unless it is known.
fn ask_for_source(
    header: &mut libc::msghdr,
    name: &mut MaybeUninit<libc::sockaddr_in6>,
    source: Option<SocketAddr>,
) {
    if source.is_none() {
        // SAFETY: sockaddr_in6 is plain data for which zero is valid; family 0 means "no address".
        name.write(unsafe { std::mem::zeroed() });
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    }
}

/// Has the kernel write a message's marks, and the size of a train's datagrams, into `control`.
fn ask_for_control(header: &mut libc::msghdr, control: &mut MaybeUninit<RecvControl>) {
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<RecvControl>() as _;
}

/// What a filled header tells of a message of `len` bytes.
///
/// # Safety
/// The kernel has filled `header`, whose control memory is still there, and `name` is initialised if no `source` is
/// given.
unsafe fn described(
    header: &libc::msghdr,
    len: usize,
    name: &MaybeUninit<libc::sockaddr_in6>,
    source: Option<SocketAddr>,
) -> Slot {
    // SAFETY: the kernel has set `msg_controllen` to what it wrote into the aligned control memory that
    // `msg_control` points to.
    let control = unsafe { cmsg::read(header) };
    // SAFETY: by the contract.
    let from = source.unwrap_or_else(|| decode(unsafe { name.assume_init_ref() }));
    Slot {
        from,
        at: control.at.filter(|at| leaves_from(*at, from)),
        ecn: control.ecn,
        len,
        segment_bytes: control.segment_bytes,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
    }
}

/// Fills `want` prepared headers; `recvmsg` when one is wanted, which spares the kernel's batch loop.
///
/// # Safety
/// `headers` must point to `want` ≥ 1 initialised headers whose pointers and lengths are valid for
/// writing during the call.
unsafe fn receive_into(fd: BorrowedFd<'_>, headers: *mut libc::mmsghdr, want: usize) -> io::Result<usize> {
    if want == 1 {
        // SAFETY: the contract covers the first header.
        let len = unsafe { raw::recvmsg(fd, &raw mut (*headers).msg_hdr) }?;
        // SAFETY: as above. A message is below 4 GiB.
        unsafe { (*headers).msg_len = len as libc::c_uint };
        return Ok(1);
    }
    // SAFETY: the contract covers `want` headers; no timeout is passed.
    let count = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers,
            want as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// The source address in `name`; IPv4-mapped addresses become IPv4.
fn decode(name: &libc::sockaddr_in6) -> SocketAddr {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    match i32::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the kernel wrote a sockaddr_in, which is smaller than
            // sockaddr_in6 and of no larger alignment.
            let v4 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::from((ip, u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddr::from((v4, port)),
                None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id)),
            }
        }
        _ => unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(family: i32) -> libc::sockaddr_in6 {
        // SAFETY: plain data for which zero is valid.
        let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        name.sin6_family = family as _;
        name.sin6_port = 4242u16.to_be();
        name
    }

    #[test]
    fn mapped_sources_are_reported_as_ipv4() {
        let mut mapped = name(libc::AF_INET6);
        mapped.sin6_addr.s6_addr = Ipv4Addr::new(10, 1, 2, 3).to_ipv6_mapped().octets();
        assert_eq!(decode(&mapped), "10.1.2.3:4242".parse().unwrap());
    }

    #[test]
    fn flow_information_is_dropped_and_the_scope_kept() {
        let mut link_local = name(libc::AF_INET6);
        link_local.sin6_addr.s6_addr[..2].copy_from_slice(&[0xfe, 0x80]);
        link_local.sin6_flowinfo = 77;
        link_local.sin6_scope_id = 3;
        let expected = SocketAddrV6::new("fe80::".parse().unwrap(), 4242, 0, 3);
        assert_eq!(decode(&link_local), SocketAddr::V6(expected));
        assert_eq!(decode(&name(0)), "0.0.0.0:0".parse().unwrap());
    }
}

//! Addresses as C has them.
//!
//! Inputs → outputs: a `sockaddr_in` or `sockaddr_in6` of the caller's → an address, and back.

use crate::error::Errno;
use core::ffi::{c_int, c_void};
use smallvec::SmallVec;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the address that begins here; 0 for a family that we do not speak.
///
/// # Safety
/// At least a family is there.
pub(super) unsafe fn len_of_family(address: *const c_void) -> usize {
    // SAFETY: as the caller promises.
    match unsafe { address.cast::<libc::sa_family_t>().read_unaligned() } as c_int {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => 0,
    }
}

/// Reads an address of `len` bytes; `None` if there is none that we speak.
///
/// # Safety
/// `address` is null, or `len` bytes are there.
pub(super) unsafe fn read_address(address: *const c_void, len: usize) -> Option<SocketAddr> {
    // SAFETY: as the caller promises; what is read is as long as its family says, which is checked.
    unsafe {
        if address.is_null() || len < size_of::<libc::sockaddr_in>() || len_of_family(address) > len {
            return None;
        }
        match len_of_family(address) {
            0 => None,
            16 => {
                let raw = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some((Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)), u16::from_be(raw.sin_port)).into())
            }
            _ => {
                let raw = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some((Ipv6Addr::from(raw.sin6_addr.s6_addr), u16::from_be(raw.sin6_port)).into())
            }
        }
    }
}

/// An address as C has it.
pub(super) fn octets_of(address: SocketAddr) -> SmallVec<[u8; 28]> {
    let mut octets = SmallVec::new();
    match address {
        SocketAddr::V4(v4) => {
            octets.extend_from_slice(&(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
            octets.extend_from_slice(&v4.port().to_be_bytes());
            octets.extend_from_slice(&v4.ip().octets());
            octets.resize(size_of::<libc::sockaddr_in>(), 0);
        }
        SocketAddr::V6(v6) => {
            octets.extend_from_slice(&(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
            octets.extend_from_slice(&v6.port().to_be_bytes());
            octets.extend_from_slice(&v6.flowinfo().to_be_bytes());
            octets.extend_from_slice(&v6.ip().octets());
            octets.extend_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    octets
}

/// Writes an address to the caller, cut to `len`, and sets `len` to what it is.
///
/// # Safety
/// `len` is null or valid, and so many bytes of room are there.
pub(super) unsafe fn write_address(
    address: SocketAddr,
    out: *mut c_void,
    len: *mut usize,
    must_fit: bool,
) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    let len = unsafe { len.as_mut() }.ok_or(Errno::INVALID)?;
    let octets = octets_of(address);
    let room = if out.is_null() { 0 } else { *len };
    *len = octets.len();
    let count = octets.len().min(room);
    if count > 0 {
        // SAFETY: `count` is at most the room.
        unsafe { core::ptr::copy_nonoverlapping(octets.as_ptr(), out.cast(), count) };
    }
    if must_fit && room < octets.len() { Err(Errno::TOO_SMALL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.1.2.3:4567", "[fd00::7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let octets = octets_of(address);
            // SAFETY: as many bytes as are said.
            let read = unsafe { read_address(octets.as_ptr().cast(), octets.len()) };
            assert_eq!(read, Some(address));
            // SAFETY: as above.
            assert_eq!(unsafe { read_address(octets.as_ptr().cast(), octets.len() - 1) }, None);
        }
    }

    #[test]
    fn an_address_that_does_not_fit_says_how_long_it_is() {
        let (mut out, mut len) = ([0u8; 4], 4);
        let address = "10.1.2.3:4567".parse().unwrap();
        // SAFETY: four bytes of room, as is said.
        let result = unsafe { write_address(address, out.as_mut_ptr().cast(), &mut len, true) };
        assert_eq!((result, len), (Err(Errno::TOO_SMALL), 16));
    }
}

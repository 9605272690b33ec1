//! Services as libfabric's callers name them: by their port, or as the system calls them.

use core::ptr;
use std::ffi::CString;

/// The port of a service (fi_getinfo(3)): a number, or a name that the system knows.
pub(super) fn port_of(service: &str) -> Option<u16> {
    service.parse().ok().or_else(|| named(service))
}

fn named(service: &str) -> Option<u16> {
    // What begins otherwise is a number that is none of a port, which getaddrinfo may cut.
    if !service.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let service = CString::new(service).ok()?;
    // SAFETY: all fields may be zero.
    let mut hints: libc::addrinfo = unsafe { core::mem::zeroed() };
    (hints.ai_family, hints.ai_flags) = (libc::AF_INET, libc::AI_PASSIVE);
    let mut found = ptr::null_mut();
    // SAFETY: a C string, hints and a place for the result.
    if unsafe { libc::getaddrinfo(ptr::null(), service.as_ptr(), &hints, &mut found) } != 0 {
        return None;
    }
    // SAFETY: there is a result, with an IPv4 address as was asked for, which is freed once.
    unsafe {
        let port = u16::from_be((*(*found).ai_addr.cast::<libc::sockaddr_in>()).sin_port);
        libc::freeaddrinfo(found);
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_numbers_or_names() {
        assert_eq!((port_of("0"), port_of("65535"), port_of("65536")), (Some(0), Some(65535), None));
        assert_eq!((port_of("-1"), port_of(""), port_of("no such service")), (None, None, None));
        if std::path::Path::new("/etc/services").exists() {
            assert_eq!(port_of("http"), Some(80));
        }
    }
}

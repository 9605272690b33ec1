//! The interfaces of the network namespace that this process is in.
//!
//! Inputs → outputs: the kernel's answers → names and MTUs of those that are up. `/sys` would say those of the namespace that
//! it was mounted in, which is another one below `unshare -n` or `nsenter -n`.

use std::io;

/// Those that are up, each with its MTU. One descriptor at a time: there may be no more.
#[cfg(target_os = "linux")]
pub(super) fn up() -> io::Result<Vec<(String, u64)>> {
    let names = linux::names()?;
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    let mut found = Vec::new();
    for name in names {
        match linux::look(&socket, &name) {
            Ok(Some(mtu)) => found.push((name.to_string_lossy().into_owned(), mtu)),
            Ok(None) => {}
            // One that has gone meanwhile is down.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn up() -> io::Result<Vec<(String, u64)>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
mod linux {
    use super::io;
    use socket2::Socket;
    use std::ffi::{CStr, CString};
    use std::os::fd::AsRawFd;

    /// The names of all interfaces.
    pub fn names() -> io::Result<Vec<CString>> {
        // SAFETY: it takes nothing, and returns a list that is freed below, or null.
        let list = unsafe { libc::if_nameindex() };
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut names = Vec::new();
        let mut entry = list;
        // SAFETY: the list ends with an entry whose name is null, all others have one that ends with 0; nothing of it is used
        // after it was freed.
        unsafe {
            while !(*entry).if_name.is_null() {
                names.push(CStr::from_ptr((*entry).if_name).to_owned());
                entry = entry.add(1);
            }
            libc::if_freenameindex(list);
        }
        Ok(names)
    }

    /// The MTU of an interface that is up, `None` if it is down.
    pub fn look(socket: &Socket, name: &CStr) -> io::Result<Option<u64>> {
        let flags = ask(socket, name, libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel has filled in the flags, which any bits are valid for.
        let flags = i32::from(unsafe { flags.ifr_ifru.ifru_flags });
        if flags & libc::IFF_UP == 0 {
            return Ok(None);
        }
        let mtu = ask(socket, name, libc::SIOCGIFMTU)?;
        // SAFETY: as above, the MTU.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        Ok(Some(u64::try_from(mtu).unwrap_or(0)))
    }

    fn ask(socket: &Socket, name: &CStr, request: libc::Ioctl) -> io::Result<libc::ifreq> {
        // SAFETY: all of it is numbers, for which 0 is valid.
        let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last octet stays 0.
        let room = asked.ifr_name.len() - 1;
        for (place, octet) in asked.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
            *place = octet.cast_signed();
        }
        // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call; the descriptor is open.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut asked) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(asked) }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_up_and_has_an_mtu() {
        let found = up().unwrap();
        let loopback = found.iter().find(|(name, _)| name == "lo").expect("tests need it");
        assert!(loopback.1 >= 576, "{found:?}");
    }

    #[test]
    fn interfaces_are_those_of_the_namespace_that_the_caller_is_in() {
        let there = std::thread::spawn(|| {
            // SAFETY: it concerns this thread's network alone, which has no sockets yet.
            let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            moved.then(|| up().unwrap())
        });
        match there.join().unwrap() {
            // A new one has loopback alone, and that is down.
            Some(found) => assert_eq!(found, []),
            None => eprintln!(
                "SKIPPED interfaces_are_those_of_the_namespace_that_the_caller_is_in: needs root, to make a namespace"
            ),
        }
    }
}

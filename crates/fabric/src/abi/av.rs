//! The address vector object; socket addresses as libfabric passes them.

use super::address::{len_of_family, read_address, write_address};
use super::domain::Domain;
use super::eq::{Eq, Events};
use super::refuse::{self, PLAIN};
use super::{Children, call, check_flags, class, guard, hand_out, head, object};
use crate::engine::address::AddressVector;
use crate::error::Errno;
use crate::ffi::*;
use core::ffi::{CStr, c_char, c_int, c_void};
use parking_lot::Mutex;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

#[repr(C)]
pub(super) struct Av {
    head: fid_av,
    pub(super) addresses: Arc<AddressVector>,
    /// Insertions are reported here; the queue stays open for so long.
    events: Mutex<Option<(Arc<Events>, Children)>>,
    wants_events: bool,
    /// Of the addresses that are inserted, as the domain's `fi_info` says.
    addr_format: u32,
    pub(super) children: Children,
    _domain: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), bind: Some(bind), ..PLAIN };
static OPS: fi_ops_av = fi_ops_av {
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: Some(insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Some(refuse::av_set),
    ..fi_ops_av::NONE
};

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: libfabric's contract.
        let (domain, attr) = unsafe { (object::<Domain, _>(domain)?, attr.as_mut()) };
        let mut wants_events = false;
        if let Some(attr) = attr {
            // What is read by others, and what is the same at all, are hints.
            check_flags(attr.flags, FI_EVENT | FI_READ | FI_SYMMETRIC)?;
            wants_events = attr.flags & FI_EVENT != 0;
            let known = matches!(attr.type_, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE);
            if !known || attr.rx_ctx_bits != 0 {
                return Err(Errno::INVALID);
            }
            // Vectors that processes share by name.
            if !attr.name.is_null() {
                return Err(Errno::NO_SYSTEM);
            }
            if attr.type_ == FI_AV_UNSPEC {
                attr.type_ = FI_AV_TABLE;
            }
        }
        let av = Av {
            head: fid_av { fid: head(FI_CLASS_AV, context, &FID_OPS), ops: &OPS },
            addresses: Arc::default(),
            events: Mutex::default(),
            wants_events,
            addr_format: domain.addr_format,
            children: Children::default(),
            _domain: domain.children(),
        };
        // SAFETY: the caller's.
        unsafe { hand_out(av, out) }
    })
}

closed_last!(Av);

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    call(|| {
        check_flags(flags, 0)?;
        // SAFETY: objects of ours, by libfabric's contract.
        unsafe {
            let av = object::<Av, _>(fid)?;
            if class(other) != FI_CLASS_EQ {
                return Err(Errno::INVALID);
            }
            let eq = object::<Eq, _>(other)?;
            *av.events.lock() = Some((eq.events(), eq.children.clone()));
        }
        Ok(())
    })
}

impl Av {
    /// Inserts addresses, as far as there are any; how many. Numbers go to `numbers`.
    ///
    /// # Safety
    /// `numbers` is null or has room for all; so has `context`, if `FI_SYNC_ERR` says that it is an
    /// array of errors.
    unsafe fn insert_all(
        &self,
        all: impl Iterator<Item = Option<SocketAddr>>,
        numbers: *mut u64,
        flags: u64,
        context: *mut c_void,
    ) -> Result<usize, Errno> {
        check_flags(flags, FI_MORE | FI_SYNC_ERR)?;
        if flags & FI_SYNC_ERR != 0 && context.is_null() {
            return Err(Errno::INVALID);
        }
        let errors = if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { core::ptr::null_mut() };
        let events = self.events.lock();
        if self.wants_events && events.is_none() {
            return Err(Errno(FI_ENOEQ));
        }
        let events = events.as_ref().map(|(events, _)| events).filter(|_| self.wants_events);
        let fid = (&raw const self.head).cast_mut().cast();
        let entry = |data| super::eq::Entry { fid, context, data };
        let mut inserted = 0;
        for (index, address) in all.enumerate() {
            let number = address.and_then(|address| self.addresses.insert(address));
            inserted += usize::from(number.is_some());
            if let (None, Some(events)) = (number, events) {
                events.push_failure(entry(index as u64), Errno::INVALID);
            }
            // SAFETY: room for all, by the caller's promise.
            unsafe {
                if !numbers.is_null() {
                    *numbers.add(index) = number.unwrap_or(FI_ADDR_UNSPEC);
                }
                if !errors.is_null() {
                    *errors.add(index) = if number.is_some() { 0 } else { EINVAL };
                }
            }
        }
        let Some(events) = events else { return Ok(inserted) };
        events.push(FI_AV_COMPLETE, entry(inserted as u64));
        Ok(0)
    }
}

/// The result of an insertion as a number of libfabric's.
fn inserted(run: impl FnOnce() -> Result<usize, Errno>) -> c_int {
    guard(-FI_EOTHER, || match run() {
        Ok(count) => count as c_int,
        Err(errno) => -errno.0,
    })
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    address: *const c_void,
    count: usize,
    numbers: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    inserted(|| {
        if count > 0 && address.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: libfabric's contract: `count` addresses of one family, one after the other.
        unsafe {
            let av = object::<Av, _>(av)?;
            let each = match av.addr_format {
                FI_SOCKADDR_IN => size_of::<libc::sockaddr_in>(),
                FI_SOCKADDR_IN6 => size_of::<libc::sockaddr_in6>(),
                _ if count == 0 => 0,
                _ => len_of_family(address),
            };
            let all = (0..count).map(|index| read_address(address.byte_add(index * each), each));
            av.insert_all(all, numbers, flags, context)
        }
    })
}

/// # Safety
/// Both are null or C strings.
unsafe fn service_addresses(node: *const c_char, service: *const c_char) -> Result<(String, u16), Errno> {
    if node.is_null() || service.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    let (node, service) = unsafe { (CStr::from_ptr(node), CStr::from_ptr(service)) };
    let node = node.to_str().map_err(|_| Errno::INVALID)?.to_owned();
    let port = service.to_str().ok().and_then(super::service::port_of).ok_or(Errno::INVALID)?;
    Ok((node, port))
}

fn resolve(node: &str, port: u16) -> Option<SocketAddr> {
    let mut all: Vec<SocketAddr> = (node, port).to_socket_addrs().ok()?.collect();
    all.sort_by_key(SocketAddr::is_ipv6);
    all.first().copied()
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    number: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    inserted(|| {
        // SAFETY: libfabric's contract.
        unsafe {
            let (node, port) = service_addresses(node, service)?;
            object::<Av, _>(av)?.insert_all([resolve(&node, port)].into_iter(), number, flags, context)
        }
    })
}

/// Hosts and ports that count up: node0 … and port, port + 1 …
unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    numbers: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    inserted(|| {
        // SAFETY: libfabric's contract.
        unsafe {
            let (node, port) = service_addresses(node, service)?;
            let all = (0..nodes).flat_map(|host| {
                let name = counted(&node, host);
                (0..services)
                    .map(move |service| resolve(&name, port.checked_add(u16::try_from(service).ok()?)?))
            });
            object::<Av, _>(av)?.insert_all(all, numbers, flags, context)
        }
    })
}

/// A name or address whose number at the end is `more` higher.
fn counted(name: &str, more: usize) -> String {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, number) = name.split_at(digits);
    match number.parse::<usize>() {
        Ok(first) => format!(
            "{prefix}{:0width$}",
            first + more,
            width = if number.starts_with('0') { number.len() } else { 0 }
        ),
        Err(_) => name.to_owned(),
    }
}

unsafe extern "C" fn remove(av: *mut fid_av, numbers: *mut u64, count: usize, flags: u64) -> c_int {
    call(|| {
        check_flags(flags, 0)?;
        if count > 0 && numbers.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: libfabric's contract: `count` numbers.
        let (av, numbers) = unsafe {
            (object::<Av, _>(av)?, if count > 0 { core::slice::from_raw_parts(numbers, count) } else { &[] })
        };
        // All that can be are removed.
        let missing = numbers.iter().filter(|number| !av.addresses.remove(**number)).count();
        if missing == 0 { Ok(()) } else { Err(Errno::INVALID) }
    })
}

unsafe extern "C" fn lookup(av: *mut fid_av, number: u64, address: *mut c_void, len: *mut usize) -> c_int {
    call(|| {
        // SAFETY: libfabric's contract.
        unsafe {
            let found = object::<Av, _>(av)?.addresses.address(number).ok_or(Errno::INVALID)?;
            write_address(found, address, len, false)
        }
    })
}

unsafe extern "C" fn straddr(
    _: *mut fid_av,
    address: *const c_void,
    text: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    guard(core::ptr::null(), || {
        // SAFETY: libfabric's contract: an address of ours, and `len` bytes of room.
        unsafe {
            if address.is_null() || len.is_null() {
                return core::ptr::null();
            }
            let Some(address) = read_address(address, len_of_family(address)) else {
                return core::ptr::null();
            };
            let words = format!("fi_sockaddr{}://{address}", if address.is_ipv4() { "_in" } else { "_in6" });
            let room = *len;
            *len = words.len() + 1;
            if room > 0 && !text.is_null() {
                let count = words.len().min(room - 1);
                core::ptr::copy_nonoverlapping(words.as_ptr(), text.cast(), count);
                *text.add(count) = 0;
            }
            text
        }
    })
}

// ---- socket addresses ----

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_up() {
        assert_eq!(counted("node08", 3), "node11");
        assert_eq!(counted("10.0.0.9", 1), "10.0.0.10");
        assert_eq!(counted("localhost", 1), "localhost");
    }
}

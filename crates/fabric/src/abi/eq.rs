//! The event queue object: insertions of addresses, those that failed, and what the application writes itself.

use super::fabric::Fabric;
use super::refuse::PLAIN;
use super::waiting::{chosen, deadline};
use super::words::describe;
use super::{Children, call, check_flags, count, guard, hand_out, head, object};
use crate::engine::completion::Alarm;
use crate::error::Errno;
use crate::ffi::*;
use core::ffi::{c_char, c_int, c_void};
use libc::ssize_t;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Events kept; beyond them the application writes no more. Those of its insertions are kept all the same: it
/// has asked for each.
const MAX_EVENTS: usize = 65_536;

/// One event's content.
pub(super) struct Entry {
    pub(super) fid: *mut fid,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

impl Entry {
    fn numbers(&self) -> [u64; 3] {
        [self.fid as u64, self.context as u64, self.data]
    }
}

/// What waits to be read.
enum Event {
    /// Of a kind.
    Said(u32, Vec<u8>),
    /// What an entry has, as numbers.
    Failed([u64; 3], Errno),
}

/// What has happened.
#[derive(Default)]
pub(super) struct Events {
    queue: Mutex<VecDeque<Event>>,
    changed: Condvar,
    alarm: Alarm,
}

impl Events {
    pub(super) fn push(&self, kind: u32, entry: Entry) {
        let mut octets = Vec::with_capacity(size_of::<fi_eq_entry>());
        for number in entry.numbers() {
            octets.extend_from_slice(&number.to_ne_bytes());
        }
        self.add(Event::Said(kind, octets));
    }

    pub(super) fn push_failure(&self, entry: Entry, errno: Errno) {
        self.add(Event::Failed(entry.numbers(), errno));
    }

    fn add(&self, event: Event) {
        self.add_below(usize::MAX, event);
    }

    /// Adds an event if there are fewer than `most`; whether it did.
    fn add_below(&self, most: usize, event: Event) -> bool {
        let mut queue = self.queue.lock();
        if queue.len() >= most {
            return false;
        }
        queue.push_back(event);
        self.alarm.ring();
        self.changed.notify_all();
        true
    }
}

#[repr(C)]
pub(super) struct Eq {
    head: fid_eq,
    events: Arc<Events>,
    wait_obj: c_int,
    pub(super) children: Children,
    _fabric: Children,
}

static FID_OPS: fi_ops = fi_ops { close: Some(close), control: Some(control), ..PLAIN };
static OPS: fi_ops_eq = fi_ops_eq {
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
    ..fi_ops_eq::NONE
};

impl Eq {
    pub(super) fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// What has happened, if it may be looked at: it is not a forked child's copy.
    fn ready(&self) -> Result<&Events, Errno> {
        self.events.alarm.check_own().map(|()| &*self.events)
    }

    pub(super) fn has_something(&self) -> Result<bool, Errno> {
        Ok(!self.ready()?.queue.lock().is_empty())
    }

    /// The first event is read.
    fn take_first(&self, queue: &mut VecDeque<Event>) -> Option<Event> {
        let first = queue.pop_front();
        if queue.is_empty() {
            self.events.alarm.quiet();
        }
        first
    }
}

pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: libfabric's contract.
        let (fabric, attr) = unsafe { (object::<Fabric, _>(fabric)?, attr.as_ref()) };
        check_flags(attr.map_or(0, |attr| attr.flags), FI_WRITE | FI_AFFINITY)?;
        let wait_obj = attr.map_or(FI_WAIT_NONE, |attr| chosen(attr.wait_obj));
        if !matches!(wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD) {
            return Err(Errno::NO_SYSTEM);
        }
        let events = Events { alarm: Alarm::new(wait_obj != FI_WAIT_NONE)?, ..Events::default() };
        let eq = Eq {
            head: fid_eq { fid: head(FI_CLASS_EQ, context, &FID_OPS), ops: &OPS },
            events: Arc::new(events),
            wait_obj,
            children: Children::default(),
            _fabric: fabric.children(),
        };
        // SAFETY: the caller's.
        unsafe { hand_out(eq, out) }
    })
}

closed_last!(Eq);
waited_for!(Eq, eq => eq.events.alarm);

/// FI_PEEK leaves the event where it is.
///
/// # Safety
/// `event` is null or valid, `out` has room for `len` bytes.
unsafe fn take(eq: &Eq, event: *mut u32, out: *mut c_void, len: usize, flags: u64) -> Result<usize, Errno> {
    let mut queue = eq.ready()?.queue.lock();
    let (kind, octets) = match queue.front() {
        None => return Err(Errno::AGAIN),
        Some(Event::Failed(..)) => return Err(Errno::AVAILABLE),
        Some(Event::Said(kind, octets)) => (kind, octets),
    };
    if octets.len() > len || (out.is_null() && !octets.is_empty()) {
        return Err(Errno::TOO_SMALL);
    }
    let count = octets.len();
    // SAFETY: as the caller promises.
    unsafe {
        if !event.is_null() {
            *event = *kind;
        }
        core::ptr::copy_nonoverlapping(octets.as_ptr(), out.cast(), count);
    }
    if flags & FI_PEEK == 0 {
        eq.take_first(&mut queue);
    }
    Ok(count)
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    out: *mut c_void,
    len: usize,
    flags: u64,
) -> ssize_t {
    // SAFETY: libfabric's contract.
    count(|| unsafe { take(object::<Eq, _>(eq)?, event, out, len, flags) })
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, out: *mut fi_eq_err_entry, _: u64) -> ssize_t {
    count(|| {
        // SAFETY: libfabric's contract.
        let (eq, out) = unsafe { (object::<Eq, _>(eq)?, out.as_mut().ok_or(Errno::INVALID)?) };
        let mut queue = eq.ready()?.queue.lock();
        if !matches!(queue.front(), Some(Event::Failed(..))) {
            return Err(Errno::AGAIN);
        }
        if let Some(Event::Failed([object, context, data], errno)) = eq.take_first(&mut queue) {
            (out.fid, out.context, out.data) = (object as *mut fid, context as *mut c_void, data);
            (out.err, out.prov_errno, out.err_data_size) = (errno.0, errno.0, 0);
        }
        Ok(size_of::<fi_eq_err_entry>())
    })
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    octets: *const c_void,
    len: usize,
    _: u64,
) -> ssize_t {
    count(|| {
        // SAFETY: libfabric's contract.
        let (eq, octets) = unsafe { (object::<Eq, _>(eq)?, super::bytes(octets, len)?) };
        let is_added = eq.ready()?.add_below(MAX_EVENTS, Event::Said(event, octets.to_vec()));
        if is_added { Ok(len) } else { Err(Errno::AGAIN) }
    })
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    out: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> ssize_t {
    count(|| {
        // SAFETY: libfabric's contract.
        unsafe {
            let eq = object::<Eq, _>(eq)?;
            if eq.wait_obj == FI_WAIT_NONE {
                return Err(Errno::NO_SYSTEM);
            }
            let deadline = deadline(timeout);
            loop {
                match take(eq, event, out, len, flags) {
                    Err(Errno::AGAIN) => {}
                    result => return result,
                }
                let mut queue = eq.events.queue.lock();
                match deadline {
                    _ if !queue.is_empty() => {}
                    None => eq.events.changed.wait(&mut queue),
                    Some(deadline) if !eq.events.changed.wait_until(&mut queue, deadline).timed_out() => {}
                    Some(_) => return Err(Errno::AGAIN),
                }
            }
        }
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    errno: c_int,
    _: *const c_void,
    text: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: room for `len` characters, or null.
    guard(core::ptr::null(), || unsafe { describe(errno, text, len) })
}

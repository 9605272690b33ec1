//! Memory of the application's: buffers it posted, and regions it registered.
//!
//! Inputs → outputs: addresses that came through the ABI → copies to and from them. This is the only
//! place below the ABI layer that touches memory it does not own. What makes it sound is the
//! application's promise (fi_msg(3), fi_mr(3)): a buffer stays valid until the operation is
//! completed, a region until it is closed; so a [`Memory`] is dropped before its operation is
//! reported, and a [`Region`] refuses everything once closed.

use crate::error::Errno;
use bytes::Bytes;
use denrei::Placement;
use denrei_prefetch::ahead_of_writing;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct Part {
    start: *mut u8,
    len: usize,
}

/// A buffer, in one or more parts, that an operation may use.
#[derive(Debug, Default)]
pub struct Memory {
    parts: SmallVec<[Part; 1]>,
    len: usize,
}

// SAFETY: whoever posts a buffer hands it to the provider, whichever thread works there.
unsafe impl Send for Memory {}
// SAFETY: shared references give no access to the parts but `write` and reading, which copy.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory made of `parts`: addresses and lengths.
    ///
    /// # Safety
    /// Each part is readable (and writable, if the operation receives) until this and every
    /// [`window`](Self::window) of it is dropped. Empty parts may have any address.
    pub unsafe fn new(parts: impl IntoIterator<Item = (*mut u8, usize)>) -> Self {
        let parts: SmallVec<[Part; 1]> =
            parts.into_iter().filter(|(_, len)| *len > 0).map(|(start, len)| Part { start, len }).collect();
        let len = parts.iter().map(|part| part.len).fold(0, usize::saturating_add);
        Self { parts, len }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where it begins, as a number: for completions that name the buffer.
    pub fn address(&self) -> usize {
        self.parts.first().map_or(0, |part| part.start as usize)
    }

    /// Copies `bytes` to `offset`, as far as there is room; how many were copied.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> usize {
        let (mut skip, mut done) = (offset, 0);
        for part in &self.parts {
            if skip >= part.len {
                skip -= part.len;
                continue;
            }
            let count = (part.len - skip).min(bytes.len() - done);
            ahead_of_writing(part.start, part.len, skip, count);
            // SAFETY: `skip + count` lies within the part, which is valid by `new`'s contract. The
            // source is a slice; should the application have posted overlapping memory, `copy` copes.
            unsafe { core::ptr::copy(bytes[done..].as_ptr(), part.start.add(skip), count) };
            done += count;
            skip = 0;
            if done == bytes.len() {
                break;
            }
        }
        done
    }

    /// Appends all of it to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        for part in &self.parts {
            // SAFETY: the part is valid by `new`'s contract.
            out.extend_from_slice(unsafe { core::slice::from_raw_parts(part.start, part.len) });
        }
    }

    /// `len` bytes of it from `offset` on, as far as there are so many.
    pub fn window(&self, offset: usize, len: usize) -> Self {
        let (mut skip, mut left) = (offset, len);
        let mut parts = SmallVec::new();
        for part in &self.parts {
            if skip >= part.len {
                skip -= part.len;
                continue;
            }
            let count = (part.len - skip).min(left);
            if count == 0 {
                break;
            }
            // SAFETY: `skip` lies within the part.
            parts.push(Part { start: unsafe { part.start.add(skip) }, len: count });
            left -= count;
            skip = 0;
        }
        Self { parts, len: len - left }
    }

    /// Its bytes, without copying where it has one part.
    pub fn into_bytes(self) -> Bytes {
        if self.parts.len() > 1 {
            let mut all = Vec::with_capacity(self.len);
            self.append_to(&mut all);
            return all.into();
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Memory {
    /// The first part: all of it, for the one caller there is.
    fn as_ref(&self) -> &[u8] {
        match self.parts.first() {
            // SAFETY: the part is valid by `new`'s contract.
            Some(part) => unsafe { core::slice::from_raw_parts(part.start, part.len) },
            None => &[],
        }
    }
}

impl Placement for Memory {
    /// Beyond its end nothing is placed: the message is truncated.
    fn place(&mut self, offset: u64, bytes: &[u8]) {
        if let Ok(offset) = usize::try_from(offset) {
            self.write(offset, bytes);
        }
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        match &*self.parts {
            // SAFETY: the part is valid by `new`'s contract, and what receives is nobody else's meanwhile.
            [part] => Some(unsafe { core::slice::from_raw_parts_mut(part.start, part.len) }),
            _ => None,
        }
    }
}

/// What a peer does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub reads: bool,
    pub writes: bool,
}

impl Access {
    pub const READ: Self = Self { reads: true, writes: false };
    pub const WRITE: Self = Self { reads: false, writes: true };
}

/// A registered region: memory that peers may read and write by key and address.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    /// What the region's first byte is called.
    first_address: u64,
    allowed: Access,
    /// Taken for reading by whoever touches the memory, for writing when the region is closed.
    open: RwLock<bool>,
}

impl Region {
    /// A region whose first byte peers call `first_address`.
    pub fn new(memory: Memory, first_address: u64, allowed: Access) -> Self {
        Self { memory, first_address, allowed, open: RwLock::new(true) }
    }

    /// A region of `len` bytes that begins at address zero, for all that there is or as much as is said: what is
    /// called `address` there is at that address.
    ///
    /// # Safety
    /// Peers address only memory that is valid, as fi_mr(3) demands of the application.
    pub unsafe fn from_zero(len: usize, allowed: Access) -> Self {
        let everything = Part { start: core::ptr::null_mut(), len: len.min(isize::MAX as usize) };
        let memory = Memory { parts: SmallVec::from_slice(&[everything]), len: everything.len };
        Self::new(memory, 0, allowed)
    }

    /// Whether it may be touched still.
    pub fn is_open(&self) -> bool {
        *self.open.read()
    }

    /// Nobody touches the memory after this.
    pub fn close(&self) {
        *self.open.write() = false;
    }

    /// Checks what a peer does with `len` bytes at `address`; the offset from the region's start.
    pub fn check(&self, address: u64, len: u64, access: Access) -> Result<usize, Errno> {
        let offset = address.checked_sub(self.first_address).ok_or(Errno::NO_KEY)?;
        let end = offset.checked_add(len).ok_or(Errno::NO_KEY)?;
        let forbidden = (access.reads && !self.allowed.reads) || (access.writes && !self.allowed.writes);
        if forbidden || end > self.memory.len as u64 {
            return Err(Errno::NO_KEY);
        }
        Ok(offset as usize)
    }

    /// Writes what a peer sent.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let offset = self.check(address, bytes.len() as u64, Access::WRITE)?;
        let open = self.open.read();
        if !*open {
            return Err(Errno::NO_KEY);
        }
        self.memory.write(offset, bytes);
        Ok(())
    }

    /// Appends to `out` what a peer asks for.
    pub fn read(&self, address: u64, len: u64, out: &mut Vec<u8>) -> Result<(), Errno> {
        let offset = self.check(address, len, Access::READ)?;
        self.copy_out(offset, len, out)
    }

    /// Lets `change` compute new bytes from those at `address`, of which there are `len`; the old ones.
    pub fn update(&self, address: u64, len: u64, change: impl FnOnce(&mut [u8])) -> Result<Vec<u8>, Errno> {
        let offset = self.check(address, len, Access::WRITE)?;
        let mut before = Vec::new();
        self.copy_out(offset, len, &mut before)?;
        let mut after = before.clone();
        change(&mut after);
        self.write(address, &after)?;
        Ok(before)
    }

    fn copy_out(&self, offset: usize, len: u64, out: &mut Vec<u8>) -> Result<(), Errno> {
        let open = self.open.read();
        if !*open {
            return Err(Errno::NO_KEY);
        }
        self.memory.window(offset, len as usize).append_to(out);
        Ok(())
    }
}

/// A stretch of a region that a peer's large message is placed into.
#[derive(Debug)]
pub struct RegionStretches {
    /// Region, address and length of each, in the message's order.
    pub stretches: Vec<(Arc<Region>, u64, u64)>,
}

impl Placement for RegionStretches {
    /// What a region refuses, because it was closed meanwhile, is dropped.
    fn place(&mut self, offset: u64, bytes: &[u8]) {
        let (mut skip, mut bytes) = (offset, bytes);
        for (region, address, len) in &self.stretches {
            if skip >= *len {
                skip -= len;
                continue;
            }
            let count = (len - skip).min(bytes.len() as u64) as usize;
            let _ = region.write(address + skip, &bytes[..count]);
            bytes = &bytes[count..];
            skip = 0;
            if bytes.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// The buffers outlive the memory.
    unsafe fn memory(buffers: &mut [&mut [u8]]) -> Memory {
        // SAFETY: as the caller says.
        unsafe { Memory::new(buffers.iter_mut().map(|buffer| (buffer.as_mut_ptr(), buffer.len()))) }
    }

    #[test]
    fn writes_go_to_the_parts_they_belong_to_and_not_beyond() {
        let (mut a, mut b) = ([0; 3], [0; 4]);
        // SAFETY: the arrays live to the end of the test.
        let memory = unsafe { memory(&mut [&mut a, &mut b]) };
        assert_eq!(memory.write(2, &[1, 2, 3]), 3);
        assert_eq!(memory.write(6, &[9, 9]), 1);
        assert_eq!(memory.write(7, &[9]), 0);
        let mut all = Vec::new();
        memory.append_to(&mut all);
        assert_eq!(all, [0, 0, 1, 2, 3, 0, 9]);
        let window = memory.window(2, 3);
        assert_eq!((window.len(), &window.into_bytes()[..]), (3, &[1, 2, 3][..]));
        assert_eq!(memory.window(6, 5).len(), 1);
    }

    #[test]
    fn a_region_refuses_what_is_outside_forbidden_or_closed() {
        let mut buffer = [7; 8];
        // SAFETY: the array lives to the end of the test.
        let region = Region::new(unsafe { memory(&mut [&mut buffer]) }, 100, Access::READ);
        let mut out = Vec::new();
        assert_eq!(region.read(104, 4, &mut out), Ok(()));
        assert_eq!(out, [7; 4]);
        assert_eq!(region.read(104, 5, &mut out), Err(Errno::NO_KEY));
        assert_eq!(region.read(99, 1, &mut out), Err(Errno::NO_KEY));
        assert_eq!(region.read(u64::MAX, 2, &mut out), Err(Errno::NO_KEY));
        assert_eq!(region.write(100, &[1]), Err(Errno::NO_KEY));
        region.close();
        assert_eq!(region.read(104, 4, &mut out), Err(Errno::NO_KEY));
    }

    #[test]
    fn a_region_from_address_zero_on_is_as_long_as_is_said() {
        let there = [7u8; 8];
        let address = there.as_ptr() as u64;
        for (len, result) in [(usize::MAX, Ok(())), (address as usize, Err(Errno::NO_KEY))] {
            // SAFETY: what is read is the array, if anything.
            let region = unsafe { Region::from_zero(len, Access::READ) };
            assert_eq!(region.read(address, 8, &mut Vec::new()), result, "{len}");
        }
    }

    #[test]
    fn a_large_message_is_placed_over_several_stretches() {
        let (mut a, mut b) = ([0; 4], [0; 4]);
        // SAFETY: the arrays live to the end of the test.
        let regions = unsafe { [memory(&mut [&mut a]), memory(&mut [&mut b])] }
            .map(|memory| Arc::new(Region::new(memory, 0, Access { reads: true, writes: true })));
        let [first, second] = regions;
        let mut stretches =
            RegionStretches { stretches: vec![(first.clone(), 1, 3), (second.clone(), 0, 4)] };
        stretches.place(2, &[1, 2, 3]);
        stretches.place(0, &[8, 9]);
        let mut all = Vec::new();
        first.read(0, 4, &mut all).unwrap();
        second.read(0, 4, &mut all).unwrap();
        assert_eq!(all, [0, 8, 9, 1, 2, 3, 0, 0]);
    }
}

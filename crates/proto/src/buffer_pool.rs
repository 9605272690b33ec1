//! Memory for messages of some size, used again.
//!
//! Inputs → outputs: a message's size → a buffer; a finished buffer → [`Bytes`] whose memory comes
//! back when the application drops it. Handing memory to the system and getting it again, cleared
//! page by page, costs a receiver a fifth of its time at 64 KiB a message, and half in large messages.
//! Bounded by [`MAX_SPARE_BYTES`], or whatever its owner allows; what is beyond is freed, and messages
//! larger than that are not kept at all.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Least buffer worth keeping: below, the allocator is as fast, bytes.
const MIN_KEPT_BYTES: usize = 4 * 1024;
/// Least message worth a buffer that arrives in one piece, bytes: smaller ones cost the allocator less.
const MIN_COPIED_BYTES: usize = 16 * 1024;
/// Largest buffer kept: by default larger messages are offered, and come into memory that the
/// application posts, bytes.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// Memory that may lie idle, bytes: two default channel credits.
const MAX_SPARE_BYTES: usize = 8 << 20;
/// Most buffers that may lie idle: a default channel credit in messages of 16 KiB. A search looks at each, the
/// newest first, which in a row of messages of one size fits.
const MAX_SPARE_BUFFERS: usize = 256;
/// A buffer serves messages down to this part of its size, so that small messages do not hold
/// large memory.
const MAX_WASTE: usize = 2;

/// One endpoint's spare buffers. Clones are the same pool.
#[derive(Clone, Debug)]
pub(crate) struct BufferPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// Largest buffer kept, and most that may lie idle, bytes.
    max_kept: usize,
    max_bytes: usize,
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Default for BufferPool {
    fn default() -> Self {
        Self::bounded(MAX_KEPT_BYTES, MAX_SPARE_BYTES)
    }
}

impl BufferPool {
    /// One that also keeps large buffers, as long as no more than `max_bytes` lie idle.
    pub fn for_large(max_bytes: usize) -> Self {
        let max_bytes = max_bytes.max(MAX_SPARE_BYTES);
        Self::bounded(max_bytes, max_bytes)
    }

    fn bounded(max_kept: usize, max_bytes: usize) -> Self {
        Self(Arc::new(Pool { max_kept, max_bytes, spare: Mutex::default() }))
    }

    /// A buffer with room for `total` bytes, of which at most so many are there, with any content; `None`: there
    /// is no memory for it.
    pub fn take(&self, total: usize) -> Option<Vec<u8>> {
        if let Some(mut spare) = self.lock().take(total) {
            spare.truncate(total);
            return Some(spare);
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(total).ok()?;
        Some(buffer)
    }

    /// A copy of `content`.
    pub fn copy(&self, content: &[u8]) -> Bytes {
        if content.len() < MIN_COPIED_BYTES {
            return Bytes::copy_from_slice(content);
        }
        let mut buffer = self.take(content.len()).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(content);
        self.lend(buffer)
    }

    /// The content of `buffer`, whose memory comes back here in the end.
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        if !(MIN_KEPT_BYTES..=self.0.max_kept).contains(&buffer.capacity()) {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Lent { buffer, pool: self.clone() })
    }

    /// What happens under the lock cannot panic half-way: a poisoned lock guards sound data.
    fn lock(&self) -> std::sync::MutexGuard<'_, Spare> {
        self.0.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    fn take(&mut self, total: usize) -> Option<Vec<u8>> {
        let fits = |buffer: &Vec<u8>| (total..=total.saturating_mul(MAX_WASTE)).contains(&buffer.capacity());
        // The one used last is the one that is still in the cache.
        let found = self.buffers.iter().rposition(fits)?;
        let buffer = self.buffers.remove(found);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn keep(&mut self, buffer: Vec<u8>, max_bytes: usize) {
        if self.bytes + buffer.capacity() <= max_bytes && self.buffers.len() < MAX_SPARE_BUFFERS {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

/// A message in the application's hands.
struct Lent {
    buffer: Vec<u8>,
    pool: BufferPool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    /// Waits for nobody: in a child that was forked, the thread that had the lock may not be there. The memory is freed
    /// then.
    fn drop(&mut self) {
        let max_bytes = self.pool.0.max_bytes;
        let mut spare = match self.pool.0.spare.try_lock() {
            Ok(spare) => spare,
            Err(TryLockError::Poisoned(spare)) => spare.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        spare.keep(core::mem::take(&mut self.buffer), max_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used_at(pool: &BufferPool, total: usize) -> usize {
        let mut buffer = pool.take(total).unwrap();
        assert!(buffer.len() <= total && buffer.capacity() >= total);
        buffer.clear();
        buffer.resize(total, 7);
        let at = buffer.as_ptr() as usize;
        let message = pool.lend(buffer);
        assert!(message.len() == total && message.iter().all(|byte| *byte == 7));
        at
    }

    #[test]
    fn a_dropped_messages_memory_serves_the_next_of_its_size() {
        let pool = BufferPool::default();
        let first = used_at(&pool, 65_536);
        assert_eq!(pool.lock().bytes, 65_536);
        assert_eq!(used_at(&pool, 40_000), first);
        used_at(&pool, 20_000);
        assert_eq!(pool.lock().buffers.len(), 2, "too small for that one");
    }

    #[test]
    fn whole_messages_of_some_size_come_from_there_too() {
        let pool = BufferPool::default();
        for len in [0, 1, MIN_COPIED_BYTES - 1, MIN_COPIED_BYTES, 3 * MIN_COPIED_BYTES] {
            let content: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let first = pool.copy(&content);
            assert_eq!(first, content);
            let at = first.as_ptr();
            drop(first);
            assert!(len < MIN_COPIED_BYTES || pool.copy(&content).as_ptr() == at, "{len}");
        }
        assert_eq!(pool.lock().buffers.len(), 2);
    }

    #[test]
    fn idle_memory_is_bounded() {
        let pool = BufferPool::default();
        let fill = |count: usize, bytes| {
            let lent: Vec<Bytes> = (0..count).map(|_| pool.lend(Vec::with_capacity(bytes))).collect();
            drop(lent);
            let spare = pool.lock();
            (spare.buffers.len(), spare.bytes)
        };
        assert_eq!(fill(3, 100), (0, 0), "not worth it");
        assert_eq!(fill(3, MAX_KEPT_BYTES + 1), (0, 0), "too large");
        assert_eq!(fill(2 * MAX_SPARE_BUFFERS, MIN_KEPT_BYTES).0, MAX_SPARE_BUFFERS);
        *pool.lock() = Spare::default();
        assert_eq!(fill(20, MAX_KEPT_BYTES), (8, MAX_SPARE_BYTES));
    }

    /// So it is in a child that was forked while a thread of its parent's was taking a buffer.
    #[test]
    fn a_message_is_dropped_although_nobody_lets_go_of_the_pool() {
        let pool = BufferPool::default();
        let message = pool.lend(vec![7; 20_000]);
        let taking = pool.lock();
        // It would wait for ever.
        drop(message);
        drop(taking);
        assert_eq!(pool.lock().buffers.len(), 0, "it was freed");
    }

    #[test]
    fn a_pool_for_large_messages_keeps_one_of_the_largest() {
        let pool = BufferPool::for_large(16 << 20);
        let first = used_at(&pool, 16 << 20);
        assert_eq!(used_at(&pool, 16 << 20), first);
        drop(pool.lend(Vec::with_capacity((16 << 20) + 1)));
        drop(pool.lend(Vec::with_capacity(1 << 20)));
        let spare = pool.lock();
        assert_eq!((spare.buffers.len(), spare.bytes), (1, 16 << 20));
    }
}

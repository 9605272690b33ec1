//! Memory for small messages: many in one block, and the slots of many.
//!
//! Inputs → outputs: a message's content → [`Bytes`] that share a block with the messages before and after.
//! A block is freed when the last of its messages is dropped. Memory for each by itself costs a receiver of
//! many small messages, whose queue has outgrown the caches, more than all the rest.

use crate::buffer_pool::BufferPool;
use crate::pending::Ready;
use crate::slots::Spare;
use bytes::{Bytes, BytesMut};

/// Bytes of a block, and so the most that an application holds which keeps one small message.
const BLOCK_BYTES: usize = 2 * 1024;

/// Largest message that shares a block, bytes.
const MAX_SHARED_BYTES: usize = 256;

/// Each message begins at a multiple of so many bytes, as in memory of its own: applications read numbers in place.
const ALIGNMENT: usize = 16;

/// The block that is being filled, and slots that no queue needs now.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    open: BytesMut,
    pub slots: Spare<Ready>,
}

impl Blocks {
    /// A copy of `content`: small in a block, large in memory of `pool`.
    pub fn copy(&mut self, content: &[u8], pool: &BufferPool) -> Bytes {
        if content.len() > MAX_SHARED_BYTES {
            return pool.copy(content);
        }
        let room = content.len().next_multiple_of(ALIGNMENT);
        if self.open.capacity() < room {
            self.open = BytesMut::with_capacity(BLOCK_BYTES);
        }
        self.open.extend_from_slice(content);
        self.open.extend_from_slice(&[0; ALIGNMENT][..room - content.len()]);
        let mut message = self.open.split();
        message.truncate(content.len());
        message.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_share_a_block_until_it_is_full() {
        let (mut blocks, pool) = (Blocks::default(), BufferPool::default());
        let messages: Vec<Bytes> = (0..100u8).map(|number| blocks.copy(&[number; 100], &pool)).collect();
        for (number, message) in messages.iter().enumerate() {
            assert!(message.len() == 100 && message.iter().all(|byte| *byte == number as u8));
        }
        let at: Vec<usize> = messages.iter().map(|message| message.as_ptr() as usize).collect();
        assert!(at.iter().all(|at| at % ALIGNMENT == 0));
        let room = 100usize.next_multiple_of(ALIGNMENT);
        let (block, others) = at.split_at(BLOCK_BYTES / room);
        assert!(block.windows(2).all(|pair| pair[0] + room == pair[1]));
        assert_ne!(block.last().unwrap() + room, others[0]);
        assert!(blocks.copy(&[], &pool).is_empty());
        let large = [7; MAX_SHARED_BYTES + 1];
        assert_eq!(blocks.copy(&large, &pool), large[..]);
    }
}

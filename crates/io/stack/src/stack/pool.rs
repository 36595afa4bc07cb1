//! Buffers that are used again: fresh memory costs a page fault per 4 KB, warm memory nothing.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A pool of buffers of one size. Clones share it.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    free: Mutex<Vec<Box<[u8]>>>,
    buffer_bytes: usize,
    most_free: usize,
    /// Taken, and not returned yet.
    held: AtomicUsize,
}

impl BufferPool {
    /// A pool of buffers of `buffer_bytes` that keeps at most `most_free` of them when nobody uses them.
    #[must_use]
    pub fn new(buffer_bytes: usize, most_free: usize) -> Self {
        let free = Mutex::new(Vec::with_capacity(most_free));
        Self { shared: Arc::new(PoolShared { free, buffer_bytes, most_free, held: AtomicUsize::new(0) }) }
    }

    /// A buffer, with whatever was in it before.
    #[must_use]
    pub fn take(&self) -> Buffer {
        let free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let memory = free.unwrap_or_else(|| vec![0; self.shared.buffer_bytes].into_boxed_slice());
        self.shared.held.fetch_add(1, Ordering::Relaxed);
        Buffer { memory, shared: self.shared.clone() }
    }

    /// Memory of the buffers that somebody holds, be it for a slice of one byte.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed) * self.shared.buffer_bytes
    }
}

/// A buffer of a pool, to which it returns when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    memory: Box<[u8]>,
    shared: Arc<PoolShared>,
}

impl Buffer {
    /// The first `len` bytes as shared, immutable ones. The buffer returns to the pool with the last clone.
    #[must_use]
    pub fn freeze(self, len: usize) -> Bytes {
        let mut bytes = Bytes::from_owner(self);
        bytes.truncate(len);
        bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shared.held.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.shared.most_free {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_when_nobody_holds_it() {
        let pool = BufferPool::new(16, 1);
        let mut buffer = pool.take();
        buffer[..2].copy_from_slice(b"ab");
        let address = buffer.as_ptr();
        let bytes = buffer.freeze(2);
        assert_eq!(bytes, b"ab"[..]);
        let part = bytes.slice(1..);
        drop(bytes);
        assert_eq!(pool.held_bytes(), 16);
        assert_ne!(pool.take().as_ptr(), address, "still held by a slice");
        let _spare = pool.take();
        drop(part);
        assert_eq!(pool.take().as_ptr(), address);
    }
}

//! Files as bodies, block by block, and the memory that blocks take on their way.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Body;
use super::blocking::blocking;
use super::digest_cache::Wait;

/// What is read from a file at once, if there is room.
const LARGE_BLOCK_BYTES: usize = 256 << 10;
/// What every connection may have, on its way and being read.
pub(super) const SMALL_BLOCK_BYTES: usize = 16 << 10;
/// Blocks of a file that a connection has on their way or being read. Others wait, whatever the connection would take.
const MOST_BLOCKS: usize = 2;
/// Large blocks on their way, of all connections together.
pub(super) const MOST_IN_LARGE_BLOCKS_BYTES: usize = 32 << 20;
/// Lists of directories on their way, of all connections together. What fits in a small block does not count.
const MOST_IN_LISTS_BYTES: usize = 64 << 20;
const LIST_UNIT_BYTES: usize = 1 << 10;
/// So many lists are made at a time: while one is made, it takes several times what it will have.
const MOST_LISTS_MADE: usize = 2;
/// Others wait so long for their turn.
const MOST_WAIT_FOR_LIST: Duration = Duration::from_secs(20);

/// What the answers of a server hold before clients have taken it, and what uploads hold before the disk has. All of it has a
/// bound: each connection two small blocks, and all together some large ones and some lists.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    large_blocks: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    list_turns: Arc<Semaphore>,
    held_bytes: Arc<AtomicUsize>,
}

impl Default for Memory {
    fn default() -> Self {
        let semaphore = |units| Arc::new(Semaphore::new(units));
        Self {
            large_blocks: semaphore(MOST_IN_LARGE_BLOCKS_BYTES / LARGE_BLOCK_BYTES),
            lists: semaphore(MOST_IN_LISTS_BYTES / LIST_UNIT_BYTES),
            list_turns: semaphore(MOST_LISTS_MADE),
            held_bytes: Arc::default(),
        }
    }
}

/// Room for so many bytes, until it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    _permit: Option<OwnedSemaphorePermit>,
    held_bytes: Arc<AtomicUsize>,
}

impl Room {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that give their room back when they have been sent.
struct Held {
    content: Vec<u8>,
    _room: Option<Room>,
    /// Among the blocks of its connection.
    _turn: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Memory {
    /// Room for the next block, where so many bytes are left of a file.
    pub(super) fn block(&self, left: u64) -> Room {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if left > SMALL_BLOCK_BYTES
            && let Ok(permit) = self.large_blocks.clone().try_acquire_owned()
        {
            return self.room(left.min(LARGE_BLOCK_BYTES), Some(permit));
        }
        self.room(left.min(SMALL_BLOCK_BYTES), None)
    }

    fn room(&self, bytes: usize, permit: Option<OwnedSemaphorePermit>) -> Room {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        Room { bytes, _permit: permit, held_bytes: self.held_bytes.clone() }
    }

    /// What there is room for at the moment, in all answers that clients have not taken.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Makes a list of a directory, when it is its turn; none if that takes too long, or there is no room for it.
    pub(super) async fn make_list(
        &self,
        make: impl FnOnce() -> io::Result<String> + Send + 'static,
    ) -> io::Result<Option<Bytes>> {
        let turn = self.list_turns.clone().acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(MOST_WAIT_FOR_LIST, turn).await else { return Ok(None) };
        let memory = self.clone();
        // The turn is over when the list is made, even if nobody waits for it any more.
        blocking(move || {
            let list = memory.list(make()?);
            drop(turn);
            Ok(list)
        })
        .await
    }

    /// A list as an answer; none if there is no room for it now.
    fn list(&self, content: String) -> Option<Bytes> {
        let content = content.into_bytes();
        let length = content.len();
        let mut permit = None;
        if length > SMALL_BLOCK_BYTES {
            // A list that is too long for all of it takes all of it.
            let units = u32::try_from(length.min(MOST_IN_LISTS_BYTES).div_ceil(LIST_UNIT_BYTES)).ok()?;
            permit = Some(self.lists.clone().try_acquire_many_owned(units).ok()?);
        }
        Some(Bytes::from_owner(Held { content, _room: Some(self.room(length, permit)), _turn: None }))
    }

    /// As [`file_body`], in blocks for which there is room, and no clean end if the file was changed meanwhile. Its
    /// digest is waited for as long as the body is there.
    pub(super) fn watched_body(
        &self,
        file: File,
        metadata: &Metadata,
        first: u64,
        count: u64,
        digest: Option<Wait>,
    ) -> io::Result<Body> {
        let watched = file.try_clone()?;
        let before = content_version(metadata);
        let memory = self.clone();
        let body = body(file, first, count, move |left| Ok(memory.block(left)), |_| ())?;
        let start = (body, watched, count, before, digest);
        let checked = stream::try_unfold(start, |(mut body, watched, left, before, digest)| async move {
            let Some(frame) = body.frame().await.transpose()? else { return Ok(None) };
            let left = left - frame.data_ref().map_or(0, |data| data.len() as u64);
            // Before the last block is let go.
            if left == 0 && content_version(&watched.metadata()?) != before {
                return Err(io::Error::other("the file was changed while it was sent"));
            }
            Ok(Some((frame, (body, watched, left, before, digest))))
        });
        Ok(BodyExt::boxed(StreamBody::new(checked)))
    }
}

/// Without the time that changes when the file gets another name, or another one gets its name.
fn content_version(metadata: &Metadata) -> (i64, i64, u64) {
    (metadata.mtime(), metadata.mtime_nsec(), metadata.len())
}

/// A part of a file, block by block; `progress` is told the bytes of each. If the file shrinks meanwhile, the body ends
/// with an error.
pub(crate) fn file_body(
    file: File,
    first: u64,
    count: u64,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> io::Result<Body> {
    let most = |left| Err(usize::try_from(left).unwrap_or(usize::MAX).min(LARGE_BLOCK_BYTES));
    body(file, first, count, most, progress)
}

/// Blocks have the room that `room` finds for so many bytes as are left, or so many bytes as it says.
fn body(
    mut file: File,
    first: u64,
    count: u64,
    room: impl Fn(u64) -> Result<Room, usize> + Send + Sync + 'static,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> io::Result<Body> {
    file.seek(SeekFrom::Start(first))?;
    let start = (file, count, room, progress, Arc::new(Semaphore::new(MOST_BLOCKS)));
    let blocks = stream::try_unfold(start, |(mut file, left, room, progress, turns)| async move {
        if left == 0 {
            return Ok(None);
        }
        let turn = turns.clone().acquire_owned().await.ok();
        let found = room(left);
        let bytes = found.as_ref().map_or_else(|bytes| *bytes, |room| room.bytes);
        let (file, content) = blocking(move || {
            let mut content = Vec::with_capacity(bytes);
            file.by_ref().take(bytes as u64).read_to_end(&mut content)?;
            Ok((file, content))
        })
        .await?;
        if content.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        let read = content.len() as u64;
        progress(read);
        let block = Bytes::from_owner(Held { content, _room: found.ok(), _turn: turn });
        Ok(Some((Frame::data(block), (file, left - read, room, progress, turns))))
    });
    Ok(BodyExt::boxed(StreamBody::new(blocks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(body: &mut Body) -> Bytes {
        body.frame().await.expect("a block").expect("no error").into_data().expect("data")
    }

    #[tokio::test]
    async fn blocks_that_nobody_takes_are_bounded_and_others_still_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("file");
        let bytes = 2 * LARGE_BLOCK_BYTES as u64;
        std::fs::write(&place, vec![7; 2 * LARGE_BLOCK_BYTES]).expect("room");
        let memory = Memory::default();
        let most = MOST_IN_LARGE_BLOCKS_BYTES / LARGE_BLOCK_BYTES;
        let mut held = Vec::new();
        for number in 0..most + 50 {
            let file = File::open(&place).expect("the file");
            let metadata = file.metadata().expect("metadata");
            let mut body = memory.watched_body(file, &metadata, 0, bytes, None).expect("a body");
            let block = next(&mut body).await;
            assert_eq!(block.len(), if number < most { LARGE_BLOCK_BYTES } else { SMALL_BLOCK_BYTES });
            held.push((block, body));
        }
        let total: usize = held.iter().map(|(block, _)| block.len()).sum();
        assert_eq!(total, memory.held_bytes());
        assert!(total <= MOST_IN_LARGE_BLOCKS_BYTES + held.len() * SMALL_BLOCK_BYTES, "{total}");
        // Whoever is served in small blocks gets all of it, and large ones when there is room again.
        let (block, mut body) = held.pop().expect("the last one");
        let mut came = block.len();
        drop(block);
        held.clear();
        assert_eq!(memory.held_bytes(), 0);
        assert_eq!(next(&mut body).await.len(), LARGE_BLOCK_BYTES);
        came += LARGE_BLOCK_BYTES;
        while let Some(frame) = body.frame().await {
            came += frame.expect("no error").into_data().expect("data").len();
        }
        assert_eq!((came as u64, memory.held_bytes()), (bytes, 0));
    }

    #[test]
    fn lists_that_nobody_takes_are_bounded() {
        let memory = Memory::default();
        let list = |bytes| memory.list("x".repeat(bytes));
        let long = list(2 * MOST_IN_LISTS_BYTES).expect("room for one");
        assert!(list(SMALL_BLOCK_BYTES + 1).is_none() && list(SMALL_BLOCK_BYTES).is_some());
        drop(long);
        assert!(list(SMALL_BLOCK_BYTES + 1).is_some());
    }

    #[tokio::test]
    async fn few_lists_are_made_at_a_time() {
        let memory = Memory::default();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let make = || {
            let (now, most) = (now.clone(), most.clone());
            memory.make_list(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                now.fetch_sub(1, Ordering::SeqCst);
                Ok("list".into())
            })
        };
        let lists = futures_util::future::join_all((0..50).map(|_| make())).await;
        assert!(lists.into_iter().all(|list| list.expect("no error").is_some()));
        assert!((1..=MOST_LISTS_MADE).contains(&most.load(Ordering::SeqCst)));
    }
}

//! Digests of files, each computed once.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::digest::Digest;

/// Digests that are kept.
const MOST_KEPT: usize = 4096;
/// Files that are read or wait for it; further requests get no digest.
const MOST_UNDER_WAY: usize = 32;
/// Files that are read at once: there are connections to be served, too.
const MOST_AT_ONCE: usize = 2;
/// The times of file systems are no finer than this (FAT's). A file that was changed less long ago can change again
/// without having another time.
const COARSEST_TIME: Duration = Duration::from_secs(2);
const BUFFER_BYTES: usize = 256 << 10;

/// What changes whenever a file's content does: device, inode, size, times of modification and change in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version([u64; 3], [i128; 2]);

impl Version {
    fn of(metadata: &Metadata) -> Self {
        let time = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self(
            [metadata.dev(), metadata.ino(), metadata.size()],
            [time(metadata.mtime(), metadata.mtime_nsec()), time(metadata.ctime(), metadata.ctime_nsec())],
        )
    }

    /// Whether the file is old enough that another content has another time.
    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let latest = self.1[0].max(self.1[1]);
        i128::try_from(now).is_ok_and(|now| now - latest > COARSEST_TIME.as_nanos() as i128)
    }
}

/// A digest, or none if the file changed or can't be read. Everybody who asks at the same time waits for the same one,
/// and it goes on when nobody does.
pub(super) type Pending = Shared<BoxFuture<'static, Option<Digest>>>;

/// Digests of files by device, inode, size and times.
#[derive(Clone, Debug)]
pub(super) struct DigestCache {
    known: Arc<Mutex<Known>>,
    places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Known {
    digests: HashMap<Version, Pending>,
    /// In the order they came.
    order: VecDeque<Version>,
    under_way: usize,
    #[cfg(test)]
    computed: usize,
}

impl Default for DigestCache {
    fn default() -> Self {
        Self { known: Arc::default(), places: Arc::new(Semaphore::new(MOST_AT_ONCE)) }
    }
}

impl DigestCache {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The digest of an open file; none if too many are computed already.
    pub(super) fn digest(&self, file: &File, metadata: &Metadata) -> io::Result<Option<Pending>> {
        let version = Version::of(metadata);
        let mut known = self.lock();
        if let Some(pending) = known.digests.get(&version) {
            return Ok(Some(pending.clone()));
        }
        if known.under_way >= MOST_UNDER_WAY {
            return Ok(None);
        }
        let computing = tokio::spawn(self.clone().compute(file.try_clone()?, version));
        let pending = computing.map(|done| done.ok().flatten()).boxed().shared();
        known.under_way += 1;
        known.digests.insert(version, pending.clone());
        known.order.push_back(version);
        if known.order.len() > MOST_KEPT
            && let Some(oldest) = known.order.pop_front()
        {
            known.digests.remove(&oldest);
        }
        Ok(Some(pending))
    }

    async fn compute(self, file: File, version: Version) -> Option<Digest> {
        let place = self.places.acquire().await;
        let is_settled = version.is_settled(SystemTime::now());
        let computed = tokio::task::spawn_blocking(move || {
            let digest = hash_at(&file, version.0[2])?;
            let is_same = Version::of(&file.metadata()?) == version;
            Ok::<_, io::Error>(is_same.then_some(digest))
        });
        let digest = computed.await.ok().and_then(Result::ok).flatten();
        drop(place);
        let mut known = self.lock();
        known.under_way -= 1;
        #[cfg(test)]
        {
            known.computed += 1;
        }
        if digest.is_none() || !is_settled {
            known.digests.remove(&version);
            known.order.retain(|kept| *kept != version);
        }
        digest
    }
}

/// Reads without moving the place from which others read.
fn hash_at(file: &File, length: u64) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    while at < length {
        match file.read_at(&mut buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
        }
    }
    Ok(Digest::of(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::digest_of;

    /// A file whose last change was long ago, as far as its times tell.
    fn settled(folder: &tempfile::TempDir, name: &str, content: &str) -> File {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        File::open(path).expect("the file")
    }

    async fn ask(cache: &DigestCache, file: &File) -> Option<Digest> {
        let pending = cache.digest(file, &file.metadata().expect("metadata")).expect("a descriptor");
        pending.expect("room").await
    }

    #[tokio::test]
    async fn requests_at_the_same_time_share_one_computation() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DigestCache::default();
        let file = settled(&folder, "file", "content");
        let all = futures_util::future::join_all((0..20).map(|_| ask(&cache, &file))).await;
        let own = digest_of(&folder.path().join("file"), None).ok();
        assert!(own.is_some() && all.iter().all(|digest| *digest == own));
        assert_eq!(cache.lock().computed, 1);
        // Too young to be remembered: it may change without having another time.
        assert!(cache.lock().digests.is_empty() && cache.lock().order.is_empty());
    }

    #[test]
    fn only_old_files_are_told_apart_by_their_times() {
        let version = Version([0; 3], [5_000_000_000, 7_000_000_000]);
        let at = |seconds| version.is_settled(UNIX_EPOCH + Duration::from_secs(seconds));
        assert!(!at(6) && !at(9) && at(10));
    }

    #[tokio::test]
    async fn a_file_that_changes_meanwhile_has_no_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DigestCache::default();
        let file = settled(&folder, "file", "content");
        let before = file.metadata().expect("metadata");
        std::fs::write(folder.path().join("file"), "other content").expect("room");
        let pending = cache.digest(&file, &before).expect("a descriptor").expect("room");
        assert_eq!(pending.await, None);
        assert!(cache.lock().digests.is_empty() && cache.lock().under_way == 0);
        assert_eq!(ask(&cache, &file).await, digest_of(&folder.path().join("file"), None).ok());
    }

    #[tokio::test]
    async fn what_is_under_way_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DigestCache::default();
        let mut pending = Vec::new();
        for number in 0..MOST_UNDER_WAY + 5 {
            let file = settled(&folder, &number.to_string(), "content");
            pending.push(cache.digest(&file, &file.metadata().expect("metadata")).expect("a descriptor"));
        }
        // No task ran in between.
        assert_eq!(pending.iter().filter(|pending| pending.is_none()).count(), 5);
        for pending in pending.into_iter().flatten() {
            assert!(pending.await.is_some());
        }
        assert_eq!(cache.lock().under_way, 0);
    }
}

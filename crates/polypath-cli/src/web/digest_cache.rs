//! Digests of files, each computed once, and only while somebody waits for it.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::digest::Digest;

/// Files that are shorter are read for their digest before the answer, if a client wants it; clients of ours ask for that of
/// longer ones afterwards.
pub(super) const READ_BEFORE_BYTES: u64 = 4 << 20;
/// Digests that are kept.
const MOST_KEPT: usize = 4096;
/// Files that are read in part and that nobody waits for any more. Whoever asks again finds what was done.
const MOST_PAUSED: usize = 32;
/// Files that are read at once, small ones and large ones: there are connections to be served, too. Small ones never
/// wait for large ones.
const MOST_AT_ONCE: [usize; 2] = [4, 2];
/// Large files take turns of so many bytes. When the last one who waits has gone, no more than this is read in vain.
const SLICE_BYTES: u64 = 8 << 20;
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

    fn length(&self) -> u64 {
        self.0[2]
    }

    /// Which of the queues is its own.
    fn lane(&self) -> usize {
        usize::from(self.length() >= READ_BEFORE_BYTES)
    }

    /// Whether the file is old enough that another content has another time.
    fn is_settled(&self, now: SystemTime, coarsest: Duration) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let latest = self.1[0].max(self.1[1]);
        i128::try_from(now).is_ok_and(|now| now - latest > coarsest.as_nanos() as i128)
    }
}

/// Where a computation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    /// None if the file changed or can't be read.
    Done(Option<Digest>),
}

/// Somebody who waits for a digest. The file is read as long as one of these is there.
#[derive(Debug)]
pub(super) struct Wait {
    cache: DigestCache,
    version: Version,
    state: Option<watch::Receiver<State>>,
}

impl Wait {
    /// The digest, when it is there; none if the file changed or can't be read.
    pub(super) async fn digest(&mut self) -> Option<Digest> {
        let state = self.state.as_mut()?;
        let done = state.wait_for(|state| *state != State::UnderWay).await.ok()?;
        if let State::Done(digest) = *done { digest } else { None }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.state = None;
        self.cache.lock().forget_if_unwanted(self.version);
    }
}

/// A file that is read.
#[derive(Debug)]
struct Work {
    file: File,
    hasher: Sha256,
    at: u64,
    is_settled: bool,
}

impl Work {
    /// Reads on, and no further than a slice. True at the end of the file.
    fn go_on(&mut self, version: Version, buffer: &mut [u8]) -> io::Result<bool> {
        if Version::of(&self.file.metadata()?) != version {
            return Err(io::Error::other("the file changed"));
        }
        let end = version.length().min(self.at + SLICE_BYTES);
        while self.at < end {
            let most = buffer.len().min(usize::try_from(end - self.at).unwrap_or(usize::MAX));
            // The place from which others read stays.
            match self.file.read_at(&mut buffer[..most], self.at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    self.hasher.update(&buffer[..read]);
                    self.at += read as u64;
                }
            }
        }
        if self.at < version.length() {
            return Ok(false);
        }
        if Version::of(&self.file.metadata()?) != version {
            return Err(io::Error::other("the file changed"));
        }
        Ok(true)
    }
}

#[derive(Debug)]
struct Job {
    /// None while a worker has it.
    work: Option<Work>,
    state: watch::Sender<State>,
}

/// Files that wait for their turn, and how many workers there are.
#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Version>,
    workers: usize,
}

/// Digests of files by device, inode, size and times. Every job that is not paused has somebody who waits for it, so
/// there are no more of them than requests.
#[derive(Clone, Debug)]
pub(super) struct DigestCache {
    known: Arc<Mutex<Known>>,
    /// [`COARSEST_TIME`], but for tests.
    coarsest_time: Duration,
}

impl Default for DigestCache {
    fn default() -> Self {
        Self { known: Arc::default(), coarsest_time: COARSEST_TIME }
    }
}

#[derive(Debug, Default)]
struct Known {
    digests: HashMap<Version, Digest>,
    /// In the order they came.
    order: VecDeque<Version>,
    jobs: HashMap<Version, Job>,
    lanes: [Lane; 2],
    /// In the order they were left.
    paused: VecDeque<Version>,
    /// All that was ever read.
    read_bytes: u64,
}

impl DigestCache {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for the digest of an open file.
    pub(super) fn digest(&self, file: &File, metadata: &Metadata) -> io::Result<Wait> {
        let version = Version::of(metadata);
        let mut known = self.lock();
        let receiver = if let Some(digest) = known.digests.get(&version) {
            watch::channel(State::Done(Some(*digest))).1
        } else if let Some(job) = known.jobs.get(&version) {
            let receiver = job.state.subscribe();
            if let Some(place) = known.paused.iter().position(|paused| *paused == version) {
                known.paused.remove(place);
                self.enqueue(&mut known, version);
            }
            receiver
        } else {
            let is_settled = version.is_settled(SystemTime::now(), self.coarsest_time);
            let work = Work { file: file.try_clone()?, hasher: Sha256::new(), at: 0, is_settled };
            let (state, receiver) = watch::channel(State::UnderWay);
            known.jobs.insert(version, Job { work: Some(work), state });
            self.enqueue(&mut known, version);
            receiver
        };
        Ok(Wait { cache: self.clone(), version, state: Some(receiver) })
    }

    fn enqueue(&self, known: &mut Known, version: Version) {
        let lane = &mut known.lanes[version.lane()];
        lane.queue.push_back(version);
        if lane.workers < MOST_AT_ONCE[version.lane()] {
            lane.workers += 1;
            let cache = self.clone();
            tokio::task::spawn_blocking(move || cache.work(version.lane()));
        }
    }

    /// Reads slice after slice, until nobody waits for any.
    fn work(&self, lane: usize) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some((version, mut work)) = self.next(lane) {
            let before = work.at;
            let result = work.go_on(version, &mut buffer);
            let mut known = self.lock();
            known.read_bytes += work.at - before;
            match result {
                Ok(false) => known.put_back(version, work),
                Ok(true) => known.finish(version, Some(Digest::of(work.hasher)), work.is_settled),
                Err(_) => known.finish(version, None, false),
            }
        }
    }

    fn next(&self, lane: usize) -> Option<(Version, Work)> {
        let mut known = self.lock();
        while let Some(version) = known.lanes[lane].queue.pop_front() {
            if let Some(work) = known.jobs.get_mut(&version).and_then(|job| job.work.take()) {
                return Some((version, work));
            }
        }
        known.lanes[lane].workers -= 1;
        None
    }

    /// Bytes that were read of all files so far, and whether any is being read.
    pub(super) fn activity(&self) -> (u64, bool) {
        let known = self.lock();
        (known.read_bytes, known.lanes.iter().any(|lane| lane.workers > 0))
    }
}

impl Known {
    /// A job that waits for its turn, and for which nobody waits any more, goes.
    fn forget_if_unwanted(&mut self, version: Version) {
        let Some(job) = self.jobs.get_mut(&version).filter(|job| job.state.receiver_count() == 0) else {
            return;
        };
        // A worker sees for itself, at the end of its slice.
        if self.paused.contains(&version) {
            return;
        }
        if let Some(work) = job.work.take() {
            self.lanes[version.lane()].queue.retain(|queued| *queued != version);
            self.pause(version, work);
        }
    }

    /// After a slice: to the end of the queue.
    fn put_back(&mut self, version: Version, work: Work) {
        match self.jobs.get_mut(&version) {
            Some(job) if job.state.receiver_count() > 0 => {
                job.work = Some(work);
                self.lanes[version.lane()].queue.push_back(version);
            }
            _ => self.pause(version, work),
        }
    }

    /// Keeps what was done, if it is worth something: a file that was just changed can change without having another
    /// time.
    fn pause(&mut self, version: Version, work: Work) {
        if work.at == 0 || !work.is_settled {
            self.jobs.remove(&version);
            return;
        }
        if let Some(job) = self.jobs.get_mut(&version) {
            job.work = Some(work);
            self.paused.push_back(version);
        }
        if self.paused.len() > MOST_PAUSED
            && let Some(oldest) = self.paused.pop_front()
        {
            self.jobs.remove(&oldest);
        }
    }

    fn finish(&mut self, version: Version, digest: Option<Digest>, is_kept: bool) {
        if let Some(job) = self.jobs.remove(&version) {
            job.state.send_replace(State::Done(digest));
        }
        let Some(digest) = digest.filter(|_| is_kept) else { return };
        self.digests.insert(version, digest);
        self.order.push_back(version);
        if self.order.len() > MOST_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::digest_of;

    /// More than can be read while a test runs.
    const HUGE_BYTES: u64 = 50 << 30;

    fn file(folder: &tempfile::TempDir, name: &str, content: &str) -> File {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        File::open(path).expect("the file")
    }

    /// A file without content, which takes no room.
    fn sparse(folder: &tempfile::TempDir, name: &str, bytes: u64) -> (File, Metadata) {
        let file = file(folder, name, "");
        let writable = File::options().write(true).open(folder.path().join(name)).expect("the file");
        writable.set_len(bytes).expect("room");
        let metadata = file.metadata().expect("metadata");
        (file, metadata)
    }

    async fn ask(cache: &DigestCache, file: &File) -> Option<Digest> {
        cache.digest(file, &file.metadata().expect("metadata")).expect("a descriptor").digest().await
    }

    /// Waits until no worker is left.
    async fn rest(cache: &DigestCache) {
        while cache.activity().1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// For which all files were changed long ago.
    fn patient() -> DigestCache {
        DigestCache { coarsest_time: Duration::ZERO, ..DigestCache::default() }
    }

    #[test]
    fn requests_at_the_same_time_share_one_computation() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(share_one_computation());
    }

    async fn share_one_computation() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DigestCache::default();
        let file = file(&folder, "file", "content");
        // The only worker is busy until all have asked.
        let (all_asked, waits) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || waits.recv());
        let mut all = futures_util::future::join_all((0..20).map(|_| ask(&cache, &file)));
        assert!(futures_util::poll!(&mut all).is_pending());
        drop(all_asked);
        let (all, _) = tokio::join!(all, busy);
        let own = digest_of(&folder.path().join("file"), None).await.ok();
        assert!(own.is_some() && all.iter().all(|digest| *digest == own));
        assert_eq!(cache.activity().0, 7);
        // Too young to be remembered: it may change without having another time.
        let known = cache.lock();
        assert!(known.digests.is_empty() && known.order.is_empty() && known.jobs.is_empty());
    }

    #[test]
    fn only_old_files_are_told_apart_by_their_times() {
        let version = Version([0; 3], [5_000_000_000, 7_000_000_000]);
        let at = |seconds| version.is_settled(UNIX_EPOCH + Duration::from_secs(seconds), COARSEST_TIME);
        assert!(!at(6) && !at(9) && at(10));
    }

    #[tokio::test]
    async fn a_file_that_changes_meanwhile_has_no_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DigestCache::default();
        let file = file(&folder, "file", "content");
        let before = file.metadata().expect("metadata");
        std::fs::write(folder.path().join("file"), "other content").expect("room");
        assert_eq!(cache.digest(&file, &before).expect("a descriptor").digest().await, None);
        assert!(cache.lock().digests.is_empty() && cache.lock().jobs.is_empty());
        assert_eq!(ask(&cache, &file).await, digest_of(&folder.path().join("file"), None).await.ok());
    }

    #[tokio::test]
    async fn small_files_do_not_wait_for_large_ones_nor_large_ones_for_larger_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = DigestCache::default();
        let huge: Vec<_> = (0..8)
            .map(|number| {
                let (file, metadata) = sparse(&folder, &number.to_string(), HUGE_BYTES);
                cache.digest(&file, &metadata).expect("a descriptor")
            })
            .collect();
        for number in 0..10 {
            let name = format!("small {number}");
            let small = file(&folder, &name, &name);
            assert_eq!(ask(&cache, &small).await, digest_of(&folder.path().join(name), None).await.ok());
        }
        let (large, _) = sparse(&folder, "large", 3 * SLICE_BYTES);
        assert!(ask(&cache, &large).await.is_some());
        // Each of the others had its turn a few times. One file after the other would be 50 GiB.
        assert!(cache.activity().0 < HUGE_BYTES, "{:?}", cache.activity());
        drop(huge);
        rest(&cache).await;
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_read_and_what_was_read_is_not_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = patient();
        let (huge, metadata) = sparse(&folder, "huge", HUGE_BYTES);
        let wait = cache.digest(&huge, &metadata).expect("a descriptor");
        let second = cache.digest(&huge, &metadata).expect("a descriptor");
        drop(wait);
        while cache.activity().0 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(second);
        rest(&cache).await;
        let (read, _) = cache.activity();
        assert!(read < HUGE_BYTES && cache.lock().paused.len() == 1);
        let again = cache.digest(&huge, &metadata).expect("a descriptor");
        assert!(cache.lock().paused.is_empty());
        while cache.activity().0 == read {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(again);
        rest(&cache).await;
        let known = cache.lock();
        let at = known.jobs.values().map(|job| job.work.as_ref().map(|work| work.at));
        assert_eq!(at.collect::<Vec<_>>(), [Some(known.read_bytes)], "it goes on from where it was");
    }

    #[tokio::test]
    async fn what_is_kept_of_those_who_went_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = patient();
        for number in 0..MOST_PAUSED + 5 {
            let (file, metadata) = sparse(&folder, &number.to_string(), HUGE_BYTES);
            let wait = cache.digest(&file, &metadata).expect("a descriptor");
            let before = cache.activity().0;
            while cache.activity().0 == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(wait);
            rest(&cache).await;
        }
        // One that may never have its turn.
        let (file, metadata) = sparse(&folder, "late", HUGE_BYTES);
        drop(cache.digest(&file, &metadata).expect("a descriptor"));
        rest(&cache).await;
        let known = cache.lock();
        assert_eq!((known.paused.len(), known.jobs.len()), (MOST_PAUSED, MOST_PAUSED));
        assert!(known.lanes.iter().all(|lane| lane.queue.is_empty()));
    }
}

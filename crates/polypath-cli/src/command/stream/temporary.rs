//! A folder that goes at the end, and folders that were left behind by processes that were killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

const PREFIX: &str = "polypath-stream-";
/// It is locked by whoever uses the folder.
const LOCK: &str = ".lock";
/// A folder that is younger may be one whose owner has not locked it yet.
const LEAST_AGE: Duration = Duration::from_secs(10);

pub(super) struct Temporary {
    folder: TempDir,
    _lock: File,
}

impl Temporary {
    /// Makes one, and removes those that nobody uses any more.
    pub(super) fn create() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir(), LEAST_AGE)
    }

    fn create_in(place: &Path, least_age: Duration) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        let owner = fs::metadata(folder.path())?.uid();
        // What can't be removed is no business of this stream.
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                let _ = remove_unused(&entry.path(), owner, least_age);
            }
        }
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn remove_unused(folder: &Path, owner: u32, least_age: Duration) -> io::Result<()> {
    let is_ours = |metadata: &fs::Metadata| metadata.uid() == owner;
    // No link, wherever it leads.
    let metadata = fs::symlink_metadata(folder)?;
    let place = folder.join(LOCK);
    let of_lock = fs::symlink_metadata(&place)?;
    if !(metadata.is_dir() && is_ours(&metadata) && of_lock.is_file() && is_ours(&of_lock)) {
        return Ok(());
    }
    let age = SystemTime::now().duration_since(of_lock.modified()?).unwrap_or_default();
    if age < least_age {
        return Ok(());
    }
    let lock = File::open(&place)?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let used = Temporary::create_in(place.path(), Duration::ZERO).expect("a folder");
        let left = ["polypath-stream-left", "polypath-stream-unknown", "other"].map(at);
        for folder in &left {
            fs::create_dir(folder).expect("a folder");
            fs::write(folder.join("video-000000.ts"), "a").expect("a file");
        }
        for folder in [&left[0], &left[2]] {
            fs::write(folder.join(LOCK), "").expect("a file");
        }
        let young = Temporary::create_in(place.path(), LEAST_AGE).expect("a folder");
        assert!(left.iter().all(|folder| folder.exists()), "they are young");
        let new = Temporary::create_in(place.path(), Duration::ZERO).expect("a folder");
        assert_eq!(left.map(|folder| folder.exists()), [false, true, true]);
        assert!([&used, &young, &new].iter().all(|folder| folder.path().exists()));
    }
}

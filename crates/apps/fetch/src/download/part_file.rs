//! A file while it is incomplete: its bytes beside the place where it will be, and which of them are there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};

use crate::answer::{Digest, Version};
use crate::schedule::Ranges;

/// The layout of what says which bytes are there.
const LAYOUT: u32 = 1;
/// The same where the bytes are of several servers: whoever does not know of digests must not go on with them.
const LAYOUT_OF_SEVERAL: u32 = 2;
/// Nobody keeps a list of gaps that is longer.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Which bytes of which version of what are there.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    layout: u32,
    url: String,
    version: Version,
    ranges: Vec<(u64, u64)>,
    /// What the whole is to be compared with, as the bytes are of several servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    digests: Vec<Digest>,
}

/// What an earlier attempt left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) ranges: Ranges,
    pub(super) version: Option<Version>,
    /// Without these nobody knows whether its bytes fit together.
    pub(super) digests: Vec<Digest>,
    /// Of which of the URLs its version is, by number.
    pub(super) of: usize,
}

/// A file under way: `FILE.parts` has its bytes, and `FILE.parts.json` says which.
#[derive(Debug)]
pub(super) struct PartFile {
    place: PathBuf,
    parts: PathBuf,
    record: PathBuf,
    file: File,
}

fn beside(place: &Path, ending: &str) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

impl PartFile {
    /// Opens the parts of a file, and reads what is there of it if that is to be used. `urls`: of each place from which it may be.
    pub(super) fn open(place: &Path, urls: &[String], resume: bool) -> io::Result<(Self, Left)> {
        let (parts, record) = (beside(place, ".parts"), beside(place, ".parts.json"));
        let file = loop {
            let file = open_alone(&parts)?;
            // Another download may have made it the file, or removed it, before it was locked here.
            if is_named(&file, &parts) {
                break file;
            }
        };
        let known = record_at(&record);
        if known.is_none() && file.metadata()?.len() > 0 {
            let problem = format!(
                "{} is there, which no download left; expected another name, or that file away",
                parts.display()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        let mut left =
            if resume { known.map(|known| known.left(urls)).unwrap_or_default() } else { Left::default() };
        if left.version.is_none() {
            file.set_len(0)?;
            remove(&record)?;
        }
        // What the record has, and the file has not, is not there.
        let len = file.metadata()?.len();
        left.ranges.remove(len..u64::MAX);
        Ok((Self { place: place.into(), parts, record, file }, left))
    }

    /// Whether an earlier attempt left something of a file.
    pub(super) fn is_left(place: &Path) -> bool {
        fs::symlink_metadata(beside(place, ".parts.json")).is_ok()
    }

    /// Where the file will be.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Where it is meanwhile.
    pub(super) fn parts(&self) -> &Path {
        &self.parts
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Forgets what is there.
    pub(super) fn clear(&self) -> io::Result<()> {
        remove(&self.record)?;
        self.file.set_len(0)
    }

    /// Writes down which bytes are there, and if they are of several servers, with what the whole is to be compared. A record is whole
    /// or the one before.
    pub(super) fn save(
        &self,
        url: &str,
        version: &Version,
        ranges: &Ranges,
        digests: &[Digest],
    ) -> io::Result<()> {
        let ranges = ranges.iter().map(|range| (range.start, range.end)).collect();
        let layout = if digests.is_empty() { LAYOUT } else { LAYOUT_OF_SEVERAL };
        let (version, digests) = (version.clone(), digests.to_vec());
        let record = Record { layout, url: url.into(), version, ranges, digests };
        let text = serde_json::to_vec(&record).map_err(io::Error::other)?;
        let new = beside(&self.record, ".new");
        remove(&new)?;
        let written = OpenOptions::new().write(true).create_new(true).open(&new);
        let written = written.and_then(|mut file| file.write_all(&text));
        written.and_then(|()| fs::rename(&new, &self.record)).inspect_err(|_| {
            // A full disk is to have no more of it; what was wrong with it is said already.
            let _ = remove(&new);
        })
    }

    pub(super) fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The file is complete: it gets its place.
    pub(super) fn finish(self, total: u64) -> io::Result<()> {
        // A longer one was there before.
        self.file.set_len(total)?;
        if !is_named(&self.file, &self.parts) {
            // It is not of the bytes that are there now.
            remove(&self.record)?;
            let problem = "its parts were removed, or replaced by others, while they came";
            return Err(io::Error::other(problem));
        }
        // Who could read the file before still can, and nobody else.
        if let Ok(before) = fs::metadata(&self.place) {
            self.file.set_permissions(before.permissions())?;
        }
        fs::rename(&self.parts, &self.place)?;
        remove(&self.record)
    }

    /// Nothing stays where it was.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.record)?;
        remove(&self.parts)
    }
}

/// Puts a file at its place whose bytes are all there. Whoever looks there finds it whole, or what was there before.
pub(super) fn place_whole(place: &Path, bytes: &[Bytes]) -> io::Result<()> {
    let parts = beside(place, ".parts");
    let mut file = match open_locked(OpenOptions::new().create_new(true), &parts) {
        // Another download that had it meanwhile, all of it, has made it the file: then it is not empty.
        Ok(file) if file.metadata().is_ok_and(|found| found.len() == 0) => file,
        Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock) => {
            return Err(error);
        }
        // An earlier attempt left some.
        Ok(_) | Err(_) => {
            let (file, _) = PartFile::open(place, &[], false)?;
            let mut at = 0;
            for bytes in bytes {
                file.write(at, bytes)?;
                at += bytes.len() as u64;
            }
            return file.finish(at);
        }
    };
    let written = bytes.iter().try_for_each(|bytes| file.write_all(bytes));
    let placed = written.and_then(|()| {
        // Mostly nothing is there; not every file system can tell on the way.
        if renameat_with(CWD, &parts, CWD, place, RenameFlags::NOREPLACE).is_ok() {
            return Ok(());
        }
        // Who could read the file before still can, and nobody else.
        if let Ok(before) = fs::metadata(place) {
            file.set_permissions(before.permissions())?;
        }
        fs::rename(&parts, place)
    });
    placed.inspect_err(|_| {
        // What was wrong is said already.
        let _ = remove(&parts);
    })
}

/// Opens a file for this process alone.
fn open_alone(place: &Path) -> io::Result<File> {
    open_locked(OpenOptions::new().read(true).create(true).truncate(false), place)
}

fn open_locked(options: &mut OpenOptions, place: &Path) -> io::Result<File> {
    // A link of somebody else's leads elsewhere.
    let file = options.write(true).custom_flags(libc::O_NOFOLLOW).open(place)?;
    // Two that write one file would mix two versions.
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::WouldBlock, "another download of it is under way")
        }
        TryLockError::Error(error) => error,
    })?;
    Ok(file)
}

/// Whether an open file has this name.
fn is_named(file: &File, place: &Path) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::symlink_metadata(place)) {
        (Ok(open), Ok(named)) => id(open) == id(named),
        _ => false,
    }
}

/// The text of a record; none if it is no file of ours. A pipe or a device would make us wait, or never end.
fn text_of(place: &Path) -> Option<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(place).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > MAX_RECORD_BYTES {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

fn remove(place: &Path) -> io::Result<()> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A record that is none is as good as none.
fn record_at(place: &Path) -> Option<Record> {
    let record = text_of(place).and_then(|text| serde_json::from_slice::<Record>(&text).ok());
    record.filter(|record| match record.layout {
        LAYOUT => record.digests.is_empty(),
        LAYOUT_OF_SEVERAL => !record.digests.is_empty(),
        _ => false,
    })
}

impl Record {
    /// What is there of the file of one of these URLs.
    fn left(self, urls: &[String]) -> Left {
        // Without a validator nobody knows whether the rest is of the same file.
        let total = self.version.total().filter(|_| self.version.validator().is_some());
        let of = urls.iter().position(|url| *url == self.url);
        let Some((total, of)) = total.zip(of) else { return Left::default() };
        let mut ranges = Ranges::new();
        for (start, end) in self.ranges {
            ranges.insert(start..end.max(start));
        }
        ranges.remove(total..u64::MAX);
        Left { ranges, version: Some(self.version), digests: self.digests, of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_can_not_be_written_leaves_nothing_beside_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("file");
        let (file, _) = PartFile::open(&place, &[], false).expect("parts");
        // A folder at its place can't be replaced, as a full disk takes nothing.
        fs::create_dir_all(file.record.join("inside")).expect("a folder");
        let saved = file.save("http://192.0.2.1/", &Version::default(), &Ranges::new(), &[]);
        assert!(saved.is_err());
        assert!(!beside(&file.record, ".new").exists());
    }

    #[test]
    fn a_whole_file_takes_the_place_of_what_was_there_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("file");
        let names = || fs::read_dir(folder.path()).expect("a folder").count();
        let bytes = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        place_whole(&place, &bytes).expect("a file");
        assert_eq!((fs::read(&place).expect("a file"), names()), (b"one two".to_vec(), 1));
        // Longer parts of an earlier attempt, and its record.
        let (file, _) = PartFile::open(&place, &[], false).expect("parts");
        file.save("http://192.0.2.1/", &Version::default(), &Ranges::new(), &[]).expect("a record");
        file.write(0, &[0; 100]).expect("room");
        drop(file);
        fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a file");
        place_whole(&place, &bytes[1..]).expect("a file");
        assert_eq!((fs::read(&place).expect("a file"), names()), (b"two".to_vec(), 1));
        place_whole(&place, &[]).expect("a file");
        let found = fs::metadata(&place).expect("a file");
        assert_eq!((found.len(), found.mode() & 0o777), (0, 0o600));
        // Somebody else is at it.
        let _held = PartFile::open(&place, &[], false).expect("parts");
        assert!(place_whole(&place, &bytes).is_err());
        assert_eq!(fs::metadata(&place).expect("a file").len(), 0);
        // No file can be where a folder is.
        let place = folder.path().join("folder");
        fs::create_dir(&place).expect("a folder");
        assert!(place_whole(&place, &bytes).is_err());
        assert!(!beside(&place, ".parts").exists());
    }

    #[test]
    fn what_no_download_left_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, parts) = (folder.path().join("car"), folder.path().join("car.parts"));
        fs::write(&parts, "wheels").expect("a file");
        let refused = PartFile::open(&place, &[], false).expect_err("somebody's file");
        assert!(refused.to_string().contains("car.parts is there, which no download left"), "{refused}");
        assert_eq!(fs::read(&parts).expect("it"), b"wheels");
        // Of another file, or not to go on with, it is ours all the same.
        fs::remove_file(&parts).expect("it");
        let (file, _) = PartFile::open(&place, &[], false).expect("parts");
        file.save("http://192.0.2.1/", &Version::default(), &Ranges::new(), &[]).expect("a record");
        file.write(0, b"wheels").expect("room");
        drop(file);
        let (_, left) = PartFile::open(&place, &["http://192.0.2.2/".into()], true).expect("parts");
        assert!(left.version.is_none() && fs::read(&parts).expect("it").is_empty());
    }
}

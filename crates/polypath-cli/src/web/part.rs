//! A download that is not all there, under a name that says so, with what it takes to go on safely.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

use super::digest::{Digest, hash};
use super::identity::Identity;

/// How much may arrive, and how long, until it is noted how far the part is to be trusted.
const CHECKPOINT_BYTES: u64 = 16 << 20;
const CHECKPOINT_TIME: Duration = Duration::from_secs(1);
/// A record is a few hundred bytes.
const MAX_RECORD_BYTES: u64 = 64 << 10;
/// Blocks between the connection and the disk.
const QUEUED_BLOCKS: usize = 16;

/// What stands beside a part, in JSON.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// The whole file.
    file: Identity,
    /// So much of the part has this sum.
    bytes: u64,
    sha256: String,
    /// So many of its first bytes were a file of somebody else's, which gets them back if they are no part of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adopted_bytes: Option<u64>,
}

/// Where a download goes, and the sum of what went there.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    hasher: Sha256,
    bytes: u64,
    checkpoints: Option<Checkpoints>,
}

#[derive(Debug)]
struct Checkpoints {
    part: PathBuf,
    file: Identity,
    adopted_bytes: Option<u64>,
    bytes: u64,
    at: Instant,
}

/// What is there of a download that broke off.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// Bytes that we wrote, of a file that we know, after so many that were somebody else's.
    Ours(Sink, Identity, Option<u64>),
    /// Bytes of which nothing is known.
    Unknown(Sink),
    /// Bytes that we wrote, and that are others now.
    Damaged,
}

fn record_place(part: &Path) -> PathBuf {
    beside(part, ".json")
}

/// The record's name until it is all there.
fn new_record_place(part: &Path) -> PathBuf {
    beside(part, ".json.new")
}

fn beside(part: &Path, ending: &str) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Opens a part for this process alone. [`io::ErrorKind::WouldBlock`] if another one writes it. What is of another user,
/// or has another name, is no part of ours: an error, or where a new one is wanted, that takes its place.
fn open_alone(place: &Path, is_new: bool) -> io::Result<File> {
    loop {
        let made = is_new.then(|| OpenOptions::new().read(true).write(true).create_new(true).open(place));
        let (file, is_made) = match made {
            Some(Err(error)) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Some(Ok(file)) => (file, true),
            _ => match open_regular(place, OFlags::NOFOLLOW) {
                // It went between the two.
                Err(error) if is_new && error.kind() == io::ErrorKind::NotFound => continue,
                file => (file?, false),
            },
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // It may have become the whole file between the two.
        let (here, there) = (file.metadata()?, fs::symlink_metadata(place));
        if !there.is_ok_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino())) {
            continue;
        }
        // Some file systems give what we make to another user.
        let owned = if is_made { Ok(()) } else { own_alone(&file) };
        match owned {
            Ok(()) => return Ok(file),
            Err(_) if is_new => remove_if_there(place)?,
            Err(error) => return Err(error),
        }
    }
}

/// Opens a file to read and write. A pipe or device would make us wait for ever.
fn open_regular(place: &Path, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(place)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device; expected a regular file"))
}

/// An error for a file of another user, who may change it, or one with another name, where a change would show.
fn own_alone(file: &File) -> io::Result<()> {
    let file = file.metadata()?;
    let problem = if file.uid() != rustix::process::geteuid().as_raw() {
        "it is another user's; expected a file of your own"
    } else if file.nlink() > 1 {
        "it has another name, too (a hard link); expected a file with one name"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

impl Sink {
    /// A stream that nobody can take back from.
    pub(super) fn stream(file: File) -> Self {
        Self { file, hasher: Sha256::new(), bytes: 0, checkpoints: None }
    }

    /// An empty part.
    pub(super) fn create(place: &Path) -> io::Result<Self> {
        Self::stream(open_alone(place, true)?).emptied(place)
    }

    /// The same part without its bytes.
    pub(super) fn emptied(mut self, place: &Path) -> io::Result<Self> {
        self.file.set_len(0)?;
        // After the bytes: an empty part needs no record, and bytes without one are trusted less.
        forget(place)?;
        self.file.rewind()?;
        Ok(Self::stream(self.file))
    }

    /// What is there under the name of a part.
    pub(super) fn find(place: &Path) -> io::Result<Found> {
        let mut file = match open_alone(place, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            result => result?,
        };
        let length = file.metadata()?.len();
        let Some(record) = read_record(place).filter(|_| length > 0) else {
            let hasher = hash(&mut file, None)?;
            let bytes = file.stream_position()?;
            let sink = Self { file, hasher, bytes, checkpoints: None };
            return Ok(if bytes == 0 { Found::Nothing } else { Found::Unknown(sink) });
        };
        if length < record.bytes {
            return Ok(Found::Damaged);
        }
        let hasher = hash(&mut file, Some(record.bytes))?;
        if Digest::of(hasher.clone()).to_hex() != record.sha256 {
            return Ok(Found::Damaged);
        }
        // What came after the last note is not worth a doubt.
        file.set_len(record.bytes)?;
        let sink = Self { file, hasher, bytes: record.bytes, checkpoints: None };
        Ok(Found::Ours(sink, record.file, record.adopted_bytes))
    }

    /// A file with any name, to go on with it if it turns out to be a part.
    pub(super) fn read(place: &Path) -> io::Result<Self> {
        let mut file = open_regular(place, OFlags::empty())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let hasher = hash(&mut file, None)?;
        let bytes = file.stream_position()?;
        Ok(Self { file, hasher, bytes, checkpoints: None })
    }

    /// Notes from now on how far the part at this place has come, for whoever goes on with it.
    pub(super) fn keep_record(&mut self, part: &Path, file: Identity, adopted_bytes: Option<u64>) {
        let (part, at) = (part.to_path_buf(), Instant::now());
        self.checkpoints = Some(Checkpoints { part, file, adopted_bytes, bytes: self.bytes, at });
    }

    /// An error if the file is not ours alone.
    pub(super) fn own_alone(&self) -> io::Result<()> {
        own_alone(&self.file)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of(self.hasher.clone())
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.file.write_all(block)?;
        self.hasher.update(block);
        self.bytes += block.len() as u64;
        let is_due = self.checkpoints.as_ref().is_some_and(|last| {
            self.bytes - last.bytes >= CHECKPOINT_BYTES || last.at.elapsed() >= CHECKPOINT_TIME
        });
        if is_due { self.note() } else { Ok(()) }
    }

    /// Notes how far it has come.
    pub(super) fn note(&mut self) -> io::Result<()> {
        let sha256 = self.digest().to_hex();
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        (checkpoints.bytes, checkpoints.at) = (self.bytes, Instant::now());
        let (file, adopted_bytes) = (checkpoints.file.clone(), checkpoints.adopted_bytes);
        let record = Record { file, bytes: self.bytes, sha256, adopted_bytes };
        let new = new_record_place(&checkpoints.part);
        let written = write_anew(&new, &serde_json::to_vec(&record)?);
        let result = written.and_then(|()| fs::rename(&new, record_place(&checkpoints.part)));
        // On a full disk, half a record is of no use.
        result.inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Cuts off what was written in part, and notes the rest.
    fn settle(&mut self) {
        if self.checkpoints.is_some() {
            // On a full disk the last note stays, which is right, too.
            let _ = self.file.set_len(self.bytes);
            let _ = self.note();
        }
    }

    /// Gives the part its final name, and the permissions of the file that it replaces.
    pub(super) fn finish(&self, part: &Path, place: &Path) -> io::Result<()> {
        if let Ok(replaced) = fs::metadata(place) {
            self.file.set_permissions(replaced.permissions())?;
        }
        // Errors of what is written back late are told here; what has its name is all there.
        self.file.sync_all()?;
        fs::rename(part, place)?;
        forget(part)
    }
}

/// Removes a part and its record.
pub(super) fn discard(part: &Path) -> io::Result<()> {
    remove_if_there(part)?;
    forget(part)
}

/// Gives a part that began as a file of somebody else's its first bytes and another name, and says whether it was one.
pub(super) fn give_back(part: &Path, name: &Path) -> io::Result<bool> {
    let Some(bytes) = read_record(part).and_then(|record| record.adopted_bytes) else { return Ok(false) };
    let file = match open_regular(part, OFlags::NOFOLLOW) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    own_alone(&file)?;
    if file.metadata()?.len() > bytes {
        file.set_len(bytes)?;
    }
    fs::rename(part, name)?;
    forget(part).map(|()| true)
}

/// Removes what stands beside a part.
pub(super) fn forget(part: &Path) -> io::Result<()> {
    remove_if_there(&record_place(part))?;
    remove_if_there(&new_record_place(part))
}

/// Writes a file in place of whatever has its name: what a link leads to stays as it is.
fn write_anew(place: &Path, content: &[u8]) -> io::Result<()> {
    remove_if_there(place)?;
    OpenOptions::new().write(true).create_new(true).open(place)?.write_all(content)
}

fn remove_if_there(place: &Path) -> io::Result<()> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// None if there is none that makes sense: then nothing is known of the part.
fn read_record(part: &Path) -> Option<Record> {
    let mut text = Vec::new();
    // A pipe must not make anybody wait.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(record_place(part)).ok()?;
    // Another user's would have us believe anything.
    own_alone(&file).ok()?;
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// A thread that writes to a sink what it is given, so that neither disk nor sums keep the connection waiting.
#[derive(Debug)]
pub(super) struct Writer {
    blocks: mpsc::Sender<Bytes>,
    done: oneshot::Receiver<(Sink, io::Result<()>)>,
}

impl Writer {
    /// No task of the runtime: a pipe that nobody reads must not keep the process from its end.
    pub(super) fn start(mut sink: Sink) -> io::Result<Self> {
        let (blocks, mut queue) = mpsc::channel::<Bytes>(QUEUED_BLOCKS);
        let (tell, done) = oneshot::channel();
        let work = move || {
            let mut result = Ok(());
            while let Some(block) = queue.blocking_recv() {
                result = sink.write(&block);
                if result.is_err() {
                    break;
                }
            }
            sink.settle();
            drop(queue);
            // Whoever gave up before has no use for it.
            let _ = tell.send((sink, result));
        };
        std::thread::Builder::new().name("polypath-writer".into()).spawn(work)?;
        Ok(Self { blocks, done })
    }

    /// False if nothing more can be written; [`Writer::finish`] says why.
    pub(super) async fn write(&self, block: Bytes) -> bool {
        self.blocks.send(block).await.is_ok()
    }

    /// The sink with all that was written.
    pub(super) async fn finish(self) -> (Option<Sink>, io::Result<()>) {
        drop(self.blocks);
        match self.done.await {
            Ok((sink, result)) => (Some(sink), result),
            Err(_) => (None, Err(io::Error::other("the thread that writes has ended"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { etag: Some("\"a\"".into()), length: Some(100), ..Identity::default() }
    }

    /// A part of 10 bytes that broke off.
    fn broken_off(place: &Path) {
        let mut sink = Sink::create(place).expect("a part");
        sink.keep_record(place, identity(), None);
        sink.write(b"0123456789").expect("room");
        sink.settle();
    }

    #[test]
    fn a_part_goes_on_where_its_sum_is_right_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("file.part");
        assert!(matches!(Sink::find(&place).expect("no part"), Found::Nothing));
        broken_off(&place);
        // What was written after the last note, as by a process that was killed.
        OpenOptions::new().append(true).open(&place).expect("the part").write_all(b"xx").expect("room");
        let Found::Ours(sink, file, None) = Sink::find(&place).expect("the part") else { panic!("not ours") };
        assert_eq!((sink.bytes(), file), (10, identity()));
        let busy = Sink::find(&place).expect_err("another one");
        assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(Sink::create(&place).expect_err("another one").kind(), io::ErrorKind::WouldBlock);
        drop(sink);
        assert_eq!(fs::read(&place).expect("the part"), b"0123456789");
        for damaged in [&b"012345678X"[..], b"01234"] {
            fs::write(&place, damaged).expect("room");
            assert!(matches!(Sink::find(&place).expect("a part"), Found::Damaged), "{damaged:?}");
        }
        fs::write(record_place(&place), "nonsense").expect("room");
        assert!(matches!(Sink::find(&place).expect("a part"), Found::Unknown(_)));
        discard(&place).expect("it goes");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn a_record_is_not_written_where_a_link_leads() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, whole) = (folder.path().join("file.part"), folder.path().join("file"));
        let others = folder.path().join("others");
        fs::write(&others, "others").expect("room");
        let mut sink = Sink::create(&place).expect("a part");
        sink.keep_record(&place, identity(), None);
        sink.write(b"0123456789").expect("room");
        // Somebody waits for the part to be there.
        std::os::unix::fs::symlink("others", new_record_place(&place)).expect("a link");
        sink.settle();
        drop(sink);
        assert_eq!(fs::read(&others).expect("the file"), b"others");
        assert!(read_record(&place).is_some());
        // A process that was killed may leave half a record.
        for end in [
            |part: &Path, _: &Path| discard(part),
            |part: &Path, whole: &Path| Sink::create(part).expect("a part").finish(part, whole),
        ] {
            fs::write(new_record_place(&place), "{").expect("room");
            end(&place, &whole).expect("it goes");
            let left = fs::read_dir(folder.path()).expect("the folder").flatten();
            assert!(!left.into_iter().any(|entry| entry.path().to_string_lossy().contains(".part")));
        }
    }

    #[test]
    fn what_cant_be_written_back_gets_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, whole) = (folder.path().join("file.part"), folder.path().join("file"));
        broken_off(&place);
        // Nothing can be written back of a pipe, and the system says so.
        let (_reader, pipe) = rustix::pipe::pipe().expect("a pipe");
        assert!(Sink::stream(pipe.into()).finish(&place, &whole).is_err());
        assert!(!whole.exists() && place.exists() && read_record(&place).is_some());
    }

    #[test]
    fn a_pipe_is_no_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("file.part");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &place, kind, mode, 0).expect("a pipe");
        for error in [Sink::find(&place).err(), Sink::create(&place).err(), Sink::read(&place).err()] {
            assert!(error.expect("an error").to_string().contains("expected a regular file"));
        }
    }

    #[test]
    fn what_is_not_ours_alone_is_no_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, other) = (folder.path().join("file.part"), folder.path().join("other"));
        broken_off(&place);
        fs::hard_link(&place, &other).expect("a link");
        assert!(Sink::find(&place).expect_err("a link").to_string().contains("a hard link"));
        Sink::create(&place).expect("another part");
        assert_eq!(fs::read(&other).expect("the file"), b"0123456789");
        assert_eq!(fs::metadata(&place).expect("the part").len(), 0);
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: another user's file needs root");
            return;
        }
        broken_off(&place);
        std::os::unix::fs::chown(&place, Some(1), None).expect("root");
        assert!(Sink::find(&place).expect_err("a file").to_string().contains("another user's"));
        Sink::create(&place).expect("another part");
        assert_eq!(fs::metadata(&place).expect("the part").uid(), 0);
    }

    #[test]
    fn a_new_part_forgets_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (place, whole) = (folder.path().join("file.part"), folder.path().join("file"));
        broken_off(&place);
        let mut sink = Sink::create(&place).expect("a part");
        assert!(!record_place(&place).exists());
        sink.write(b"new").expect("room");
        sink.finish(&place, &whole).expect("room");
        assert_eq!(fs::read(&whole).expect("the file"), b"new");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}

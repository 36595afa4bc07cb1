//! Files that clients put.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_RANGE, HeaderName};
use hyper::{Request, Response, StatusCode};
use polypath_system::console;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Body;
use super::blocking::blocking;
use super::blocks::{Memory, Room};
use super::conditions::{Preconditions, text};
use super::digest::{Digest, MalformedDigest, REPR_DIGEST, hash};
use super::files::{FileServer, part_name, plain, validators, value};
use super::inbound::{BrokenOff, Inbound};
use super::limits::{BODY_LIMIT, LEAST_BODY_BYTES};
use super::range::content_range;
use super::root::Root;

impl FileServer {
    pub(super) async fn put(
        &self,
        request: &Request<()>,
        body: &mut Inbound,
        names: Vec<String>,
    ) -> io::Result<Response<Body>> {
        let Some(name) = names.last().filter(|name| !name.is_empty()) else {
            return Ok(plain(StatusCode::BAD_REQUEST, "a file needs a name"));
        };
        let mut part = names.clone();
        part.pop();
        part.push(part_name(name));
        let conditions = Preconditions::of(request.headers());
        let Ok(told) = Digest::told_in(request.headers()) else { return Ok(bad(MALFORMED_DIGEST)) };
        let range = match text(request.headers(), CONTENT_RANGE) {
            None => None,
            Some(field) => match content_range(field) {
                Some((first, last, total)) if last + 1 == total => Some((first, total)),
                _ => return Ok(bad("expected the rest of a file in Content-Range")),
            },
        };
        let first = range.map_or(0, |(first, _)| first);
        let announced = body.length();
        let upload = Upload { root: self.root.clone(), part, names, conditions };
        let (upload, opened) = blocking(move || {
            let opened = upload.open(first)?;
            Ok((upload, opened))
        })
        .await?;
        let (file, hasher) = match opened {
            Opened::Ready(file, hasher) => (file, hasher),
            Opened::EndsElsewhere => {
                return Ok(plain(StatusCode::CONFLICT, "the upload that goes on has another length here"));
            }
            Opened::Unwanted => return Ok(unwanted()),
        };
        // Keeps the part's lock until it is known what becomes of it.
        let part = file.try_clone()?;
        let received = match receive(body, file, hasher, &self.memory).await {
            Err(error) if is_full(&error) => return Err(upload.give_up(part, error).await),
            received => received?,
        };
        let Received::Whole(file, stored, digest) = received else {
            return Ok(bad("the upload ends too early, or makes no sense"));
        };
        let total = first + stored;
        if announced.is_some_and(|bytes| bytes != stored) || range.is_some_and(|(_, wanted)| wanted != total)
        {
            return Ok(bad("the upload has another length than it said"));
        }
        let told = [Ok(told), Digest::told_in(body.trailers())];
        if told.iter().any(|told| *told != Ok(None) && *told != Ok(Some(digest))) {
            // Nobody knows which of its bytes are wrong.
            blocking(move || upload.discard(file)).await?;
            let is_malformed = told.contains(&Err(MalformedDigest));
            return Ok(bad(if is_malformed { MALFORMED_DIGEST } else { OTHER_DIGEST }));
        }
        let (upload, stored) = blocking(move || {
            let stored = upload.store(file);
            Ok((upload, stored))
        })
        .await?;
        let stored = match stored {
            Err(error) if is_full(&error) => return Err(upload.give_up(part, error).await),
            stored => stored?,
        };
        let status = match stored {
            Stored::Made => StatusCode::CREATED,
            Stored::Replaced => StatusCode::OK,
            Stored::Unwanted => return Ok(unwanted()),
        };
        let mut response = plain(status, "stored");
        response.headers_mut().insert(HeaderName::from_static(REPR_DIGEST), value(&digest.to_field()));
        Ok(response)
    }
}

const MALFORMED_DIGEST: &str = "this Repr-Digest makes no sense; expected one sha-256=:BASE64:";
const OTHER_DIGEST: &str = "what came differs from its Repr-Digest (SHA-256), and is not kept";

fn bad(message: &str) -> Response<Body> {
    plain(StatusCode::BAD_REQUEST, message)
}

fn unwanted() -> Response<Body> {
    plain(StatusCode::PRECONDITION_FAILED, "what is there is not what the conditions expect")
}

/// The disk has no room, or the user may have no more of it.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Where an upload goes.
#[derive(Debug)]
struct Upload {
    root: Arc<Root>,
    /// Its name until it is all there.
    part: Vec<String>,
    /// Its final name.
    names: Vec<String>,
    conditions: Preconditions,
}

/// What there is to write to. Who has the file has its lock, and nobody else writes it.
#[derive(Debug)]
enum Opened {
    Ready(File, Sha256),
    /// The part has another length than the client goes on from.
    EndsElsewhere,
    /// What is there is not what the client's conditions expect.
    Unwanted,
}

/// What became of a file that is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Made,
    Replaced,
    /// What is there is not what the client's conditions expect.
    Unwanted,
}

impl Upload {
    /// Makes the part ready to be written from `first` on.
    fn open(&self, first: u64) -> io::Result<Opened> {
        // What is in the way is found before anything is sent.
        let found = self.root.open(&self.names).and_then(|found| found.metadata());
        if found.is_ok_and(|found| found.is_dir()) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !self.is_wanted()? {
            return Ok(Opened::Unwanted);
        }
        self.root.make_parents(&self.part)?;
        let mut file = loop {
            let file = self.root.create(&self.part)?;
            if self.lock(&file)? {
                break file;
            }
        };
        if first == 0 {
            file.set_len(0)?;
        } else if file.metadata()?.len() != first {
            return Ok(Opened::EndsElsewhere);
        }
        let hasher = hash(&mut file, Some(first))?;
        file.seek(SeekFrom::Start(first))?;
        Ok(Opened::Ready(file, hasher))
    }

    /// Takes the part for one upload alone. False if it became a whole file between its opening and this.
    fn lock(&self, part: &File) -> io::Result<bool> {
        flock(part, FlockOperation::NonBlockingLockExclusive)?;
        self.root.has_at(&self.part, part)
    }

    /// Whether the conditions allow that what is there is replaced.
    fn is_wanted(&self) -> io::Result<bool> {
        if self.conditions.are_none() {
            return Ok(true);
        }
        let there = match self.root.open(&self.names) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(validators(&file?.metadata()?)?),
        };
        Ok(self.conditions.allow_change(there.as_ref()))
    }

    /// Gives the part its final name. Until it has it, nobody else can take the part: its lock goes with `file`.
    fn store(&self, file: File) -> io::Result<Stored> {
        // Errors of what is written back late are told here; what has its name is all there.
        file.sync_all()?;
        if !self.is_wanted()? {
            return Ok(Stored::Unwanted);
        }
        let is_new = self.root.open(&self.names).is_err();
        self.root.rename(&self.part, &self.names)?;
        drop(file);
        Ok(if is_new { Stored::Made } else { Stored::Replaced })
    }

    /// Removes what came before the disk was full, which would keep it full, and says so; returns why.
    async fn give_up(self, part: File, error: io::Error) -> io::Error {
        let name = self.names.join("/").escape_default().to_string();
        let removed = blocking(move || self.discard(part)).await;
        let what = match removed {
            Ok(()) => "what came of it is removed".to_string(),
            Err(error) => format!("what came of it can't be removed: {error}"),
        };
        console::tell(format_args!("polypath: /{name}: can't be stored: {error}; {what}"));
        error
    }

    /// Removes the part. Who opens it meanwhile finds out as in [`Upload::store`].
    fn discard(&self, file: File) -> io::Result<()> {
        self.root.remove(&self.part)?;
        drop(file);
        Ok(())
    }
}

/// A sender has to bring at least so many bytes in each period of waiting for it. What the disk takes does not count.
#[derive(Debug)]
struct LeastRate {
    period: Duration,
    least_bytes: u64,
    left: Duration,
    bytes: u64,
}

impl LeastRate {
    fn new(period: Duration, least_bytes: u64) -> Self {
        Self { period, least_bytes, left: period, bytes: 0 }
    }

    fn came(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Waits as long as the sender has time.
    async fn wait_for<T>(&mut self, next: impl Future<Output = T>) -> io::Result<T> {
        if self.bytes >= self.least_bytes {
            (self.left, self.bytes) = (self.period, 0);
        }
        let began = Instant::now();
        let result = tokio::time::timeout(self.left, next).await;
        self.left = self.left.saturating_sub(began.elapsed());
        result.map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

/// What came of a body.
enum Received {
    /// The file, how many bytes came, and the digest of all that is in the file.
    Whole(File, u64, Digest),
    /// The client broke off. What came stays in the part.
    BrokenOff,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    BrokenOff,
    TooSlow,
}

/// What came while the disk was busy.
#[derive(Debug)]
struct Batch {
    blocks: Vec<Bytes>,
    bytes: usize,
    room: Room,
}

impl Batch {
    fn new(memory: &Memory) -> Self {
        Self { blocks: Vec::new(), bytes: 0, room: memory.block(u64::MAX) }
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.room.bytes()
    }

    fn push(&mut self, block: Bytes) {
        self.bytes += block.len();
        self.blocks.push(block);
    }

    fn write(self, mut file: File, mut hasher: Sha256) -> io::Result<(File, Sha256)> {
        for block in &self.blocks {
            file.write_all(block)?;
            hasher.update(block);
        }
        Ok((file, hasher))
    }
}

/// Writes a body to a file. While the disk is busy, more of it is received, as far as there is room.
async fn receive(body: &mut Inbound, file: File, hasher: Sha256, memory: &Memory) -> io::Result<Received> {
    let mut stored = 0;
    let mut rate = LeastRate::new(BODY_LIMIT, LEAST_BODY_BYTES);
    let mut end = None;
    let mut batch: Option<Batch> = None;
    let mut idle = Some((file, hasher));
    let mut writing: Option<JoinHandle<io::Result<(File, Sha256)>>> = None;
    loop {
        if let Some((file, hasher)) = idle.take() {
            match (batch.take(), end) {
                (Some(batch), _) => {
                    writing = Some(tokio::task::spawn_blocking(move || batch.write(file, hasher)));
                }
                (None, None) => idle = Some((file, hasher)),
                (None, Some(End::Whole)) => return Ok(Received::Whole(file, stored, Digest::of(hasher))),
                (None, Some(End::BrokenOff)) => return Ok(Received::BrokenOff),
                (None, Some(End::TooSlow)) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        let has_room = end.is_none() && batch.as_ref().is_none_or(|batch| !batch.is_full());
        tokio::select! {
            Some(written) = async { Some(writing.as_mut()?.await) }, if writing.is_some() => {
                writing = None;
                idle = Some(written.map_err(io::Error::other)??);
            }
            received = rate.wait_for(body.block()), if has_room => match received {
                Ok(Ok(Some(block))) => {
                    stored += block.len() as u64;
                    rate.came(block.len() as u64);
                    batch.get_or_insert_with(|| Batch::new(memory)).push(block);
                }
                Ok(Ok(None)) => end = Some(End::Whole),
                Ok(Err(BrokenOff)) => end = Some(End::BrokenOff),
                Err(_) => end = Some(End::TooSlow),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// An upload of `file` in a folder.
    fn upload(folder: &Path) -> Upload {
        let conditions = Preconditions::of(&hyper::HeaderMap::new());
        let root = Arc::new(Root::new(folder).expect("a folder"));
        Upload { root, part: vec![".file.part".into()], names: vec!["file".into()], conditions }
    }

    fn ready(upload: &Upload) -> File {
        match upload.open(0).expect("a part") {
            Opened::Ready(file, _) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_part_is_one_uploads_until_it_has_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let upload = upload(folder.path());
        let mut first = ready(&upload);
        first.write_all(b"first").expect("room");
        // A second one comes just before the first has its name, and looks at what it opened just after.
        let late = upload.root.create(&upload.part).expect("the part");
        assert_eq!(upload.lock(&late).expect_err("in use").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(upload.open(0).expect_err("in use").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(upload.store(first).expect("room"), Stored::Made);
        assert!(!upload.lock(&late).expect("no error"), "what is stored is no part any more");
        drop(late);
        let second = ready(&upload);
        assert_eq!(fs::read(folder.path().join("file")).expect("the file"), b"first");
        assert_eq!(upload.store(second).expect("room"), Stored::Replaced);
        assert_eq!(fs::read(folder.path().join("file")).expect("the file"), b"");
    }

    #[tokio::test]
    async fn what_filled_the_disk_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let upload = upload(folder.path());
        let mut part = ready(&upload);
        part.write_all(b"as much as there was room for").expect("room");
        let held = part.try_clone().expect("a descriptor");
        drop(part);
        assert_eq!(upload.open(0).expect_err("in use").kind(), io::ErrorKind::WouldBlock);
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let error = (&full).write_all(b"x").expect_err("no room");
        assert!(is_full(&error));
        assert!(is_full(&upload.give_up(held, error).await));
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn what_cant_be_written_back_gets_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let upload = upload(folder.path());
        drop(ready(&upload));
        // Nothing can be written back of a pipe, and the system says so.
        let (_reader, pipe) = rustix::pipe::pipe().expect("a pipe");
        assert!(upload.store(pipe.into()).is_err());
        assert!(!folder.path().join("file").exists());
    }

    #[test]
    fn conditions_are_looked_at_again_before_a_file_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut upload = upload(folder.path());
        let fields = [(hyper::header::IF_NONE_MATCH, hyper::header::HeaderValue::from_static("*"))];
        upload.conditions = Preconditions::of(&fields.into_iter().collect());
        let part = ready(&upload);
        fs::write(folder.path().join("file"), "meanwhile").expect("room");
        assert_eq!(upload.store(part).expect("room"), Stored::Unwanted);
        assert!(matches!(upload.open(0).expect("no error"), Opened::Unwanted));
        assert_eq!(fs::read(folder.path().join("file")).expect("the file"), b"meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_brings_too_little_is_given_up() {
        for (pause, bytes, is_served) in [(29, 1, false), (29, 1000, true), (1, 20, false), (1, 40, true)] {
            let mut rate = LeastRate::new(Duration::from_secs(30), 1000);
            let mut result = Ok(());
            let began = Instant::now();
            for _ in 0..200 {
                result = rate.wait_for(tokio::time::sleep(Duration::from_secs(pause))).await;
                if result.is_err() {
                    break;
                }
                rate.came(bytes);
                // Time that the disk takes.
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            assert_eq!(result.is_ok(), is_served, "{bytes} bytes each {pause} s");
            assert!(is_served || began.elapsed() < Duration::from_secs(300));
        }
    }
}

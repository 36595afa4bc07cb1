//! Where the bytes of a download go.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::error::DownloadError;
use super::hasher::Hasher;
use super::part_file::PartFile;
use crate::answer::{Digest, DigestAlgorithm};

/// Bytes that come before their turn are held, up to so many behind the last that was taken.
pub(super) const WINDOW_BYTES: u64 = 32 << 20;

/// Where a download is to go.
pub enum Target {
    /// To a file, which has its place when it is complete.
    File {
        /// Its place. `PLACE.parts` and `PLACE.parts.json` are beside it meanwhile.
        place: PathBuf,
        /// Use what an earlier attempt left.
        resume: bool,
    },
    /// To whoever takes it in order while it comes.
    Stream(Box<dyn AsyncWrite + Send + Sync + Unpin>),
}

/// An output in use.
pub(super) enum Output {
    File(PartFile),
    Stream(Ordered),
}

/// What comes in any order goes out in order.
pub(super) struct Ordered {
    to: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    next: u64,
    held: BTreeMap<u64, Bytes>,
    hashers: Vec<(DigestAlgorithm, Hasher)>,
}

impl Ordered {
    pub(super) fn new(to: Box<dyn AsyncWrite + Send + Sync + Unpin>) -> Self {
        let hashers = [DigestAlgorithm::Sha256, DigestAlgorithm::Sha512];
        Self {
            to,
            next: 0,
            held: BTreeMap::new(),
            hashers: hashers.map(|algorithm| (algorithm, Hasher::new(algorithm))).into(),
        }
    }

    /// Which digests may be asked for at the end. Before the first byte.
    fn expect(&mut self, digests: &[Digest]) {
        if self.next == 0 {
            self.hashers.retain(|(algorithm, _)| digests.iter().any(|digest| digest.algorithm == *algorithm));
        }
    }

    async fn write(&mut self, range: Range<u64>, bytes: Bytes) -> io::Result<()> {
        self.held
            .entry(range.start)
            .and_modify(|held| {
                if held.len() < bytes.len() {
                    *held = bytes.clone();
                }
            })
            .or_insert(bytes);
        while let Some(first) = self.held.first_entry()
            && *first.key() <= self.next
        {
            let (start, mut bytes) = first.remove_entry();
            let known = usize::try_from(self.next - start).unwrap_or(usize::MAX).min(bytes.len());
            bytes.advance(known);
            self.hashers.iter_mut().for_each(|(_, hasher)| hasher.update(&bytes));
            self.to.write_all(&bytes).await?;
            self.next += bytes.len() as u64;
        }
        Ok(())
    }
}

impl Output {
    /// Which digests will be compared.
    pub(super) fn expect(&mut self, digests: &[Digest]) {
        if let Self::Stream(ordered) = self {
            ordered.expect(digests);
        }
    }

    /// Takes bytes of the file.
    pub(super) async fn write(&mut self, range: Range<u64>, bytes: Bytes) -> Result<(), DownloadError> {
        match self {
            Self::File(file) => file.write(range.start, &bytes).map_err(|cause| unwritten(file, cause)),
            Self::Stream(ordered) => ordered.write(range, bytes).await.map_err(DownloadError::Output),
        }
    }

    /// The first byte for which there is no room yet.
    pub(super) fn horizon(&self) -> u64 {
        match self {
            Self::File(_) => u64::MAX,
            Self::Stream(ordered) => ordered.next + WINDOW_BYTES,
        }
    }

    /// All is there: it is compared with digests.
    pub(super) async fn compare(&mut self, total: u64, digests: &[Digest]) -> Result<(), DownloadError> {
        match self {
            Self::File(file) => {
                for digest in digests {
                    let (source, algorithm) = (file.try_clone(), digest.algorithm);
                    let found = tokio::task::spawn_blocking(move || hash(source?, algorithm, total)).await;
                    let found = found.map_err(io::Error::other).and_then(|found| found);
                    let found = found.map_err(|cause| unwritten(file, cause))?;
                    compare(digest, &found)?;
                }
                Ok(())
            }
            Self::Stream(ordered) => {
                ordered.to.flush().await.map_err(DownloadError::Output)?;
                for (algorithm, hasher) in ordered.hashers.drain(..) {
                    if let Some(digest) = digests.iter().find(|digest| digest.algorithm == algorithm) {
                        compare(digest, &hasher.finish())?;
                    }
                }
                Ok(())
            }
        }
    }

    /// What was compared gets its place.
    pub(super) fn finish(self, total: u64) -> Result<(), DownloadError> {
        let Self::File(file) = self else { return Ok(()) };
        let place = file.place().to_path_buf();
        file.finish(total).map_err(|cause| DownloadError::Write { place, cause })
    }
}

pub(super) fn unwritten(file: &PartFile, cause: io::Error) -> DownloadError {
    DownloadError::Write { place: file.place().into(), cause }
}

/// Compares what is all there already.
pub(super) fn check(bytes: &[Bytes], digests: &[Digest]) -> Result<(), DownloadError> {
    digests.iter().try_for_each(|digest| {
        let mut hasher = Hasher::new(digest.algorithm);
        bytes.iter().for_each(|bytes| hasher.update(bytes));
        compare(digest, &hasher.finish())
    })
}

fn hash(mut file: std::fs::File, algorithm: DigestAlgorithm, total: u64) -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(0))?;
    let mut source = file.take(total);
    let (mut hasher, mut buffer) = (Hasher::new(algorithm), vec![0; 1 << 20]);
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&buffer[..read]),
        }
    }
}

fn compare(expected: &Digest, found: &[u8]) -> Result<(), DownloadError> {
    if expected.value == found {
        return Ok(());
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Err(DownloadError::Digest {
        what: expected.algorithm.name(),
        expected: hex(&expected.value),
        found: hex(found),
    })
}

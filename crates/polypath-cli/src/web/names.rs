//! The names that a file has while it is downloaded, and what becomes of what had them before.

use std::fs;
use std::io;
use std::path::PathBuf;

use url::Url;

use super::blocking::blocking;
use super::client::Error;
use super::download_error::DownloadError;
use super::identity::Identity;
use super::part::{Sink, discard, give_back};

/// Where the bytes are from that a download goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// They have the name of a part.
    Part,
    /// They have the final name: nobody knows where they are from.
    Final,
    /// So many of them had the final name, and are in the part now.
    Adopted(u64),
}

impl Origin {
    pub(super) fn of_part(adopted_bytes: Option<u64>) -> Self {
        adopted_bytes.map_or(Self::Part, Self::Adopted)
    }

    pub(super) fn adopted_bytes(self) -> Option<u64> {
        if let Self::Adopted(bytes) = self { Some(bytes) } else { None }
    }
}

/// The names of a file.
pub(super) struct Files {
    /// Its final name.
    pub(super) place: PathBuf,
    /// Its name until it is all there.
    pub(super) part: PathBuf,
}

impl Files {
    /// What has no name that can be taken back.
    pub(super) fn of_stream() -> Self {
        Self { place: "output".into(), part: "output".into() }
    }

    pub(super) fn interrupted(&self, kept_bytes: u64, is_resumable: bool) -> DownloadError {
        let (place, part) = (self.place.clone(), self.part.clone());
        DownloadError::Interrupted { place, part, kept_bytes, is_resumable }
    }

    /// All of it came.
    pub(super) fn uncompared(&self, bytes: u64, part: Option<PathBuf>, source: Error) -> DownloadError {
        DownloadError::Uncompared { place: self.place.clone(), bytes, part, source: source.into() }
    }

    pub(super) fn unopened(&self, source: io::Error) -> DownloadError {
        match source.kind() {
            io::ErrorKind::WouldBlock => DownloadError::Busy(self.part.clone()),
            _ => DownloadError::Open { place: self.part.clone(), source },
        }
    }

    /// Gives the part its final name.
    pub(super) async fn finish(&self, sink: Sink) -> Result<(), DownloadError> {
        let (part, place) = (self.part.clone(), self.place.clone());
        let finished = blocking(move || sink.finish(&part, &place)).await;
        finished.map_err(|source| DownloadError::Write { place: self.place.clone(), source })
    }

    /// Makes a part of what has the final name, which is gone on with. Its record says what it was.
    pub(super) fn adopt(&self, sink: &mut Sink, file: &Identity) -> Result<(), DownloadError> {
        let own = sink.own_alone();
        own.map_err(|source| DownloadError::Open { place: self.place.clone(), source })?;
        sink.keep_record(&self.part, file.clone(), Some(sink.bytes()));
        let adopted = sink.note().and_then(|()| fs::rename(&self.place, &self.part));
        adopted.map_err(|error| self.unopened(error))
    }

    /// What was made a part gets its name back, or another one if that is taken.
    pub(super) fn give_back(&self) -> io::Result<bool> {
        let is_free = fs::symlink_metadata(&self.place).is_err();
        let name = if is_free { self.place.clone() } else { self.rejected() };
        give_back(&self.part, &name)
    }

    /// Removes the part, but not what somebody else made.
    pub(super) fn discard(&self) -> Result<(), DownloadError> {
        let discarded = self.give_back().and_then(|_| discard(&self.part));
        discarded.map_err(|error| self.unopened(error))
    }

    fn rejected(&self) -> PathBuf {
        let mut name = self.place.as_os_str().to_owned();
        name.push(".rejected");
        name.into()
    }

    pub(super) fn damaged(&self, url: &Url, kept: Option<PathBuf>) -> DownloadError {
        match self.discard() {
            Ok(()) => DownloadError::Damaged { place: self.place.clone(), url: Box::new(url.clone()), kept },
            Err(error) => error,
        }
    }

    /// The part is none of the file's. What somebody else put there is kept, as it was, under a third name.
    pub(super) fn reject(&self, origin: Origin, url: &Url) -> DownloadError {
        let kept = self.rejected();
        let is_kept = match origin {
            Origin::Part => Ok(false),
            Origin::Final => fs::rename(&self.place, &kept).map(|()| true),
            Origin::Adopted(_) => give_back(&self.part, &kept),
        };
        match is_kept {
            Ok(is_kept) => self.damaged(url, is_kept.then_some(kept)),
            Err(error) => self.unopened(error),
        }
    }

    /// A part of nothing tells nothing.
    pub(super) fn remove_if_empty(&self) {
        if fs::metadata(&self.part).is_ok_and(|part| part.len() == 0) {
            // It does no harm if it stays.
            let _ = discard(&self.part);
        }
    }
}

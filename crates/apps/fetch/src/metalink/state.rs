//! What was read of a Metalink so far.

use url::Url;

use super::file::{Error, File, Metalink};
use crate::answer::{Digest, DigestAlgorithm};
use crate::download::Pieces;

/// Files of a document.
const MAX_FILES: usize = 1000;
/// Places of a file.
const MAX_URLS: usize = 100;
/// Pieces of a file.
const MAX_PIECES: usize = 40_000;
/// The priority of a place that tells none (RFC 5854 §4.2.16).
const LEAST_PRIORITY: u32 = 999_999;
/// Of these, the strongest counts.
const ALGORITHMS: [DigestAlgorithm; 2] = [DigestAlgorithm::Sha512, DigestAlgorithm::Sha256];

#[derive(Debug, Default)]
pub(super) struct State {
    found: Metalink,
    name: String,
    size_bytes: Option<u64>,
    digests: Vec<Digest>,
    /// With their priorities.
    urls: Vec<(u32, Url)>,
    pieces: Option<Pieces>,
    /// Of the element that is open: what kind of digest, and which priority.
    kind: Option<DigestAlgorithm>,
    priority: u32,
    /// Of the pieces that are open.
    piece_kind: Option<DigestAlgorithm>,
    piece_bytes: Option<u64>,
    piece_digests: Vec<Vec<u8>>,
}

impl State {
    pub(super) fn begin(&mut self, open: &[String], attributes: &[(String, String)]) -> Result<(), String> {
        let value =
            |name: &str| attributes.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
        let is_kind = |known: &DigestAlgorithm| {
            value("type").is_some_and(|kind| kind.eq_ignore_ascii_case(known.name()))
        };
        let kind = || ALGORITHMS.into_iter().find(is_kind);
        let open: Vec<&str> = open.iter().map(String::as_str).collect();
        match open[..] {
            [root] if root != "metalink" => return Err(format!("the root is {root:.40}; expected metalink")),
            ["metalink", "file"] => {
                let found = std::mem::take(&mut self.found);
                *self = Self { found, name: value("name").unwrap_or_default().into(), ..Self::default() };
            }
            ["metalink", "file", "hash"] => self.kind = kind(),
            ["metalink", "file", "url"] => {
                let priority = value("priority").and_then(|priority| priority.trim().parse().ok());
                self.priority = priority.filter(|priority| *priority > 0).unwrap_or(LEAST_PRIORITY);
            }
            ["metalink", "file", "pieces"] => {
                self.piece_kind = kind();
                self.piece_bytes = value("length").and_then(|length| length.trim().parse().ok());
                self.piece_digests.clear();
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn end(&mut self, open: &[String], text: &str) -> Result<(), Error> {
        let open: Vec<&str> = open.iter().map(String::as_str).collect();
        match open[..] {
            ["metalink", "file", "size"] => {
                let size = text.parse().map_err(|_| self.unreadable("size"))?;
                self.size_bytes = Some(size);
            }
            ["metalink", "file", "hash"] => {
                let Some(algorithm) = self.kind else { return Ok(()) };
                let digest = Digest::from_hex(algorithm, text).ok_or_else(|| self.unreadable("hash"))?;
                if self.digests.iter().all(|known| known.algorithm != algorithm) {
                    self.digests.push(digest);
                }
            }
            ["metalink", "file", "url"] => {
                let url = Url::parse(text).ok();
                let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
                if let Some(url) = url.filter(|_| self.urls.len() < MAX_URLS) {
                    self.urls.push((self.priority, url));
                }
            }
            ["metalink", "file", "pieces", "hash"] => {
                let Some(kind) = self.piece_kind else { return Ok(()) };
                let digest =
                    Digest::from_hex(kind, text).ok_or_else(|| self.unreadable("hash of a piece"))?;
                if self.piece_digests.len() >= MAX_PIECES {
                    return Err(Error::Pieces(self.shown_name()));
                }
                self.piece_digests.push(digest.value);
            }
            ["metalink", "file", "pieces"] => self.end_pieces()?,
            ["metalink", "file"] => self.end_file()?,
            _ => {}
        }
        Ok(())
    }

    fn end_pieces(&mut self) -> Result<(), Error> {
        let digests = std::mem::take(&mut self.piece_digests);
        let Some(algorithm) = self.piece_kind.filter(|_| self.pieces.is_none()) else { return Ok(()) };
        let pieces = self.piece_bytes.and_then(|bytes| Pieces::new(algorithm, bytes, digests));
        self.pieces = Some(pieces.ok_or_else(|| Error::Pieces(self.shown_name()))?);
        Ok(())
    }

    fn unreadable(&self, what: &'static str) -> Error {
        Error::Unreadable { name: self.shown_name(), what }
    }

    fn end_file(&mut self) -> Result<(), Error> {
        if self.urls.is_empty() {
            self.found.placeless.push(self.shown_name());
            return Ok(());
        }
        if self.found.files.len() >= MAX_FILES {
            self.found.beyond += 1;
            return Ok(());
        }
        let wrong = || Error::Name(self.shown_name());
        let name = plain_name(&self.name).ok_or_else(wrong)?.to_owned();
        if name.starts_with('.') {
            return Err(Error::Hidden(self.shown_name()));
        }
        // Their folders are not made: one would take the place of the other.
        if self.found.files.iter().any(|file| file.name == name) {
            return Err(Error::Twice(self.shown_name()));
        }
        self.urls.sort_by_key(|(priority, _)| *priority);
        let urls = std::mem::take(&mut self.urls).into_iter().map(|(_, url)| url).collect();
        let pieces = self.pieces.take();
        let do_fit = |size| pieces.as_ref().is_none_or(|pieces| pieces.fit(size));
        if !self.size_bytes.is_none_or(do_fit) {
            return Err(Error::Pieces(self.shown_name()));
        }
        let digests = std::mem::take(&mut self.digests);
        self.found.files.push(File { name, size_bytes: self.size_bytes, digests, pieces, urls });
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Metalink, Error> {
        if self.found.files.is_empty() { Err(Error::Empty) } else { Ok(self.found) }
    }

    fn shown_name(&self) -> String {
        self.name.chars().take(80).collect()
    }
}

/// The last part of a name that leads nowhere else (RFC 5854 §4.1.2.1). Folders are not made.
fn plain_name(name: &str) -> Option<&str> {
    let is_plain = |part: &str| !["", ".", "..", "-"].contains(&part);
    // Nor may it change how the name reads.
    let turns_text = |letter| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_clear = !name.contains(|letter: char| letter.is_control() || letter == '\\' || turns_text(letter));
    (is_clear && name.split('/').all(is_plain)).then(|| name.rsplit('/').next())?
}

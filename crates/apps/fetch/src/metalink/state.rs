//! What was read of a Metalink so far.

use url::Url;

use super::file::{Error, File};
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
    files: Vec<File>,
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
        let kind = || ALGORITHMS.into_iter().find(|known| value("type") == Some(known.name()));
        let open: Vec<&str> = open.iter().map(String::as_str).collect();
        match open[..] {
            [root] if root != "metalink" => return Err(format!("the root is {root:.40}; expected metalink")),
            ["metalink", "file"] => {
                let files = std::mem::take(&mut self.files);
                *self = Self { files, name: value("name").unwrap_or_default().into(), ..Self::default() };
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
            ["metalink", "file", "size"] => self.size_bytes = text.parse().ok(),
            ["metalink", "file", "hash"] => {
                if let Some(algorithm) = self.kind
                    && let Some(value) = hex(text, algorithm)
                    && self.digests.iter().all(|known| known.algorithm != algorithm)
                {
                    self.digests.push(Digest { algorithm, value });
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
                // One that can't be read would make those behind it be of other pieces.
                let digest = self.piece_kind.and_then(|kind| hex(text, kind)).unwrap_or_default();
                if self.piece_digests.len() <= MAX_PIECES {
                    self.piece_digests.push(digest);
                }
            }
            ["metalink", "file", "pieces"] => self.end_pieces(),
            ["metalink", "file"] => self.end_file()?,
            _ => {}
        }
        Ok(())
    }

    fn end_pieces(&mut self) {
        let digests = std::mem::take(&mut self.piece_digests);
        let is_whole = digests.len() <= MAX_PIECES && digests.iter().all(|digest| !digest.is_empty());
        let (Some(algorithm), Some(bytes), true) = (self.piece_kind, self.piece_bytes, is_whole) else {
            return;
        };
        if self.pieces.is_none() {
            self.pieces = Pieces::new(algorithm, bytes, digests);
        }
    }

    fn end_file(&mut self) -> Result<(), Error> {
        if self.urls.is_empty() || self.files.len() >= MAX_FILES {
            return Ok(());
        }
        let wrong = || Error::Name(self.name.chars().take(80).collect());
        let name = plain_name(&self.name).ok_or_else(wrong)?.to_owned();
        if name.starts_with('.') {
            return Err(Error::Hidden(name.chars().take(80).collect()));
        }
        self.urls.sort_by_key(|(priority, _)| *priority);
        let urls = std::mem::take(&mut self.urls).into_iter().map(|(_, url)| url).collect();
        let pieces = self.pieces.take().filter(|pieces| self.size_bytes.is_some_and(|size| pieces.fit(size)));
        let digests = std::mem::take(&mut self.digests);
        self.files.push(File { name, size_bytes: self.size_bytes, digests, pieces, urls });
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Vec<File>, Error> {
        if self.files.is_empty() { Err(Error::Empty) } else { Ok(self.files) }
    }
}

/// The last part of a name that leads nowhere else (RFC 5854 §4.1.2.1). Folders are not made.
fn plain_name(name: &str) -> Option<&str> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    // Nor may it change how the name reads.
    let turns_text = |letter| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_clear = !name.contains(|letter: char| letter.is_control() || letter == '\\' || turns_text(letter));
    (is_clear && name.split('/').all(is_plain)).then(|| name.rsplit('/').next())?
}

fn hex(text: &str, algorithm: DigestAlgorithm) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok();
    (is_hex && text.len() == 2 * algorithm.length()).then(|| (0..text.len() / 2).map(byte).collect())?
}

use url::Url;

use super::error::Error;
use super::limits::{MAX_SEGMENTS_IN_ALL, MAX_URL_BYTES};
use super::resource::Resource;

/// Bytes of the URLs of all segments.
const MAX_URL_BYTES_IN_ALL: usize = 64 << 20;

/// What a presentation may still take: a short manifest can describe a great many segments.
#[derive(Debug)]
pub(super) struct Budget {
    segments: usize,
    url_bytes: usize,
}

impl Budget {
    pub(super) const fn new() -> Self {
        Self { segments: MAX_SEGMENTS_IN_ALL, url_bytes: MAX_URL_BYTES_IN_ALL }
    }

    /// Takes one more segment.
    pub(super) fn take(&mut self, resource: &Resource) -> Result<(), Error> {
        let left = |have: usize, took: usize| have.checked_sub(took).ok_or(Error::TooManySegments);
        self.segments = left(self.segments, 1)?;
        self.url_bytes = left(self.url_bytes, resource.url().as_str().len())?;
        Ok(())
    }
}

/// A URL as RFC 3986 (section 5) has it relative to another.
pub(super) fn join(base: &Url, reference: &str, line: usize) -> Result<Url, Error> {
    if reference.len() > MAX_URL_BYTES {
        return Err(Error::LongUrl(line));
    }
    let url = base.join(reference.trim()).map_err(|error| {
        Error::malformed(line, format!("{} is no URL: {error}", super::error::quoted(reference)))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::unsupported(line, format!("a URL of scheme {:?}", url.scheme())));
    }
    // As a redirection from https to http: who reads along could send something else, or see what is played.
    if (base.scheme(), url.scheme()) == ("https", "http") {
        let what = "an http:// URL in a manifest that came over https";
        return Err(Error::unsupported(line, what));
    }
    if url.as_str().len() > MAX_URL_BYTES { Err(Error::LongUrl(line)) } else { Ok(url) }
}

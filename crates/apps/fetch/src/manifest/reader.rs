use std::time::SystemTime;

use url::Url;

use super::dash;
use super::error::Error;
use super::hls;
use super::limits::MAX_MANIFEST_BYTES;
use super::presentation::Presentation;
use super::resource::Resource;

/// A manifest, and what else has to be read to know the stream. It has no sockets and no clock: its owner fetches.
///
/// After [`Manifest::parse`] and [`Manifest::refresh`], all that [`Manifest::poll_fetch`] names is fetched and given to
/// [`Manifest::handle_fetched`]. Then there is a [`Manifest::presentation`].
#[derive(Debug)]
pub struct Manifest {
    format: Format,
}

#[derive(Debug)]
enum Format {
    Dash(dash::Source),
    Hls(hls::Source),
}

impl Manifest {
    /// Reads what a URL gave. `url` is where it was found in the end, behind all redirections: what it names is relative to that
    /// (RFC 3986, section 5.1.3).
    pub fn parse(bytes: &[u8], url: &Url, content_type: Option<&str>) -> Result<Self, Error> {
        let text = text(bytes)?;
        let format = if is_playlist(text) {
            Format::Hls(hls::Source::parse(text, url)?)
        } else if is_mpd(text) {
            Format::Dash(dash::Source::parse(text, url)?)
        } else {
            return Err(Error::UnknownFormat { content_type: content_type.map(str::to_owned) });
        };
        Ok(Self { format })
    }

    /// What has to be fetched next.
    #[must_use]
    pub fn poll_fetch(&mut self) -> Option<Resource> {
        match &mut self.format {
            Format::Dash(source) => source.poll_fetch(),
            Format::Hls(source) => source.poll_fetch(),
        }
    }

    /// Takes what was fetched, found in the end at `url`.
    pub fn handle_fetched(&mut self, asked: &Resource, url: &Url, bytes: &[u8]) -> Result<(), Error> {
        let handled = match &mut self.format {
            Format::Dash(source) if source.is_index(asked) => source.load_index(asked, bytes),
            Format::Dash(source) => text(bytes).and_then(|text| source.reload(asked.url(), url, text)),
            Format::Hls(source) => text(bytes).and_then(|text| {
                if is_playlist(text) { source.load(asked.url(), url, text) } else { Err(no_playlist()) }
            }),
        };
        handled.map_err(|error| error.within(url))
    }

    /// How what a resource gives is told from something else, such as a page, before it is given to [`Manifest::handle_fetched`].
    #[must_use]
    pub fn check_of(&self, asked: &Resource) -> Check {
        match &self.format {
            Format::Hls(_) => Check(Kind::Playlist),
            Format::Dash(source) if source.is_index(asked) => Check(Kind::Index),
            Format::Dash(_) => Check(Kind::Mpd),
        }
    }

    /// What was asked for can't be had. Fails if there is no stream without it.
    pub fn handle_unavailable(&mut self, asked: &Resource) -> Result<(), Error> {
        match &mut self.format {
            Format::Dash(_) => Err(Error::NoTrack(format!("{asked} can't be had"))),
            Format::Hls(source) => source.leave_out(asked.url()),
        }
    }

    /// Reads anew what may have changed. Of an HLS stream's qualities only one is needed, the one that is played.
    pub fn refresh(&mut self, quality: Option<usize>) {
        match &mut self.format {
            Format::Dash(source) => source.refresh(),
            Format::Hls(source) => source.refresh(quality),
        }
    }

    /// The stream at a time. Fails while something has to be fetched.
    pub fn presentation(&mut self, now: SystemTime) -> Result<Presentation, Error> {
        match &mut self.format {
            Format::Dash(source) => source.presentation(now),
            Format::Hls(source) => source.presentation(),
        }
    }
}

/// What something that was asked for has to be.
#[derive(Clone, Copy, Debug)]
pub struct Check(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Playlist,
    Mpd,
    Index,
}

impl Check {
    /// Whether it may be what was asked for.
    pub fn check(self, bytes: &[u8]) -> Result<(), Error> {
        match self.0 {
            Kind::Index => dash::check_index(bytes),
            Kind::Playlist if !is_playlist(text(bytes)?) => Err(no_playlist()),
            Kind::Mpd if !is_mpd(text(bytes)?) => Err(Error::UnknownFormat { content_type: None }),
            Kind::Playlist | Kind::Mpd => Ok(()),
        }
    }
}

fn is_mpd(text: &str) -> bool {
    text.trim_start().starts_with('<') && text.contains("MPD")
}

fn no_playlist() -> Error {
    Error::malformed(1, "a playlist doesn't begin with #EXTM3U")
}

/// UTF-8, perhaps with a byte order mark, as both formats have it.
fn text(bytes: &[u8]) -> Result<&str, Error> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(Error::TooLong(bytes.len()));
    }
    let text = str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::malformed(line, "what should be text (UTF-8) is none")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn is_playlist(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.trim_end() == "#EXTM3U")
}

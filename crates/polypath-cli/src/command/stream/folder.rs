//! The folder that players find the stream in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polypath_fetch::manifest::{LocalPlaylist, Presentation, TrackKind, multivariant_playlist};
use polypath_fetch::streaming::Fetched;
use sha2::{Digest as _, Sha256};

use super::super::{Failure, is_full};
use super::temporary::Temporary;

/// The page that plays it, and what that needs.
const PAGE: [(&str, &[u8]); 2] =
    [("index.html", include_bytes!("page/index.html")), ("hls.js", include_bytes!("page/hls.min.js"))];
/// What players are given.
pub(super) const PLAYLIST: &str = "stream.m3u8";

/// Playlists have all that is there so soon, while segments come one upon the other.
const PAUSE: Duration = Duration::from_millis(250);
/// The first segments are in playlists at once: a player waits for them.
const FIRST_SEGMENTS: u64 = 10;

/// A folder that goes at the end, or stays.
pub(super) struct Folder {
    path: PathBuf,
    /// Removes it.
    _temporary: Option<Temporary>,
    main: Option<Rendition>,
    audio: Option<Rendition>,
    /// When the playlists were written, and whether they lack something.
    written: Option<Instant>,
    is_stale: bool,
}

/// The playlist of a track.
struct Rendition {
    file: &'static str,
    word: &'static str,
    playlist: LocalPlaylist,
    segments: u64,
    /// The files of what players need before segments, by what is in them.
    inits: HashMap<[u8; 32], String>,
}

/// A track in a file's name.
pub(super) const fn word(track: TrackKind) -> &'static str {
    match track {
        TrackKind::Video => "video",
        TrackKind::Audio => "audio",
    }
}

impl Folder {
    pub(super) fn create(place: Option<&Path>) -> Result<Self, Failure> {
        let (path, temporary) = match place {
            Some(place) => {
                let wrong = |problem: String| {
                    Failure::Input(format!(
                        "{}: {problem}; expected an empty folder, or a new one",
                        place.display()
                    ))
                };
                fs::create_dir_all(place).map_err(|error| wrong(error.to_string()))?;
                let mut entries = fs::read_dir(place).map_err(|error| wrong(error.to_string()))?;
                if entries.next().is_some() {
                    return Err(wrong("is not empty".into()));
                }
                (place.to_path_buf(), None)
            }
            None => {
                let failed = |error| Failure::Run(format!("can't make a folder for the stream: {error}"));
                let folder = Temporary::create().map_err(failed)?;
                (folder.path().to_path_buf(), Some(folder))
            }
        };
        let folder =
            Self { path, _temporary: temporary, main: None, audio: None, written: None, is_stale: false };
        for (name, content) in PAGE {
            folder.write(name, content)?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A file at once, or as it was: whoever reads it meanwhile reads one of both.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let (place, part) = (self.path.join(name), self.path.join(format!(".{name}")));
        let written = fs::write(&part, content).and_then(|()| fs::rename(&part, &place));
        written.map_err(|error| {
            let _ = fs::remove_file(&part);
            failed(&place, &error)
        })
    }

    /// The stream's tracks are known.
    pub(super) fn begin(&mut self, presentation: &Presentation) -> Result<(), Failure> {
        let target = presentation.target_duration();
        let rendition = |file, word| Rendition {
            file,
            word,
            playlist: LocalPlaylist::new(target),
            segments: 0,
            inits: HashMap::new(),
        };
        let word = word(presentation.main().kind());
        match presentation.audio() {
            None => self.main = Some(rendition(PLAYLIST, word)),
            Some(audio) => {
                self.main = Some(rendition("main.m3u8", word));
                self.audio = Some(rendition("sound.m3u8", "sound"));
                let both = multivariant_playlist(presentation.main(), "main.m3u8", audio, "sound.m3u8");
                // Players read it once: there has to be something to play.
                self.write(PLAYLIST, both.as_bytes())?;
            }
        }
        self.write_playlists()
    }

    /// A segment more.
    pub(super) fn add(&mut self, fetched: &Fetched) -> Result<(), Failure> {
        let is_beside = fetched.track == TrackKind::Audio && self.audio.is_some();
        let slot = if is_beside { &mut self.audio } else { &mut self.main };
        let Some(mut rendition) = slot.take() else { return Ok(()) };
        let added = self.add_to(&mut rendition, fetched);
        let slot = if is_beside { &mut self.audio } else { &mut self.main };
        let is_first = rendition.segments <= FIRST_SEGMENTS;
        *slot = Some(rendition);
        added?;
        self.is_stale = true;
        if is_first || self.written.is_none_or(|written| written.elapsed() >= PAUSE) {
            self.flush()?;
        }
        Ok(())
    }

    /// Playlists have all that is there.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.is_stale) {
            return Ok(());
        }
        self.written = Some(Instant::now());
        self.write_playlists()
    }

    fn add_to(&self, rendition: &mut Rendition, fetched: &Fetched) -> Result<(), Failure> {
        let count = rendition.inits.len();
        let init = match &fetched.init {
            None => None,
            Some(bytes) => match rendition.inits.entry(Sha256::digest(bytes).into()) {
                Entry::Occupied(known) => Some(known.get().clone()),
                Entry::Vacant(new) => {
                    let name = format!("{}-{count}.mp4", rendition.word);
                    self.write(&name, bytes)?;
                    Some(new.insert(name).clone())
                }
            },
        };
        let ending = if init.is_some() { "m4s" } else { "ts" };
        let name = format!("{}-{:06}.{ending}", rendition.word, rendition.segments);
        self.write(&name, &fetched.bytes)?;
        let pushed = rendition.playlist.push(&fetched.quality, &fetched.segment, &name, init.as_deref());
        pushed.map_err(Failure::run)?;
        rendition.segments += 1;
        Ok(())
    }

    /// Nothing follows.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        for rendition in self.main.iter_mut().chain(&mut self.audio) {
            rendition.playlist.end();
        }
        self.write_playlists()
    }

    fn write_playlists(&self) -> Result<(), Failure> {
        let renditions = self.main.iter().chain(&self.audio);
        renditions
            .into_iter()
            .try_for_each(|rendition| self.write(rendition.file, rendition.playlist.to_string().as_bytes()))
    }
}

fn failed(place: &Path, error: &io::Error) -> Failure {
    let what = if is_full(error) { "there is no room" } else { "can't be written" };
    Failure::Run(format!("{}: {what}: {error}", place.display()))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use tempfile::TempDir;

    use polypath_fetch::manifest::Manifest;

    use super::*;

    /// Browsers refuse what has another sum (Content-Security-Policy). `node tests/stream_page/sums.mjs --write` renews both.
    #[test]
    fn the_page_allows_its_own_style_and_script() {
        let page = str::from_utf8(PAGE[0].1).expect("text");
        for tag in ["style", "script"] {
            let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
            let text =
                page.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).expect("an element").0;
            let sum = format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)));
            assert!(page.contains(&sum), "{tag}: the page changed, and its sums did not; expected {sum}");
        }
    }

    #[test]
    fn a_folder_that_holds_something_is_left_alone() {
        let place = TempDir::new().expect("a folder");
        fs::write(place.path().join("mine"), "text").expect("a file");
        let refused = Folder::create(Some(place.path()));
        assert!(matches!(refused, Err(Failure::Input(message)) if message.contains("is not empty")));
        assert_eq!(fs::read_dir(place.path()).expect("entries").count(), 1);
    }

    #[test]
    fn a_folder_of_its_own_goes_at_the_end() {
        let folder = Folder::create(None).unwrap_or_else(|_| panic!("a folder"));
        let place = folder.path().to_path_buf();
        assert!(place.join("index.html").exists() && place.join("hls.js").exists());
        drop(folder);
        assert!(!place.exists());
    }

    #[test]
    fn playlists_are_not_written_for_each_of_many_segments() {
        let text: String = (0..2000).map(|at| format!("#EXTINF:0.001,\n{at}.ts\n")).collect();
        let text = format!("#EXTM3U\n{text}#EXT-X-ENDLIST\n");
        let url = url::Url::parse("http://h.example/m").expect("a URL");
        let mut manifest = Manifest::parse(text.as_bytes(), &url, None).expect("a manifest");
        let presentation = manifest.presentation(std::time::SystemTime::UNIX_EPOCH).expect("a stream");
        let mut folder = Folder::create(None).unwrap_or_else(|_| panic!("a folder"));
        let ok = |done: Result<(), Failure>| assert!(done.is_ok());
        ok(folder.begin(&presentation));
        let listed = |folder: &Folder| {
            let text = fs::read_to_string(folder.path().join(PLAYLIST)).expect("a playlist");
            text.matches("#EXTINF").count()
        };
        let quality = &presentation.main().qualities()[0];
        let began = Instant::now();
        let (mut writings, mut before) = (0, 0);
        for segment in quality.segments() {
            let track = presentation.main().kind();
            let (quality, segment) = (quality.clone(), segment.clone());
            ok(folder.add(&Fetched { track, quality, segment, init: None, bytes: "a".into() }));
            let now = listed(&folder);
            writings += u32::from(now != before);
            before = now;
        }
        let most = FIRST_SEGMENTS as u32 + 1 + (began.elapsed().as_millis() / PAUSE.as_millis()) as u32;
        assert!((10..=most).contains(&writings), "{writings}");
        ok(folder.flush());
        assert_eq!(listed(&folder), 2000);
    }
}

use std::collections::VecDeque;
use std::sync::Arc;

use polypath_units::{BitRate, Duration};
use url::Url;

use super::media::MediaPlaylist;
use super::multivariant::{Named, is_multivariant, select};
use crate::manifest::error::Error;
use crate::manifest::presentation::{Container, Presentation, Quality, Segment, Track, TrackKind};
use crate::manifest::resource::Resource;
use crate::shown::without_user;

/// A stream of HLS: its renditions, each with its media playlist as it was read last.
#[derive(Debug)]
pub(in crate::manifest) struct Source {
    kind: TrackKind,
    main: Vec<Rendition>,
    audio: Option<Rendition>,
    to_fetch: VecDeque<Url>,
    /// The segments of what was read first, by which the others find their time.
    anchor: Arc<[Segment]>,
}

#[derive(Debug)]
struct Rendition {
    named: Named,
    loaded: Option<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    target_duration: Duration,
    container: Container,
    segments: Arc<[Segment]>,
    has_ended: bool,
}

impl Source {
    pub(in crate::manifest) fn parse(text: &str, url: &Url) -> Result<Self, Error> {
        if !is_multivariant(text) {
            // One playlist is all there is.
            let named = Named { url: url.clone(), bit_rate: BitRate::ZERO, resolution: None, codecs: None };
            let mut source = Self::new(TrackKind::Video, vec![named], None);
            source.to_fetch.clear();
            source.load(url, url, text)?;
            return Ok(source);
        }
        let selection = select(text, url)?;
        Ok(Self::new(selection.kind, selection.main, selection.audio))
    }

    fn new(kind: TrackKind, main: Vec<Named>, audio: Option<Named>) -> Self {
        let rendition = |named| Rendition { named, loaded: None };
        let to_fetch = main.iter().chain(&audio).map(|named| named.url.clone()).collect();
        let main = main.into_iter().map(rendition).collect();
        Self { kind, main, audio: audio.map(rendition), to_fetch, anchor: Arc::default() }
    }

    pub(in crate::manifest) fn poll_fetch(&mut self) -> Option<Resource> {
        self.to_fetch.pop_front().map(|url| Resource::new(url, None))
    }

    /// Reads what is live anew, of the main track perhaps only one quality.
    pub(in crate::manifest) fn refresh(&mut self, quality: Option<usize>) {
        let main = self.main.iter().enumerate();
        let main = main.filter(|(at, _)| quality.is_none_or(|quality| quality == *at)).map(|(_, main)| main);
        for rendition in main.chain(&self.audio) {
            let may_change = rendition.loaded.as_ref().is_none_or(|loaded| !loaded.has_ended);
            if may_change && !self.to_fetch.contains(&rendition.named.url) {
                self.to_fetch.push_back(rendition.named.url.clone());
            }
        }
    }

    /// Takes a media playlist. `url` is where it was found in the end.
    pub(in crate::manifest) fn load(&mut self, asked: &Url, url: &Url, text: &str) -> Result<(), Error> {
        let mut is_asked = false;
        for rendition in self.main.iter_mut().chain(&mut self.audio) {
            if rendition.named.url == *asked {
                is_asked = true;
                let list = MediaPlaylist::parse(text, url)?;
                let loaded = join_up(list, rendition.loaded.as_ref(), &self.anchor)?;
                if self.anchor.is_empty() {
                    self.anchor = Arc::clone(&loaded.segments);
                }
                rendition.loaded = Some(loaded);
            }
        }
        if is_asked { Ok(()) } else { Err(Error::Unasked(Box::new(asked.clone()))) }
    }

    /// Leaves a quality out that can't be had. Fails if it was the last one, or the sound.
    pub(in crate::manifest) fn leave_out(&mut self, asked: &Url) -> Result<(), Error> {
        if self.main.iter().any(|rendition| rendition.named.url != *asked) {
            self.main.retain(|rendition| rendition.named.url != *asked);
        }
        if self.main.iter().chain(&self.audio).any(|rendition| rendition.named.url == *asked) {
            return Err(Error::NoTrack(format!("{} can't be had", without_user(asked))));
        }
        Ok(())
    }

    pub(in crate::manifest) fn presentation(&self) -> Result<Presentation, Error> {
        let all = || self.main.iter().chain(&self.audio);
        if let Some(missing) = all().find(|rendition| rendition.loaded.is_none()) {
            return Err(Error::Waiting(Box::new(missing.named.url.clone())));
        }
        let is_live = all().filter_map(|rendition| rendition.loaded.as_ref()).any(|loaded| !loaded.has_ended);
        let target =
            all().filter_map(|rendition| rendition.loaded.as_ref()).map(|loaded| loaded.target_duration);
        let track = |kind, renditions: &[Rendition]| Track {
            kind,
            qualities: renditions.iter().filter_map(Rendition::quality).collect(),
        };
        let mut main = track(self.kind, &self.main);
        let is_packed = |quality: &Quality| quality.container == Container::PackedAudio;
        if main.qualities.iter().all(is_packed) {
            main.kind = TrackKind::Audio;
        }
        Ok(Presentation {
            is_live,
            refresh_after: is_live.then(|| target.max().unwrap_or_default().max(Duration::from_secs(1))),
            main,
            audio: self.audio.as_ref().map(|audio| track(TrackKind::Audio, std::slice::from_ref(audio))),
        })
    }
}

impl Rendition {
    fn quality(&self) -> Option<Quality> {
        let loaded = self.loaded.as_ref()?;
        Some(Quality {
            id: self.named.url.as_str().into(),
            bit_rate: self.named.bit_rate,
            resolution: self.named.resolution,
            codecs: self.named.codecs.as_deref().map(Into::into),
            container: loaded.container,
            segments: Arc::clone(&loaded.segments),
        })
    }
}

/// Puts the segments of a playlist where those of the same numbers were before. A playlist on demand begins at zero by itself.
fn join_up(list: MediaPlaylist, before: Option<&Loaded>, anchor: &[Segment]) -> Result<Loaded, Error> {
    let MediaPlaylist { target_duration, container, mut segments, has_ended } = list;
    let known = before.map_or(anchor, |before| &before.segments);
    let is_first = before.is_none() && has_ended;
    if let (Some(known_first), Some(known_last), false) = (known.first(), known.last(), is_first)
        && let (Some(first), Some(last)) = (segments.first(), segments.last())
    {
        if let Some(before) = before {
            if last.number < known_first.number {
                return Err(Error::Restarted { from: known_first.number, to: last.number });
            }
            // A cache gave an old copy.
            if last.number < known_last.number {
                return Ok(before.clone());
            }
        }
        let time_of = |segment: &Segment| i128::from(segment.start.as_nanos());
        let place = |list: &[Segment], number| list.binary_search_by_key(&number, |segment| segment.number);
        let shift = if let Ok(at) = place(known, first.number) {
            time_of(&known[at]) - time_of(first)
        } else if let Ok(at) = place(&segments, known_first.number) {
            time_of(known_first) - time_of(&segments[at])
        } else {
            // What lies between was never seen.
            let missed = i128::from(first.number) - i128::from(known_last.number) - 1;
            i128::from(known_last.end().as_nanos()) + missed * i128::from(target_duration.as_nanos())
                - time_of(first)
        };
        for segment in &mut segments {
            let start = (time_of(segment) + shift).clamp(0, i128::from(u64::MAX));
            segment.start = Duration::from_nanos(start as u64);
        }
    }
    Ok(Loaded { target_duration, container, segments: segments.into(), has_ended })
}
